# SPDX-License-Identifier: Apache-2.0
"""A request's notifications equal those of nova 34's scheduler, in both formats."""

from __future__ import annotations

import contextlib
import copy
import gzip
import json
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oslo_versionedobjects.fixture import ObjectVersionChecker

from moorage.filters.numa_topology import NUMATopologyFilter
from moorage.objects import (
    CellMapping,
    ComputeNode,
    ComputeNodeList,
    Destination,
    RequestSpec,
    SchedulerRetries,
    SecurityGroup,
    SecurityGroupList,
    Selection,
    Serializer,
)
from moorage.objects.notifications import PAYLOADS
from moorage.scheduler.conf import load
from moorage.scheduler.drivers.instances import consumption_of, consumption_on_host
from moorage.scheduler.hosts import Consumption, HostBatch
from moorage.scheduler.notifications import Notifier, make_publishers
from moorage.scheduler.request import Request
from moorage.scheduler.service import Scheduler, build
from moorage.testing import builders as b
from moorage.testing.builders import table

from ..fixtures.clouds import CONTEXT, host, request, write_inventory
from ..fixtures.notification_listener import Listener
from ..fixtures.nova_peer import Peer, PeerError
from ..strategies.offers import Mappings, Offers, Report, offers
from ..strategies.plugins import plugin_requests
from .offered import columns, has_old_providers

pytestmark = [pytest.mark.deep, pytest.mark.peer]

WIRE = Path(__file__).parents[1] / "data" / "wire"
FORMATS = ("unversioned", "versioned", "both")
UUIDS = [str(uuid.UUID(int=i, version=4)) for i in range(1, 4)]
SETS = {"cpuset", "pcpuset", "cpuset_reserved", "_changed_fields"}

Events = list[list[Any]]


def _recorded() -> list[dict[str, Any]]:
    with gzip.open(WIRE / "corpus.jsonl.gz", "rt") as lines:
        messages = [json.loads(line)["message"]["args"] for line in lines]
    return [args for args in messages if "spec_obj" in args]


def _published(
    spec: Mapping[str, Any],
    notification_format: str,
    chosen: list[str],
    place: tuple[HostBatch, int, Consumption] | None = None,
) -> Events:
    """Our notifications of a request in its wire form; each instance has a host."""
    conf = load([], config_files=[])
    conf.set_override("notification_format", notification_format, "notifications")
    conf.set_override("host", "scheduler1")
    listener = Listener()
    notifier = Notifier(make_publishers(conf, listener), table(), lambda: False)
    read: RequestSpec = Serializer().deserialize_entity(CONTEXT, copy.deepcopy(spec))
    call = notifier.for_call(CONTEXT, read)
    assert call is not None
    call.start(None)
    selections = [[Selection(service_host=name)] for name in chosen]
    call.end(UUIDS[: len(chosen)], selections, place)
    notifier.stop()
    return [[t.publisher_id, t.event_type, t.payload] for t in listener.received]


def _published_by_nova(
    peer: Peer,
    spec: Mapping[str, Any],
    notification_format: str,
    chosen: list[str],
    report: Report | None = None,
    mappings: Mappings | None = None,
) -> Events:
    events: Events = peer.ask(
        "notifications",
        spec_obj=spec,
        format=notification_format,
        host="scheduler1",
        instance_uuids=UUIDS[: len(chosen)],
        chosen=chosen,
        hosts={} if report is None else {report.host: columns(report)},
        mappings=mappings,
    )
    return events


def _ordered(value: Any, key: str = "") -> Any:
    """Sort what are sets on one side, which have no order."""
    if isinstance(value, dict):
        return {k: _ordered(v, k) for k, v in value.items()}
    if isinstance(value, list | tuple | set):
        items = [_ordered(item) for item in value]
        return sorted(items) if key in SETS else items
    return value


def _same(ours: Events, novas: Events) -> None:
    assert json.loads(json.dumps(_ordered(ours))) == _ordered(novas)


@pytest.mark.parametrize("notification_format", FORMATS)
def test_recorded_requests_are_published_as_by_nova(
    peer: Peer, notification_format: str
) -> None:
    n_published = 0
    for args in _recorded():
        chosen = [f"host{i}" for i in range(min(3, len(args["instance_uuids"])))]
        spec = args["spec_obj"]
        novas = _published_by_nova(peer, spec, notification_format, chosen)
        _same(_published(spec, notification_format, chosen), novas)
        n_published += len(novas)
    assert n_published >= 2 * 149


def _completed(spec: RequestSpec, more: dict[str, Any]) -> RequestSpec:
    """Set the fields without which nova cannot make its payload."""
    spec = copy.deepcopy(spec)
    for name, value in {"disabled": False, "is_public": True}.items():
        setattr(spec.flavor, name, value)
    if spec.image is None or "properties" not in spec.image:
        spec.image = None
    if spec.instance_group is not None:
        spec.instance_group.uuid = UUIDS[0]
    for name, value in copy.deepcopy(more).items():
        setattr(spec, name, value)
    return spec


def _nodes(*names: str) -> ComputeNodeList:
    nodes = [ComputeNode(host=name, hypervisor_hostname=name) for name in names]
    return ComputeNodeList(objects=nodes)


def _groups(*groups: SecurityGroup) -> SecurityGroupList:
    return SecurityGroupList(objects=list(groups))


_CELL = CellMapping(
    id=1,
    uuid=UUIDS[1],
    name="cell1",
    transport_url="rabbit://user:secret@broker/",
    database_connection="mysql://user:secret@database/",
    disabled=False,
)
MORE = st.fixed_dictionaries(
    {},
    optional={
        "force_hosts": st.sampled_from([None, [], ["h1"], ["h1", "h2"]]),
        "force_nodes": st.sampled_from([None, ["n1"]]),
        "ignore_hosts": st.sampled_from([None, [], ["h3", "H4"]]),
        "availability_zone": st.sampled_from([None, "zone"]),
        "num_instances": st.integers(1, 9),
        "retry": st.sampled_from(
            [None, SchedulerRetries(num_attempts=2, hosts=_nodes("h1", "h2"))]
        ),
        "security_groups": st.sampled_from(
            [
                _groups(),
                _groups(SecurityGroup(uuid=UUIDS[0]), SecurityGroup(name="default")),
            ]
        ),
        "requested_destination": st.sampled_from(
            [
                None,
                Destination(host="h1", node="n1", cell=_CELL),
                Destination(host="h1", node=None),
                Destination(aggregates=["a,b", "c"]),
                Destination(),
            ]
        ),
    },
)


@settings(
    max_examples=240,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    database=None,
)
@given(plugin_requests(), MORE, st.sampled_from(FORMATS), st.integers(1, 3))
def test_drawn_requests_are_published_as_by_nova(
    peer: Peer,
    spec: RequestSpec,
    more: dict[str, Any],
    notification_format: str,
    n_instances: int,
) -> None:
    wire = Serializer().serialize_entity({}, _completed(spec, more))
    wire = json.loads(json.dumps(wire))
    chosen = [f"host{i}" for i in range(n_instances)]
    try:
        novas = _published_by_nova(peer, wire, notification_format, chosen)
    except PeerError:
        # nova fails a request that lacks a field; we only do not publish it.
        assert len(_published(wire, notification_format, chosen)) < 4
        return
    _same(_published(wire, notification_format, chosen), novas)


@pytest.mark.parametrize("name", sorted(PAYLOADS))
def test_payload_has_novas_fingerprint(peer: Peer, name: str) -> None:
    checker = ObjectVersionChecker(obj_classes={name: [PAYLOADS[name]]})
    assert peer.ask("payload_fingerprint", name=name) == checker.get_hashes()[name]


@pytest.fixture
def zoned(tmp_path: Path) -> Iterator[tuple[Scheduler, Listener]]:
    """A started scheduler whose first host is in an aggregate with a zone."""
    aggregate = {"name": "a", "hosts": ["h1"], "metadata": {"availability_zone": "z"}}
    path = write_inventory(tmp_path, host("h1"), host("h2"), aggregates=[aggregate])
    conf = load([], config_files=[])
    conf.set_override("inventory_file", str(path), "moorage")
    conf.set_override("notification_format", "versioned", "notifications")
    conf.set_override("host", "scheduler1")
    listener = Listener()
    scheduler = build(conf, notifier=listener)
    scheduler.start()
    yield scheduler, listener
    scheduler.stop()


@pytest.mark.parametrize(
    ("changes", "nodes"),
    [
        ({"availability_zone": "z"}, None),
        ({"requested_destination": Destination(host="h1")}, ["h1"]),
        (
            {
                "availability_zone": "z",
                "requested_destination": Destination(node="h1"),
            },
            ["h1"],
        ),
        ({"force_hosts": ["h1"]}, ["h1"]),
        ({"force_hosts": ["h1"], "availability_zone": "z"}, ["h1"]),
    ],
    ids=["zone", "host", "node and zone", "forced", "forced in zone"],
)
def test_request_is_published_as_prefilters_leave_it(
    peer: Peer,
    zoned: tuple[Scheduler, Listener],
    changes: dict[str, Any],
    nodes: list[str] | None,
) -> None:
    scheduler, listener = zoned
    changes = {"instance_uuid": UUIDS[0], **copy.deepcopy(changes)}
    spec = _completed(request(**changes), {})
    wire = json.loads(json.dumps(Serializer().serialize_entity({}, spec)))
    read = Serializer().deserialize_entity(CONTEXT, copy.deepcopy(wire))
    scheduler.select_destinations(CONTEXT, read, UUIDS[:1], True, True)
    scheduler.stop()
    [aggregate] = scheduler.table.aggregates
    arguments = {} if nodes is None else {"nodes": [str(uuid.uuid4()) for _ in nodes]}
    novas = peer.ask(
        "notifications",
        spec_obj=wire,
        format="versioned",
        host="scheduler1",
        instance_uuids=UUIDS[:1],
        chosen=["h1"],
        prefilters=["map_az_to_placement_aggregate"],
        aggregates=[[aggregate.uuid, {"availability_zone": "z"}]],
        **arguments,
    )
    for _, _, payload in novas:
        # The peer's stand-in names a node after the request.
        _name_node(payload)
    ours = [[t.publisher_id, t.event_type, t.payload] for t in listener.received]
    _same(ours, novas)


def _name_node(payload: dict[str, Any]) -> None:
    destination = payload["nova_object.data"]["requested_destination"]
    if destination is not None and "host" in destination["nova_object.data"]:
        destination["nova_object.data"] |= {"host": "h1", "node": "h1"}


# -- NUMA cells ------------------------------------------------------------------------

CORES = [{n, n + 4} for n in range(4)], [{n, n + 4} for n in range(8, 12)]
PAGES = [b.pages(4, 1 << 20), b.pages(2048, 2048), b.pages(1 << 20, 2)]
CELLS = [
    b.numa_cell(
        number,
        cpuset=set().union(*cores),
        pcpuset=set().union(*cores),
        siblings=cores,
        memory=10240,
        mempages=PAGES,
    )
    for number, cores in enumerate(CORES, start=2)
]
LARGE = Report("h1", b.numa_topology(*CELLS), ())
SHARED: dict[str, Any] = {"cpu_policy": "shared", "cpuset": {0, 1}, "pcpuset": set()}
MIXED: dict[str, Any] = {"cpu_policy": "mixed", "cpuset": {0}, "pcpuset": {1}}
GUESTS = {
    "floating": b.guest_topology(b.guest_cell(**SHARED)),
    "pinned": b.guest_topology(b.guest_cell()),
    "large pages": b.guest_topology(b.guest_cell(pagesize=-2)),
    "pages of 2 MiB": b.guest_topology(b.guest_cell(pagesize=2048, **SHARED)),
    "mixed": b.guest_topology(b.guest_cell(**MIXED)),
    "threads": b.guest_topology(b.guest_cell(cpu_thread_policy="require")),
    "isolated": b.guest_topology(b.guest_cell(cpu_thread_policy="isolate")),
    "emulator": b.guest_topology(b.guest_cell(), emulator_threads_policy="isolate"),
    "two cells": b.guest_topology(b.guest_cell(0), b.guest_cell(1)),
}


def _wire(spec: RequestSpec) -> dict[str, Any]:
    written: dict[str, Any] = Serializer().serialize_entity({}, spec)
    return json.loads(json.dumps(written))


@pytest.mark.parametrize("n_instances", [1, 2])
@pytest.mark.parametrize("guest", GUESTS)
def test_end_has_the_cells_of_the_last_instance(
    peer: Peer, tmp_path: Path, guest: str, n_instances: int
) -> None:
    spec = _completed(
        request(
            num_instances=n_instances,
            instance_uuid=UUIDS[0],
            numa_topology=GUESTS[guest],
        ),
        {},
    )
    wire, uuids = _wire(spec), UUIDS[:n_instances]
    with _numa_scheduler(tmp_path, LARGE) as (scheduler, listener):
        read = Serializer().deserialize_entity(CONTEXT, copy.deepcopy(wire))
        scheduler.select_destinations(CONTEXT, read, uuids, True, True)
        scheduler.stop()
    ours: list[Any]
    ours = [[t.publisher_id, t.event_type, t.payload] for t in listener.received]
    chosen = ["h1"] * n_instances
    novas = _published_by_nova(peer, wire, "both", chosen, LARGE, {})
    _same(ours, novas)
    requested, got = (
        each[2]["nova_object.data"]["numa_topology"] for each in ours[1::2]
    )
    assert {_cell_of(requested), _cell_of(got)} in ({0, 2}, {0, 3})


def _cell_of(topology: dict[str, Any]) -> int:
    [first, *_] = topology["nova_object.data"]["cells"]
    number: int = first["nova_object.data"]["id"]
    return number


@contextlib.contextmanager
def _numa_scheduler(
    folder: Path, report: Report
) -> Iterator[tuple[Scheduler, Listener]]:
    texts = {name: json.loads(text) for name, text in report.texts().items() if text}
    path = write_inventory(folder, host(report.host, vcpus=16, **texts))
    conf = load([], config_files=[])
    conf.set_override("inventory_file", str(path), "moorage")
    conf.set_override("notification_format", "both", "notifications")
    conf.set_override("host", "scheduler1")
    conf.set_override("enabled_filters", ["NUMATopologyFilter"], "filter_scheduler")
    scheduler = build(conf, notifier=(listener := Listener()))
    scheduler.start()
    yield scheduler, listener
    scheduler.stop()


def test_drawn_cells_are_published_as_by_nova(peer: Peer) -> None:
    n_published = 0

    @settings(
        max_examples=200,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    @given(offers(n_hosts=1, most_candidates=1))
    def compare(drawn: Offers) -> None:
        nonlocal n_published
        [report], [of_requests] = drawn.reports, drawn.mappings
        for spec, [mappings] in zip(drawn.requests, of_requests, strict=True):
            if spec.numa_topology and not has_old_providers(spec):
                n_published += _same_end(peer, report, spec, mappings)

    compare()
    assert n_published >= 40


def _same_end(
    peer: Peer, report: Report, spec: RequestSpec, mappings: Mappings
) -> bool:
    """Compare the notifications of one instance; False: the host is rejected."""
    wire = _wire(_completed(spec, {"requested_destination": None}))
    try:
        novas = _published_by_nova(peer, wire, "both", [report.host], report, mappings)
    except PeerError:
        return False
    conf = load([], config_files=[])
    hosts = table(report.record()).batch()
    limits = NUMATopologyFilter(conf).prepare(spec).selection_limits(hosts[0], spec)
    consumption = consumption_of(Request.of(spec), conf)
    limits_on_host = consumption_on_host(consumption, limits, mappings)
    _same(_published(wire, "both", [report.host], (hosts, 0, limits_on_host)), novas)
    return True
