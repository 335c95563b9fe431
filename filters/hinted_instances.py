# SPDX-License-Identifier: Apache-2.0
"""The hosts of the instances that a scheduler hint names."""

from __future__ import annotations

from ..objects import RequestSpec
from ..scheduler.hosts import HostBatch, HostState
from .base import Mask
from .requested import hint_values


def hosts_with_hinted(
    hosts: HostBatch, spec_obj: RequestSpec, hint: str
) -> Mask | None:
    """Return which service hosts have at least one of the instances.

    Returns
    -------
    ndarray of bool, shape (n_hosts,), or None
        None: the hint names none.
    """
    uuids = hint_values(spec_obj, hint)
    return hosts.count_instances(uuids) > 0 if uuids else None


def hinted_here(host_state: HostState, spec_obj: RequestSpec, hint: str) -> set[str]:
    """Return which of the instances the host has."""
    return host_state.instances.keys() & set(hint_values(spec_obj, hint))
