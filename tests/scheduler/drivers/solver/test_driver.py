# SPDX-License-Identifier: Apache-2.0
"""The driver "solver" places where one by one fails, and claims as every driver."""

from __future__ import annotations

import io
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from rich.console import Console

from moorage.objects import Selection
from moorage.scheduler.cmd.cli.explaining import show
from moorage.scheduler.conf import load
from moorage.scheduler.drivers.plugins import load_driver
from moorage.scheduler.drivers.record import DecisionRecord
from moorage.scheduler.errors import NoValidHost, PluginError
from moorage.scheduler.hosts import HostRecord
from moorage.testing import SchedulerFixture, group

from ....fixtures.clouds import CONTEXT, new_uuids, request
from ....fixtures.explained_clouds import explained_cloud
from ....fixtures.racked_hosts import GIB, GROUP, OPTIONS, racked_host
from ....fixtures.replayed_views import ReplayedViews

# -- where one by one fails ------------------------------------------------------------


def _select(
    running: SchedulerFixture, uuids: Sequence[str], **changes: Any
) -> list[list[Selection]]:
    selections: list[list[Selection]] = running.scheduler.select_destinations(
        CONTEXT,
        request(num_instances=len(uuids), root_gb=0, **changes),
        list(uuids),
        return_objects=True,
        return_alternates=True,
    )  # type: ignore[assignment]
    return selections


def _names(answer: list[list[Selection]]) -> list[str]:
    return [first.service_host for first, *_ in answer]


#: Host a has the highest weight and room for one, b has room for three.
NEARLY_FULL = (
    racked_host("a", 2, 64, free_disk_mb=90 * GIB, disk_mb_used=10 * GIB),
    racked_host("b", 6, 16),
)


def _running(*hosts: HostRecord, driver: str = "solver") -> SchedulerFixture:
    return SchedulerFixture(*hosts, options={**OPTIONS, "moorage": {"driver": driver}})


def _affine(uuids: Sequence[str]) -> dict[str, Any]:
    affinity = group("affinity", uuid=GROUP, members=list(uuids))
    return {"vcpus": 2, "instance_group": affinity}


def _is_free(running: SchedulerFixture, uuids: Sequence[str]) -> bool:
    held = (running.placement.allocations(each).resources for each in uuids)
    return not any(held) and not running.scheduler.table.claims.unreported()


def _shown(record: DecisionRecord) -> str:
    """What `moorage explain` prints."""
    console = Console(file=io.StringIO(), width=200)
    with console.capture() as capture:
        show(console, {**record.to_dict(), "funnel": []})
    return capture.get()


def test_group_on_one_host_is_placed_where_all_fit() -> None:
    with _running(*NEARLY_FULL) as running:
        uuids = new_uuids(3)
        answer = _select(running, uuids, **_affine(uuids))
        assert _names(answer) == ["b"] * 3
        [record] = running.scheduler.decisions.newest(1)
        assert [len(each.instance_uuids) for each in record.claims] == [3]
        assert record.note == "solver: the sum of weights is the highest possible"
        assert record.note in record.summary()
        assert record.note in _shown(record)
        assert all(each.top_hosts for each in record.instances)
        for uuid_ in uuids:
            assert len(running.placement.allocations(uuid_).resources) == 1
        assert len(running.scheduler.table.claims.unreported()) == 3


def test_one_by_one_does_not_find_that_host() -> None:
    with _running(*NEARLY_FULL, driver="filter_scheduler") as running:
        uuids = new_uuids(3)
        with pytest.raises(NoValidHost):
            _select(running, uuids, **_affine(uuids))


def test_single_instance_and_its_alternates_are_those_of_filter_scheduler() -> None:
    hosts = [racked_host(name, 8, 8 * (i + 1)) for i, name in enumerate("abce")]
    with _running(*hosts) as running:
        [[first, *others]] = _select(running, new_uuids())
        assert first.service_host == "e"
        assert [each.service_host for each in others] == ["c", "b"]
        assert not running.scheduler.decisions.newest(1)[0].note


def test_alternates_are_hosts_without_an_instance() -> None:
    hosts = [racked_host(name, 8, 8 * (i + 1)) for i, name in enumerate("abcde")]
    with _running(*hosts) as running:
        uuids = new_uuids(2)
        apart = group("anti-affinity", uuid=GROUP, members=list(uuids))
        answer = _select(running, uuids, instance_group=apart)
        assert sorted(_names(answer)) == ["d", "e"]
        for _, *others in answer:
            assert [each.service_host for each in others] == ["c", "b"]


# -- where it finds no answer ----------------------------------------------------------


def test_nothing_stays_claimed_where_not_all_fit() -> None:
    with _running(*NEARLY_FULL) as running:
        uuids = new_uuids(5)
        with pytest.raises(NoValidHost):
            _select(running, uuids, vcpus=2)
        assert _is_free(running, uuids)
        [record] = running.scheduler.decisions.newest(1)
        assert "no placing of all instances was found" in record.note


def _fill(running: SchedulerFixture, name: str, vcpus: int) -> None:
    """Claim vCPUs of a host without the scheduler's knowledge."""
    hosts = running.scheduler.table.batch()
    [index] = hosts.matches("host", [name]).nonzero()[0]
    [other] = new_uuids()
    running.placement.put_allocations(
        other,
        {
            "allocations": {hosts.uuid[index]: {"resources": {"VCPU": vcpus}}},
            "project_id": "p",
            "user_id": "u",
            "consumer_generation": None,
        },
    )


def test_refused_instances_are_placed_again_and_granted_ones_stay() -> None:
    hosts = [racked_host("a", 4, 64), racked_host("c", 4, 32), racked_host("e", 4, 16)]
    with _running(*hosts) as running:
        _select(running, new_uuids(), vcpus=2)  # on a; the answer is cached
        _fill(running, "c", 4)
        uuids = new_uuids(3)
        answer = _select(running, uuids, vcpus=2)
        assert Counter(_names(answer)) == {"a": 1, "e": 2}
        for uuid_, [first, *_] in zip(uuids, answer, strict=True):
            held = running.placement.allocations(uuid_).resources
            assert list(held) == [first.compute_node_uuid]
        [record] = running.scheduler.decisions.newest(1)
        assert "refused" in {each.result for each in record.claims}
        assert "highest possible" in record.note


def test_nothing_stays_claimed_where_the_refused_do_not_fit_elsewhere() -> None:
    with _running(racked_host("a", 4, 64), racked_host("c", 4, 32)) as running:
        _select(running, new_uuids(), vcpus=2)
        _fill(running, "c", 4)
        uuids = new_uuids(3)
        with pytest.raises(NoValidHost):
            _select(running, uuids, vcpus=2)
        held = [running.placement.allocations(each).resources for each in uuids]
        assert not any(held)
        assert len(running.scheduler.table.claims.unreported()) == 1


def test_missing_scipy_stops_the_start_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = "moorage.scheduler.drivers.solver.program"
    monkeypatch.delitem(sys.modules, program, raising=False)
    monkeypatch.setitem(sys.modules, "scipy", None)
    conf = load([], config_files=[])
    conf.set_override("driver", "solver", group="moorage")
    with pytest.raises(PluginError) as failure:
        load_driver(conf)
    assert "driver = solver needs SciPy, which Moorage's extra" in str(failure.value)
    assert "pip install '.[solver]'" in str(failure.value)
    assert "\n" not in str(failure.value)


def test_replay_places_the_same() -> None:
    with explained_cloud(9, moorage__driver="solver") as (scheduler, _):
        seen = ReplayedViews(scheduler)
        for n_instances in (2, 3, 4):
            seen.decide(request(memory_mb=64, root_gb=0), n_instances)
            found = seen.replayed()
            assert found.is_identical, found.differences
            assert found.replayed.note == found.recorded.note
