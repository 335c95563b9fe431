# SPDX-License-Identifier: Apache-2.0
"""A stock nova 34 works with Moorage in nova-scheduler's place, over real servers.

All that is asserted here holds of nova-scheduler, too. MOORAGE_STOCK_SCHEDULERS has the
names of those that the tests are run with, separated by commas; it proves the tests.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from ..fixtures.attached_services import ServiceFault
from .stock.cloud import (
    BARE_METAL_CLASS,
    BARE_METAL_HOST,
    BARE_METAL_TRAIT,
    CONTROL_HOST,
    FAILING_HOST,
    HOST_ELSEWHERE,
    HOSTS,
    Scheduler,
    StockCloud,
    require_peer,
)

pytestmark = [
    pytest.mark.broker,
    pytest.mark.database,
    pytest.mark.deep,
    pytest.mark.peer,
    pytest.mark.xdist_group("stock nova"),
]

_SCHEDULERS = [
    Scheduler(name.strip())
    for name in os.environ.get(
        "MOORAGE_STOCK_SCHEDULERS", Scheduler.MOORAGE.value
    ).split(",")
]

_EVERY_HOST = (*HOSTS, FAILING_HOST, HOST_ELSEWHERE)

#: nova-compute takes about a third of a second for each at its start.
_N_BARE_METAL_NODES = int(os.environ.get("MOORAGE_BARE_METAL_NODES", "12"))

Allocation = dict[str, int]
CountRequests = Callable[[], int]
Changes = dict[str, bool]


@pytest.fixture(scope="module", params=_SCHEDULERS, ids=lambda kind: kind.value)
def stock(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StockCloud]:
    require_peer()
    folder = tmp_path_factory.mktemp(request.param.value)
    with StockCloud(request.param, folder) as started:
        yield started
        if request.param is Scheduler.MOORAGE:
            assert started.scheduler.stop() == 0
            assert not started.scheduler.count("ERROR|CRITICAL|Traceback")


class Users:
    """Boots instances, and lets go of them."""

    def __init__(self, cloud: StockCloud, sizes: Iterator[int]) -> None:
        self._cloud = cloud
        self._sizes = sizes
        self._instances: list[str] = []

    def flavor(
        self,
        vcpus: int = 1,
        memory_mb: int = 512,
        extra_specs: dict[str, str] | None = None,
    ) -> tuple[str, Allocation]:
        """Return a new flavor, and what an instance of it is allocated.

        Each has a disk size of its own, so that no cached answer to another test's
        query is used for this one's.
        """
        root_gb = next(self._sizes)
        flavor = self._cloud.ask(
            "flavor",
            vcpus=vcpus,
            memory_mb=memory_mb,
            root_gb=root_gb,
            extra_specs=extra_specs,
        )
        return flavor, {"VCPU": vcpus, "MEMORY_MB": memory_mb, "DISK_GB": root_gb}

    def create(self, flavor: str, n: int = 1, **arguments: Any) -> list[str]:
        made = self._cloud.ask("create", flavor=flavor, n=n, **arguments)
        self._instances += made
        return list(made)

    def delete_all(self) -> None:
        for instance in self._instances:
            self._cloud.ask("delete", instance=instance)
        for instance in self._instances:
            self._cloud.until(
                functools.partial(self._is_deleted, instance),
                functools.partial("{} is not deleted".format, instance),
            )
        self._instances.clear()

    def _is_deleted(self, instance: str) -> bool:
        return self._cloud.show(instance) is None


_SIZES = itertools.count(1)


@pytest.fixture
def users(stock: StockCloud) -> Iterator[Users]:
    """Users of a cloud in which nothing is left allocated after."""
    made = Users(stock, _SIZES)
    yield made
    made.delete_all()
    stock.until(lambda: not stock.usage(), lambda: f"left: {stock.usage()}")


@pytest.fixture
def n_requests(stock: StockCloud) -> CountRequests:
    """Return how many requests the scheduler got since the test began."""
    before = stock.n_decisions
    return lambda: stock.n_decisions - before


def _enabled(stock: StockCloud, host: str) -> AbstractContextManager[None]:
    return _changed(stock, host, {"disabled": False}, {"disabled": True})


def _down(stock: StockCloud, host: str) -> AbstractContextManager[None]:
    return _changed(stock, host, {"forced_down": True}, {"forced_down": False})


@contextlib.contextmanager
def _changed(
    stock: StockCloud, host: str, changes: Changes, back: Changes
) -> Iterator[None]:
    stock.ask("change_service", host=host, changes=changes)
    try:
        yield
    finally:
        stock.ask("change_service", host=host, changes=back)


def _chosen_on(
    stock: StockCloud, users: Users, flavor: str, host: str, **arguments: Any
) -> tuple[str, dict[str, Any]]:
    """Create instances until one is chosen for a host whose state has just changed."""
    tried: list[tuple[str, dict[str, Any]]] = []

    def is_chosen() -> bool:
        [instance] = users.create(flavor, **arguments)
        tried.append((instance, stock.settled(instance, "active", "error")))
        return stock.chosen(instance)[:1] == [host]

    stock.until(is_chosen, lambda: f"no instance is chosen for {host}: {tried}")
    return tried[-1]


def _assert_on(stock: StockCloud, instance: str, resources: Allocation) -> str:
    """Assert that it runs on the host last chosen, and holds only that; return it."""
    shown = stock.settled(instance, "active")
    assert shown["host"] == shown["node"] == stock.chosen(instance)[-1]
    stock.assert_allocated(instance, {shown["host"]: resources})
    return str(shown["host"])


def _migration(stock: StockCloud, instance: str, status: str) -> dict[str, Any]:
    """Wait for the status of the only move of an instance, and return that move."""

    def has_status(shown: dict[str, Any]) -> bool:
        return [move["status"] for move in shown["migrations"]] == [status]

    [found] = stock.shown_as(instance, has_status)["migrations"]
    return dict(found)


def _assert_fits_nowhere(stock: StockCloud, instance: str) -> str:
    """Assert that it has a fault and nothing else; return the fault's message."""
    assert stock.settled(instance, "error")["host"] is None
    [fault] = stock.shown_as(instance, lambda shown: shown["faults"])["faults"]
    assert fault["code"] == 500
    assert fault["message"].startswith("No valid host was found. ")
    assert not stock.allocations(instance)
    return str(fault["message"])


def test_scheduler_is_up_in_novas_list_of_services(stock: StockCloud) -> None:
    services = stock.ask("services")
    [scheduler] = [each for each in services if each["binary"] == "nova-scheduler"]
    assert (scheduler["host"], scheduler["is_up"]) == (CONTROL_HOST, True)


def test_boot(stock: StockCloud, users: Users, n_requests: CountRequests) -> None:
    flavor, resources = users.flavor()
    [instance] = users.create(flavor)
    assert _assert_on(stock, instance, resources) in HOSTS
    assert n_requests() == 1


def test_instances_of_one_request_are_decided_on_at_once(
    stock: StockCloud, users: Users, n_requests: CountRequests
) -> None:
    flavor, resources = users.flavor()
    for instance in users.create(flavor, n=6):
        assert _assert_on(stock, instance, resources) in HOSTS
    assert n_requests() == 1


def test_anti_affinity_uses_every_host_once(stock: StockCloud, users: Users) -> None:
    flavor, resources = users.flavor()
    group = stock.ask("group", policy="anti-affinity")
    instances = users.create(flavor, n=2, group=group)
    hosts = [_assert_on(stock, instance, resources) for instance in instances]
    [third] = users.create(flavor, group=group)
    hosts.append(_assert_on(stock, third, resources))
    assert sorted(hosts) == sorted(HOSTS)
    [one_too_many] = users.create(flavor, group=group)
    _assert_fits_nowhere(stock, one_too_many)


def test_affinity_keeps_to_one_host(stock: StockCloud, users: Users) -> None:
    flavor, resources = users.flavor()
    group = stock.ask("group", policy="affinity")
    instances = users.create(flavor, n=2, group=group)
    hosts = {_assert_on(stock, instance, resources) for instance in instances}
    [third] = users.create(flavor, group=group)
    assert {_assert_on(stock, third, resources)} == hosts
    assert len(hosts) == 1


def test_forced_host_is_selected(stock: StockCloud, users: Users) -> None:
    flavor, resources = users.flavor()
    for host in HOSTS:
        [instance] = users.create(flavor, forced_host=host)
        assert _assert_on(stock, instance, resources) == host


def test_request_that_fits_nowhere_ends_in_novas_fault(
    stock: StockCloud, users: Users
) -> None:
    flavor, _ = users.flavor(vcpus=4000)
    [instance] = users.create(flavor)
    _assert_fits_nowhere(stock, instance)


def test_nothing_is_left_claimed_where_only_some_instances_fit(
    stock: StockCloud, users: Users
) -> None:
    flavor, _ = users.flavor(memory_mb=6000)  # one a host
    for instance in users.create(flavor, n=len(HOSTS) + 1):
        _assert_fits_nowhere(stock, instance)
    assert not stock.usage()


def test_resize_that_fits_nowhere_leaves_all_as_it_was(
    stock: StockCloud, users: Users, n_requests: CountRequests
) -> None:
    flavor, resources = users.flavor()
    too_large, _ = users.flavor(vcpus=4000)
    [instance] = users.create(flavor)
    host = _assert_on(stock, instance, resources)
    stock.ask("resize", instance=instance, flavor=too_large)
    shown = stock.settled(instance, "active")
    assert (shown["host"], shown["flavor"]) == (host, flavor)
    [fault] = stock.shown_as(instance, lambda shown: shown["faults"])["faults"]
    assert fault["message"].startswith("No valid host was found. ")
    migration = _migration(stock, instance, "error")
    stock.assert_allocated(instance, {host: resources})
    stock.assert_allocated(migration["uuid"], {})
    assert n_requests() == 2


def test_failed_build_is_tried_on_an_alternate_of_its_cell_without_another_decision(
    stock: StockCloud, users: Users
) -> None:
    flavor, resources = users.flavor()
    # The larger host in the other cell would be the best alternate.
    with _enabled(stock, HOST_ELSEWHERE), _enabled(stock, FAILING_HOST):
        instance, shown = _chosen_on(stock, users, flavor, FAILING_HOST)
    assert stock.chosen(instance) == [FAILING_HOST]
    assert shown["host"] in HOSTS
    stock.assert_allocated(instance, {shown["host"]: resources})


@pytest.mark.parametrize("is_confirmed", [True, False], ids=["confirm", "revert"])
def test_resize(
    stock: StockCloud, users: Users, n_requests: CountRequests, is_confirmed: bool
) -> None:
    flavor, resources = users.flavor()
    larger, more = users.flavor(vcpus=2, memory_mb=1024)
    [instance] = users.create(flavor)
    source = _assert_on(stock, instance, resources)
    stock.ask("resize", instance=instance, flavor=larger)
    shown = stock.settled(instance, "resized")
    target, [migration] = shown["host"], shown["migrations"]
    assert stock.chosen(instance) == [source, target]
    assert target != source
    # Until it is confirmed or reverted, the migration holds what the instance had.
    assert stock.allocations(instance) == {target: more}
    assert stock.allocations(migration["uuid"]) == {source: resources}
    stock.ask("confirm_resize" if is_confirmed else "revert_resize", instance=instance)
    shown = stock.settled(instance, "active")
    assert (shown["host"], shown["flavor"]) == (
        (target, larger) if is_confirmed else (source, flavor)
    )
    stock.assert_allocated(migration["uuid"], {})
    stock.assert_allocated(
        instance, {target: more} if is_confirmed else {source: resources}
    )
    assert n_requests() == 2


def test_cold_migration(
    stock: StockCloud, users: Users, n_requests: CountRequests
) -> None:
    flavor, resources = users.flavor()
    [instance] = users.create(flavor)
    source = _assert_on(stock, instance, resources)
    stock.ask("migrate", instance=instance)
    target = stock.settled(instance, "resized")["host"]
    assert target != source
    stock.ask("confirm_resize", instance=instance)
    assert _assert_on(stock, instance, resources) == target
    assert n_requests() == 2


def test_live_migration(
    stock: StockCloud, users: Users, n_requests: CountRequests
) -> None:
    flavor, resources = users.flavor()
    [instance] = users.create(flavor)
    source = _assert_on(stock, instance, resources)
    stock.ask("live_migrate", instance=instance)
    target = _assert_on(stock, instance, resources)
    assert target != source
    assert stock.chosen(instance) == [source, target]
    migration = _migration(stock, instance, "completed")
    stock.assert_allocated(migration["uuid"], {})
    assert n_requests() == 2


def test_evacuation(stock: StockCloud, users: Users, n_requests: CountRequests) -> None:
    flavor, resources = users.flavor()
    [instance] = users.create(flavor)
    source = _assert_on(stock, instance, resources)
    with _down(stock, source):
        stock.ask("evacuate", instance=instance)
        _migration(stock, instance, "done")
        target = stock.settled(instance, "active")["host"]
        assert target != source
        assert stock.chosen(instance) == [source, target]
        # The source's part is given back by its nova-compute, once that starts again.
        stock.assert_allocated(instance, {source: resources, target: resources})
        assert n_requests() == 2
    _chosen_on(stock, users, flavor, source, forced_host=source)


@pytest.mark.parametrize("has_new_image", [True, False], ids=["new", "same"])
def test_rebuild_is_scheduled_for_a_new_image_only(
    stock: StockCloud, users: Users, n_requests: CountRequests, has_new_image: bool
) -> None:
    flavor, resources = users.flavor()
    [instance] = users.create(flavor)
    host = _assert_on(stock, instance, resources)
    image = stock.show(instance)["image"]
    stock.ask("rebuild", instance=instance, has_new_image=has_new_image)
    assert _assert_on(stock, instance, resources) == host
    assert (stock.show(instance)["image"] != image) is has_new_image
    assert n_requests() == (2 if has_new_image else 1)


def test_shelved_instance_holds_nothing_until_it_is_unshelved(
    stock: StockCloud, users: Users, n_requests: CountRequests
) -> None:
    flavor, resources = users.flavor()
    [instance] = users.create(flavor)
    _assert_on(stock, instance, resources)
    stock.ask("shelve", instance=instance)
    stock.settled(instance, "shelved_offloaded")
    stock.shown_as(instance, lambda shown: shown["host"] is None)
    stock.assert_allocated(instance, {})
    stock.ask("unshelve", instance=instance)
    _assert_on(stock, instance, resources)
    assert len(stock.chosen(instance)) == n_requests() == 2


@pytest.fixture(scope="module")
def explained(stock: StockCloud) -> StockCloud:
    """The cloud with moorage-api."""
    if stock.kind is not Scheduler.MOORAGE:
        pytest.skip("nova-scheduler explains nothing")
    stock.start_api()
    return stock


def _explained(stock: StockCloud, instance: str) -> tuple[str, Callable[[str], str]]:
    """Return what `explain` prints of a failed instance, and the command why-not.

    An operator has the UUID only; the message of the fault helps its user, who may not
    know hosts.
    """
    message = _assert_fits_nowhere(stock, instance)
    assert re.search(rf"Of {stock.n_nodes} hosts: \d+ ", message), message
    assert not [host for host in _EVERY_HOST if host in message]
    stock.until(lambda: instance in stock.moorage("decisions", "--failed"))
    listed = stock.moorage("decisions", "--failed", "--instance", instance)
    [request_id] = re.findall(r"req-[-0-9a-f]{36}", listed)
    explanation = stock.moorage("explain", request_id)
    assert "no valid host" in explanation
    return explanation, lambda host: stock.moorage("why-not", host, request_id)


def test_boot_without_memory_anywhere_is_explained(
    explained: StockCloud, users: Users
) -> None:
    flavor, _ = users.flavor(memory_mb=2_000_000)
    explanation, why_not = _explained(explained, *users.create(flavor))
    assert "lack memory" in explanation
    assert f"Placement {explained.n_nodes} 0 " in explanation
    for host in HOSTS:
        assert re.search(
            r"MEMORY_MB more than its capacity 2000000 (\d+) free of \1, 0 used",
            why_not(host),
        )


def test_boot_with_a_trait_of_a_disabled_host_is_explained(
    explained: StockCloud, users: Users
) -> None:
    explained.add_trait(HOST_ELSEWHERE, "CUSTOM_NEEDED")
    flavor, _ = users.flavor(extra_specs={"trait:CUSTOM_NEEDED": "required"})
    explanation, why_not = _explained(explained, *users.create(flavor))
    assert "CUSTOM_NEEDED" in explanation
    for host in (*HOSTS, FAILING_HOST):
        assert "CUSTOM_NEEDED it lacks the trait" in why_not(host)
    of_disabled = why_not(HOST_ELSEWHERE)
    assert "COMPUTE_STATUS_DISABLED it has a forbidden trait" in of_disabled
    assert "ComputeFilter" in of_disabled
    assert "CUSTOM_NEEDED" not in of_disabled


def test_boot_into_a_full_anti_affinity_group_is_explained(
    explained: StockCloud, users: Users
) -> None:
    flavor, _ = users.flavor()
    group = explained.ask("group", policy="anti-affinity")
    members = users.create(flavor, n=len(HOSTS), group=group)
    for member in members:
        explained.settled(member, "active")
    explanation, why_not = _explained(explained, *users.create(flavor, group=group))
    assert "ServerGroupAntiAffinityFilter 3 0 " in explanation
    for host in HOSTS:
        assert "filter ServerGroupAntiAffinityFilter" in why_not(host)
    assert "COMPUTE_STATUS_DISABLED" in why_not(FAILING_HOST)


# -- places ----------------------------------------------------------------------------

_RACKS = {"r1": HOSTS[:2], "r2": HOSTS[2:]}
_RACK_OF = {host: rack for rack, hosts in _RACKS.items() for host in hosts}
#: What is connected to the storage and the network of each rack.
_MAPPED = {
    rack: {
        "moorage:volume_backend": f"array@{rack}",
        "moorage:physical_network": f"physnet-{rack}",
    }
    for rack in _RACKS
}


@pytest.fixture(scope="module")
def racks(explained: StockCloud) -> StockCloud:
    """The cloud with racks, of host aggregates that nova's API has made."""
    for rack, hosts in _RACKS.items():
        mapped = _MAPPED[rack]
        explained.ask("place", name=rack, level="rack", hosts=hosts, metadata=mapped)
    shown = re.compile(r"rack r1 \(2\).*rack r2 \(1\)")
    explained.until(lambda: bool(shown.search(explained.moorage("hosts", "--tree"))))
    return explained


def _rack(stock: StockCloud, instance: str) -> str:
    return _RACK_OF[stock.settled(instance, "active")["host"]]


def test_hints_about_places_are_kept_and_stay_with_the_instance(
    racks: StockCloud, users: Users
) -> None:
    flavor, _ = users.flavor()

    def rack_of(**hints: object) -> tuple[str, str]:
        [instance] = users.create(flavor, hints=hints)
        return instance, _rack(racks, instance)

    first, rack = rack_of(in_rack="r2")
    assert rack == "r2"
    second, rack = rack_of(different_rack=[first])
    assert rack == "r1"
    assert rack_of(same_rack=[first])[1] == "r2"
    assert rack_of(not_in_rack=["r2"])[1] == "r1"
    assert rack_of(near=[first])[1] == "r2"
    assert rack_of(near=["rack=r1"])[1] == "r1"
    racks.ask("migrate", instance=second)
    assert _RACK_OF[racks.settled(second, "resized")["host"]] == "r1"
    racks.ask("confirm_resize", instance=second)
    assert _rack(racks, second) == "r1"


def test_instances_of_one_request_are_spread_over_racks(
    racks: StockCloud, users: Users
) -> None:
    flavor, _ = users.flavor()
    instances = users.create(flavor, n=4, hints={"spread_level": "rack"})
    found = sorted(_rack(racks, instance) for instance in instances)
    assert found == ["r1", "r1", "r2", "r2"]


def test_server_group_is_kept_at_the_level_of_the_flavor(
    racks: StockCloud, users: Users
) -> None:
    flavor, _ = users.flavor(extra_specs={"moorage:group_level": "rack"})
    group = racks.ask("group", policy="anti-affinity")
    instances = users.create(flavor, n=2, group=group)
    assert sorted(_rack(racks, instance) for instance in instances) == ["r1", "r2"]
    explanation, _ = _explained(racks, *users.create(flavor, group=group))
    assert "LocalityFilter 1 0 " in explanation


def test_soft_server_group_prefers_another_rack(
    racks: StockCloud, users: Users
) -> None:
    flavor, _ = users.flavor(extra_specs={"moorage:group_level": "rack"})
    group = racks.ask("group", policy="soft-anti-affinity")
    [first] = users.create(flavor, group=group, forced_host=HOSTS[0])
    assert _rack(racks, first) == "r1"
    [second] = users.create(flavor, group=group)
    assert _rack(racks, second) == "r2"


def test_places_of_a_table_of_hosts_are_applied_through_novas_api(
    racks: StockCloud, tmp_path: Path
) -> None:
    first, second, third = HOSTS
    table = tmp_path / "hosts.csv"

    def apply(rack_of: Mapping[str, str]) -> str:
        lines = [f"{host},{rack}," for host, rack in rack_of.items()]
        rows = [",r1,a", ",r2,b"]
        table.write_text("\n".join(["host,rack,row", *lines, *rows]))
        return racks.moorage("locality", "apply", str(table))

    def hosts_of(name: str) -> list[str]:
        hosts, _ = racks.ask("aggregates")[name]
        return list(hosts)

    racks.serve_compute_api()
    before = racks.ask("aggregates")
    assert "5 change(s) made for 3 host(s)." in apply(_RACK_OF)
    row = {"moorage:level": "row"}
    applied = {
        **before,
        "row-a": [[first, second], {**row, "moorage:place": "a"}],
        "row-b": [[third], {**row, "moorage:place": "b"}],
    }
    assert racks.ask("aggregates") == applied
    assert "Nothing to change: 3 host(s)" in apply(_RACK_OF)
    try:
        assert "4 change(s) made" in apply({**_RACK_OF, second: "r2"})
        assert hosts_of("r1") == hosts_of("row-a") == [first]
        assert hosts_of("r2") == hosts_of("row-b") == [second, third]
        racks.until(lambda: "row b (2)" in racks.moorage("hosts", "--tree"))
    finally:
        apply(_RACK_OF)
    assert racks.ask("aggregates") == applied


# -- volumes and ports -----------------------------------------------------------------


def _volume_in(stock: StockCloud, rack: str) -> str:
    """Return a new volume whose backend is in a rack."""
    owner = {"os-vol-tenant-attr:tenant_id": stock.ask("project")}
    return stock.cinder.volume(str(uuid.uuid4()), f"array@{rack}#pool", **owner)


def _port_in(stock: StockCloud, rack: str, **changes: Any) -> str:
    """Return a new port of a network in a rack."""
    neutron, owner = stock.neutron, stock.ask("project")
    network, subnet = str(uuid.uuid4()), str(uuid.uuid4())
    owned = {"project_id": owner, "tenant_id": owner}
    physical = {"provider:physical_network": f"physnet-{rack}"}
    neutron.network(network, subnets=[subnet], **owned, **physical)
    neutron.subnet(subnet, network_id=network, **owned)
    addresses = [{"subnet_id": subnet, "ip_address": "192.0.2.10"}]
    port = {"network_id": network, "fixed_ips": addresses, **owned, **changes}
    return neutron.port(str(uuid.uuid4()), **port)


def _explanation_by_instance(stock: StockCloud, instance: str) -> str:
    """Return what `explain` prints of an instance, once its decision is stored."""
    listing = ("decisions", "--instance", instance)
    stock.until(lambda: "req-" in stock.moorage(*listing))
    return stock.moorage("explain", instance)


@pytest.mark.parametrize("rack", _RACKS)
def test_boot_volume_and_port_are_near_without_a_hint(
    racks: StockCloud, users: Users, rack: str
) -> None:
    flavor, _ = users.flavor()
    volume, port = _volume_in(racks, rack), _port_in(racks, rack)
    [of_volume] = users.create(flavor, volume=volume)
    [of_port] = users.create(flavor, port=port)
    assert [_rack(racks, each) for each in (of_volume, of_port)] == [rack, rack]
    explanation = _explanation_by_instance(racks, of_volume)
    assert f"boot_volume {volume}: rack {rack}" in explanation


@pytest.mark.parametrize("rack", _RACKS)
def test_hints_about_volumes_and_ports_are_kept(
    racks: StockCloud, users: Users, rack: str
) -> None:
    flavor, _ = users.flavor()
    volume, port = _volume_in(racks, rack), _port_in(racks, rack)
    bound = _port_in(racks, "nowhere", **{"binding:host_id": _RACKS[rack][0]})
    instances = [
        *users.create(flavor, hints={"near_volume": [volume]}),
        *users.create(flavor, hints={"same_rack_volume": [volume]}),
        *users.create(flavor, hints={"near_port": [port]}),
        *users.create(flavor, hints={"same_rack_port": [bound]}),
    ]
    assert {_rack(racks, each) for each in instances} == {rack}
    [near] = users.create(flavor, hints={"near_port": [bound]})
    assert racks.settled(near, "active")["host"] == _RACKS[rack][0]


def test_required_volume_cannot_be_looked_up_while_cinder_is_away(
    racks: StockCloud, users: Users
) -> None:
    flavor, _ = users.flavor()
    volume = _volume_in(racks, "r1")
    racks.cinder.fault = ServiceFault.UNAVAILABLE
    try:
        [instance] = users.create(flavor, hints={"same_rack_volume": [volume]})
        message = _assert_fits_nowhere(racks, instance)
    finally:
        racks.cinder.fault = None
    assert f"same_rack_volume: volume {volume} cannot be looked up now" in message
    explanation = _explanation_by_instance(racks, instance)
    assert "no valid host" in explanation
    assert f"GET /volumes/{volume} of Cinder answered 503" in explanation


# -- bare metal ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def nodes(stock: StockCloud) -> list[str]:
    """The nodes of a host with a driver like Ironic's."""
    return stock.start_bare_metal(_N_BARE_METAL_NODES)


def _of_bare_metal(users: Users, **more: str) -> str:
    """Return a flavor of whole nodes; it has their sizes, as operators write it."""
    nothing = {f"resources:{name}": "0" for name in ("VCPU", "MEMORY_MB", "DISK_GB")}
    specs = {**nothing, f"resources:{BARE_METAL_CLASS}": "1", **more}
    return users.flavor(vcpus=32, memory_mb=262144, extra_specs=specs)[0]


def _assert_on_node(stock: StockCloud, instance: str) -> str:
    """Assert that it runs on a node, and holds only that; return it."""
    shown = stock.settled(instance, "active")
    assert shown["host"] == BARE_METAL_HOST
    stock.assert_allocated(instance, {shown["node"]: {BARE_METAL_CLASS: 1}})
    return str(shown["node"])


def test_each_bare_metal_node_is_used_once(
    stock: StockCloud, users: Users, nodes: list[str]
) -> None:
    bare_metal = _of_bare_metal(users)
    instances = users.create(bare_metal, n=len(nodes) - 1)
    instances += users.create(bare_metal)
    used = [_assert_on_node(stock, instance) for instance in instances]
    assert sorted(used) == sorted(nodes)
    [one_too_many] = users.create(bare_metal)
    message = _assert_fits_nowhere(stock, one_too_many)
    if stock.kind is Scheduler.MOORAGE:
        assert f"Of {stock.n_nodes} hosts: " in message
        assert f" have no {BARE_METAL_CLASS} left" in message
    stock.ask("rebuild", instance=instances[0], has_new_image=True)
    assert _assert_on_node(stock, instances[0]) == used[0]


def test_bare_metal_node_is_forced_or_selected_by_its_trait(
    stock: StockCloud, users: Users, nodes: list[str]
) -> None:
    bare_metal = _of_bare_metal(users)
    with_trait = _of_bare_metal(users, **{f"trait:{BARE_METAL_TRAIT}": "required"})
    [special] = users.create(with_trait)
    node = _assert_on_node(stock, special)
    other = next(name for name in nodes if name != node)
    forced: dict[str, Any] = {"forced_host": BARE_METAL_HOST, "forced_node": other}
    [instance] = users.create(bare_metal, **forced)
    assert _assert_on_node(stock, instance) == other
    _assert_fits_nowhere(stock, *users.create(with_trait))
    _assert_fits_nowhere(stock, *users.create(bare_metal, **forced))


def test_failed_build_is_tried_on_another_node_of_the_host(
    stock: StockCloud, users: Users, nodes: list[str], n_requests: CountRequests
) -> None:
    [instance] = users.create(_of_bare_metal(users), metadata={"fails": "once"})
    node = _assert_on_node(stock, instance)
    assert node in nodes
    assert n_requests() == 1
    [chosen] = stock.chosen(instance)
    assert node not in chosen
