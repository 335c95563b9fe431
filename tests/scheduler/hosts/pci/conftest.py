# SPDX-License-Identifier: Apache-2.0
"""Builders of pools and requests, hypothesis strategies of both, and one host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import hypothesis.strategies as st
import numpy as np

from moorage.scheduler.hosts.numa import ChosenCells
from moorage.scheduler.hosts.pci import (
    HostPools,
    apply_requests,
    single_pools,
    supported,
)
from moorage.scheduler.request.pci import PciRequest

PROVIDERS = ["rp-a", "rp-b", "rp-c"]
NODES = [None, 0, 1, 2]
POLICIES = ["legacy", "preferred", "required", "socket"]


def flat(count: Any = 1, **properties: Any) -> dict[str, Any]:
    """One pool in its flat form: of an Intel product, at no NUMA node."""
    own = {"vendor_id": "8086", "product_id": "1520", "numa_node": None}
    return {**own, "count": count, **properties}


def pools(*flats: dict[str, Any]) -> HostPools:
    return HostPools.read(list(flats))


def request(count: int = 1, *specs: dict[str, Any], **fields: Any) -> PciRequest:
    """A request for devices of one of these specs; without a spec, for any."""
    pairs = tuple(tuple(sorted(spec.items())) for spec in specs or ({},))
    return PciRequest(count, pairs, **fields)


def counts(left: HostPools | None) -> list[int] | None:
    """Return each pool's number of free devices; None: the requests were not met."""
    return None if left is None else [pool.count for pool in left.pools]


def chosen(*cells: int, sockets: Sequence[int] = ()) -> ChosenCells:
    """Cells that were chosen for a guest, and those in their sockets."""
    return ChosenCells(np.array([cells], np.int64), np.array([sockets], np.int64))


def consume(
    host: HostPools,
    requested: Sequence[PciRequest],
    uuids: Sequence[Sequence[str]],
    at: ChosenCells | None = None,
) -> HostPools | None:
    """Return what requests leave of a single host, an array of one."""
    rows, codes = single_pools(host, uuids)
    [passes], free = apply_requests(rows, requested, codes, at)
    assert supported(rows, requested, codes, at).tolist() == [passes]
    if not passes:
        return None
    return host.with_free(free.count[0].tolist(), free.is_there[0].tolist())


def _some_of(**values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=values)


TAGS = _some_of(
    dev_type=st.sampled_from(["type-PCI", "type-PF", "type-VF", "vdpa"]),
    remote_managed=st.sampled_from(["true", "false"]),
    live_migratable=st.sampled_from(["true", "false"]),
    rp_uuid=st.sampled_from(PROVIDERS),
)
FLATS = st.builds(
    lambda count, node, vendor, tags: flat(
        count, numa_node=node, vendor_id=vendor, **tags
    ),
    st.integers(0, 3),
    st.sampled_from(NODES),
    st.sampled_from(["8086", "10DE"]),
    TAGS,
)
POOLS = st.lists(FLATS, max_size=6).map(HostPools.read)
SPECS = _some_of(
    vendor_id=st.sampled_from(["8086", "10de"]),
    dev_type=st.sampled_from(["type-PF", "vdpa"]),
    remote_managed=st.sampled_from(["True", "false"]),
    live_migratable=st.sampled_from(["true", "false"]),
)
REQUESTS = st.builds(
    lambda count, specs, policy: request(count, *specs, numa_policy=policy),
    # 0 is never requested, but nova has an answer.
    st.sampled_from([1, 2, 1, 2, 3, 0]),
    st.lists(SPECS, min_size=1, max_size=2),
    st.sampled_from(POLICIES),
)
