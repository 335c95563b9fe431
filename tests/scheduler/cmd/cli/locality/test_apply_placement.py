# SPDX-License-Identifier: Apache-2.0
"""`moorage locality apply --placement` fills aggregates that are none of nova's."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from moorage.scheduler.cmd.cli.client import read_options
from moorage.scheduler.cmd.cli.locality.applying import Application
from moorage.scheduler.cmd.cli.main import cli
from moorage.scheduler.locality.places_file import read_places
from moorage.scheduler.placement.members import change_aggregates, root_providers
from moorage.scheduler.placement.seed import Provider, seed

from .....conftest import instance_uuid, node_uuid
from .....fixtures.placement_servers import (
    EmbeddedPlacementFixture,
    MisbehavingServer,
    Misbehaviour,
)

EXAMPLES = Path(__file__).parents[5] / "doc/examples/places"
HOSTS = ("n1", "n2", "n3")
FOREIGN = instance_uuid("foreign")
LINES = ("host,rack,row", "n1,r1", "n2,r1", "n3,r2", ",r1,a", ",r2,a")
WHOLE = {
    ("rack", "r1"): {"n1", "n2"},
    ("rack", "r2"): {"n3"},
    ("row", "a"): {"n1", "n2", "n3"},
}

Members = Mapping[tuple[str, str], set[str]]


@pytest.fixture
def server(embedded: EmbeddedPlacementFixture) -> Iterator[MisbehavingServer]:
    """A Placement of three hosts, which are in an aggregate of something else."""
    vcpus, its = {"VCPU": {"total": 8}}, frozenset({FOREIGN})
    seed(
        embedded.client,
        [Provider(node_uuid(name), name, vcpus, aggregates=its) for name in HOSTS],
    )
    with MisbehavingServer(embedded.placement.wsgi_app) as server:
        yield server


class Cloud:
    """A configuration for a Placement, a file of hosts and the file of places."""

    def __init__(self, folder: Path, server: MisbehavingServer) -> None:
        self.folder = folder
        self.server = server
        self.places = folder / "places.csv"
        self.config = folder / "moorage.conf"
        self.config.write_text(
            f"[locality]\nlevels = rack, row\nplaces = {self.places}\n"
            f"[placement]\nauth_type = admin_token\nendpoint = {server.url}\n"
            f"token = admin\nendpoint_override = {server.url}\n"
        )

    def run(self, *args: str, lines: tuple[str, ...] = LINES) -> Result:
        file = self.folder / "hosts.csv"
        file.write_text("\n".join(lines))
        command = [f"--config-file={self.config}", "locality", "apply", str(file)]
        return CliRunner().invoke(cli, [*command, "--placement", *args])

    def apply(self, *args: str, lines: tuple[str, ...] = LINES) -> str:
        result = self.run(*args, lines=lines)
        assert result.exit_code == 0, result.output
        return result.output

    def refused(self, *args: str, lines: tuple[str, ...] = LINES) -> str:
        result = self.run(*args, lines=lines)
        assert result.exit_code == 1, result.output
        assert isinstance(result.exception, SystemExit)
        [error] = [x for x in result.output.splitlines() if x.startswith("Error: ")]
        return error

    def members(self) -> Members:
        """The members of each place of the file."""
        client = self.server.client()
        return {
            each.place: set(root_providers(client, each.aggregate).values())
            for each in read_places(self.places, ("rack", "row"))
        }

    def n_writes(self) -> int:
        return sum(verb != "GET" for verb, _, _ in self.server.seen)


@pytest.fixture
def cloud(tmp_path: Path, server: MisbehavingServer) -> Cloud:
    return Cloud(tmp_path, server)


def test_aggregates_are_filled_and_the_file_is_written(
    cloud: Cloud, server: MisbehavingServer
) -> None:
    output = cloud.apply()
    assert "9 change(s) made for 3 host(s)." in output
    assert f"Note: {cloud.places} was written: reload" in " ".join(output.split())
    assert cloud.members() == WHOLE
    assert cloud.places.stat().st_mode & 0o777 == 0o644
    assert len(root_providers(server.client(), FOREIGN)) == 3
    n_writes = cloud.n_writes()
    assert n_writes == len(HOSTS)
    assert "Nothing to change: 3 host(s)" in cloud.apply()
    assert cloud.n_writes() == n_writes


def test_dry_run_writes_nothing(cloud: Cloud) -> None:
    changes = json.loads(cloud.apply("--dry-run", "--json"))["changes"]
    kinds = [change["change"] for change in changes]
    assert kinds == ["create"] * 3 + ["add"] * 6
    assert cloud.n_writes() == 0
    assert not cloud.places.exists()


def test_host_that_moved_is_moved_and_own_aggregates_are_used(
    cloud: Cloud, server: MisbehavingServer
) -> None:
    own = instance_uuid("own")
    cloud.places.write_text(f"aggregate,level,place\n{own},rack,r1\n")
    change_aggregates(server.client(), node_uuid("n3"), leave=[], enter=[own])
    cloud.apply()
    assert cloud.members() == WHOLE
    assert set(root_providers(server.client(), own).values()) == {"n1", "n2"}
    cloud.apply(lines=("host,rack", "n1,r2"))
    assert cloud.members() == {
        **WHOLE, ("rack", "r1"): {"n2"}, ("rack", "r2"): {"n1", "n3"}
    }  # fmt: skip


def test_new_place_gets_an_aggregate_of_its_own_after_a_rename(cloud: Cloud) -> None:
    cloud.apply()
    cloud.places.write_text(cloud.places.read_text().replace("rack,r1", "rack,old"))
    cloud.apply()
    assert cloud.members() == {**WHOLE, ("rack", "old"): set()}
    assert "Nothing to change" in cloud.apply()


def test_places_that_another_run_added_meanwhile_stay(cloud: Cloud) -> None:
    cloud.folder.joinpath("hosts.csv").write_text("\n".join(LINES))
    conf = read_options([str(cloud.config)])
    planned = Application(conf, cloud.folder / "hosts.csv", in_placement=True)
    cloud.apply(lines=("host,rack", "n1,r1", "n3,r9"))
    planned.carry_out()
    assert cloud.members().keys() == {*WHOLE, ("rack", "r9")}
    cloud.apply()
    assert cloud.members() == {**WHOLE, ("rack", "r9"): set()}


def test_concurrent_changes_are_kept(cloud: Cloud, server: MisbehavingServer) -> None:
    server.misbehave(Misbehaviour.CONTENDED, verb="PUT", times=2)
    cloud.apply()
    assert cloud.members() == WHOLE


@pytest.mark.parametrize("is_file_lost", [False, True])
def test_next_run_repairs_what_an_error_left(
    cloud: Cloud, server: MisbehavingServer, is_file_lost: bool
) -> None:
    server.misbehave_second(Misbehaviour.ERROR, verb="PUT")
    assert cloud.refused().endswith("Run it again for what is left")
    partly: Any = cloud.members()
    assert partly["rack", "r1"] == {"n1"}
    if is_file_lost:
        cloud.places.unlink()
    cloud.apply()
    assert cloud.members() == WHOLE


def test_unknown_host_is_reported_and_the_rest_is_applied(
    cloud: Cloud, server: MisbehavingServer
) -> None:
    lines = (*LINES, "n9,r2")
    result = cloud.run("--json", lines=lines)
    assert result.exit_code == 1
    [refused] = json.loads(result.stdout)["refused"]
    assert refused["host"] == "n9"
    assert refused["why"].endswith("hosts.csv, line 7: Placement does not know it")
    assert "Error: 1 host(s) were refused: n9. Run it again" in result.stderr
    assert cloud.members() == WHOLE
    seed(server.client(), [Provider(node_uuid("n9"), "n9", {"VCPU": {"total": 8}})])
    cloud.apply(lines=lines)
    assert cloud.members()["rack", "r2"] == {"n3", "n9"}


@pytest.mark.parametrize(
    ("misbehaviour", "times", "why"),
    [
        pytest.param(Misbehaviour.FORBIDDEN, 1, "403", id="forbidden"),
        pytest.param(Misbehaviour.CONTENDED, 5, "409", id="conflict"),
    ],
)
def test_host_that_placement_refuses_is_reported_and_the_rest_is_applied(
    cloud: Cloud,
    server: MisbehavingServer,
    misbehaviour: Misbehaviour,
    times: int,
    why: str,
) -> None:
    server.misbehave(misbehaviour, verb="PUT", times=times)
    result = cloud.run("--json")
    assert result.exit_code == 1
    [refused] = json.loads(result.stdout)["refused"]
    assert refused["host"] == "n1"
    assert why in refused["why"]
    assert cloud.members()["row", "a"] == {"n2", "n3"}
    cloud.apply()
    assert cloud.members() == WHOLE


def test_unknown_hosts_only_are_one_line(cloud: Cloud) -> None:
    error = cloud.refused(lines=("host,rack", "n9,r1"))
    assert "hosts.csv, line 2: Placement does not know the host(s) n9" in error
    assert cloud.n_writes() == 0


def test_placement_that_forbids_it_is_one_line(
    cloud: Cloud, server: MisbehavingServer
) -> None:
    server.misbehave(Misbehaviour.FORBIDDEN)
    assert "403" in cloud.refused()


@pytest.mark.parametrize(
    ("text", "error"),
    [
        pytest.param(
            "[placement]\nauth_type = none", "[locality] places is not set", id="places"
        ),
        pytest.param("places = x.csv", "[placement] has none of auth_type", id="url"),
    ],
)
def test_missing_option_is_one_line(cloud: Cloud, text: str, error: str) -> None:
    cloud.config.write_text(f"[locality]\nlevels = rack, row\n{text}\n")
    assert error in cloud.refused()


def test_file_is_that_of_the_docs(cloud: Cloud, server: MisbehavingServer) -> None:
    text = cloud.config.read_text().replace("rack, row", "rack, row, room")
    cloud.config.write_text(text)
    vcpus = {"VCPU": {"total": 8}}
    nodes = [f"node{i}" for i in range(1, 5)]
    seed(server.client(), [Provider(node_uuid(n), n, vcpus) for n in nodes])
    lines = tuple((EXAMPLES / "hosts.csv").read_text().splitlines())
    cloud.apply(lines=lines)
    assert cloud.places.read_text() == (EXAMPLES / "places.csv").read_text()


def test_file_that_cannot_be_written_is_one_line(cloud: Cloud) -> None:
    text = cloud.config.read_text().replace("places.csv", "missing/places.csv")
    cloud.config.write_text(text)
    assert "No such file or directory" in cloud.refused()
    assert cloud.n_writes() == 0


def test_file_with_a_mistake_is_not_replaced(cloud: Cloud) -> None:
    cloud.places.write_text("aggregate,level,place\nr7,rack,r7\n")
    assert "'r7' is not the UUID of an aggregate" in cloud.refused()
    assert "r7,rack,r7" in cloud.places.read_text()
