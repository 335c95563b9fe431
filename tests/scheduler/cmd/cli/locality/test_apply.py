# SPDX-License-Identifier: Apache-2.0
"""`moorage locality apply` puts hosts into host aggregates, and repairs them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from moorage.scheduler.cmd.cli.main import cli

from .....fixtures.compute_api import ComputeApiServer
from .....fixtures.ports import refusing_url

EXAMPLES = Path(__file__).parents[5] / "doc/examples/places"
HOSTS = ("n1", "n2", "n3", "n4")
LINES = ("host,rack,row", "n1,r1", "n2,r1", "n3,r2", "n4,r3,b", ",r1,a", ",r2,a")
WHOLE = {
    "rack-r1": ["n1", "n2"],
    "rack-r2": ["n3"],
    "rack-r3": ["n4"],
    "row-a": ["n1", "n2", "n3"],
    "row-b": ["n4"],
}


@pytest.fixture
def nova() -> Iterator[ComputeApiServer]:
    with ComputeApiServer(HOSTS) as server:
        yield server


class Cloud:
    """A configuration for a compute API, and files of hosts."""

    def __init__(self, folder: Path, url: str, levels: str = "rack, row") -> None:
        self.folder = folder
        self.config = folder / "moorage.conf"
        self.config.write_text(
            f"[locality]\nlevels = {levels}\n[nova]\nendpoint_override = {url}\n"
        )

    def run(self, *args: str, lines: tuple[str, ...] = LINES) -> Result:
        file = self.folder / "hosts.csv"
        file.write_text("\n".join(lines))
        config = f"--config-file={self.config}"
        return CliRunner().invoke(cli, [config, "locality", "apply", str(file), *args])

    def apply(self, *args: str, lines: tuple[str, ...] = LINES) -> str:
        result = self.run(*args, lines=lines)
        assert result.exit_code == 0, result.output
        return result.output

    def refused(self, lines: tuple[str, ...] = LINES) -> str:
        """The error of a run that fails."""
        result = self.run(lines=lines)
        assert result.exit_code == 1, result.output
        assert isinstance(result.exception, SystemExit)
        [error] = [x for x in result.output.splitlines() if x.startswith("Error: ")]
        return error


@pytest.fixture
def cloud(tmp_path: Path, nova: ComputeApiServer) -> Cloud:
    return Cloud(tmp_path, nova.url)


def test_aggregates_are_created_and_filled_once(
    cloud: Cloud, nova: ComputeApiServer
) -> None:
    nova.add("r1", "n1", "n4", ssd="true")
    foreign = json.dumps(nova.aggregates[1])
    assert "13 change(s) made for 4 host(s)" in cloud.apply()
    assert json.dumps(nova.aggregates.pop(1)) == foreign
    assert nova.members() == WHOLE
    assert nova.aggregates[2]["metadata"] == {
        "moorage:level": "rack", "moorage:place": "r1"
    }  # fmt: skip
    nova.aggregates[1] = json.loads(foreign)
    n_writes = len(nova.writes)
    assert "Nothing to change: 4 host(s)" in cloud.apply()
    assert len(nova.writes) == n_writes


def test_dry_run_shows_the_changes_and_makes_none(
    cloud: Cloud, nova: ComputeApiServer
) -> None:
    nova.add("rack 1", "n1", "n3", moorage__level="rack", moorage__place="r1")
    output = cloud.apply("--dry-run")
    rows = [line.split() for line in output.splitlines()]
    assert ["remove", "rack", "r1", "n3"] in rows
    assert ["add", "row", "a", "n1,", "n2,", "n3"] in rows
    assert ["create", "row", "a"] in rows
    assert "12 change(s) would be made for 4 host(s)." in output
    assert nova.writes == []


def test_json_has_every_change(cloud: Cloud) -> None:
    lines = ("host,rack", "n1,r1")
    assert json.loads(cloud.apply("--dry-run", "--json", lines=lines)) == {
        "dry_run": True,
        "n_hosts": 1,
        "n_left": 0,
        "changes": [
            {"change": "create", "level": "rack", "place": "r1"},
            {"change": "add", "level": "rack", "place": "r1", "host": "n1"},
        ],
        "notes": [],
        "refused": [],
    }
    cloud.apply(lines=lines)
    assert json.loads(cloud.apply("--json", lines=lines))["changes"] == []


def test_host_that_moved_is_moved_and_others_stay(
    cloud: Cloud, nova: ComputeApiServer
) -> None:
    cloud.apply()
    cloud.apply(lines=("host,rack", "n1,r9", "n2,"))
    assert nova.members() == {**WHOLE, "rack-r1": [], "rack-r9": ["n1"]}
    moved = [body for _, body in nova.writes if {"host": "n1"} in body.values()][-2:]
    assert [next(iter(body)) for body in moved] == ["remove_host", "add_host"]


def test_aggregates_of_an_operator_are_used_whatever_their_names(
    cloud: Cloud, nova: ComputeApiServer
) -> None:
    nova.add("r1", "n1", moorage__level="rack")
    nova.add("one more", "n3", moorage__level="rack", moorage__place="r1")
    nova.add("shelf", "n3", moorage__level="shelf")
    cloud.apply(lines=("host,rack", "n1,r1", "n2,r1", "n3,r2"))
    assert nova.members() == {
        "r1": ["n1", "n2"], "one more": [], "shelf": ["n3"], "rack-r2": ["n3"]
    }  # fmt: skip


@pytest.mark.parametrize(
    "what",
    ["set_metadata", '"add_host": {"host": "n2"}', "os-aggregates/4/action"],
    ids=["after-a-creation", "between-hosts", "third-place"],
)
def test_next_run_repairs_what_an_error_left(
    cloud: Cloud, nova: ComputeApiServer, what: str
) -> None:
    nova.refuse(what, 500, "Unexpected API Error.")
    error = cloud.refused()
    assert "was refused: 500 Unexpected API Error. Run it again" in error
    cloud.apply()
    assert nova.members() == WHOLE
    assert all(each["metadata"] for each in nova.aggregates.values())


@pytest.mark.parametrize("status", [403, 404, 409])
def test_host_that_nova_refuses_is_reported_and_the_rest_is_applied(
    cloud: Cloud, nova: ComputeApiServer, status: int
) -> None:
    nova.refuse('"add_host": {"host": "n2"}', status, "not this host")
    result = cloud.run()
    assert result.exit_code == 1
    [line] = [x for x in result.output.splitlines() if x.startswith("Host ")]
    assert line.startswith("Host n2 is left: POST /os-aggregates/1/action of nova with")
    assert f"was refused: {status} not this host" in line
    assert "Error: 1 host(s) were refused: n2. Run it again" in result.output
    assert nova.members() == {
        **WHOLE, "rack-r1": ["n1"], "row-a": ["n1", "n3"]
    }  # fmt: skip
    cloud.apply()
    assert {n: sorted(hosts) for n, hosts in nova.members().items()} == WHOLE


@pytest.mark.parametrize("dry_run", [(), ("--dry-run",)], ids=["run", "dry run"])
def test_unknown_host_is_reported_and_the_rest_is_applied(
    cloud: Cloud, nova: ComputeApiServer, dry_run: tuple[str, ...]
) -> None:
    nova.hosts.remove("n2")
    result = cloud.run(*dry_run)
    assert result.exit_code == 1
    assert "hosts.csv, line 3: nova does not know it\n" in result.output
    assert "Error: 1 host(s) were refused: n2. Run it again" in result.output
    if not dry_run:
        assert nova.members()["row-a"] == ["n1", "n3"]
        nova.hosts.append("n2")
        cloud.apply()
        assert nova.members()["row-a"] == ["n1", "n3", "n2"]


def test_many_refused_in_a_row_are_not_all_tried(tmp_path: Path) -> None:
    names = [f"n{i}" for i in range(50)]
    with ComputeApiServer(names) as nova:
        for name in names:
            nova.refuse(f'"add_host": {{"host": "{name}"}}', 403, "no.")
        lines = ("host,rack", *(f"{name},r1" for name in names))
        result = Cloud(tmp_path, nova.url, "rack").run("--json", lines=lines)
        assert len(json.loads(result.stdout)["refused"]) == 20
        assert "The user of [nova] needs the role admin. Run it again" in result.stderr


def test_error_half_way_shows_what_was_made(
    cloud: Cloud, nova: ComputeApiServer
) -> None:
    nova.refuse('"add_host": {"host": "n3"}', 500, "the cell is away")
    result = cloud.run("--json")
    assert result.exit_code == 1
    answer = json.loads(result.stdout)
    assert [c["host"] for c in answer["changes"] if "host" in c] == ["n1"] * 2 + [
        "n2"
    ] * 2
    assert answer["n_left"] == 4
    assert "500 the cell is away" in result.stderr


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        pytest.param(
            ("host,rack", "n9,r1", "n8,r1"),
            "hosts.csv, line 2: nova does not know the host(s) n9, n8",
            id="all-hosts",
        ),
        pytest.param(
            ("host,shelf", "n1,r1"), "line 1: there is no level 'shelf'", id="level"
        ),
        pytest.param(
            ("host,rack,row", "n1,r1,a", "n2,r1,b"), "rack r1 is in row b", id="row"
        ),
        pytest.param(
            ("host,rack", "n1,big"),
            "aggregate rack-big exists and is not rack big: rename it",
            id="name",
        ),
    ],
)
def test_mistake_is_one_line_before_any_change(
    cloud: Cloud, nova: ComputeApiServer, lines: tuple[str, ...], error: str
) -> None:
    nova.add("rack-big", "n1")
    assert error in cloud.refused(lines)
    assert nova.writes == []


@pytest.mark.parametrize("what", ["os-services", "os-aggregates"])
def test_user_without_the_role_is_told_so(
    cloud: Cloud, nova: ComputeApiServer, what: str
) -> None:
    nova.refuse(what, 403, "Policy doesn't allow it to be performed.")
    error = cloud.refused()
    assert f"GET /{what}" in error
    assert "403 Policy doesn't allow it to be performed. The user of [nova]" in error


def test_nova_that_is_away_is_one_line(tmp_path: Path) -> None:
    error = Cloud(tmp_path, refusing_url()).refused()
    assert "Error: GET /os-services?binary=nova-compute of nova failed: " in error
    assert error.endswith("Check that nova-api runs, and the options of [nova]")


def test_server_that_is_not_nova_is_one_line(
    cloud: Cloud, nova: ComputeApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def something_else(*_: Any) -> tuple[int, Any]:
        return 200, {"versions": []}

    monkeypatch.setattr(nova, "answer", something_else)
    assert "that the endpoint of [nova] is that of nova's compute" in cloud.refused()


@pytest.mark.parametrize(
    ("text", "error"),
    [
        pytest.param("", "[locality] levels is empty", id="levels"),
        pytest.param(
            "[locality]\nlevels = rack, row", "[nova] has none of auth_type", id="nova"
        ),
        pytest.param(
            "[locality]\nlevels = rack, row\n[nova]\nauth_type = nonsense",
            "[nova] auth_type = nonsense",
            id="auth-type",
        ),
    ],
)
def test_missing_option_is_one_line(tmp_path: Path, text: str, error: str) -> None:
    cloud = Cloud(tmp_path, "")
    cloud.config.write_text(text)
    assert error in cloud.refused()


def test_output_is_that_of_the_docs(tmp_path: Path) -> None:
    with ComputeApiServer([f"node{i}" for i in range(1, 5)]) as nova:
        cloud = Cloud(tmp_path, nova.url, "rack, row, room")
        lines = tuple((EXAMPLES / "hosts.csv").read_text().splitlines())
        output = cloud.apply(lines=lines)
    assert output == (EXAMPLES / "created.txt").read_text()


def test_snapshot_is_not_changed(tmp_path: Path) -> None:
    args = ["--snapshot", str(tmp_path / "x"), "locality", "apply", "hosts.csv"]
    result = CliRunner().invoke(cli, args)
    assert result.exit_code == 2
    assert "A snapshot is only read" in result.output
