# SPDX-License-Identifier: Apache-2.0
"""Does the host have the capabilities that the flavor's extra specs require?"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..objects import RequestSpec
from ..scheduler.hosts import HostBatch, HostState
from ..scheduler.request import Request
from .base import Mask, no_hosts
from .extra_specs_ops import ExtraSpecsFilter, Requirement, match, match_numbers

_SCOPE = "capabilities"
_MAXPHYSADDR_BITS = "hw:maxphysaddr_bits"


class ComputeCapabilitiesFilter(ExtraSpecsFilter):
    """Pass hosts whose attributes satisfy the extra specs of scope ``capabilities:``.

    ``capabilities:cpu_info:topology:cores`` names an attribute and the keys below it;
    text on this path is parsed as JSON. An extra spec without a scope applies if its
    key is an attribute of the host or a key of its stats. A host does not pass if it
    lacks the value for an extra spec that applies.
    """

    REASON = "a capability that an extra spec asks for is missing or different"
    ROWWISE = True

    def reason_for(self, spec_obj: RequestSpec, hosts: HostBatch | None = None) -> str:
        """Return which capabilities hosts lack; without hosts, which are required."""
        required = list(self._requirements(spec_obj))
        if hosts is not None:
            lacking = [
                requirement
                for requirement in required
                if not self._satisfying(hosts, *requirement[:2]).all()
            ]
            required = lacking or required
        names = dict.fromkeys(key.removeprefix(f"{_SCOPE}:") for key, *_ in required)
        if not names:
            return self.REASON
        return f"capability {' or '.join(names)} is missing or different"

    def _requirements(self, spec_obj: RequestSpec) -> Iterator[Requirement]:
        for key, required in Request.of(spec_obj).settings.extra_specs.items():
            if key == _MAXPHYSADDR_BITS:
                bits = f"{_SCOPE}:cpu_info:maxphysaddr:bits"
                yield Requirement(bits, f">= {required}", key)
            elif ":" not in key or key.startswith(f"{_SCOPE}:"):
                yield Requirement(key, required, key)

    def _satisfying(self, hosts: HostBatch, key: str, required: str) -> Mask:
        if ":" in key:
            name, *keys = _path(key)
            return _capable(hosts, name, keys, required)
        if hosts.has_attribute(key):
            return _capable(hosts, key, (), required)
        # An unscoped key does not apply to a host whose stats do not have the key.
        lacks: Mask = hosts.map_distinct(
            "stats",
            lambda stats: key not in stats,
            bool,
            cache_key=(ComputeCapabilitiesFilter, key),
        )
        return lacks | _in_stats(hosts, key, (), required)

    def _available(self, host_state: HostState, key: str) -> tuple[str, object]:
        path = _path(key)
        return ":".join(path), _value(host_state.as_batch(), *path)

    def _values(self, hosts: HostBatch, key: str) -> npt.NDArray[Any]:
        name, *keys = _path(key)
        if hosts.has_attribute(name) and not hosts.is_interned(name):
            return np.asarray(getattr(hosts, name))
        # The first host of each distinct value stands for all hosts with the value.
        column = name if hosts.has_attribute(name) else "stats"
        codes = hosts.codes(column)
        _, first_rows, kind_of = np.unique(
            codes, return_index=True, return_inverse=True
        )
        texts = [
            "nothing" if value is None else str(value)
            for row in first_rows.tolist()
            for value in [_value(hosts.take([row]), name, *keys)]
        ]
        return np.array(texts, object)[kind_of]


def _path(key: str) -> list[str]:
    """Return the name of an attribute and the keys below it, in one list."""
    return key.removeprefix(f"{_SCOPE}:").split(":")


def _value(host: HostBatch, name: str, *keys: str) -> object:
    """Return the value of the first host of a batch under some keys, or None."""
    value = host.value(name, 0) if host.has_attribute(name) else None
    if value is None:
        value = host.value("stats", 0).get(name)
    for key in keys:
        value = _read_json(value).get(key)
    return value


def _capable(hosts: HostBatch, name: str, keys: Sequence[str], required: str) -> Mask:
    if not hosts.has_attribute(name):
        return _in_stats(hosts, name, keys, required)
    if not hosts.is_interned(name):
        return (
            no_hosts(hosts) if keys else match_numbers(getattr(hosts, name), required)
        )
    satisfying: Mask = hosts.map_distinct(
        name,
        lambda value: _value_satisfies(value, keys, required),
        bool,
        cache_key=(ComputeCapabilitiesFilter, tuple(keys), required),
    )
    # For an attribute that is None, nova reads the stats.
    is_none: Mask = hosts.map_distinct(name, lambda value: value is None, bool)
    return satisfying | (is_none & _in_stats(hosts, name, keys, required))


def _in_stats(hosts: HostBatch, name: str, keys: Sequence[str], required: str) -> Mask:
    mask: Mask = hosts.map_distinct(
        "stats",
        lambda stats: _value_satisfies(stats.get(name), keys, required),
        bool,
        cache_key=(ComputeCapabilitiesFilter, name, tuple(keys), required),
    )
    return mask


def _value_satisfies(value: object, keys: Sequence[str], required: str) -> bool:
    for key in keys:
        value = _read_json(value).get(key)
    return value is not None and match(str(value), required)


def _read_json(value: object) -> dict[str, Any]:
    """Return a value as a dict, parsed if it is JSON text; empty if it is neither."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    return value if isinstance(value, dict) else {}
