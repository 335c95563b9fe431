# SPDX-License-Identifier: Apache-2.0
"""Which hosts or candidates of a batch have the PCI devices that a guest asks for?"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ...candidates import Mask, Rows
from ...request.pci import PciRequest, providers_of
from ..batch import HostBatch
from ..pci import PoolArrays, PoolRows, Providers, supported, supported_alone
from .need import Need


def hosts_with_devices(hosts: HostBatch, need: Need) -> Mask:
    """Return which hosts have the devices, of any providers, shape (n_hosts,)."""
    any_provider = [None] * len(need.requests)
    return _answers(
        hosts,
        need,
        "together",
        lambda rows: supported(rows, need.requests, any_provider),
    )


def hosts_with_each_device(hosts: HostBatch, need: Need) -> Mask:
    """Return which hosts have the devices of each request alone, shape (n_hosts,).

    The others have them for no candidate, and near to no cell.
    """
    return _answers(
        hosts, need, "alone", lambda rows: supported_alone(rows, need.requests)
    )


def _answers(
    hosts: HostBatch, need: Need, name: str, answer: Callable[[PoolRows], Mask]
) -> Mask:
    """Return the answers for each host's pools, cached for equal requested devices."""
    # Not the requests themselves: each has an id, which is new each time.
    requested = tuple((request.count, request.specs) for request in need.requests)
    return hosts.map_codes(
        "pci_stats",
        (name, requested),
        lambda start: answer(hosts.value_arrays("pci_stats", PoolArrays).rows(start)),
    )


def candidates_with_devices(
    hosts: HostBatch, need: Need, providers: Sequence[Providers]
) -> Mask:
    """Return whose providers have the devices, shape (n_candidates,)."""
    rows = pool_rows(hosts, hosts.candidates.rows)
    return supported(rows, need.requests, providers)


def pool_rows(hosts: HostBatch, at: Rows) -> PoolRows:
    """Return the pools of the hosts at these indices of a batch."""
    rows = hosts.value_arrays("pci_stats", PoolArrays).rows()
    return rows.take(hosts.codes("pci_stats")[at])


def assigned_providers(hosts: HostBatch, need: Need) -> Sequence[Providers] | None:
    """Return the providers that each candidate of a batch assigns to each request.

    None: Placement does not track the devices, and all candidates of a host are alike.

    Returns
    -------
    sequence of Providers, length n_requests, or None
        Each of shape (n_candidates, n); n: how many groups are of the request.
    """
    if not need.asks_providers:
        return None
    arrays = hosts.value_arrays("pci_stats", PoolArrays)
    codes = [_codes(arrays, request, hosts) for request in need.requests]
    return None if all(code is None for code in codes) else codes


def _codes(arrays: PoolArrays, request: PciRequest, hosts: HostBatch) -> Providers:
    """Return what `providers_of` does for one request and many candidates at once."""
    groups = hosts.request_groups
    if not groups:
        written = arrays.provider_codes(providers_of(request, None))
        return np.tile(written, (len(hosts.candidates), 1)) if len(written) else None
    columns = [
        # Candidates may be computed for this: not without a group of the request.
        hosts.candidates.provider_codes(group, arrays)
        for group in request.groups_among(groups)
    ]
    return np.stack(columns, axis=1) if columns else None
