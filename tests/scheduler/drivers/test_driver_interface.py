# SPDX-License-Identifier: Apache-2.0
"""A third party's driver, with nothing but the steps of a decision."""

from __future__ import annotations

import ast
import configparser
import contextlib
import re
import textwrap
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import stevedore

from moorage.objects import Selection
from moorage.scheduler import drivers
from moorage.scheduler.conf import load
from moorage.scheduler.drivers.attempt import Attempt
from moorage.scheduler.drivers.base import DecisionSteps
from moorage.scheduler.errors import NoValidHost, PluginError
from moorage.scheduler.hosts import HostRecord
from moorage.scheduler.service import build
from moorage.scheduler.sources.file import FileSource
from moorage.testing import SchedulerFixture, host

from ...fixtures.clouds import CONTEXT, new_uuids, request

_ROOT = Path(__file__).parents[3]
FIRST_FIT = _ROOT / "examples/plugin/moorage_example_plugin/first_fit.py"

Driven = Callable[..., SchedulerFixture]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Install a package with a driver."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(stevedore.ExtensionManager, "ENTRY_POINT_CACHE", {})

    def run(code: str, name: str) -> None:
        packages = tmp_path / "site-packages"
        info = packages / "driving-1.0.dist-info"
        info.mkdir(parents=True)
        module = f"driving_{uuid.uuid4().hex}"
        (packages / f"{module}.py").write_text(textwrap.dedent(code))
        (info / "METADATA").write_text("Name: driving\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(
            f"[moorage.drivers]\n{name} = {module}:{name}\n"
        )
        monkeypatch.syspath_prepend(str(packages))

    return run


@pytest.fixture
def driven(install: Callable[..., None]) -> Iterator[Driven]:
    """Start a scheduler whose driver is a class of an installed package."""
    with contextlib.ExitStack() as started:

        def start(code: str, name: str, *hosts: HostRecord) -> SchedulerFixture:
            install(code, name)
            options = {"moorage": {"driver": name}}
            return started.enter_context(SchedulerFixture(*hosts, options=options))

        yield start


def _hosts(n_hosts: int = 4, **values: Any) -> list[HostRecord]:
    # The free memory rises: the weighers prefer the last host.
    return [
        host(
            host=f"h{i}",
            free_ram_mb=4096 * (i + 1),
            vcpus_total=4,
            vcpus_used=0,
            **values,
        )
        for i in range(n_hosts)
    ]


def _select(fixture: SchedulerFixture, uuids: list[str], **changes: Any) -> Any:
    return fixture.scheduler.select_destinations(
        CONTEXT,
        request(num_instances=len(uuids), **changes),
        uuids,
        return_objects=True,
        return_alternates=True,
    )


def _names(selections: list[Selection]) -> list[str]:
    return [each.service_host for each in selections]


def _order(fixture: SchedulerFixture) -> list[str]:
    return fixture.scheduler.table.batch().host.tolist()


def test_first_fit_selects_the_first_host_and_alternates_follow(
    driven: Driven,
) -> None:
    fixture = driven(FIRST_FIT.read_text(), "FirstFit", *_hosts())
    [instance] = new_uuids()
    [selections] = _select(fixture, [instance], ignore_hosts=["h0"])
    assert _names(selections) == ["h1", "h2", "h3"]
    held = fixture.placement.allocations(instance).resources
    assert list(held) == [selections[0].compute_node_uuid]
    [record] = fixture.scheduler.decisions.newest(1)
    assert [each.host for each in record.instances] == ["h1"]
    assert "ComputeFilter" in {step.name for step in record.steps}


def test_instances_of_a_request_are_counted_and_published(driven: Driven) -> None:
    fixture = driven(FIRST_FIT.read_text(), "FirstFit", *_hosts())
    published: list[str] = []
    fixture.scheduler.publish_claims = lambda claims: published.extend(
        each.instance_uuid for each in claims
    )
    uuids = new_uuids(3)
    answer = _select(fixture, uuids, vcpus=2)
    assert [_names(each)[0] for each in answer] == ["h0", "h0", "h1"]
    assert all("h0" not in _names(each)[1:] for each in answer)
    assert published == uuids
    used = dict(zip(_order(fixture), fixture.scheduler.table.batch().vcpus_used,
                    strict=True))  # fmt: skip
    assert (used["h0"], used["h1"], used["h2"]) == (4, 2, 0)


def test_claims_of_a_driver_that_finds_no_host_are_released(driven: Driven) -> None:
    fixture = driven(FIRST_FIT.read_text(), "FirstFit", *_hosts(2))
    uuids = new_uuids(5)
    with pytest.raises(NoValidHost, match="2 are full of instances of this request"):
        _select(fixture, uuids, vcpus=2)
    assert not any(fixture.placement.allocations(uuid).resources for uuid in uuids)
    assert not fixture.scheduler.table.claims.unreported()


def test_host_that_has_become_full_is_not_selected(driven: Driven) -> None:
    fixture = driven(FIRST_FIT.read_text(), "FirstFit", *_hosts(2))
    _select(fixture, new_uuids())  # Placement's answer is cached from now on
    [other] = new_uuids()
    h0 = fixture.scheduler.table.batch().uuid[_order(fixture).index("h0")]
    fixture.placement.put_allocations(
        other,
        {
            "allocations": {h0: {"resources": {"VCPU": 3}}},
            "project_id": "p",
            "user_id": "u",
            "consumer_generation": None,
        },
    )
    [selections] = _select(fixture, new_uuids(), vcpus=2)
    assert _names(selections)[0] == "h1"


BY_WEIGHT = """
    from moorage.scheduler.drivers.base import BaseSchedulerDriver

    class ByWeight(BaseSchedulerDriver):
        def select(self, steps):
            [uuid] = steps.instance_uuids
            hosts = steps.passing(steps.candidates, uuid)
            ranked = hosts.take((-steps.weights(hosts, uuid)).argsort())
            if steps.request.spec_obj.get_scheduler_hint("plain"):
                return steps.select_by_weight()
            assert steps.claim(ranked, 0, uuid) is not None
            return steps.selections(alternates=ranked)
"""


def test_weights_order_hosts_as_filter_scheduler_does(driven: Driven) -> None:
    fixture = driven(BY_WEIGHT, "ByWeight", *_hosts())
    names = []
    for hints in ({}, {"plain": ["yes"]}):
        [instance] = new_uuids()
        names.append(_names(_select(fixture, [instance], scheduler_hints=hints)[0]))
        fixture.scheduler.table.claims.release("h3", instance)
    assert names == [["h3", "h2", "h1"]] * 2


def test_driver_may_weigh_by_itself(driven: Driven) -> None:
    code = """
        from moorage.scheduler.drivers.base import BaseSchedulerDriver

        class Backwards(BaseSchedulerDriver):
            def select(self, steps):
                return steps.select_by_weight(
                    lambda hosts, uuid: -steps.weights(hosts, uuid)
                )
    """
    fixture = driven(code, "Backwards", *_hosts())
    uuids = new_uuids(3)
    answer = _select(fixture, uuids, vcpus=2)
    assert _names(answer[0]) == ["h0", "h2", "h3"]
    [record] = fixture.scheduler.decisions.newest(1)
    assert [len(each.instance_uuids) for each in record.claims] == [3]


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ("[1.0]", r"weigh of Wrong returned an array of shape \(1,\)"),
        ("[float('nan')] * len(hosts)", "weigh of Wrong returned NaN"),
        ("1 / 0", "weigh of Wrong failed: ZeroDivisionError"),
    ],
    ids=["too few", "not a number", "an error"],
)
def test_wrong_weights_name_the_driver(
    driven: Driven, weights: str, message: str
) -> None:
    code = f"""
        from moorage.scheduler.drivers.base import BaseSchedulerDriver

        class Wrong(BaseSchedulerDriver):
            def select(self, steps):
                return steps.select_by_weight(lambda hosts, uuid: {weights})
    """
    fixture = driven(code, "Wrong", *_hosts())
    with pytest.raises(PluginError, match=message):
        _select(fixture, new_uuids())


def test_instances_without_a_host_are_placed_by_weight(driven: Driven) -> None:
    code = """
        from moorage.scheduler.drivers.base import BaseSchedulerDriver

        class FirstByHand(BaseSchedulerDriver):
            def select(self, steps):
                used = steps.candidates.vcpus_used.sum()
                steps.claim(steps.candidates, 0, steps.instance_uuids[0])
                assert steps.candidates.vcpus_used.sum() == used + 2
                return steps.select_by_weight()
    """
    fixture = driven(code, "FirstByHand", *_hosts())
    uuids = new_uuids(3)
    answer = _select(fixture, uuids, vcpus=2)
    assert _names(answer[0])[0] == _order(fixture)[0]
    for instance, mine in zip(uuids, answer, strict=True):
        held = fixture.placement.allocations(instance).resources
        assert list(held) == [mine[0].compute_node_uuid]
    assert len(fixture.scheduler.table.claims.unreported()) == 3


def test_driver_that_forgets_an_instance_is_named(driven: Driven) -> None:
    code = """
        from moorage.scheduler.drivers.base import BaseSchedulerDriver

        class Forgetful(BaseSchedulerDriver):
            def select(self, steps):
                uuid = steps.instance_uuids[0]
                steps.claim(steps.candidates, 0, uuid)
                return steps.selections(steps.candidates)
    """
    fixture = driven(code, "Forgetful", *_hosts())
    uuids = new_uuids(2)
    with pytest.raises(PluginError, match="not for each of"):
        _select(fixture, uuids)
    assert not any(fixture.placement.allocations(uuid).resources for uuid in uuids)


@pytest.mark.parametrize("made", ["[]", "None", "list(selections)"])
def test_driver_that_returns_something_else_is_named(driven: Driven, made: str) -> None:
    code = f"""
        from moorage.scheduler.drivers.base import BaseSchedulerDriver

        class Wrong(BaseSchedulerDriver):
            def select(self, steps):
                selections = steps.select_by_weight()
                return {made}
    """
    fixture = driven(code, "Wrong", *_hosts())
    [instance] = new_uuids()
    with pytest.raises(PluginError, match="Wrong must return what selections"):
        _select(fixture, [instance])
    assert not fixture.placement.allocations(instance).resources
    assert not fixture.scheduler.table.claims.unreported()


def test_class_that_is_no_driver_stops_the_start(install: Callable[..., None]) -> None:
    install("class Lost: pass", "Lost")
    conf = load([], config_files=[])
    conf.set_override("driver", "Lost", group="moorage")
    with pytest.raises(PluginError, match=r"\[moorage\] driver: 'Lost' is not a sub"):
        build(conf, source=FileSource())


# -- the public interface --------------------------------------------------------------

_DRIVERS = Path(drivers.__path__[0])
BUILT_IN = ["chance.py", "filter_scheduler.py", "solver"]


def _imported(path: Path) -> Iterator[str]:
    """Yield the modules of the package of drivers that a module imports."""
    package = ["moorage", "scheduler", "drivers"]
    package += path.relative_to(_DRIVERS).parts[:-1]
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
            yield ".".join([*base, node.module or ""])
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_driver_imports_no_private_part_of_drivers(name: str) -> None:
    path = _DRIVERS / name
    files = [path] if path.is_file() else sorted(path.glob("*.py"))
    assert files
    public = "moorage.scheduler.drivers.base"
    own = f"moorage.scheduler.drivers.{Path(name).stem}."
    private = {
        module
        for file in files
        for module in _imported(file)
        if module.startswith("moorage.scheduler.drivers")
        and module != public
        and not module.startswith(own)
    }
    assert private == set()


def test_every_driver_of_moorage_is_checked() -> None:
    parser = configparser.ConfigParser()
    parser.read(_ROOT / "setup.cfg")
    lines = parser["options.entry_points"]["moorage.drivers"].split("\n")
    modules = {
        line.partition("drivers.")[2].partition(":")[0] for line in lines if line
    }
    assert modules == {Path(name).stem for name in BUILT_IN}


def test_every_step_is_documented() -> None:
    page = (_ROOT / "doc/reference/plugin-interfaces.rst").read_text("utf-8")
    _, _, section = page.partition(".. _driver-interface:")
    steps = {name for name in vars(DecisionSteps) if not name.startswith("_")}
    assert steps - set(re.findall(r"``(\w+)", section)) == set()


def test_an_attempt_implements_all_steps() -> None:
    assert issubclass(Attempt, DecisionSteps)
    assert not Attempt.__abstractmethods__
