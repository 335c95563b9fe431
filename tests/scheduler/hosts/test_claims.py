# SPDX-License-Identifier: Apache-2.0
"""A claimed instance's cells and devices are consumed in the table until reported."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.scheduler.hosts import (
    Consumption,
    HostPools,
    HostRecord,
    HostTable,
    HostTopology,
    Limits,
)
from moorage.scheduler.hosts.fitting.need import Need
from moorage.scheduler.hosts.numa import CellArrays
from moorage.scheduler.request.numa import Guest
from moorage.scheduler.request.pci import read_requests
from moorage.testing.builders import (
    guest_cell,
    guest_topology,
    numa_cell,
    numa_topology,
    pci_pool,
    pci_pools,
    pci_request,
    pci_requests,
)

from ...conftest import host, instance_uuid, node_uuid, table

NODE = node_uuid("h")
ONE, TWO, THREE = map(instance_uuid, (1, 2, 3))
NEAR = pci_requests(pci_request(1, numa_policy="required"))


def record(**changes: Any) -> HostRecord:
    """A host of two cells, a device in each."""
    cells = numa_topology(numa_cell(0), numa_cell(1))
    pools = pci_pools(pci_pool(1, numa_node=0), pci_pool(1, numa_node=1))
    plain = {
        "numa_topology": HostTopology.read(cells),
        "pci_stats": HostPools.read(pools),
    }
    return host(**{"host": "h", **plain, **changes})


def consumption(**changes: Any) -> Consumption:
    """A guest with two pinned CPUs and a device near to them."""
    need = Need(
        guest=Guest.read(guest_topology(guest_cell())),
        requests=read_requests(NEAR),
        providers=((),),
        **changes,
    )
    return Consumption(memory_mb=1, disk_mb=1, vcpus=2, need=need)


def free(made: HostTable) -> tuple[list[int], list[int]]:
    """Pinned CPUs of each cell, and devices of each pool."""
    [topology], [pools] = made.batch().numa_topology, made.batch().pci_stats
    pinned = [cell.pinned.bit_count() for cell in topology.cells]
    return pinned, [pool.count for pool in pools.pools]


def test_instance_consumes_cpus_and_a_device_of_one_cell() -> None:
    made = table(record())
    made.claims.consume(NODE, ONE, consumption())
    assert free(made) == ([2, 0], [1])
    made.claims.consume(NODE, TWO, consumption())
    assert free(made) == ([2, 2], [])


def test_instance_that_leaves_frees_what_it_used() -> None:
    made = table(record())
    before = record()
    for uuid in (ONE, TWO):
        made.claims.consume(NODE, uuid, consumption())
    for uuid in (ONE, TWO):
        made.claims.release("h", uuid)
    [topology], [pools] = made.batch().numa_topology, made.batch().pci_stats
    assert (topology, pools) == (before.numa_topology, before.pci_stats)


def test_report_with_the_instance_replaces_the_claim() -> None:
    made = table(record())
    made.claims.consume(NODE, ONE, consumption())
    reported = numa_topology(numa_cell(0, pinned_cpus={0}), numa_cell(1))
    made.put(record(numa_topology=HostTopology.read(reported)), [ONE])
    assert free(made) == ([1, 0], [1, 1])


def test_instance_without_a_report_stays_consumed() -> None:
    made = table(record())
    made.claims.consume(NODE, ONE, consumption())
    # Cell 0 is full by now: the guest is assumed to be in the other one.
    reported = numa_topology(numa_cell(0, pinned_cpus={0, 1, 2, 3}), numa_cell(1))
    made.put(record(numa_topology=HostTopology.read(reported)), [])
    assert free(made) == ([4, 2], [1])
    made.claims.release("h", ONE)
    assert free(made) == ([4, 0], [1, 1])


def test_instance_is_reported_once_its_claim_has_ended() -> None:
    made = table(record())

    def reported() -> bool:
        [is_reported] = made.batch().has_reported(ONE)
        return bool(is_reported)

    made.claims.consume(NODE, ONE, consumption())
    assert not reported()
    made.put(record(), [TWO])  # a report without it
    assert made.instances.hosts_of(ONE) == ("h",)
    assert not reported()
    assert [*made.copied().batch().has_reported(ONE)] == [False]
    made.put(record(), [ONE])
    assert reported()
    made.claims.consume(NODE, ONE, consumption())  # a resize in place
    assert reported()
    made.claims.release("h", ONE)
    assert not reported()

    for end_claim in (
        lambda: made.claims.mark_reported(NODE, [ONE]),
        lambda: made.add_instances("h", [ONE]),
        lambda: made.put(record(), [ONE]),
    ):
        made.claims.release("h", ONE)
        made.claims.consume(NODE, ONE, consumption())
        assert not reported()
        end_claim()
        assert reported()

    made.claims.release("h", ONE)
    made.claims.consume(NODE, ONE, consumption())
    made.drop(NODE)  # with its claims
    made.put(record(), [ONE])
    assert reported()


@pytest.mark.parametrize("field", ["numa_topology", "pci_stats"])
def test_what_does_not_fit_any_more_is_left_to_the_host(field: str) -> None:
    full = numa_topology(numa_cell(0, pinned_cpus={0, 1, 2, 3}))
    values = {"numa_topology": HostTopology.read(full), "pci_stats": HostPools()}
    made = table(record(**{field: values[field]}))
    before = free(made)
    made.claims.consume(NODE, ONE, consumption())
    made.claims.release("h", ONE)
    assert free(made) == before
    [state] = made.batch()
    assert state.vcpus_used == record().vcpus_used


def test_devices_are_consumed_on_a_host_without_cells() -> None:
    made = table(record(numa_topology=None))
    made.claims.consume(NODE, ONE, consumption())
    [pools] = made.batch().pci_stats
    assert pools.n_free == 1


def test_overcommit_counts_with_the_filters_limits() -> None:
    cell = guest_cell(0, cpuset={0, 1, 2}, pcpuset=set(), cpu_policy="shared")
    need = Need(
        guest=Guest.read(guest_topology(cell)),
        limits=Limits(cpu_allocation_ratio=1.0, ram_allocation_ratio=1.0),
    )
    made = table(record())
    for uuid in (ONE, TWO, THREE):
        made.claims.consume(NODE, uuid, Consumption(1, 1, 3, need=need))
    [topology] = made.batch().numa_topology
    assert [cell.cpu_usage for cell in topology.cells] == [3, 3]


def test_later_instances_of_a_request_count_the_first_ones_claim() -> None:
    made = table(record(), host(host="other"))
    batch = made.batch()
    index = list(batch.host).index("h")
    after = batch.with_instance(index, ONE, consumption())
    topology, pools = (after.value(n, index) for n in ("numa_topology", "pci_stats"))
    assert [cell.pinned.bit_count() for cell in topology.cells] == [2, 0]
    assert pools.n_free == 1
    assert after.take([index]).value("pci_stats", 0) == pools
    assert free(table(record())) == ([0, 0], [1, 1])
    assert batch.value("pci_stats", index).n_free == 2


@pytest.mark.deep
def test_what_is_only_planned_is_forgotten() -> None:
    made = table(record())
    for amount in range(1, 4000):
        planned = Need(guest=Guest.read(guest_topology(guest_cell(memory=amount))))
        took = Consumption(memory_mb=1, disk_mb=1, vcpus=2, need=planned)
        made.batch().with_instance(0, ONE, took)
    known = made.batch().value_arrays("numa_topology", CellArrays)
    assert len(known) <= 2 * len(made) + 1024
    assert free(made) == ([0, 0], [1, 1])


# -- reservations of several schedulers ------------------------------------------------


def reserve(hosts: HostTable, uuid: str, at: float, *, since: int = -1) -> bool:
    return hosts.claims.consume_if_fits(NODE, uuid, consumption(), at, since)


def test_guest_that_does_not_fit_any_more_is_not_reserved() -> None:
    hosts = table(record())
    assert reserve(hosts, ONE, 1.0)
    assert reserve(hosts, TWO, 2.0)
    assert not reserve(hosts, THREE, 3.0)
    assert (
        hosts.batch()[0].num_instances == table(record()).batch()[0].num_instances + 2
    )


def test_earliest_claims_have_their_place_in_any_order_of_arrival() -> None:
    hosts = table(record())
    for uuid, at in ((THREE, 3.0), (ONE, 1.0), (TWO, 2.0)):
        hosts.claims.consume(NODE, uuid, consumption(), at)
    assert [hosts.claims.has_place(NODE, uuid) for uuid in (ONE, TWO, THREE)] == [
        True,
        True,
        False,
    ]


def test_claim_that_lacked_cells_gets_those_of_a_withdrawn_one() -> None:
    hosts = table(record())
    for at, uuid in enumerate((ONE, TWO, THREE)):
        hosts.claims.consume(NODE, uuid, consumption(), float(at), is_reserved=True)
    hosts.claims.withdraw(NODE, ONE, 0.0)
    assert hosts.claims.has_place(NODE, THREE)
    assert free(hosts) == ([2, 2], []), "two guests have both devices"


def test_nothing_is_reserved_where_an_earlier_claim_does_not_fit() -> None:
    """Its report is older than the end of the guest that made room for the claim."""
    used = HostPools.read(pci_pools(pci_pool(1, numa_node=0)))
    hosts = table(record(pci_stats=used))
    hosts.claims.consume(NODE, ONE, consumption(), 1.0, is_reserved=True)
    hosts.claims.consume(NODE, TWO, consumption(), 2.0)
    hosts.claims.withdraw(NODE, ONE, 1.0)
    hosts.claims.consume(NODE, ONE, consumption(), 3.0)
    now = hosts.batch().revision
    assert not hosts.claims.has_place(NODE, ONE)
    assert not reserve(hosts, THREE, 4.0, since=now)
    hosts.put(record(), [TWO])
    assert hosts.claims.has_place(NODE, ONE)
