# SPDX-License-Identifier: Apache-2.0
"""Many hosts or candidates at once: which have the PCI devices that are asked for?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from .batch import HostBatch
from .candidates import Mask, Rows
from .fitting import Need
from .pci import (
    PciRequest,
    PoolArrays,
    PoolRows,
    providers_of,
    supported,
    supported_alone,
)

#: The providers' codes of each of some candidates, per request; None: any device.
ProviderCodes = Sequence[npt.NDArray[np.int32] | None]


def hosts_with_devices(hosts: HostBatch, need: Need) -> Mask:
    """Return which hosts have the devices, whichever, shape (n_hosts,)."""
    nobody = [None] * len(need.requests)
    return _answers(
        hosts, need, "together", lambda rows: supported(rows, need.requests, nobody)
    )


def hosts_with_each_device(hosts: HostBatch, need: Need) -> Mask:
    """Return which hosts have the devices of each request alone, shape (n_hosts,).

    The others have them for no candidate, and near to no cell.
    """
    return _answers(
        hosts, need, "alone", lambda rows: supported_alone(rows, need.requests)
    )


def _answers(
    hosts: HostBatch, need: Need, question: str, answer: Callable[[PoolRows], Mask]
) -> Mask:
    """Return the answers for each host's pools, kept for equal devices asked for."""
    # Not the requests themselves: each has an id, which is new each time.
    asked = tuple((request.count, request.specs) for request in need.requests)
    return hosts.map_codes(
        "pci_stats",
        (question, asked),
        lambda start: answer(hosts.value_arrays("pci_stats", PoolArrays).rows(start)),
    )


def are_assigned(hosts: HostBatch, need: Need) -> bool:
    """Return whether candidates say of which providers the devices are.

    Else Placement knows nothing of the devices, and all candidates of a host are alike.
    """
    if not need.asks_providers:
        return False
    alike = {tuple(mapping): mapping for mapping in hosts.candidates.mappings()}
    return any(
        providers_of(request, mapping)
        for mapping in alike.values()
        for request in need.requests
    )


def candidates_with_devices(hosts: HostBatch, need: Need) -> Mask:
    """Return whose providers have the devices, shape (n_candidates,)."""
    passing = np.zeros(len(hosts.candidates), bool)
    for some, providers in candidate_providers(hosts, need):
        rows = pool_rows(hosts, hosts.candidates.rows[some])
        passing[some] = supported(rows, need.requests, providers, None)
    return passing


def pool_rows(hosts: HostBatch, at: Rows) -> PoolRows:
    """Return the pools of the hosts at these indices of a batch."""
    every = hosts.value_arrays("pci_stats", PoolArrays).rows()
    return every.take(hosts.codes("pci_stats")[at])


def candidate_providers(
    hosts: HostBatch, need: Need
) -> Iterator[tuple[Rows, ProviderCodes]]:
    """Yield candidates that map the same groups, with the providers of each request.

    Yields
    ------
    indices : ndarray of intp, shape (m,)
        Into ``hosts.candidates``.
    providers : sequence of (ndarray of int32, shape (m, n)) or None
        One a request; n: how many groups of the candidates are of the request.
    """
    pools = hosts.value_arrays("pci_stats", PoolArrays)
    alike: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    mappings = hosts.candidates.mappings()
    for index, mapping in enumerate(mappings):
        alike[tuple(mapping)].append(index)
    for names, indices in alike.items():
        some = [mappings[index] for index in indices]
        yield (
            np.array(indices, np.intp),
            [_codes(pools, request, names, some) for request in need.requests],
        )


def _codes(
    pools: PoolArrays,
    request: PciRequest,
    names: Sequence[str],
    mappings: Sequence[Mapping[str, Sequence[str]]],
) -> npt.NDArray[np.int32] | None:
    """Return what `providers_of` does for one request and many mappings at once."""
    if not names:
        uuids = providers_of(request, None)
        columns = [[pools.provider_code(uuid)] * len(mappings) for uuid in uuids]
    else:
        columns = [
            [pools.provider_code(mapping[group][0]) for mapping in mappings]
            for group in request.groups_among(names)
        ]
    return np.array(columns, np.int32).T if columns else None
