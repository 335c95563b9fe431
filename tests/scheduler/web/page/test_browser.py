# SPDX-License-Identifier: Apache-2.0
"""The page in a real browser: numbers, forms, keyboard, contrast, hostile names."""

from __future__ import annotations

import dataclasses
import datetime
import re
import threading
import time
import uuid
import zoneinfo
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from playwright.sync_api import Browser, expect

from moorage.scheduler.explain import requests_of_decisions
from moorage.testing.builders import host as host_record
from moorage.testing.builders import node_uuid

from ....fixtures.browser import WatchedPage, chromium
from ....fixtures.deep import deep_except
from ....fixtures.explained_clouds import N_HOSTS, NAMES
from ....fixtures.explaining_api import (
    FAILED,
    INSTANCE,
    SELECTED,
    TWO,
    ExplainingAPI,
    decide,
    explaining_api,
)
from ....fixtures.hostile_names import HOSTILE_NAMES, hostile_record
from ....fixtures.served_page import served_page
from ....fixtures.stored_decisions import decisions_in
from ....fixtures.waiting import wait_until

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]

PATHS = (
    "/",
    "/?by=rack",
    "/decisions?outcome=refused",
    "/failures?since=",
    "/search?q=h",
    "/search?q=nothing-at-all",
    f"/decisions/{TWO}",
    f"/decisions/{FAILED}",
    "/hosts",
    f"/hosts/{NAMES[0]}",
    "/hosts/nowhere",
    f"/why-not?host={NAMES[0]}&request={FAILED}",
    f"/closest?request={FAILED}",
    "/capacity",
    f"/plans/drain?host={NAMES[0]}",
    "/dry-run?vcpus=x",
)
QUICK_PATHS = ("/", f"/decisions/{FAILED}", f"/hosts/{NAMES[0]}", "/capacity")


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExplainingAPI]:
    folder = tmp_path_factory.mktemp("page")
    with explaining_api(folder, locality__levels=["rack"]) as made:
        yield made


@pytest.fixture(scope="module")
def url(api: ExplainingAPI) -> Iterator[str]:
    with served_page(api.app) as url:
        yield url


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as made:
        yield made


@pytest.fixture
def tab(browser: Browser, url: str) -> Iterator[WatchedPage]:
    made = WatchedPage(browser, url)
    yield made
    made.close()


def _api(url: str, path: str, **body: Any) -> Any:
    answer = requests.post(url + path, json=body) if body else requests.get(url + path)
    assert answer.ok, answer.text
    return answer.json()


# -- every page --------------------------------------------------------------------


@pytest.mark.parametrize("path", deep_except(QUICK_PATHS, PATHS))
def test_a_page_is_accessible_and_loads_nothing_from_elsewhere(
    tab: WatchedPage, path: str
) -> None:
    page = tab.open(path)
    page.evaluate(
        "document.querySelectorAll('details').forEach((e) => { e.open = true; })"
    )
    assert tab.violations() == []


def test_low_contrast_is_found(tab: WatchedPage) -> None:
    page = tab.open("/hosts")
    page.evaluate("document.querySelector('h1').style.color = '#aaa'")
    found = {each.split(":")[0] for each in tab.violations()}
    assert found == {"color-contrast"}
    page.evaluate("document.querySelector('h1').style.color = '#333'")
    found = {each.split(":")[0] for each in tab.violations()}
    assert found == {"dark color-contrast"}


@pytest.mark.parametrize(
    "path",
    deep_except(
        QUICK_PATHS,
        [
            "/",
            "/decisions",
            f"/decisions/{TWO}",
            "/failures?since=",
            "/dry-run",
            "/hosts",
            f"/hosts/{NAMES[0]}",
            "/capacity",
            f"/plans/drain?host={NAMES[0]}",
            "/search?q=h",
        ],
    ),
)
def test_a_narrow_window_needs_no_sideways_scrolling(
    tab: WatchedPage, path: str
) -> None:
    tab.page.set_viewport_size({"width": 360, "height": 740})
    tab.open(path)
    width = tab.page.evaluate("document.documentElement.scrollWidth")
    assert width <= 360


def test_tables_are_cards_in_a_narrow_window(tab: WatchedPage) -> None:
    page = tab.open("/decisions")
    heading = page.locator(".decisions thead th").first
    assert heading.evaluate("(th) => th.offsetHeight") > 1
    tab.page.set_viewport_size({"width": 390, "height": 740})
    assert heading.evaluate("(th) => th.closest('thead').offsetHeight") <= 1
    shown = page.locator(".decisions tbody tr").first.evaluate(
        "(row) => [...row.querySelectorAll('td')].map((cell) => "
        "[getComputedStyle(cell, '::before').content, cell.offsetLeft])"
    )
    assert [label for label, _ in shown] == [
        f'"{each}"' for each in ("Time", "Outcome", "Instances", "Result", "Took")
    ]
    assert len({left for _, left in shown}) == 1
    request = page.locator(".decisions tbody th .id").first
    assert request.evaluate("(each) => each.getClientRects().length") == 1


def test_a_name_leads_to_its_page(tab: WatchedPage, url: str) -> None:
    def search(name: str) -> str:
        page = tab.open("/")
        page.get_by_role("searchbox", name="Search").fill(name)
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile("/(search|hosts|decisions)"))
        return page.url.removeprefix(url)

    assert search(NAMES[0]) == f"/hosts/{NAMES[0]}"
    assert search(TWO) == f"/decisions/{TWO}"
    assert search(INSTANCE.upper()) == f"/decisions/{INSTANCE}"
    assert search("project") == "/decisions?project=project"
    assert search("h") == "/search?q=h"
    names = tab.page.locator(".found .name").all_inner_texts()
    assert set(NAMES) <= set(names)
    assert search("nothing-at-all") == "/search?q=nothing-at-all"
    expect(tab.page.get_by_role("alert")).to_contain_text("has this name")


def test_rows_are_sorted_by_a_column_and_filtered(tab: WatchedPage) -> None:
    page = tab.open("/?by=cell")
    page.locator("summary", has_text="The same as a table").click()
    table = page.locator("table[data-sort]")
    used = table.locator("tbody tr td:nth-child(4)")
    before = used.all_inner_texts()
    table.get_by_role("button", name="Used").click()
    expect(table.locator("[aria-sort=descending]")).to_have_text("Used")
    as_numbers = [float(text.rstrip("%")) for text in before]
    expected = [f"{value:.0f}%" for value in sorted(as_numbers, reverse=True)]
    assert used.all_inner_texts() == expected
    table.get_by_role("button", name="Used").click()
    assert used.all_inner_texts() == expected[::-1]


def test_hosts_are_sorted_by_links(tab: WatchedPage, url: str) -> None:
    page = tab.open("/hosts")
    page.get_by_role("link", name="Memory").click()
    page.wait_for_url(f"{url}/hosts?sort=-ram")
    expect(page.locator("[aria-sort=descending]")).to_have_text("Memory")


def test_local_time_is_beside_utc(browser: Browser, url: str) -> None:
    tab = WatchedPage(browser, url, timezone_id="Asia/Tokyo")
    page = tab.open("/decisions")
    time_ = page.locator("td.when time").first
    utc = datetime.datetime.fromisoformat(time_.get_attribute("datetime") or "")
    local = utc.astimezone(zoneinfo.ZoneInfo("Asia/Tokyo"))
    expect(time_).to_contain_text(f"{utc:%Y-%m-%d %H:%M:%S}")
    expect(time_.locator(".local")).to_contain_text(f"{local:%H:%M:%S} local")
    expect(page.locator("footer")).to_contain_text("times are in UTC; beside them")
    tab.close()


def test_the_legend_says_what_a_shade_means_in_each_theme(tab: WatchedPage) -> None:
    page = tab.open("/")
    legend = page.locator("[aria-label=Colors]")
    page.emulate_media(color_scheme="light")
    assert "The darker, the fuller" in legend.inner_text()
    page.emulate_media(color_scheme="dark")
    assert "The brighter, the fuller" in legend.inner_text()
    assert "darker" not in legend.inner_text()


def test_the_keyboard_reaches_the_content_first(tab: WatchedPage) -> None:
    page = tab.open("/")
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()


# -- the cloud ---------------------------------------------------------------------


def test_the_numbers_of_the_cloud_are_those_of_the_hosts(
    tab: WatchedPage, url: str
) -> None:
    page = tab.open("/")
    hosts = _api(url, "/v1/hosts")["hosts"]
    figures = dict(
        zip(
            page.locator(".figures dt").all_inner_texts(),
            page.locator(".figures dt + dd").all_inner_texts(),
            strict=True,
        )
    )
    assert figures["Hosts"] == str(N_HOSTS)
    assert figures["Instances"] == str(sum(each["n_instances"] for each in hosts))
    assert figures["Decisions, last hour"] == str(
        len(_api(url, "/v1/decisions")["decisions"])
    )
    up = sum(each["condition"] == "up" for each in hosts)
    assert f"{up} up" in page.locator(".figures").inner_text()


def test_a_square_names_its_host_and_opens_it(tab: WatchedPage, url: str) -> None:
    page = tab.open("/")
    data = page.evaluate("data")
    [first] = data["groups"][0]["hosts"][:1]
    page.locator("svg.heat").first.hover(position={"x": 3, "y": 3})
    readout = page.locator("[data-readout]")
    expect(readout.locator("b")).to_have_text(first)
    [state] = [h for h in _api(url, "/v1/hosts")["hosts"] if h["host"] == first]
    used, total = state["vcpus"]
    share = used / (total * state["allocation_ratios"][0])
    expect(readout).to_contain_text(f"vCPUs {share:.0%}")
    page.locator("svg.heat").first.click(position={"x": 3, "y": 3})
    expect(page).to_have_url(f"{url}/hosts/{first}")


def test_arrow_keys_name_hosts(tab: WatchedPage) -> None:
    page = tab.open("/")
    groups = page.evaluate("data.groups.map((each) => each.hosts)")
    at = next(i for i, hosts in enumerate(groups) if len(hosts) > 1)
    page.locator(".maps").nth(at).focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.locator("[data-readout] b")).to_have_text(groups[at][1])
    assert page.locator(".cursor").count() == 3
    page.keyboard.press("End")
    expect(page.locator("[data-readout] b")).to_have_text(groups[at][-1])
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text(groups[at][-1])


def test_hosts_are_grouped_by_links_that_the_keyboard_reaches(tab: WatchedPage) -> None:
    page = tab.open("/")
    links = page.get_by_role("navigation", name="Group hosts by").get_by_role("link")
    assert links.all_inner_texts() == ["zone", "cell", "rack"]
    links.last.focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/?by=rack")
    expect(links.last).to_have_attribute("aria-current", "true")
    [group] = page.evaluate("data.groups")
    assert (group["name"], len(group["hosts"])) == ("no rack", N_HOSTS)
    page.locator(".maps").focus()
    page.keyboard.press("End")
    expect(page.locator("[data-readout]")).to_contain_text("no rack")


def test_new_decisions_appear_unless_updates_are_paused(
    tab: WatchedPage, api: ExplainingAPI
) -> None:
    page = tab.open("/decisions")
    rows = page.locator("tbody tr")
    n_rows = rows.count()
    page.evaluate("parts.forEach((part) => { part.due = 0; part.every = 200; })")
    decide(api.scheduler, "req-live", [str(uuid.uuid4())], memory_mb=64, root_gb=0)
    api.store.flush()
    expect(rows).to_have_count(n_rows + 1)
    expect(page.locator("[role=status]").first).to_have_text("1 new decision")
    page.get_by_role("button", name="Pause updates").click()
    expect(page.locator("[role=status]").first).to_have_text("Updates are paused")


@pytest.mark.deep
def test_a_frozen_server_shows_on_an_open_page(
    browser: Browser, api: ExplainingAPI
) -> None:
    is_running = threading.Event()
    is_running.set()

    def app(environ: Any, start_response: Any) -> Any:
        is_running.wait()
        return api.app(environ, start_response)

    with served_page(app) as url:
        tab = WatchedPage(browser, url)
        page = tab.open("/decisions")
        status = page.locator("[role=status]").first
        page.evaluate("parts.forEach((part) => { part.due = 0; part.every = 200; })")
        is_running.clear()
        expect(status).to_have_text("The server does not answer; trying again")
        is_running.set()
        expect(status).to_have_text("")
        tab.close()


# -- one decision, and questions ----------------------------------------------------


def test_a_decision_shows_what_its_record_has(tab: WatchedPage, url: str) -> None:
    page = tab.open(f"/decisions/{TWO}")
    [record] = _api(url, f"/v1/decisions/{TWO}")["decisions"]
    steps = page.locator("table.funnel tbody tr")
    shown = [row.locator("th, td").all_inner_texts()[:2] for row in steps.all()]
    assert shown == [[step["name"], f"{step['n_out']:,}"] for step in record["funnel"]]
    scores = page.locator("table.scores tbody td.n").all_inner_texts()
    top = record["instances"][0]["top_hosts"]
    assert scores == [f"{host['weight']:+.4f}" for host in top]
    body = page.locator("main").inner_text()
    for placed in record["instances"]:
        assert placed["instance_uuid"] in body
    [claim] = record["claims"]
    assert claim["at_ms"] <= record["times_ms"]["total"] + 50
    assert re.search(rf"1\s+{claim['at_ms']:,.0f}|{claim['at_ms']:.1f} ms", body)


def test_a_refusal_shows_the_step_that_left_no_host(tab: WatchedPage, url: str) -> None:
    page = tab.open(f"/decisions/{FAILED}")
    [record] = _api(url, f"/v1/decisions/{FAILED}")["decisions"]
    last = page.locator("tr.last")
    expect(last).to_have_count(1)
    expect(last.locator("th")).to_have_text(record["funnel"][-1]["name"])


def test_why_not_is_asked_with_a_form(tab: WatchedPage, url: str) -> None:
    page = tab.open(f"/decisions/{FAILED}")
    page.get_by_role("link", name="Why not another host?").click()
    page.get_by_label("Host").fill(NAMES[0])
    page.get_by_role("button", name="Ask").click()
    page.wait_for_url(f"{url}/why-not?host={NAMES[0]}&request={FAILED}")
    answer = _api(url, "/v1/why-not", host=NAMES[0], stored=FAILED)
    reasons = answer["nodes"][0]["reasons"]
    checks = page.locator("tbody th").all_inner_texts()
    assert checks == [each["check"] for each in reasons]


def test_the_closest_hosts_are_asked_for_from_a_refusal(
    tab: WatchedPage, api: ExplainingAPI
) -> None:
    page = tab.open(f"/decisions/{FAILED}")
    page.get_by_role("link", name="What would have to change?").click()
    page.wait_for_url("**/closest?*")
    [stored] = decisions_in(api.store, request_id=FAILED)
    assert stored.request is not None
    report = api.scheduler.explainer.closest({}, stored.request)
    shown = [
        row.locator("th, td.n").all_inner_texts()
        for row in page.locator("tbody tr").all()
    ]
    assert shown == [
        [group.text, f"{group.n_instances:,}", f"{group.n_hosts:,}"]
        for group in report.groups
    ]
    assert shown


def test_a_dry_run_of_a_flavor_is_made_with_a_form(tab: WatchedPage) -> None:
    page = tab.open("/dry-run")
    page.get_by_label("vCPUs").fill("1")
    page.get_by_label("Memory, MiB").fill("64")
    page.get_by_label("Instances").fill("2")
    page.get_by_label("Extra specs").fill(
        "capabilities:tier=1\ntrait:CUSTOM_GOLD=required"
    )
    page.get_by_role("button", name="Run").first.click()
    expect(page.locator("#answer-title")).to_be_visible()
    expect(page.get_by_label("Memory, MiB")).to_have_value("64")
    expect(page.locator("caption:has-text('Instances') ~ tbody tr")).to_have_count(2)


def test_the_capacity_is_that_of_recent_flavors(
    tab: WatchedPage, api: ExplainingAPI
) -> None:
    page = tab.open("/capacity")
    stored = decisions_in(api.store)
    requests = [each.request for each in stored if each.request is not None]
    report = api.scheduler.explainer.capacity(requests_of_decisions(requests))
    rows = page.locator("tbody tr").all()
    shown = [row.locator("td.n").all_inner_texts()[3:5] for row in rows]
    expected = [[f"{f.n_instances:,}", f"{f.n_hosts:,}"] for f in report.flavors]
    assert sorted(shown) == sorted(expected)
    assert any(flavor.n_instances for flavor in report.flavors)


def test_decisions_are_filtered_with_a_form(tab: WatchedPage) -> None:
    page = tab.open("/decisions")
    page.get_by_label("Outcome").select_option("refused")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("tbody .badge")).to_have_text("no valid host")


def test_a_host_is_asked_about_from_its_page(tab: WatchedPage, url: str) -> None:
    page = tab.open(f"/hosts/{NAMES[0]}")
    page.get_by_label("Request id or instance").fill(SELECTED)
    page.get_by_role("button", name="Ask").click()
    expect(page).to_have_url(f"{url}/why-not?host={NAMES[0]}&request={SELECTED}")


# -- sign in -----------------------------------------------------------------------


def test_a_token_is_exchanged_for_a_cookie(
    browser: Browser, api: ExplainingAPI, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef-token")
    token.chmod(0o600)
    with served_page(api.app, auth="token", token_file=str(token)) as url:
        tab = WatchedPage(browser, url)
        page = tab.open(f"/hosts/{NAMES[0]}")
        assert tab.violations() == []
        page.get_by_label("Token").fill("wrong-wrong-wrong")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_contain_text("not accepted")
        page.get_by_label("Token").fill(token.read_text())
        page.get_by_role("button", name="Sign in").click()
        expect(page).to_have_url(f"{url}/hosts/{NAMES[0]}")
        expect(page.locator("h1")).to_have_text(NAMES[0])
        assert page.evaluate("document.cookie") == ""
        [cookie] = page.context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        assert token.read_text() not in cookie["value"]
        assert tab.violations() == []
        # A link on another site is followed without the cookie at first.
        page.goto("about:blank")
        page.set_content(f'<a href="{url}/decisions">a link in a chat</a>')
        page.click("a")
        expect(page.locator("h1")).to_have_text("Decisions")
        tab.foreign.clear()
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_label("Token")).to_be_visible()
        assert page.context.cookies() == []
        tab.close()


# -- hostile names, and a large cloud ----------------------------------------------


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_hostile_names_are_text(
    browser: Browser, api: ExplainingAPI, url: str, name: str
) -> None:
    now = time.time()
    record = hostile_record("req-hostile", INSTANCE, name, started_at=now)
    api.store.add(record)
    api.store.flush()
    table = api.scheduler.table
    table.put(host_record(host=name[:255], cell_uuid=name[:255], nodename="hostile"))
    tab = WatchedPage(browser, url)
    tab.page.on("dialog", lambda dialog: tab.errors.append(dialog.message))
    try:
        for path in ("/", "/decisions", "/decisions/req-hostile", "/hosts"):
            page = tab.open(path)
            assert page.locator("main script:not([type]), main img").count() == 0
            hidden = "[\\u202e\\u2066\\u200b\\x1b]"
            found = page.evaluate(f"document.body.innerText.match(/{hidden}/g)")
            assert found is None
            assert page.evaluate("document.documentElement.scrollWidth") <= 1280
        page = tab.open("/")
        page.locator(".maps").last.focus()
        page.keyboard.press("End")
        expect(page.locator("[data-readout] b")).not_to_be_empty()
    finally:
        table.drop(node_uuid("hostile"))
        tab.close()


@pytest.mark.deep
def test_ten_thousand_hosts_are_shown(
    browser: Browser, api: ExplainingAPI, url: str
) -> None:
    table = api.scheduler.table
    plain = host_record(cell_uuid="a-cell")
    records = [
        dataclasses.replace(
            plain, host=name, nodename=name, uuid=node_uuid(name), vcpus_used=n % 9
        )
        for n, name in enumerate(f"compute-{number:05}" for number in range(10_000))
    ]
    table.put_many(records)
    tab = WatchedPage(browser, url)
    try:
        tab.open("/")  # NumPy and the templates are warm after it
        page = tab.open("/")
        timing = page.evaluate("performance.getEntriesByType('navigation')[0].toJSON()")
        n_squares = page.evaluate(
            "[...document.querySelectorAll('.heat path')]"
            ".map((each) => each.getAttribute('d').split('M').length - 1)"
            ".reduce((a, b) => a + b)"
        )
        assert n_squares == 3 * (10_000 + N_HOSTS)
        painted = "performance.getEntriesByType('paint').map((each) => each.startTime)"
        wait_until(lambda: page.evaluate(painted))
        paint = page.evaluate(painted)[-1]
        print({**{name: timing[name] for name in _TIMES}, "painted": paint})
    finally:
        table.drop_many(each.uuid for each in records)
        tab.close()


_TIMES = ("responseEnd", "loadEventEnd", "transferSize", "decodedBodySize")
