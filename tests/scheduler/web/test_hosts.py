# SPDX-License-Identifier: Apache-2.0
"""What the API returns about hosts: room for recent flavors, and one host in full."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from oslo_config import cfg
from werkzeug.test import Client

from moorage.agent.reporter import Reporter
from moorage.objects import Flavor
from moorage.scheduler.decision_store import DecisionStore
from moorage.scheduler.errors import NoValidHost
from moorage.scheduler.explain import Explainer
from moorage.scheduler.placement.adapter import Verb
from moorage.scheduler.service import Scheduler, build
from moorage.scheduler.web import Answers, make_app
from moorage.testing import builders

from ...fixtures.clouds import CONTEXT, host, new_uuids, request, write_inventory
from ...fixtures.placed_clouds import CloudKind, placed_processes
from ...fixtures.placement_servers import EmbeddedPlacementFixture
from ...fixtures.waiting import wait_until

_STORE = "sqlite:///{}/decisions.sqlite"


def _flavor(name: str, vcpus: int, memory_mb: int) -> Flavor:
    return Flavor(
        name=name, flavorid=name, vcpus=vcpus, memory_mb=memory_mb, root_gb=10,
        ephemeral_gb=0, swap=0, extra_specs={},
    )  # fmt: skip


LARGE, SMALL = _flavor("m1.large", 4, 8192), _flavor("m1.small", 1, 1024)


@dataclasses.dataclass(frozen=True, slots=True)
class _Cloud:
    """A scheduler with a store, and a client of the API on both."""

    scheduler: Scheduler
    store: DecisionStore
    client: Client

    def decide(self, flavor: Flavor, project: str = "project", **changes: Any) -> str:
        """Request an instance; return its UUID, wherever it goes, or if nowhere."""
        [uuid] = new_uuids()
        spec = request(flavor=flavor, project_id=project, **changes)
        context = {**CONTEXT, "request_id": f"req-{uuid}", "project_id": project}
        with contextlib.suppress(NoValidHost):
            self.scheduler.select_destinations(context, spec, [uuid], True, True)
        self.store.flush()
        return uuid

    def get(self, path: str, **args: str) -> Any:
        answer = self.client.get(path, query_string=args)
        assert answer.status_code == 200, answer.data
        return json.loads(answer.data)

    def capacity(self, **body: Any) -> Any:
        answer = self.client.post("/v1/capacity", json={"from": "decisions", **body})
        assert answer.status_code == 200, answer.data
        return json.loads(answer.data)


def _hosts() -> list[dict[str, Any]]:
    return [
        host("free"),
        host("no-memory", memory_mb=512),
        host("odd", vcpus=7),
        host("disabled", disabled=True),
        host("forced", forced_down=True),
    ]


@pytest.fixture
def cloud(conf: cfg.ConfigOpts, tmp_path: Path) -> Iterator[_Cloud]:
    with _cloud(conf, tmp_path, _hosts()) as made:
        yield made


@contextlib.contextmanager
def _cloud(
    conf: cfg.ConfigOpts, folder: Path, hosts: list[dict[str, Any]], **more: Any
) -> Iterator[_Cloud]:
    path = write_inventory(folder, *hosts, **more)
    conf.set_override("inventory_file", str(path), group="moorage")
    store = DecisionStore(_STORE.format(folder))
    scheduler = build(conf)
    try:
        scheduler.start()
        scheduler.decisions.subscribe(store.add)
        client = Client(make_app(Answers(scheduler.explainer, store)))
        yield _Cloud(scheduler, store, client)
    finally:
        scheduler.stop()
        store.stop()


def _by_host(answer: Any) -> dict[str, Any]:
    return {each["host"]: each for each in answer["hosts"]}


# -- room ------------------------------------------------------------------------------


def test_hosts_say_how_many_of_the_largest_recent_flavors_fit(cloud: _Cloud) -> None:
    for flavor in (SMALL, LARGE):
        cloud.decide(flavor, ignore_hosts=[each["host"] for each in _hosts()])
    answer = cloud.get("/v1/hosts")
    hosts = _by_host(answer)
    assert list(hosts["free"]["fits"].items()) == [("m1.large", 2), ("m1.small", 8)]
    assert hosts["odd"]["fits"] == {"m1.large": 1, "m1.small": 7}
    for name in ("no-memory", "disabled", "forced"):
        assert hosts[name]["fits"] == {"m1.large": 0, "m1.small": 0}
    large, small = answer["room"]["flavors"]
    assert (large["n_instances"], large["n_hosts"]) == (3, 2)
    assert (small["name"], small["n_instances"], small["is_exact"]) == (
        "m1.small", 15, True,
    )  # fmt: skip


def test_room_is_stranded_that_no_recent_flavor_can_use(cloud: _Cloud) -> None:
    cloud.decide(LARGE, ignore_hosts=[each["host"] for each in _hosts()])
    hosts = _by_host(cloud.get("/v1/hosts"))
    assert hosts["free"]["stranded"] == [0, 0, 80]
    # One large flavor leaves 3 vCPUs and 8 GiB.
    assert hosts["odd"]["stranded"] == [3, 8192, 90]
    assert hosts["no-memory"]["stranded"] == [8, 512, 100]
    assert hosts["disabled"]["stranded"] is None
    cloud.decide(SMALL, ignore_hosts=[each["host"] for each in _hosts()])
    answer = cloud.get("/v1/hosts")
    # Seven small ones use all vCPUs, and 7 GiB of 16: one large one uses more memory.
    assert _by_host(answer)["odd"]["stranded"] == [0, 8192, 30]
    assert answer["room"]["stranded"]["vcpus"] == 8 / (8 + 8 + 7)


def test_claims_and_filters_reduce_what_fits(
    conf: cfg.ConfigOpts, tmp_path: Path
) -> None:
    conf.set_override("max_instances_per_host", 3, group="filter_scheduler")
    filters = ["ComputeFilter", "NumInstancesFilter"]
    conf.set_override("enabled_filters", filters, group="filter_scheduler")
    with _cloud(conf, tmp_path, [host("h1")]) as cloud:
        cloud.decide(SMALL)
        [one] = cloud.get("/v1/hosts")["hosts"]
        assert (one["fits"], one["n_instances"]) == ({"m1.small": 2}, 1)


def test_what_the_room_is_unknown_for_is_said(cloud: _Cloud) -> None:
    def notes(explainer: Explainer, store: DecisionStore | None) -> Any:
        client = Client(make_app(Answers(explainer, store)))
        answer = json.loads(client.get("/v1/hosts").data)
        assert answer["room"] is None
        assert {each["fits"] for each in answer["hosts"]} == {None}
        return " ".join(answer["notes"])

    unknown = "How many more instances of recent flavors fit is unknown: "
    explainer, parts = cloud.scheduler.explainer, cloud.scheduler.parts
    # On a busy machine, the store may not answer in time at first.
    wait_until(
        lambda: f"{unknown}no request is stored yet" in notes(explainer, cloud.store)
    )
    text = notes(explainer, None)
    assert unknown in text
    assert "decision_store_connection is empty" in text
    away = DecisionStore("sqlite:////proc/none/decisions.sqlite")
    assert "/proc/none" in notes(explainer, away)
    cloud.decide(SMALL)
    without_providers = Explainer(lambda: parts)
    text = notes(without_providers, cloud.store)
    assert "set [placement_database] connection" in text


# -- one host --------------------------------------------------------------------------

_SOURCES = [
    "file",
    "push",
    "nova_db",
    pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.xdist_group("kafka")]),
]


@pytest.mark.deep
@pytest.mark.parametrize("candidates", ["memory", "api"])
@pytest.mark.parametrize("driver", ["filter_scheduler", "solver"])
@pytest.mark.parametrize("source", _SOURCES)
def test_host_is_what_each_source_knows_and_the_rest_is_unknown(
    source: str, driver: str, candidates: str, tmp_path: Path
) -> None:
    """moorage-api, which starts later, has not received the scheduler's claim."""
    [reported, claimed] = new_uuids(2)
    kind = CloudKind(driver, candidates, "aggregates", False, source)
    url = _STORE.format(tmp_path)
    with placed_processes(kind, tmp_path, {"a": [reported]}) as start:
        scheduler = start(moorage={"decision_store_connection": url})
        context: Any = {**CONTEXT, "request_id": "req-b"}
        spec = request(ignore_hosts=["a", "c", "d", "e", "f", "x"])
        scheduler.select_destinations(context, spec, [claimed], True, True)
        of_scheduler = scheduler.explainer.host("b")
        scheduler.stop()  # which writes the store
        api, store = start(), DecisionStore(url)
        try:
            answers = Answers(api.explainer, store)
            a, b = answers.host("a"), answers.host("b")
        finally:
            store.stop()
    [pending] = [e for e in of_scheduler.events if e.kind == "pending claim"]
    assert claimed in pending.text
    assert [each.uuid for each in of_scheduler.instances] == [claimed]

    knows_instances = source != "file"
    assert [each["uuid"] for each in a["instances"]] == [reported]
    assert a["n_unnamed"] == (0 if knows_instances else None)
    assert b["instances"] == ()
    [node] = b["nodes"]
    assert node["state"]["n_instances"] == (0 if knows_instances else None)
    assert (node["state"]["seen_s"] is None) is (source == "file")
    assert [(e["kind"], e["request_id"]) for e in b["events"] if e["request_id"]] == [
        ("claimed", "req-b")
    ]
    assert {each["name"] for each in b["aggregates"]} == {
        "everyone", "az1", "rack-r1", "row-A",
    }  # fmt: skip
    assert node["state"]["places"] == {"rack": ["r1"], "row": ["A"]}
    [provider] = node["providers"]
    assert provider["inventories"]["VCPU"]["used"] == 1
    assert "COMPUTE_STATUS_DISABLED" not in provider["traits"]
    assert node["providers_from"] == (
        "memory" if candidates == "memory" else "placement"
    )
    assert (b["room"] is None) is (candidates == "api")
    if candidates == "memory":
        assert node["state"]["fits"] == {"plain": 63}


def test_push_tells_that_aggregates_are_unknown_and_why_a_report_was_refused(
    conf: cfg.ConfigOpts,
) -> None:
    conf.set_override("source", "push", group="moorage")
    record = builders.host(host="h1", last_seen_up=time.time())
    with EmbeddedPlacementFixture() as placement, contextlib.ExitStack() as running:
        scheduler = build(conf, placement=placement.placement)
        running.callback(scheduler.stop)
        scheduler.start()
        sent: list[Any] = []
        Reporter(sent.extend).report_many([(record, [])])
        _send(scheduler, sent)
        answers = Answers(scheduler.explainer, None)
        detail = answers.host("h1")
        assert detail["aggregates"] is None
        assert [each["kind"] for each in detail["events"]] == ["report"]
        notes = " ".join(detail["notes"])
        assert "aggregate" in notes
        assert "Claims and refusals of the past are unknown: " in notes
        [node] = detail["nodes"]
        assert node["problem"] == "it has no resource provider in Placement"
        changed = dataclasses.replace(record, vcpus_used=4)
        sent.clear()
        Reporter(sent.extend).report_many([(changed, [])])
        text = json.dumps(sent).replace('"vcpus_used": 4', '"vcpus_used": "four"')
        _send(scheduler, json.loads(text))
        refused = [e for e in answers.host("h1")["events"] if "refused" in e["kind"]]
        assert ["vcpus_used" in event["text"] for event in refused] == [True]


def _send(scheduler: Scheduler, reports: Any) -> None:
    endpoint: Any
    (endpoint,) = scheduler.source_endpoints
    endpoint.host_reports({}, json.loads(json.dumps(reports)))


def test_refused_claims_are_events_and_the_newest_come_first(cloud: _Cloud) -> None:
    """Placement has less than the scheduler thinks, which learns of it by the claim."""
    uuid = cloud.decide(LARGE, ignore_hosts=["no-memory", "odd"])
    [node] = cloud.scheduler.table.nodes_of("free")
    _use_up(cloud.scheduler, node)
    other = cloud.decide(SMALL, ignore_hosts=["no-memory", "odd"])
    detail = cloud.get("/v1/hosts/free")
    of_request = {each["request_id"]: each["kind"] for each in detail["events"]}
    assert of_request[f"req-{uuid}"] == "claimed"
    assert of_request[f"req-{other}"] == "refused"
    times = [each["at"] for each in detail["events"]]
    assert times == sorted(times, reverse=True)
    [instance] = detail["instances"]
    assert instance["uuid"] == uuid
    assert instance["claimed_at"] is not None


def _use_up(scheduler: Scheduler, node: str) -> None:
    """Allocate all memory of a node behind the scheduler's back."""
    consumer: Any = {
        "allocations": {node: {"resources": {"MEMORY_MB": 8192}}},
        "project_id": "other", "user_id": "other", "consumer_generation": None,
    }  # fmt: skip
    [uuid] = new_uuids()
    answer = scheduler.placement.write(Verb.PUT, f"/allocations/{uuid}", consumer)
    assert not answer.code, answer.detail


def test_host_that_is_down_has_since_when_and_its_instances(cloud: _Cloud) -> None:
    uuid = cloud.decide(SMALL, ignore_hosts=["odd"])
    table = cloud.scheduler.table
    [node] = table.nodes_of("free")
    seen_at = time.time() - 7200
    table.change_many({node: {"last_seen_up": seen_at}})
    hosts = _by_host(cloud.get("/v1/hosts", instances="true"))
    assert hosts["free"]["condition"] == "down"
    assert hosts["free"]["seen_at"] == seen_at
    assert hosts["free"]["instances"] == [uuid]
    assert hosts["free"]["stranded"] is None


def test_unknown_host_is_not_found(cloud: _Cloud) -> None:
    answer = cloud.client.get("/v1/hosts/fre")
    assert answer.status_code == 404
    assert "similar: free" in json.loads(answer.data)["error"]


# -- capacity --------------------------------------------------------------------------


def test_capacity_lists_hosts_in_the_order_of_their_weights(cloud: _Cloud) -> None:
    cloud.decide(LARGE, ignore_hosts=["free"])  # it goes to odd
    [large] = cloud.capacity(hosts=5)["flavors"]
    [first] = large["hosts"]
    assert (first["host"], first["n_instances"]) == ("free", 2)
    cloud.decide(SMALL, ignore_hosts=[each["host"] for each in _hosts()])
    answer = cloud.capacity(hosts=1, name="m1.small")
    [small] = answer["flavors"]
    assert [each["host"] for each in small["hosts"]] == ["free"]
    assert small["n_hosts"] == 2
    uuid = cloud.decide(SMALL)
    [selection] = cloud.get(f"/v1/decisions/{uuid}")["decisions"]
    assert selection["instances"][0]["host"] == "free"


def test_capacity_of_a_project_has_its_isolation_and_demand(
    conf: cfg.ConfigOpts, tmp_path: Path
) -> None:
    filters = ["ComputeFilter", "AggregateMultiTenancyIsolation"]
    conf.set_override("enabled_filters", filters, group="filter_scheduler")
    aggregate = {
        "name": "of-p1", "hosts": ["own"], "metadata": {"filter_tenant_id": "p1"},
    }  # fmt: skip
    hosts = [host("own"), host("common")]
    with _cloud(conf, tmp_path, hosts, aggregates=[aggregate]) as cloud:
        cloud.decide(LARGE, "p1", ignore_hosts=["common"])
        cloud.decide(LARGE, "p2")
        cloud.decide(LARGE, "p2", ignore_hosts=["common"])

        def seen_by(**body: Any) -> tuple[int, Any]:
            [flavor] = cloud.capacity(**body)["flavors"]
            return flavor["n_hosts"], flavor["demand"]

        assert seen_by() == (1, {"n_requests": 3, "n_refused": 1})
        assert seen_by(project="p2") == (1, {"n_requests": 2, "n_refused": 1})
        assert seen_by(project="p1") == (2, {"n_requests": 1, "n_refused": 0})
        assert seen_by(project="p3")[1] == {"n_requests": 0, "n_refused": 0}
        [note, *_] = cloud.capacity(project="p1")["notes"]
        assert note.startswith("Quotas are not counted")


def test_demand_without_a_store_is_unknown(cloud: _Cloud) -> None:
    client = Client(make_app(Answers(cloud.scheduler.explainer, None)))
    flavors = [{"name": "small", "vcpus": 1, "memory_mb": 128}]
    answer = json.loads(client.post("/v1/capacity", json={"flavors": flavors}).data)
    assert answer["flavors"][0]["demand"] is None
    assert "The requests of the last day are unknown: " in answer["notes"][0]
