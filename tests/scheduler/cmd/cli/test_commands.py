# SPDX-License-Identifier: Apache-2.0
"""The command moorage on a real API over HTTP: output, JSON, errors, hostile names."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import resource
import stat
import subprocess
import sys
from collections.abc import Callable, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from moorage import __version__
from moorage.scheduler.cmd.cli.main import cli
from moorage.scheduler.conf import load
from moorage.scheduler.web import make_web_server
from moorage.testing import builders

from ....fixtures.explained_clouds import NAMES
from ....fixtures.explaining_api import (
    FAILED,
    INSTANCE,
    SELECTED,
    TWO,
    ExplainingAPI,
)
from ....fixtures.hostile_names import HOSTILE_NAMES, hostile_record
from ....fixtures.waiting import wait_until

Call = Callable[..., Result]


@pytest.fixture
def call(url: str) -> Call:
    def call(*args: str, status: int = 0) -> Result:
        result = CliRunner().invoke(cli, args, env={"MOORAGE_URL": url})
        assert result.exit_code == status, result.output
        return result

    return call


# -- what the commands show ------------------------------------------------------------


def test_decisions_lists_the_newest_last(call: Call) -> None:
    lines = call("decisions").stdout
    positions = [lines.index(id_) for id_ in (SELECTED, TWO, FAILED)]
    assert positions == sorted(positions)
    assert "and 1 more" in lines
    assert "There are earlier ones" not in lines


def test_decisions_says_that_it_lists_not_all(call: Call) -> None:
    assert (
        "There are earlier ones than these 1:" in call("decisions", "--limit=1").stdout
    )


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--failed"], [FAILED]),
        (["--instance", INSTANCE], [SELECTED]),
        (["--selected", "--since", "1d", "--project", "project"], [SELECTED, TWO]),
        (["--host", "nowhere"], []),
    ],
)
def test_decisions_are_selected_by_options(
    call: Call, args: list[str], expected: list[str]
) -> None:
    found = json.loads(call("decisions", *args, "--json").stdout)["decisions"]
    assert [each["request_id"] for each in found] == expected
    if not expected:
        assert "No stored decision" in call("decisions", *args).stdout


def test_explain_shows_a_selection_on_one_screen(call: Call) -> None:
    text = call("explain", INSTANCE).stdout
    for word in ("Placement", "RAMWeigher", "weight", "claimed", "alternates", "total"):
        assert word in text
    assert len(text.splitlines()) <= 45


def test_explain_and_why_not_lead_to_the_cause(call: Call) -> None:
    explained = call("explain", FAILED).stdout
    assert "no valid host" in explained
    assert re.search("Asked of Placement: .*required CUSTOM_GOLD.*VCPU:512", explained)
    text = call("why-not", NAMES[0], FAILED).stdout
    assert re.search(r"placement +VCPU .* 512 ", text)


def test_a_dry_run_shows_hosts_or_fails(call: Call) -> None:
    args = "--vcpus", "1", "--ram", "128", "--count", "2", "--hint", "a=b"
    text = call("schedule", "--dry-run", *args).stdout
    assert re.match("Dry run .*\n2 instance\\(s\\): selected", text)
    for number in (1, 2):
        assert re.search(rf"^ +{number} +(?:{'|'.join(NAMES)}) ", text, re.MULTILINE)
    assert "no valid host" in call(
        "schedule", "--dry-run", "--request", FAILED, status=3
    ).stdout  # fmt: skip


def test_a_dry_run_in_a_zone_that_does_not_exist_is_refused(call: Call) -> None:
    args = ["schedule", "--dry-run", "--vcpus", "1", "--ram", "64"]
    assert "selected" in call(*args, "--availability-zone", "nova").stdout
    error = call(*args, "--availability-zone", "z9", status=1).stderr
    assert "availability_zone: there is no zone 'z9'; there are nova" in error


def test_as_many_hosts_are_listed_as_asked_for(call: Call) -> None:
    assert (
        f"and {len(NAMES) - 2} more: --limit 0" in call("hosts", "--limit", "2").stdout
    )
    found = json.loads(call("hosts", "--limit", "0", "--json").stdout)["hosts"]
    assert len(found) == len(NAMES)


def test_hosts_are_listed(call: Call) -> None:
    text = call("hosts").stdout
    assert all(name in text for name in NAMES)
    assert "GiB" in text


def test_decisions_are_chosen_by_time_flavor_and_outcome(call: Call) -> None:
    def chosen(*args: str) -> list[str]:
        listed = json.loads(call("decisions", "--json", *args).stdout)["decisions"]
        return [decision["request_id"] for decision in listed]

    everything = chosen()
    assert chosen("--outcome", "no valid host") == [FAILED]
    assert chosen("--from", "2020-01-01") == everything
    assert chosen("--to", "2020-01-01") == []
    assert chosen("--from", "2020-01-01T10:00", "--to", "2999-01-01") == everything
    decisions = json.loads(call("decisions", "--json").stdout)["decisions"]
    flavor = decisions[0]["flavor"]
    of_flavor = [d["request_id"] for d in decisions if d["flavor"] == flavor]
    assert chosen("--flavor", flavor) == of_flavor
    assert chosen("--flavor", "none-such") == []
    assert not any(decision["is_stale"] for decision in decisions)


def test_failures_are_counted_by_cause_and_flavor(call: Call) -> None:
    answer = json.loads(call("decisions", "--group", "--json").stdout)
    [group] = answer["groups"]
    assert (group["n_decisions"], group["example"]) == (1, FAILED)
    assert group["cause"].partition(":")[0] in call("explain", FAILED).stdout
    assert FAILED in call("decisions", "--group", "--since", "1h").stdout
    assert "No stored" in call("decisions", "--group", "--to", "2020-01-01").stdout


def _hosts(call: Call, *args: str) -> list[str]:
    rows = csv.DictReader(io.StringIO(call("hosts", "--csv", *args).stdout))
    return [row["host"] for row in rows]


def test_hosts_are_chosen_and_sorted_by_their_values(call: Call) -> None:
    rows = list(csv.DictReader(io.StringIO(call("hosts", "--csv").stdout)))
    assert {row["cell"] for row in rows} == {"cell1", "cell2"}
    in_cell = [row["host"] for row in rows if row["cell"] == "cell1"]
    assert _hosts(call, "--where", "cell=cell1") == in_cell
    for name in ("vcpu", "free_ram", "instances"):
        wanted = sorted((float(row[name]) for row in rows), reverse=True)
        order = _hosts(call, "--sort", f"-{name}")
        value = {row["host"]: float(row[name]) for row in rows}
        assert [value[host] for host in order] == wanted
    states = {row["host"]: row["state"] for row in rows}
    for state in ("up", "disabled"):
        assert set(_hosts(call, "--state", state)) == {
            host for host, is_in in states.items() if is_in == state
        }
    some = _hosts(call, "--where", "vcpu<=100 and host=h[01]", "--sort", "-host")
    assert some == ["h1", "h0"]
    assert _hosts(call, "--where", "host!=h*") == []
    assert "No host matches" in call("hosts", "--where", "claims>1000").stdout
    assert len(_hosts(call, "--sort", "host", "--limit", "2")) == 2
    assert "No host has 'colour'" in call("hosts", "--sort", "colour", status=2).stderr


@pytest.mark.parametrize(
    "args",
    [
        ["decisions"],
        ["explain", SELECTED],
        ["why-not", "h0", FAILED],
        ["schedule", "--dry-run", "--vcpus", "1", "--ram", "64"],
        ["hosts"],
    ],
    ids=lambda args: args[0],
)
def test_every_command_has_json(call: Call, args: list[str]) -> None:
    assert isinstance(json.loads(call(*args, "--json").stdout), dict)


def test_help_says_what_each_command_is_for(call: Call) -> None:
    for name, command in cli.commands.items():
        assert command.help, name
        assert name in call("--help").stdout
        assert call(name, "--help").stdout.startswith("Usage: ")


def test_version_and_completion(call: Call) -> None:
    assert call("--version").stdout == f"moorage, version {__version__}\n"
    assert "_MOORAGE_COMPLETE" in call("completion", "bash").stdout


# -- errors are one line -----------------------------------------------------------


def _error(args: list[str], status: int = 1, **env: str | None) -> str:
    result = CliRunner().invoke(cli, args, env={"MOORAGE_URL": None, **env})
    assert result.exit_code == status
    line = result.stderr.rstrip("\n").splitlines()
    assert len(line) == 1 or status == 2
    return line[-1]


def test_without_an_api_one_line_says_so(tmp_path: Path) -> None:
    config = tmp_path / "moorage.conf"
    config.write_text("[web]\n")
    assert _error(["--config-file", str(config), "hosts"]) == (
        "Error: There is no API to ask: pass --url, set MOORAGE_URL, or set [web] port "
        "in moorage.conf"
    )


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--url", "http://127.0.0.1:1", "hosts"], "is moorage-api running"),
        (["--url", "http://h.invalid:1", "hosts"], "there is no host of this name"),
        (["--url", "ftp://x", "hosts"], "is no http or https URL"),
        (["--url", "http://[::1", "hosts"], "is no http or https URL"),
        (["--url", "http://h:99999", "hosts"], "is no http or https URL"),
        (["--url", "http://h:8790/?x=1", "hosts"], "is no http or https URL"),
        (["--url", "http://h:8790#x", "hosts"], "is no http or https URL"),
        (["--url", "http://h:8790?", "hosts"], "is no http or https URL"),
        (["--url", "http://u:s@h:8790", "hosts"], "is no http or https URL"),
        (["--url", "http://h", "--token-file", "/no", "hosts"], "cannot be read"),
        (["--config-file", "/nowhere.conf", "hosts"], "The configuration cannot be"),
    ],
)
def test_an_api_that_cannot_be_asked_is_one_line(
    args: list[str], expected: str
) -> None:
    assert expected in _error(args)


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["schedule", "--vcpus", "1"], "add --dry-run"),
        (["schedule", "--dry-run", "--vcpus", "1"], "Pass --request"),
        (["schedule", "--dry-run", "--hint", "x"], "is not KEY=VALUE"),
        (["hosts", "--where", "vcpu"], "is no comparison"),
        (["decisions", "--from", "noon"], "is not a time"),
        (["decisions", "--from", "10:00", "--since", "1h"], "not both"),
        (["hosts", "--where", "vcpu>many"], "is no number"),
        (["hosts", "--where", "zone<a"], "zone is a text"),
        (["request", "--vcpus", "1"], "Pass --vcpus and --ram"),
        (["capacity", "--flavors", "x", "--from", "nova"], "not both"),
        (["decisions", "--since", "soon"], "is not an age"),
    ],
)
def test_wrong_usage_is_refused(args: list[str], expected: str) -> None:
    assert expected in _error(["--url", "http://127.0.0.1:1", *args], status=2)


@pytest.mark.parametrize("id_", [FAILED, INSTANCE])
def test_an_id_is_found_in_capitals(call: Call, id_: str) -> None:
    assert call("explain", id_.upper()).stdout == call("explain", id_).stdout


def test_what_is_not_found_is_one_line(url: str) -> None:
    error = _error(["explain", "nothing"], MOORAGE_URL=url)
    assert error == "Error: No decision is stored for 'nothing'"


def test_the_configuration_file_names_the_api(tmp_path: Path, url: str) -> None:
    config = tmp_path / "moorage.conf"
    config.write_text(f"[web]\nport = {url.rpartition(':')[2]}\n")
    args = ["--config-file", str(config), "hosts", "--json"]
    result = CliRunner().invoke(cli, args, env={"MOORAGE_URL": None})
    assert len(json.loads(result.stdout)["hosts"]) == len(NAMES)


def test_the_token_of_the_file_is_sent(tmp_path: Path) -> None:
    seen: list[str] = []

    def app(environ: Mapping[str, Any], respond: Any) -> list[bytes]:
        seen.append(environ["HTTP_X_AUTH_TOKEN"])
        respond("401 Unauthorized", [("Content-Type", "application/json")])
        return [b'{"error": "Wrong."}']

    token = tmp_path / "token"
    token.write_text("some-token\n")
    conf = load([], config_files=[])
    conf.set_override("port", 0, group="web")
    with make_web_server(conf, app) as server:
        url = f"http://127.0.0.1:{server.port}"
        error = _error(["--url", url, "--token-file", str(token), "hosts"])
    assert seen == ["some-token"]
    assert error == (
        "Error: The API refuses the token: Wrong. Pass a file with it as --token-file "
        "(MOORAGE_TOKEN_FILE)"
    )


@pytest.mark.parametrize("body", ["<html>", "[1]", "null", "{}", '{"error": {}}'])
@pytest.mark.parametrize("status", ["200 OK", "404 Not Found", "500 Oops"])
@pytest.mark.parametrize("command", ["decisions", "explain", "capacity"])
def test_another_service_at_the_url_is_one_line(
    command: str, status: str, body: str
) -> None:
    def app(_: Mapping[str, Any], respond: Any) -> list[bytes]:
        respond(status, [("Content-Type", "application/json")])
        return [body.encode()]

    conf = load([], config_files=[])
    conf.set_override("port", 0, group="web")
    with make_web_server(conf, app) as server:
        url = f"http://127.0.0.1:{server.port}"
        args = [command, "req-1"] if command == "explain" else [command]
        error = _error(["--url", url, *args])
    assert error.startswith(f"Error: {url} is not Moorage's API")


def test_a_token_file_of_two_lines_is_one_line(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("one\ntwo\n")
    error = _error(["--url", "http://h", "--token-file", str(token), "hosts"])
    assert error == f"Error: --token-file {token} must have one line of text: the token"


# -- hostile names -----------------------------------------------------------------

_RAW = re.compile(
    r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]"
)


class _Tags(HTMLParser):
    """Collects the elements of a page, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_hostile_names_are_data_everywhere(
    api: ExplainingAPI, call: Call, tmp_path: Path, name: str
) -> None:
    api.store.add(hostile_record("req-hostile", INSTANCE, name))
    api.store.flush()
    page = tmp_path / "page.html"
    call("explain", "req-hostile", "--html", str(page))
    outputs = [
        call("explain", "req-hostile").stdout,
        call("decisions").stdout,
        call("why-not", "h0", "req-hostile").stdout,
        call("schedule", "--dry-run", "--request", "req-hostile").stdout,
        page.read_text("utf-8"),
    ]
    for output in outputs:
        assert not _RAW.search(output)
        assert len(output) < 70_000
    assert "[bold]" in outputs[0] or "[bold]" not in name
    parser = _Tags()
    parser.feed(outputs[-1])
    assert not parser.tags & {"script", "img", "iframe", "object", "link", "base"}
    shown = name[:50].encode("ascii", "backslashreplace").decode()
    if name.isprintable():
        assert shown in parser.text
    whole = json.loads(call("explain", "req-hostile", "--json").stdout)
    assert whole["decisions"][0]["instances"][0]["host"] == name


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_a_hostile_host_is_shown_and_explained(
    api: ExplainingAPI, call: Call, name: str
) -> None:
    table = api.scheduler.table
    record = builders.host(host=name, nodename=name, uuid=builders.node_uuid("bad"))
    table.put(record)
    try:
        text = call("hosts").stdout
        assert not _RAW.search(text)
        if len(name) < 256:
            text = call("why-not", name, SELECTED).stdout
            assert not _RAW.search(text)
            assert "no resource provider in Placement" in text
    finally:
        table.drop(record.uuid)


def test_a_page_is_self_contained(call: Call, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    call("explain", SELECTED, "--html", str(page))
    text = page.read_text("utf-8")
    assert not re.search(r"\b(src|href)=|url\(|@import", text)
    assert "RAMWeigher" in text


@pytest.mark.parametrize("exists", [False, True])
def test_a_page_is_its_owners_only(call: Call, tmp_path: Path, exists: bool) -> None:
    page = tmp_path / "page.html"
    if exists:
        page.touch(mode=0o644)
    call("explain", SELECTED, "--html", str(page))
    assert stat.S_IMODE(page.stat().st_mode) == 0o600


@pytest.mark.parametrize("old_text", [None, "the old page"])
def test_a_page_that_does_not_fit_on_the_disk_leaves_the_old_one(
    call: Call, tmp_path: Path, old_text: str | None
) -> None:
    page = tmp_path / "page.html"
    if old_text is not None:
        page.write_text(old_text)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limit[1]))
    try:
        error = call("explain", SELECTED, "--html", str(page), status=1).stderr
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert error == f"Error: --html {page}: File too large\n"
    assert [path.read_text() for path in tmp_path.iterdir()] == (
        [] if old_text is None else [old_text]
    )


def test_the_console_script_follows_new_decisions(api: ExplainingAPI, url: str) -> None:
    script = Path(sys.executable).with_name("moorage")
    env = {**os.environ, "MOORAGE_URL": url, "PYTHONUNBUFFERED": "1"}
    args = [str(script), "decisions", "--follow", "--json", "--limit", "1"]
    with subprocess.Popen(args, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        new = hostile_record("req-new", INSTANCE, "a host")
        new.started_at = first["decided_at"] + 1
        api.store.add(new)
        api.store.flush()
        second = json.loads(process.stdout.readline())
        process.terminate()
    assert second["request_id"] == "req-new"


def test_following_ends_when_the_reader_leaves(url: str) -> None:
    # There is no new decision, so that no write fails.
    script = Path(sys.executable).with_name("moorage")
    env = {**os.environ, "MOORAGE_URL": url, "PYTHONUNBUFFERED": "1"}
    args = [str(script), "decisions", "--follow"]
    with subprocess.Popen(args, env=env, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        try:
            wait_until(lambda: process.poll() is not None)
        finally:
            process.kill()
    assert process.returncode == 0


# -- what if ---------------------------------------------------------------------------


def test_closest_shows_the_changes(call: Call) -> None:
    groups = json.loads(call("closest", FAILED, "--json").stdout)["groups"]
    shown = call("closest", FAILED).stdout
    assert groups
    for group in groups:
        assert group["changes"][0]["text"] in " ".join(shown.split())


def test_capacity_reads_flavors_of_a_file(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "flavors.yaml"
    path.write_text("- {name: '[red]x', vcpus: 1, memory_mb: 128}\n")
    [flavor] = json.loads(call("capacity", "--flavors", str(path), "--json").stdout)[
        "flavors"
    ]
    cells = {place["cell"] for place in flavor["places"]}
    assert cells
    assert cells <= {"cell1", "cell2"}
    shown = call("capacity", "--flavors", str(path)).stdout
    assert "[red]x" in shown
    assert f"{flavor['n_instances']:,}" in shown


def test_capacity_of_an_invalid_flavor_is_its_note(call: Call, tmp_path: Path) -> None:
    specs = "{'hw:cpu_policy': bogus}"
    path = tmp_path / "flavors.yaml"
    path.write_text(f"- {{name: x, vcpus: 1, memory_mb: 128, extra_specs: {specs}}}\n")
    shown = " ".join(call("capacity", "--flavors", str(path)).stdout.split())
    assert "0, see note" in shown
    assert "≤" not in shown
    assert shown.count("hw:cpu_policy is 'bogus'") == 1


@pytest.mark.parametrize("text", ["{", "a: 1", "[]"])
def test_a_wrong_file_of_flavors_is_one_line(
    call: Call, tmp_path: Path, text: str
) -> None:
    path = tmp_path / "flavors.yaml"
    path.write_text(text)
    error = call("capacity", "--flavors", str(path), status=1).stderr
    assert len(error.splitlines()) == 1
    assert "flavors.yaml" in error
