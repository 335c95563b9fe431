# SPDX-License-Identifier: Apache-2.0
"""The commands moorage plan on a real API: what they plan, check, print and refuse."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from werkzeug.test import Client

from moorage.objects import Flavor, InstanceGroup
from moorage.scheduler.cmd.cli.main import cli
from moorage.scheduler.conf import load
from moorage.scheduler.decision_store import DecisionStore
from moorage.scheduler.errors import NoValidHost
from moorage.scheduler.explain import Explainer
from moorage.scheduler.service import Scheduler
from moorage.scheduler.web import Answers, make_app, make_web_server

from ....fixtures.clouds import CONTEXT, host, new_uuids, request, started_scheduler

UNNAMED = "99999999-9999-4999-8999-999999999999"


@dataclass
class _Cloud:
    """Racks r1 (a, b) and r2 (c, d), a store of decisions, and the command."""

    scheduler: Scheduler
    store: DecisionStore
    url: str
    folder: Path

    def create(self, on: str, **changes: Any) -> str:
        """Create an instance on a host."""
        [uuid] = new_uuids()
        spec = request(instance_uuid=uuid, force_hosts=[on], **changes)
        self.scheduler.select_destinations(CONTEXT, spec, [uuid], True, True)
        self.store.flush()
        return uuid

    def delete(self, uuid: str, on: str) -> None:
        self.scheduler.placement.delete_allocations(uuid)
        self.scheduler.table.claims.release(on, uuid)

    def call(self, *args: str, status: int = 0) -> Result:
        result = CliRunner().invoke(cli, args, env={"MOORAGE_URL": self.url})
        assert result.exit_code == status, result.output
        return result

    def plan(self, *args: str) -> Any:
        return json.loads(self.call("plan", "drain", *args, "--json").stdout)

    def write(self, plan: object) -> str:
        path = self.folder / "plan.json"
        path.write_text(json.dumps(plan))
        return str(path)


@pytest.fixture
def make_cloud(tmp_path: Path) -> Iterator[Callable[..., _Cloud]]:
    with contextlib.ExitStack() as running:

        def make(
            driver: str = "filter_scheduler",
            more_nodes_of_a: Sequence[str] = (),
            **of_a: Any,
        ) -> _Cloud:
            racks = {"a": "r1", "b": "r1", "c": "r2", "d": "r2"}
            hosts = [
                host(name, places={"rack": rack}, **(of_a if name == "a" else {}))
                for name, rack in racks.items()
            ]
            hosts += [host("a", node=node) for node in more_nodes_of_a]
            options: dict[str, dict[str, object]] = {
                "locality": {"levels": ["rack"]},
                "moorage": {"random_seed": 1, "driver": driver},
                "filter_scheduler": {
                    "enabled_filters": [
                        "ComputeFilter",
                        "ServerGroupAffinityFilter",
                        "LocalityFilter",
                    ]
                },
            }
            scheduler = running.enter_context(
                started_scheduler(tmp_path, *hosts, options=options)
            )
            store = DecisionStore(f"sqlite:///{tmp_path}/decisions.sqlite")
            running.callback(store.stop)
            scheduler.decisions.subscribe(store.add)
            conf = load([], config_files=[])
            conf.set_override("port", 0, group="web")
            app = make_app(Answers(scheduler.explainer, store))
            server = running.enter_context(make_web_server(conf, app))
            url = f"http://127.0.0.1:{server.port}"
            return _Cloud(scheduler, store, url, tmp_path)

        yield make


@pytest.fixture
def cloud(make_cloud: Callable[..., _Cloud]) -> _Cloud:
    return make_cloud()


# -- drain -----------------------------------------------------------------------------


def test_instances_of_a_rack_go_to_other_racks(cloud: _Cloud) -> None:
    instances = [cloud.create("a"), cloud.create("a"), cloud.create("b")]
    plan = cloud.plan("--place", "rack=r1", "--parallel", "2")
    assert (plan["hosts"], plan["stuck"], plan["unknown"]) == (["a", "b"], [], [])
    assert sorted(step["instance"] for step in plan["steps"]) == sorted(instances)
    assert {step["destination"] for step in plan["steps"]} <= {"c", "d"}
    assert {step["request_from"] for step in plan["steps"]} == {"decisions"}
    assert plan["memory_mb"] == 3 * 1024
    assert plan["n_waves"] == 2
    assert plan["failure"]["unplaced"] == []
    table = cloud.call("plan", "drain", "a", "b").stdout
    assert "2 host(s) to empty: 3 move(s) in 3 wave(s), 3.0 GiB" in table
    assert all(instance in table for instance in instances)


def test_commands_disable_the_host_and_name_each_destination(cloud: _Cloud) -> None:
    instance = cloud.create("a")
    [step] = cloud.plan("a")["steps"]
    lines = cloud.call("plan", "drain", "a", "--format", "openstack").stdout.split("\n")
    commands = [line for line in lines if line and not line.startswith("#")]
    assert commands == [
        "openstack compute service set --disable --disable-reason "
        "'emptied by a plan of moorage' a nova-compute",
        "openstack --os-compute-api-version 2.30 server migrate --live-migration "
        f"--host {step['destination']} {instance}",
    ]


def test_an_instance_that_fits_nowhere_is_listed_with_every_reason(
    make_cloud: Callable[..., _Cloud],
) -> None:
    cloud = make_cloud(memory_mb=65536)
    large = cloud.create("a", memory_mb=20480, root_gb=0)
    small = cloud.create("a", memory_mb=1024)
    group = InstanceGroup(
        uuid=UNNAMED, policy="affinity", policies=["affinity"], rules={},
        members=[], hosts=["a"],
    )  # fmt: skip
    bound = cloud.create("a", memory_mb=128, root_gb=0, instance_group=group)
    plan = cloud.plan("a")
    assert [step["instance"] for step in plan["steps"]] == [small]
    stuck = {each["instance"]: each for each in plan["stuck"]}
    assert stuck.keys() == {large, bound}
    [reason] = stuck[large]["reasons"]
    assert (reason["check"], reason["stage"]) == ("MEMORY_MB", "placement")
    assert reason["text"].startswith("20,480 required, at most 1")
    assert (reason["n_hosts"], reason["n_alone"]) == (3, 3)
    [reason] = stuck[bound]["reasons"]
    assert reason["check"] == "ServerGroupAffinityFilter"
    assert (plan["n_never_fit"], reason["n_hosts"]) == (2, 3)
    assert "20,480 required" in cloud.call("plan", "drain", "a").stdout


def test_each_reason_why_an_instance_stays_is_a_whole_line(
    make_cloud: Callable[..., _Cloud],
) -> None:
    cloud = make_cloud(memory_mb=65536, vcpus=64)
    instance = cloud.create("a", memory_mb=20480, vcpus=60, root_gb=0)
    lines = cloud.call("plan", "drain", "a").stdout.splitlines()
    [first] = [line for line in lines if instance in line]
    assert first.endswith(
        " MEMORY_MB (3 hosts): 20,480 required, at most 16,384 available"
    )
    second = lines[lines.index(first) + 1]
    assert second.strip() == "VCPU (3 hosts): 60 required, at most 8 available"


def test_an_instance_without_a_known_request_is_not_planned(
    make_cloud: Callable[..., _Cloud],
) -> None:
    cloud = make_cloud(instances=[UNNAMED])
    plan = cloud.plan("a")
    [unknown] = plan["unknown"]
    assert (unknown["instance"], unknown["host"]) == (UNNAMED, "a")
    assert "no decision on it is stored" in unknown["why"]
    assert plan["steps"] == []
    output = cloud.call("plan", "drain", "a", "--format", "openstack").stdout
    assert f"# Not planned: {UNNAMED} on a" in output


def test_an_instance_whose_newest_decision_named_another_host_is_not_planned(
    cloud: _Cloud,
) -> None:
    instance = cloud.create("a")
    cloud.scheduler.table.claims.release("a", instance)
    cloud.scheduler.table.add_instances("b", [instance])
    [unknown] = cloud.plan("b")["unknown"]
    assert "selected a, not b: its flavor may have changed since" in unknown["why"]


def test_the_fullest_hosts_stay_up(cloud: _Cloud) -> None:
    cloud.create("a", memory_mb=8192)
    moved = cloud.create("b")
    plan = cloud.plan("a", "b", "--keep-up", "1")
    assert (plan["hosts"], plan["kept_up"]) == (["b"], ["a"])
    assert [step["instance"] for step in plan["steps"]] == [moved]


def test_a_host_is_as_full_as_all_its_nodes(make_cloud: Callable[..., _Cloud]) -> None:
    cloud = make_cloud(more_nodes_of_a=["a2"], memory_mb_used=8192)
    cloud.create("b", memory_mb=2048)
    assert cloud.plan("a", "b", "--keep-up", "1")["kept_up"] == ["a"]


def test_the_room_for_one_more_failed_host_is_checked(cloud: _Cloud) -> None:
    for name in "abcd":
        cloud.create(name, memory_mb=8192 - 256, root_gb=0)
    cloud.create("c", memory_mb=4096, root_gb=0)
    cloud.create("d", memory_mb=4096, root_gb=0)
    plan = cloud.plan("a")
    assert [step["destination"] for step in plan["steps"]] == ["b"]
    assert len(plan["failure"]["unplaced"]) > 0
    assert "fails as well" in cloud.call("plan", "drain", "a").stdout


@pytest.mark.parametrize("driver", ["solver", "chance"])
def test_the_configured_driver_chooses(
    make_cloud: Callable[..., _Cloud], driver: str
) -> None:
    cloud = make_cloud(driver=driver)
    instances = [cloud.create("a"), cloud.create("a"), cloud.create("b")]
    plan = cloud.plan("a", "b")
    assert sorted(step["instance"] for step in plan["steps"]) == sorted(instances)
    assert {step["destination"] for step in plan["steps"]} <= {"c", "d"}
    assert cloud.plan("a", "b")["steps"] == plan["steps"]


def test_a_plan_changes_neither_hosts_nor_placement(cloud: _Cloud) -> None:
    instance = cloud.create("a")
    table, placement = cloud.scheduler.table, cloud.scheduler.placement
    revision, held = table.revision, placement.allocations(instance)
    cloud.plan("a")
    assert table.revision == revision
    assert table.instances.hosts_of(instance) == ("a",)
    assert placement.allocations(instance) == held


def test_a_snapshot_is_planned_on(cloud: _Cloud) -> None:
    cloud.create("a")
    plan, path = cloud.plan("a"), cloud.folder / "cloud.snapshot"
    cloud.call("snapshot", str(path))
    args = ["--snapshot", str(path), "plan", "drain", "a", "--json"]
    answer = json.loads(CliRunner().invoke(cli, args).stdout)
    assert answer["steps"] == plan["steps"]


def test_without_providers_in_memory_one_line_says_what_to_set(cloud: _Cloud) -> None:
    cloud.create("a")
    scheduler = cloud.scheduler
    app = make_app(Answers(Explainer(lambda: scheduler.parts), cloud.store))
    answer = Client(app).post("/v1/plans/drain", json={"hosts": ["a"]})
    assert answer.status_code == 503
    assert answer.json is not None
    assert "set [placement_database] connection" in answer.json["error"]


@pytest.mark.parametrize(
    ("args", "status", "error"),
    [
        ((), 2, "Pass either HOST, --place or --aggregate"),
        (("a", "--place", "rack=r1"), 2, "Pass either HOST, --place or --aggregate"),
        (("a", "--json", "--format", "openstack"), 2, "Pass --json or --format"),
        (("aa",), 1, "There is no host 'aa' among 4; similar: a"),
        (("--place", "rack=r9"), 1, "no host is in 'rack=r9'"),
        (("--place", "shelf=1"), 1, "not a place: rack=NAME"),
        (("--aggregate", "x"), 1, "there is no host aggregate 'x'"),
        (("a", "b", "--keep-up", "2"), 1, "2 of 2 host(s) stay up"),
    ],
)
def test_wrong_arguments_get_one_line(
    cloud: _Cloud, args: tuple[str, ...], status: int, error: str
) -> None:
    result = cloud.call("plan", "drain", *args, status=status)
    assert error in result.stderr
    assert "Traceback" not in result.output


# -- make room, defragment -------------------------------------------------------------


def test_one_move_makes_room_for_a_recent_flavor(cloud: _Cloud) -> None:
    flavor = Flavor(
        name="wanted", flavorid="2", vcpus=1, memory_mb=8192, root_gb=0,
        ephemeral_gb=0, swap=0, extra_specs={},
    )  # fmt: skip
    cloud.delete(cloud.create("d", flavor=flavor), "d")
    for name in "bcd":
        cloud.create(name, memory_mb=10240, root_gb=0)
    cloud.create("a", memory_mb=8192, root_gb=0)
    small = cloud.create("a", memory_mb=1024, root_gb=0)
    args = ("plan", "make-room", "--flavor", "wanted")
    plan = json.loads(cloud.call(*args, "--json").stdout)
    assert [step["instance"] for step in plan["steps"]] == [small]
    assert (plan["goal"]["n_before"], plan["goal"]["n_after"]) == (0, 1)
    assert (plan["goal"]["n_least_moves"], plan["hosts"]) == (1, [])
    text = cloud.call(*args, "--host", "a").stdout
    assert "0 of 1 wanted fit now, 1 after 1 move(s)" in text
    assert (
        "1 step(s): holds 1\n" in cloud.call("plan", "check", cloud.write(plan)).stdout
    )
    openstack = ("--format", "openstack")
    commands = cloud.call(*args, *openstack).stdout
    path = cloud.write(plan)
    assert cloud.call("plan", "check", path, *openstack).stdout == commands
    assert "compute service set" not in commands
    assert f"{plan['steps'][0]['destination']} {small}" in commands
    assert "no moves of the instances" in cloud.call(*args, "--count", "9").stdout


def test_flavor_that_no_host_can_hold_is_no_matter_of_moves(cloud: _Cloud) -> None:
    flavor = Flavor(
        name="huge", flavorid="2", vcpus=1, memory_mb=2**30, root_gb=0,
        ephemeral_gb=0, swap=0, extra_specs={},
    )  # fmt: skip
    cloud.create("a")
    with pytest.raises(NoValidHost):
        cloud.create("a", flavor=flavor)
    cloud.store.flush()
    text = cloud.call("plan", "make-room", "--flavor", "huge").stdout
    assert "no host would have room, even if" in " ".join(text.split())


def test_the_least_used_hosts_are_emptied(cloud: _Cloud) -> None:
    cloud.create("a", memory_mb=4096)
    cloud.create("b", memory_mb=8192)
    moved = cloud.create("c", memory_mb=2048)
    one_move = ("plan", "defragment", "--max-moves", "1")
    plan = json.loads(cloud.call(*one_move, "--json").stdout)
    assert [step["instance"] for step in plan["steps"]] == [moved]
    assert plan["steps"][0]["destination"] in {"a", "b"}
    assert (plan["hosts"], plan["goal"]["n_after"]) == (["c"], 2)
    path = cloud.write(plan)
    assert "1 step(s): holds 1\n" in cloud.call("plan", "check", path).stdout
    commands = cloud.call(*one_move, "--format", "openstack").stdout
    assert moved in commands
    assert cloud.call("plan", "check", path, "--format", "openstack").stdout == commands
    text = cloud.call("plan", "defragment").stdout
    assert "3 empty host(s) after 2 move(s)" in text
    limited = cloud.call("plan", "defragment", "--max-gib", "1", "--json").stdout
    assert json.loads(limited)["steps"] == []


# -- check -----------------------------------------------------------------------------


def test_a_fresh_plan_holds(cloud: _Cloud) -> None:
    cloud.create("a")
    path = cloud.write(cloud.plan("a"))
    assert "1 step(s): holds 1\n" in cloud.call("plan", "check", path).stdout


def test_commands_of_a_checked_plan_are_those_that_are_left(cloud: _Cloud) -> None:
    done, _left = cloud.create("a"), cloud.create("a")
    plan = cloud.plan("a")
    commands = ("--format", "openstack")
    planned = cloud.call("plan", "drain", "a", *commands).stdout.splitlines()
    path = cloud.write(plan)
    assert cloud.call("plan", "check", path, *commands).stdout.splitlines() == planned
    [destination] = [s["destination"] for s in plan["steps"] if s["instance"] == done]
    cloud.scheduler.table.claims.release("a", done)
    cloud.scheduler.table.add_instances(destination, [done])
    left = cloud.call("plan", "check", path, *commands).stdout.splitlines()
    lines = [line for line in planned if not line.endswith(done)]
    wave_of = {step["instance"]: step["wave"] for step in plan["steps"]}
    without_own_wave = [x for x in lines if f"Wave {wave_of[done]} of" not in x]
    assert left == without_own_wave


def test_what_has_changed_since_a_plan_is_shown(cloud: _Cloud) -> None:
    done, gone, refused, elsewhere = (cloud.create("a") for _ in range(4))
    plan = cloud.plan("a")
    destination = {step["instance"]: step["destination"] for step in plan["steps"]}
    table = cloud.scheduler.table
    table.claims.release("a", done)
    table.add_instances(destination[done], [done])
    cloud.delete(gone, "a")
    table.claims.release("a", elsewhere)
    table.add_instances("b", [elsewhere])
    for step in plan["steps"]:  # as another plan would have it
        if step["instance"] == elsewhere:
            step["destination"] = "c"
    nodes = table.nodes_of(destination[refused])
    table.change_many({node: {"disabled": True} for node in nodes})
    new = cloud.create("a")
    path = cloud.write(plan)
    answer = json.loads(cloud.call("plan", "check", path, "--json", status=1).stdout)
    states = {step["instance"]: step["state"] for step in answer["steps"]}
    assert states == {
        done: "done", gone: "gone", refused: "refused", elsewhere: "elsewhere"
    }  # fmt: skip
    why = {step["instance"]: step["why"] for step in answer["steps"]}
    assert any("ComputeFilter" in reason for reason in why[refused])
    assert answer["new"] == [{"instance": new, "host": "a"}]
    table_text = cloud.call("plan", "check", path, status=1).stdout
    assert "Plan again for what is left." in table_text
    assert new in table_text
    args = ("plan", "check", path, "--format", "openstack")
    commands = cloud.call(*args, status=1).stdout
    assert "server migrate" not in commands
    assert f"no longer holds: {refused} on a: " in commands
    assert f"# Came since: {new} on a\n" in commands


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("", "is no plan: it is empty"),
        ("{", "is no plan: it is no JSON"),
        ("[]", "it must have the output of moorage plan drain --json"),
        ('{"version": 2, "steps": []}', "is a plan of version '2'"),
        ('{"version": 1, "steps": []}', "is a damaged plan: made_at is missing"),
        (
            f'{{"version": 1, "steps": [], "made_at": 1{"0" * 400}}}',
            "is a damaged plan: int too large",
        ),
        (
            '{"version": 1, "steps": [], "made_at": "1795854627"}',
            "is a damaged plan: made_at: '1795854627' is no finite number",
        ),
        (
            '{"version": 1, "steps": [], "made_at": NaN}',
            "is a damaged plan: made_at: nan is no finite number",
        ),
        (
            '{"version": 1, "steps": [], "made_at": 1, "stuck": [], "unknown": [], '
            '"hosts": [], "n_waves": "1"}',
            "is a damaged plan: 'str' object cannot be interpreted as an integer",
        ),
    ],
)
def test_a_file_that_is_no_plan_gets_one_line(
    tmp_path: Path, content: str, error: str
) -> None:
    path = tmp_path / "plan.json"
    path.write_text(content)
    args = ["--url", "http://127.0.0.1:1", "plan", "check", str(path)]
    result = CliRunner().invoke(cli, args)
    assert result.exit_code == 1
    assert error in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_plan_of_another_cloud_gets_one_line(cloud: _Cloud) -> None:
    cloud.create("a")
    plan = cloud.plan("a")
    plan["steps"][0]["destination_node"] = UNNAMED
    result = cloud.call("plan", "check", cloud.write(plan), status=1)
    assert "it is the plan of another cloud" in result.stderr
