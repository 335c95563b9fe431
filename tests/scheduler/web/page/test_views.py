# SPDX-License-Identifier: Apache-2.0
"""The page's paths: headers, errors, forms, hostile names."""

from __future__ import annotations

import datetime
import gzip
import re
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from werkzeug.test import Client, TestResponse

from moorage.scheduler.decision_store import DecisionStore
from moorage.scheduler.drivers.record import (
    ClaimAttempt,
    DecisionRecord,
    InstanceRecord,
    Outcome,
)
from moorage.scheduler.explain import Explainer
from moorage.scheduler.locality import LEVEL_KEY, PLACE_KEY
from moorage.scheduler.web import Answers, make_app
from moorage.testing.builders import aggregate, host, instance_uuid

from ....fixtures.explained_clouds import NAMES
from ....fixtures.explaining_api import (
    FAILED,
    INSTANCE,
    SELECTED,
    TWO,
    ExplainingAPI,
    explaining_api,
)
from ....fixtures.hostile_names import HOSTILE_NAMES, hostile_record
from ....fixtures.ports import free_port
from ....fixtures.stored_decisions import decisions_in


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExplainingAPI]:
    folder = tmp_path_factory.mktemp("views")
    options = {
        "locality__levels": ["rack", "row"],
        "filter_scheduler__enabled_filters": ["ComputeFilter"],
    }
    with explaining_api(folder, **options) as made:
        yield made


@pytest.fixture
def client(api: ExplainingAPI) -> Client:
    return Client(api.app)


PAGES = [
    "/", "/?by=cell", "/?by=rack", "/decisions", f"/decisions/{TWO}", "/failures",
    f"/decisions/{INSTANCE}", "/search?q=h", "/hosts?sort=-ram", "/hosts",
    f"/hosts/{NAMES[0]}", "/why-not", f"/closest?request={FAILED}", "/dry-run",
    "/capacity", f"/plans/drain?host={NAMES[0]}", "/plans/make-room",
    "/plans/defragment?max_moves=9",
]  # fmt: skip


@pytest.mark.parametrize("path", [*PAGES, "/nothing"])
def test_every_page_has_a_strict_policy(client: Client, path: str) -> None:
    answer = client.get(path)
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Cache-Control"] == "no-store"
    assert " style=" not in answer.text
    assert not {"onclick=", "onload=", "javascript:"} & set(answer.text.split())


def test_every_link_leads_to_a_page(client: Client) -> None:
    pages_by_link: dict[str, str] = {}
    for path in PAGES:
        links = set(_elements(client.get(path)).links) - {"#main"}
        assert links, path
        pages_by_link |= dict.fromkeys(links, path)
    for link, path in pages_by_link.items():
        assert client.get(link).status_code == 200, f"{link} on {path}"


class _Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert not any(name.startswith("on") for name, _ in attrs)
        if tag == "a":
            self.links.append(dict(attrs)["href"] or "")

    def handle_data(self, data: str) -> None:
        self.text += data


def _elements(answer: TestResponse) -> _Elements:
    parser = _Elements()
    parser.feed(answer.text)
    return parser


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/nothing", 404, "Not Found"),
        ("/?by=shelf", 400, "is none of availability-zone, cell, rack, row"),
        ("/?first=x", 400, "first: &#39;x&#39; is not a whole number"),
        ("/decisions/nothing", 404, "No decision is stored for &#39;nothing&#39;"),
        ("/hosts/h11", 404, "similar: h1"),
        (f"/hosts/{'x' * 256}", 400, "has more than 255 characters"),
        ("/decisions?since=2h", 400, "is none of 15m"),
        (
            "/decisions?outcome=x",
            400,
            "is none of refused, selected, no valid host, failed",
        ),
        ("/decisions?after=x", 400, "does not match"),
        ("/decisions?from=x", 400, "from: &#39;x&#39; is not a time"),
        ("/failures?to=x", 400, "to: &#39;x&#39; is not a time"),
        ("/hosts?state=x", 400, "is none of forced down, disabled, down, up, not up"),
        ("/hosts?sort=x", 400, "is none of host, zone"),
        ("/hosts?place=r1", 400, "is not a place: rack=NAME, row=NAME"),
        ("/search?q=nothing", 404, "has this name"),
        (f"/why-not?host=h11&request={SELECTED}", 404, "similar: h1"),
        (f"/why-not?host={NAMES[0]}&request=nothing", 404, "No decision is stored"),
        ("/closest?request=nothing", 404, "No decision is stored"),
        ("/dry-run?vcpus=x", 400, "vCPUs: &#39;x&#39; is not a whole number"),
        ("/dry-run?vcpus=1", 400, "memory_mb"),
        (f"/dry-run?request={SELECTED}&count=101", 400, "greater than the maximum"),
        ("/dry-run?vcpus=1&memory_mb=1&hints=x", 400, "is not KEY=VALUE"),
        ("/login", 404, "Not Found"),
    ],
)
def test_an_error_is_a_page_with_its_cause(
    client: Client, path: str, status: int, text: str
) -> None:
    answer = client.get(path)
    assert (answer.status_code, answer.mimetype) == (status, "text/html")
    assert text in answer.text
    assert 'role="alert"' in answer.text


def test_a_form_keeps_what_was_sent(client: Client) -> None:
    answer = client.get("/dry-run?vcpus=x&zone=zone1&hints=a%3Db%0Ac%3Dd")
    assert 'value="zone1"' in answer.text
    assert "a=b\nc=d</textarea>" in answer.text


def test_without_a_store_the_cloud_is_shown(api: ExplainingAPI) -> None:
    client = Client(make_app(Answers(api.scheduler.explainer, None)))
    answer = client.get("/")
    assert answer.status_code == 200
    assert "decision_store_connection is empty" in answer.text
    assert "How full the hosts are" in answer.text
    assert client.get("/decisions").status_code == 404


def test_without_providers_in_memory_the_capacity_says_what_to_set(
    api: ExplainingAPI,
) -> None:
    parts = api.scheduler.parts
    client = Client(make_app(Answers(Explainer(lambda: parts), api.store)))
    answer = client.get("/capacity")
    assert answer.status_code == 503
    assert "set [placement_database] connection" in answer.text


@pytest.fixture(params=["missing", "refusing"])
def store_away(request: pytest.FixtureRequest) -> DecisionStore:
    """A store whose file cannot be, or whose server does not run."""
    if request.param == "missing":
        return DecisionStore("sqlite:////proc/none/decisions.sqlite")
    return DecisionStore(f"mysql+pymysql://u:p@127.0.0.1:{free_port()}/decisions")


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/", 200, "How full the hosts are"),
        (f"/hosts/{NAMES[0]}", 200, "Why is an instance not here?"),
        ("/decisions", 503, "<form"),
        (f"/why-not?host={NAMES[0]}&request={SELECTED}", 503, "<form"),
    ],
)
def test_a_store_that_is_away_is_named_beside_the_rest_of_a_page(
    api: ExplainingAPI, store_away: DecisionStore, path: str, status: int, text: str
) -> None:
    client = Client(make_app(Answers(api.scheduler.explainer, store_away)))
    answer = client.get(path)
    assert (answer.status_code, answer.mimetype) == (status, "text/html")
    assert store_away.name in answer.text
    assert text in answer.text


@pytest.fixture
def silent_store() -> Iterator[DecisionStore]:
    """A store whose server accepts connections and answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        yield DecisionStore(f"mysql+pymysql://u:p@127.0.0.1:{port}/decisions")


def test_each_page_waits_three_seconds_for_a_store_and_says_so(
    api: ExplainingAPI, silent_store: DecisionStore
) -> None:
    statuses = {
        "/": 200,
        "/?small": 200,
        f"/hosts/{NAMES[0]}": 200,
        "/decisions": 503,
        f"/decisions/{SELECTED}": 503,
        f"/why-not?host={NAMES[0]}&request={SELECTED}": 503,
    }

    def answer_to(client: Client, path: str) -> tuple[int, str, float]:
        started = time.monotonic()
        answer = client.get(path)
        return answer.status_code, answer.text, time.monotonic() - started

    # Not made by the threads: Python 3.11 cannot parse in several of them at once.
    clients = [
        Client(make_app(Answers(api.scheduler.explainer, silent_store)))
        for _ in statuses
    ]
    with ThreadPoolExecutor(len(statuses)) as pool:
        answered = pool.map(answer_to, clients, statuses)
        answers = dict(zip(statuses, answered, strict=True))
    assert {path: status for path, (status, _, _) in answers.items()} == statuses
    for path, (_, text, elapsed_s) in answers.items():
        assert 2.5 < elapsed_s < 6, path
        assert "The store of decisions did not answer within 3 s" in text, path


def test_a_large_page_is_compressed_if_the_browser_can_read_it(client: Client) -> None:
    plain = client.get("/")
    small = client.get("/", headers={"Accept-Encoding": "gzip"})
    assert small.headers["Content-Encoding"] == "gzip"
    assert len(small.data) < len(plain.data) / 2
    assert b"How full" in gzip.decompress(small.data)
    assert "Content-Encoding" not in plain.headers


def test_reasons_of_the_last_hour_are_those_of_the_records(client: Client) -> None:
    text = _elements(client.get("/")).text
    assert "Placement" in text
    assert "too little DISK_GB, MEMORY_MB or VCPU" in text


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_hostile_names_are_text_on_every_page(
    api: ExplainingAPI, client: Client, name: str
) -> None:
    now = time.time()
    api.store.add(hostile_record("req-hostile", INSTANCE, name, started_at=now))
    api.store.flush()
    arguments: Any = {"host": name, "request": name, "hints": name, "vcpus": name}
    answers = [
        client.get("/"),
        client.get("/decisions"),
        client.get("/decisions", query_string=arguments),
        client.get("/decisions/req-hostile"),
        client.get("/why-not", query_string=arguments),
        client.get("/closest", query_string={"request": "req-hostile"}),
        client.get("/closest", query_string=arguments),
        client.get("/dry-run", query_string=arguments),
        client.get("/dry-run", query_string={"vcpus": name, "zone": name}),
    ]
    for answer in answers:
        assert answer.status_code in (200, 400, 404), answer.text
        assert len(answer.data) < 200_000
        found = _elements(answer)
        assert found.tags.count("script") <= 2  # the page's own, and its data
        assert not {"img", "iframe", "object", "base"} & set(found.tags)


def test_places_are_named_where_hosts_are(api: ExplainingAPI, client: Client) -> None:
    table = api.scheduler.table
    place = {LEVEL_KEY: "rack", PLACE_KEY: "r<1>"}
    rack = aggregate(700, *NAMES[:3], **place)
    table.put_aggregate(rack)
    try:
        by_rack = client.get("/?by=rack")
        assert 'aria-label="Rack r&lt;1&gt;"' in by_rack.text
        assert 'aria-current="true">rack</a>' in by_rack.text
        assert "r<1>" in _elements(client.get(f"/hosts/{NAMES[0]}")).text
        hosts = _elements(client.get("/hosts")).text
        assert hosts.count("rack r<1>") == 3
        stored = decisions_in(api.store, request_id=SELECTED)[0].record
        table.put_aggregate(aggregate(700, stored.instances[0].host, **place))
        assert "rack r<1>" in _elements(client.get(f"/decisions/{SELECTED}")).text
    finally:
        table.drop_aggregate(rack.id)


def test_reason_of_a_disabled_host_is_on_its_pages(
    api: ExplainingAPI, client: Client
) -> None:
    [name, *_] = NAMES
    table = api.scheduler.table
    [node] = [each.uuid for each in table.batch() if each.host == name]
    table.change_many({node: {"disabled": True, "disabled_reason": "broken <fan>"}})
    try:
        why_not = f"/why-not?host={name}&request={SELECTED}"
        for path in ("/hosts", f"/hosts/{name}", why_not):
            assert "broken &lt;fan&gt;" in client.get(path).text
    finally:
        table.change_many({node: {"disabled": False, "disabled_reason": None}})


def test_host_has_its_providers_aggregates_instances_and_events(
    api: ExplainingAPI, client: Client
) -> None:
    placed = decisions_in(api.store, request_id=SELECTED)[0].record.instances[0]
    text = _elements(client.get(f"/hosts/{placed.host}")).text
    words = " ".join(text.split())
    for part in (
        "MEMORY_MB", "plain fits", "Stranded", INSTANCE, "not reported yet",
        "pending claim", "claimed", SELECTED, "heartbeat unknown",
        "Whether there are others is unknown: the source of hosts reports no",
    ):  # fmt: skip
        assert part in words
    of_disabled = _elements(client.get(f"/hosts/{NAMES[0]}")).text
    assert "COMPUTE_STATUS_DISABLED" in of_disabled
    assert "ssd=true" in of_disabled


def test_host_without_providers_in_memory_says_what_is_unknown(
    api: ExplainingAPI,
) -> None:
    parts = api.scheduler.parts
    client = Client(make_app(Answers(Explainer(lambda: parts), api.store)))
    text = _elements(client.get(f"/hosts/{NAMES[1]}")).text
    assert "recent flavors fit is unknown: It is computed from" in text
    assert "MEMORY_MB" in text  # read from Placement


def test_a_host_is_emptied_on_the_page(client: Client, api: ExplainingAPI) -> None:
    empty = _elements(client.get("/plans/drain")).text
    assert "Steps" not in empty
    [host] = api.scheduler.table.instances.hosts_of(INSTANCE)
    page = client.get(f"/plans/drain?host={host}&parallel=2")
    assert page.status_code == 200
    text = _elements(page).text
    assert INSTANCE in text
    assert "Memory to copy" in text
    assert f"/plans/drain?host={host}" in client.get(f"/hosts/{host}").text
    assert client.get("/plans/drain?host=nowhere").status_code == 404
    assert client.get(f"/plans/drain?host={host}&place=rack=r1").status_code == 400
    assert client.get("/plans/drain?place=" + "x" * 256).status_code == 400


def test_capacity_is_asked_for_a_flavor_and_a_project(client: Client) -> None:
    words = " ".join(_elements(client.get("/capacity")).text.split())
    assert "Where they would go" in words
    assert "Quotas are not counted" not in words
    of_project = client.get("/capacity?flavor=plain&project=p%3C1")
    assert "Quotas are not counted" in of_project.text
    assert 'value="p&lt;1"' in of_project.text
    assert client.get("/capacity?flavor=nosuch").status_code == 404
    assert client.get("/capacity?project=" + "x" * 256).status_code == 400


def test_first_page_sums_up_the_room(client: Client) -> None:
    words = " ".join(_elements(client.get("/")).text.split())
    assert "more of the largest recent flavor, on" in words
    assert "Stranded memory" in words


@pytest.mark.deep
def test_pages_are_bounded(tmp_path: Path) -> None:
    uuids = tuple(instance_uuid(number) for number in range(1000))
    placed = [InstanceRecord(each, "h1", 1.0, ()) for each in uuids]
    claim = ClaimAttempt(uuids, ("h1",) * 1000, "claimed", 1, "", 5.0)
    others = [ClaimAttempt(uuids[:1], ("h1",), "claimed", 1, "", 5.0)] * 499
    record = DecisionRecord(
        "req-many", uuids, 1000, time.time(), instances=placed, claims=[claim, *others]
    )
    record.outcome = Outcome.SELECTED
    # A cloud of its own: the other tests would read the record again and again.
    with explaining_api(tmp_path) as api:
        api.store.add(record)
        api.store.flush()
        for number in range(150):
            name = f"many-{number}"
            zone = aggregate(500 + number, name, availability_zone=name)
            api.scheduler.table.put(host(host=name))
            api.scheduler.table.put_aggregate(zone)
        client = Client(api.app)
        found = _elements(client.get("/decisions/req-many"))
        assert "and 800 more" in found.text
        assert found.tags.count("tr") < 350
        cloud = _elements(client.get("/"))
        assert cloud.tags.count("figure") == 300
        assert re.search(r"1 to 100 of 15\d zones and cells", cloud.text)
        assert "/?by=availability-zone&first=100" in cloud.links
        more = _elements(client.get("/?first=100"))
        assert 150 <= more.tags.count("figure") < 300
        assert more.tags.count("figure") % 3 == 0


def test_decisions_are_filtered_as_by_the_command(client: Client) -> None:
    def shown(**query: str) -> set[str]:
        links = _elements(client.get("/decisions", query_string=query)).links
        names = (link.rpartition("/")[2] for link in links)
        return {SELECTED, TWO, FAILED} & set(names)

    assert shown() == {SELECTED, TWO, FAILED}
    assert shown(outcome="no valid host") == {FAILED}
    assert shown(outcome="refused") == {FAILED}
    assert shown(outcome="selected") == {SELECTED, TWO}
    assert shown(outcome="failed") == set()
    assert shown(to="2020-01-01T00:00") == set()
    assert shown(**{"from": "2020-01-01T00:00"}) == {SELECTED, TWO, FAILED}
    # A time replaces an age.
    assert shown(since="15m", to="2020-01-01T00:00") == set()
    everything = {SELECTED, TWO, FAILED}
    assert shown(since="15m", **{"from": "2020-01-01T00:00"}) == everything
    assert shown(flavor="no-such") == set()
    assert shown(project="other") == set()


def test_times_of_the_form_are_in_utc(
    api: ExplainingAPI, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    [stored] = decisions_in(api.store, request_id=FAILED)
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        minute = datetime.datetime.fromtimestamp(stored.decided_at, datetime.UTC)
        query = {"from": f"{minute:%Y-%m-%dT%H:%M}", "outcome": "refused"}
        text = client.get("/decisions", query_string=query).text
        assert FAILED in text
        assert f"{minute:%Y-%m-%d %H:%M:%S}</time>" in text
    finally:
        monkeypatch.undo()
        time.tzset()


def test_failures_are_grouped_by_cause_and_request(client: Client) -> None:
    text = _elements(client.get("/failures")).text
    assert "512 vCPU" in text
    assert "trait:CUSTOM_GOLD=required" in text
    assert FAILED in text
    empty = client.get("/failures?to=2020-01-01T00:00&since=").text
    assert "No stored decision without a host matches" in empty


def test_decision_on_stale_state_is_marked_with_the_limit(
    api: ExplainingAPI, client: Client
) -> None:
    assert ">stale</span> limit" not in client.get(f"/decisions/{SELECTED}").text
    record = DecisionRecord("req-stale", (), 1, time.time(), view_age_s=500.0)
    record.outcome = Outcome.SELECTED
    api.store.add(record)
    api.store.flush()
    assert ">stale</span> limit 2 min" in client.get("/decisions/req-stale").text
    decisions = client.get("/decisions").text
    assert 'title="The state of hosts was 8 min old">stale' in decisions
    assert "older than 2 min" in decisions


def test_cells_have_their_names(client: Client) -> None:
    text = _elements(client.get("/")).text
    assert "cell cell1" in text
    assert "cell cell2" in text
    assert re.search(r"Cellcell\d", _elements(client.get(f"/hosts/{NAMES[0]}")).text)


@pytest.mark.deep
def test_hosts_are_found_by_name_state_zone_and_place(
    api: ExplainingAPI, client: Client
) -> None:
    table = api.scheduler.table
    place = {LEVEL_KEY: "rack", PLACE_KEY: "r1"}
    rack = aggregate(701, *NAMES[1:3], **place)
    table.put_aggregate(rack)
    states = api.scheduler.explainer.hosts().hosts

    def shown(**query: str) -> list[str]:
        answer = client.get("/hosts", query_string=query)
        hosts = re.findall(
            r'<th scope="row"><a class="name" href="/hosts/(\w+)"', answer.text
        )
        return [str(host) for host in hosts]

    try:
        everything = [state.host for state in states]
        assert shown() == everything
        assert shown(sort="-host") == everything[::-1]
        assert shown(q=NAMES[2].upper()) == [NAMES[2]]
        assert shown(place="rack=r1") == list(NAMES[1:3])
        assert shown(place="rack=other") == []
        for state in ("up", "disabled"):
            assert shown(state=state) == [
                s.host for s in states if s.condition == state
            ]
        down = [s.host for s in states if s.condition != "up"]
        assert shown(state="not up") == down
        zone = states[0].zone
        assert shown(zone=zone) == [s.host for s in states if s.zone == zone]
        by_instances = [
            states[everything.index(name)] for name in shown(sort="-instances")
        ]
        counts = [state.n_instances or 0 for state in by_instances]
        assert counts == sorted(counts, reverse=True)
        assert len(counts) == len(everything)
        shares = [
            state.memory_mb[0] / (state.memory_mb[1] * state.allocation_ratios[1])
            for state in (states[everything.index(name)] for name in shown(sort="ram"))
        ]
        assert shares == sorted(shares)
    finally:
        table.drop_aggregate(rack.id)


@pytest.mark.deep
def test_many_places_are_folded(api: ExplainingAPI, client: Client) -> None:
    table = api.scheduler.table
    records = [host(host=f"folded-{number}") for number in range(40)]
    racks = [
        aggregate(800 + n, f"folded-{n}", **{LEVEL_KEY: "rack", PLACE_KEY: f"f{n}"})
        for n in range(40)
    ]
    table.put_many(records)
    for rack in racks:
        table.put_aggregate(rack)
    try:
        by_rack = client.get("/?by=rack").text
        assert by_rack.count("<details><summary>") == 41  # and those in no rack
        assert "/hosts?place=rack%3Df7" in by_rack
        assert "<details><summary>" not in client.get("/?by=cell").text
    finally:
        table.drop_many(each.uuid for each in records)
        for rack in racks:
            table.drop_aggregate(rack.id)


def test_readiness_of_each_component_is_on_the_first_page(api: ExplainingAPI) -> None:
    status = api.scheduler.status
    trouble = ["The broker is <away>."]
    status.add_check("broker", lambda: trouble[0])
    answers = Answers(api.scheduler.explainer, api.store, components=status.components)
    client = Client(make_app(answers))
    text = _elements(client.get("/?small")).text
    assert "Broker not ready" in text
    assert "The broker is <away>." in text
    assert "Placement ready" in text or "Placement not ready" in text
    trouble[0] = ""
    assert "Broker ready" in _elements(client.get("/?small")).text


def test_each_step_of_a_decision_has_a_meaning_on_its_page(client: Client) -> None:
    text = client.get(f"/decisions/{TWO}").text
    assert "Claim: allocations are written to Placement" in text
    assert "What these steps mean" in text


def test_hosts_have_the_room_that_the_command_shows(client: Client) -> None:
    ends_at = time.monotonic() + 60
    first: dict[str, Any] = {}
    while not first.get("fits") and time.monotonic() < ends_at:
        # The store has a second to name the recent flavors.
        answer = client.get("/v1/hosts").json
        assert answer is not None
        first = answer["hosts"][0]
    page = _elements(client.get("/hosts")).text
    while "Stranded" not in page and time.monotonic() < ends_at:
        page = _elements(client.get("/hosts")).text
    rows = re.split(r"<tr", client.get("/hosts").text)
    [row] = [row for row in rows if f'/hosts/{first["host"]}"' in row]
    cells = re.findall(r'<td class="n">([^<]*)', row)
    n_flavors = len(first["fits"])
    assert cells[-1 - n_flavors : -1] == [f"{n:,}" for n in first["fits"].values()]
    vcpus = first["stranded"] and first["stranded"][0]
    assert cells[-1] == ("\N{EN DASH}" if vcpus is None else f"{vcpus:,} vCPU")
    assert all(name in page for name in first["fits"])
    assert "Stranded" in page
