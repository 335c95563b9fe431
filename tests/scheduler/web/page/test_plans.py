# SPDX-License-Identifier: Apache-2.0
"""The page of plans shows what the API answers, and the command for the same plan."""

from __future__ import annotations

import html
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from click.testing import CliRunner
from playwright.sync_api import expect
from werkzeug.test import Client

from moorage.scheduler.cmd.cli.main import cli
from moorage.scheduler.decision_store import DecisionStore
from moorage.scheduler.service import Scheduler
from moorage.scheduler.web import Answers, make_app
from moorage.scheduler.web.page.forms import PLANS

from ....fixtures.browser import WatchedPage, chromium
from ....fixtures.clouds import CONTEXT, host, new_uuids, request, started_scheduler
from ....fixtures.served_page import served_page

_UNKNOWN = "99999999-9999-4999-8999-999999999999"
_DRAIN = "/plans/drain?place=rack%3Dr1&parallel=2"
_MAKE_ROOM = "/plans/make-room?flavor=huge&count=1"
_DEFRAGMENT = "/plans/defragment?max_moves=9&max_gib=64"


@dataclass
class _Cloud:
    """Racks r1 (a, b) and r2 (c, d), on which a huge instance fits nowhere.

    Attributes
    ----------
    pinned : str
        An instance on b which fits on no other host.
    """

    scheduler: Scheduler
    client: Client
    url: str
    pinned: str

    def plan(self, kind: str, **body: Any) -> Any:
        answer = self.client.post(f"/v1/plans/{kind}", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Cloud]:
    folder = tmp_path_factory.mktemp("plans")
    racks = {"a": "r1", "b": "r1", "c": "r2", "d": "r2"}
    sizes = {"vcpus": 16, "cpu_allocation_ratio": 1.0, "ram_allocation_ratio": 1.0}
    hosts = [
        host(
            name, **sizes, places={"rack": rack}, memory_mb=16384,
            traits=["CUSTOM_GOLD"] if name == "b" else [],
        )
        for name, rack in racks.items()
    ]  # fmt: skip
    options: dict[str, dict[str, object]] = {
        "locality": {"levels": ["rack"]},
        "moorage": {"random_seed": 1},
    }
    with started_scheduler(folder, *hosts, options=options) as scheduler:
        store = DecisionStore(f"sqlite:///{folder}/decisions.sqlite")
        scheduler.decisions.subscribe(store.add)

        def create(on: str, **changes: Any) -> str:
            [uuid] = new_uuids()
            spec = request(
                instance_uuid=uuid, force_hosts=[on], vcpus=1, root_gb=0, **changes
            )
            scheduler.select_destinations(CONTEXT, spec, [uuid], True, True)
            store.flush()
            return uuid

        for on, memory_mb in [("a", 2048), ("a", 4096), ("c", 8192), ("d", 6144)]:
            create(on, memory_mb=memory_mb)
        gold = {"trait:CUSTOM_GOLD": "required"}
        pinned = create("b", memory_mb=2048, extra_specs=gold)
        # Stored, and refused: the flavor that room is made for.
        huge = request(vcpus=1, memory_mb=15360, root_gb=0)
        huge.flavor.name = "huge"
        with pytest.raises(Exception, match="No valid host"):
            scheduler.select_destinations(CONTEXT, huge, new_uuids(), True, True)
        store.flush()
        app = make_app(Answers(scheduler.explainer, store))
        with served_page(app) as url:
            yield _Cloud(scheduler, Client(app), url, pinned)
        store.stop()


def _words(page: str) -> str:
    return " ".join(html.unescape(re.sub("<[^>]*>", " ", page)).split())


def _moves(page: str) -> list[tuple[str, ...]]:
    """Return wave, instance, source and destination of each step."""
    [table] = re.findall(r"Moves in order</caption>.*?<tbody>(.*?)</tbody>", page, re.S)
    cells = [
        [_words(each) for each in re.findall(r"<t[dh].*?</t[dh]>", row, re.S)]
        for row in re.findall(r"<tr>(.*?)</tr>", table, re.S)
    ]
    return [(row[0], row[2], row[4], row[5]) for row in cells]


def _expected(plan: Any) -> list[tuple[str, ...]]:
    steps = sorted(plan["steps"], key=lambda step: (step["wave"], step["number"]))
    names = ("wave", "instance", "source", "destination")
    return [tuple(str(step[name]) for name in names) for step in steps]


def test_a_rack_is_drained(cloud: _Cloud) -> None:
    page = cloud.client.get(_DRAIN).text
    plan = cloud.plan("drain", place="rack=r1", parallel=2)
    assert len(plan["steps"]) == 2
    assert _moves(page) == _expected(plan)
    words = _words(page)
    assert "1 of 3 instances cannot be moved" in words
    [stuck] = plan["stuck"]
    assert stuck["instance"] == cloud.pinned
    for reason in stuck["reasons"]:
        assert f"{reason['check']}, {reason['n_hosts']} host" in words
        assert reason["text"] in words


def test_room_is_made_for_a_flavor(cloud: _Cloud) -> None:
    page = cloud.client.get(_MAKE_ROOM).text
    plan = cloud.plan("make-room", flavor="huge", count=1)
    assert plan["steps"]
    assert _moves(page) == _expected(plan)
    n_moves = len(plan["steps"])
    moves = f"{n_moves} move{'s' if n_moves > 1 else ''}"
    assert f"1 of 1 huge fit after {moves}" in _words(page)
    assert "no moves were found" in _words(
        cloud.client.get("/plans/make-room?flavor=huge&count=9").text
    )


def test_hosts_are_emptied(cloud: _Cloud) -> None:
    page = cloud.client.get(_DEFRAGMENT).text
    plan = cloud.plan("defragment", max_moves=9, max_gib=64)
    n_emptied = len(plan["hosts"])
    assert n_emptied
    assert _moves(page) == _expected(plan)
    assert f"{n_emptied} host{'s' if n_emptied > 1 else ''} can be emptied" in _words(
        page
    )
    limited = cloud.client.get("/plans/defragment?max_moves=9&max_gib=1").text
    assert "No host can be emptied" in _words(limited)


@pytest.mark.parametrize("path", [_DRAIN, _MAKE_ROOM, _DEFRAGMENT])
def test_the_command_that_is_named_makes_the_same_plan(
    cloud: _Cloud, path: str
) -> None:
    page = cloud.client.get(path).text
    [command] = re.findall("<code>(moorage plan .*?) --format openstack</code>", page)
    [name, *words] = shlex.split(html.unescape(command))
    assert name == "moorage"
    environment = {"MOORAGE_URL": cloud.url}
    result = CliRunner().invoke(cli, [*words, "--json"], env=environment)
    assert result.exit_code == 0, result.output
    assert _moves(page) == _expected(json.loads(result.stdout))


@pytest.mark.parametrize("kind", PLANS)
def test_an_empty_form_plans_nothing(cloud: _Cloud, kind: str) -> None:
    answer = cloud.client.get(f"/plans/{kind}?host=&count=3&parallel=2")
    assert answer.status_code == 200
    assert "Steps" not in _words(answer.text)


@pytest.mark.parametrize(
    ("path", "status", "error"),
    [
        ("/plans/nothing", 404, "404"),
        ("/plans/drain?host=nowhere", 404, "There is no host 'nowhere' among 4"),
        ("/plans/drain?host=a&place=rack%3Dr1", 400, "only one of them"),
        ("/plans/drain?host=a&parallel=1001", 400, "parallel"),
        ("/plans/make-room?flavor=nosuch", 404, "There is no flavor named 'nosuch'"),
        ("/plans/make-room?flavor=huge&count=x", 400, "count: 'x' is not a whole"),
        ("/plans/make-room?flavor=huge&count=0", 400, "count"),
        ("/plans/defragment?max_moves=4001", 400, "max_moves"),
        (f"/plans/drain?aggregate={'x' * 256}", 400, "aggregate"),
    ],
)
def test_a_wrong_value_gets_one_line(
    cloud: _Cloud, path: str, status: int, error: str
) -> None:
    answer = cloud.client.get(path)
    assert answer.status_code == status
    assert error in _words(answer.text)


@pytest.mark.deep
@pytest.mark.browser
@pytest.mark.xdist_group("browser")
def test_the_pictures_show_the_hosts_before_and_after(cloud: _Cloud) -> None:
    plan = cloud.plan("drain", place="rack=r1", parallel=2)
    with chromium() as browser:
        tab = WatchedPage(browser, cloud.url)
        page = tab.open("/hosts/a")
        page.get_by_role("link", name="Plan to drain this host").click()
        expect(page.locator("h2").first).to_have_text("All 2 instances fit elsewhere")
        for path in (_MAKE_ROOM, _DEFRAGMENT, _DRAIN):
            tab.open(path)
            page.locator("summary").click()
            assert tab.violations() == []
        assert page.locator("svg.heat").count() == 4
        for at, hosts in enumerate((["a", "b"], ["c", "d"])):
            group = page.locator(".maps").nth(at)
            group.focus()
            page.keyboard.press("Home")
            [change] = [each for each in plan["changes"] if each["host"] == hosts[0]]
            before, after = (
                change[name] / change["capacity_mb"]
                for name in ("used_before_mb", "used_after_mb")
            )
            readout = page.locator("[data-readout]")
            expect(readout.locator("b")).to_have_text(hosts[0])
            expect(readout).to_contain_text(
                f"Memory before {before:.0%} · after {after:.0%}"
            )
        page.keyboard.press("Enter")
        expect(page.locator("h1")).to_have_text("c")
        tab.page.set_viewport_size({"width": 360, "height": 740})
        tab.open(_DRAIN)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        tab.close()
