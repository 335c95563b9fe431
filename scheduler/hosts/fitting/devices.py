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
    """Return which hosts have the devices of all requests, shape (n_hosts,).

    The devices may be of any resource provider.
    """
    any_provider = [None] * len(need.requests)
    return _answers(
        hosts,
        need,
        "together",
        lambda rows: supported(rows, need.requests, any_provider),
    )


def hosts_with_each_device(hosts: HostBatch, need: Need) -> Mask:
    """Return which hosts have the devices of each request alone, shape (n_hosts,).

    No other host has the devices, whichever candidate or NUMA cells are chosen.
    """
    return _answers(
        hosts, need, "alone", lambda rows: supported_alone(rows, need.requests)
    )


def _answers(
    hosts: HostBatch, need: Need, name: str, answer: Callable[[PoolRows], Mask]
) -> Mask:
    """Return the answers for each host's pools, cached for equal requested devices."""
    # Not the requests themselves: each has an id of its own.
    requested = tuple((request.count, request.specs) for request in need.requests)
    return hosts.map_codes(
        "pci_stats",
        (name, requested),
        lambda start: answer(hosts.value_arrays("pci_stats", PoolArrays).rows(start)),
    )


def candidates_with_devices(
    hosts: HostBatch, need: Need, providers: Sequence[Providers]
) -> Mask:
    """Return which candidates' providers have the devices, shape (n_candidates,)."""
    rows = pool_rows(hosts, hosts.candidates.rows)
    return supported(rows, need.requests, providers)


def pool_rows(hosts: HostBatch, at: Rows) -> PoolRows:
    """Return the pools of the hosts at these indices of a batch."""
    rows = hosts.value_arrays("pci_stats", PoolArrays).rows()
    return rows.take(hosts.codes("pci_stats")[at])


def assigned_providers(hosts: HostBatch, need: Need) -> Sequence[Providers] | None:
    """Return the providers that each candidate of a batch assigns to each request.

    None: Placement does not track the devices, so that they do not distinguish the
    candidates of a host.

    Returns
    -------
    sequence of Providers, length n_requests, or None
        Each of shape (n_candidates, n); n: the number of groups of the request.
    """
    if not need.asks_providers:
        return None
    arrays = hosts.value_arrays("pci_stats", PoolArrays)
    codes = [_codes(arrays, request, hosts) for request in need.requests]
    return None if all(code is None for code in codes) else codes


def _codes(arrays: PoolArrays, request: PciRequest, hosts: HostBatch) -> Providers:
    """Return the codes of `providers_of` for one request and all candidates."""
    groups = hosts.request_groups
    if not groups:
        codes = arrays.provider_codes(providers_of(request, None))
        return np.tile(codes, (len(hosts.candidates), 1)) if len(codes) else None
    columns = [
        # This may compute candidates, so it is done for groups of the request only.
        hosts.candidates.provider_codes(group, arrays)
        for group in request.groups_among(groups)
    ]
    return np.stack(columns, axis=1) if columns else None
