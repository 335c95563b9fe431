# SPDX-License-Identifier: Apache-2.0
"""The merged metadata of all aggregates of a host."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from ..scheduler.hosts import HostAggregate

Metadata = Mapping[str, frozenset[str]]


def merged_metadata(aggregates: Iterable[HostAggregate]) -> Metadata:
    """Return the values of all aggregates by key, each value split at its commas."""
    merged: defaultdict[str, set[str]] = defaultdict(set)
    for aggregate in aggregates:
        for key, value in aggregate.metadata.items():
            merged[key].update(part.strip() for part in value.split(","))
    return {key: frozenset(values) for key, values in merged.items()}
