# SPDX-License-Identifier: Apache-2.0
"""Hosts that fail, are drained or are added, and the file that says so."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.scheduler.sources.inventory import read_inventory
from moorage.scheduler.views import CapturedView, StoredView
from moorage.simulator.cloud import Shape, SimulatedCloud
from moorage.simulator.events import (
    EventsError,
    HostEvent,
    HostEvents,
    Kind,
    read_events,
)
from moorage.simulator.simulation import Result, simulate
from moorage.simulator.traces import Units, request_spec
from moorage.testing.builders import instance_uuid

from ..fixtures.clouds import host, started_scheduler, write_inventory
from ..fixtures.property_tests import examples
from .test_simulation import LIFETIMES, PACK, options, small_hosts, trace_of

SHAPE = Shape(8, 16)


def event(at_s: float, kind: str, of: str | int) -> HostEvent:
    name, number = (of, 0) if isinstance(of, str) else ("", of)
    return HostEvent(at_s, Kind(kind), name, number, SHAPE)


def run(
    n_hosts: int, rows: list[tuple[float, float, int, int]], *events: HostEvent,
    **changes: Any,
) -> Result:  # fmt: skip
    hosts = small_hosts(n_hosts)
    return simulate(options(**changes), hosts, trace_of(*rows), events=events)


STAYS = 1e6
#: Two instances of half a host for each of two hosts, and a late one.
ROWS = [(float(i), STAYS, 4, 512) for i in range(4)] + [(100.0, STAYS, 1, 512)]


def test_instances_of_a_failed_host_are_requested_again() -> None:
    # Minutes apart, and spread: each host has one.
    rows = [(60.0 * i, STAYS, 2, 512) for i in range(3)] + [(1000.0, STAYS, 1, 512)]
    result = run(3, rows, event(500, "fail", "host0"))
    [happened] = result.happened
    assert (happened.n_instances, len(happened.unplaced)) == (1, 0)
    assert result.n_refused == 0
    assert len(result.used_at_end) == 2  # the failed host is out of service
    assert result.used_at_end[:, 0].sum() * 8 == 3 * 2 + 1


def test_instances_without_another_host_are_refused() -> None:
    result = run(2, ROWS, event(50, "fail", "host0"), **PACK)
    [happened] = result.happened
    assert len(happened.unplaced) == 2
    assert result.n_refused == 3  # and the late one
    assert result.refused_by_flavor == {"4x512": 2, "1x512": 1}
    assert sum(result.refused_by_cause.values()) == 3


def test_drained_host_keeps_what_fits_nowhere_else() -> None:
    # One host has two instances of half a host, and the other one has one.
    result = run(2, ROWS[:3] + ROWS[4:], event(50, "drain", "host0"), **PACK)
    [happened] = result.happened
    assert len(happened.unplaced) == 1
    assert happened.refused == ()
    assert result.series["instances"][-1] == 3
    assert result.n_refused == 1  # the late one: nothing new comes to the host
    assert result.used_at_end[:, 0].tolist() == [1.0]


def test_added_and_returned_hosts_have_room() -> None:
    back = [event(50, "fail", "host0"), event(60, "add", "host0")]
    rows = [*ROWS[:4], (100.0, STAYS, 8, 512)]
    assert run(2, rows, *back, **PACK).n_refused == 2  # those of the failed host
    added = [event(40, "add", 1), event(45, "add", 2)]
    result = run(2, rows, *added, **PACK)
    assert result.n_refused == 0
    assert [len(one.hosts) for one in result.happened] == [1, 2]
    assert len(result.used_at_end) == 5


def test_events_after_the_last_request_happen() -> None:
    result = run(2, ROWS[:2], event(9000, "fail", 1), event(9500, "add", 1))
    assert [one.event.at_s for one in result.happened] == [9000, 9500]
    assert len(result.used_at_end) == 2


def test_cloud_without_hosts_in_service_is_measured() -> None:
    result = run(2, ROWS, event(50, "fail", 9))
    assert result.used_at_end.shape == (0, 2)
    assert result.series["empty_hosts"][-1] == 0
    assert all(map(math.isfinite, result.summary().values()))  # it is printed as JSON
    assert result.n_refused == 5


def test_same_hosts_fail_with_all_settings() -> None:
    events = [event(50, "fail", 1), event(60, "drain", 2)]
    hosts = [
        [one.hosts for one in run(6, ROWS, *events, **changes).happened]
        for changes in ({}, PACK)
    ]
    assert hosts[0] == hosts[1]


def test_instances_of_the_beginning_have_unknown_requests(tmp_path: Path) -> None:
    hosts = [host("a", num_instances=3), host("b")]
    inventory = read_inventory(write_inventory(tmp_path, *hosts))
    result = simulate(
        options(), inventory, trace_of(*ROWS), events=[event(50, "fail", "a")]
    )
    assert result.happened[0].n_unknown == 3


@examples(0.3)
@given(
    rows=st.lists(
        st.tuples(
            st.integers(0, 60).map(float),
            st.integers(61, 99).map(float) | st.just(STAYS),
            st.integers(1, 8),
            st.sampled_from([512, 8192]),
        ),
        min_size=1,
        max_size=15,
    ),
    changes=st.lists(
        st.tuples(
            st.integers(0, 80).map(float),
            st.sampled_from([*Kind]),
            st.sampled_from(["host0", "host1", "host2"]) | st.integers(1, 2),
        ),
        max_size=5,
    ),
)
def test_no_host_is_over_capacity_whatever_happens(
    rows: list[tuple[float, float, int, int]],
    changes: list[tuple[float, str, str | int]],
) -> None:
    events = sorted((event(*one) for one in changes), key=lambda one: one.at_s)
    result = run(3, rows, *events)
    assert result.used_at_end.max(initial=0) <= 1.0
    assert len(result.happened) == len(events)
    n_lost = sum(len(one.refused) for one in result.happened)
    assert n_lost <= result.n_refused == sum(result.refused_by_flavor.values())
    assert np.all(np.diff(result.series["refused"]) >= 0)


def test_file_is_sorted_by_time(tmp_path: Path) -> None:
    path = tmp_path / "events.yaml"
    path.write_text(
        "- {at: 2d, kind: drain, host: a}\n- {at: 90m, kind: fail, number: 2}\n"
        "- {at: 60.5, kind: add, number: 1, shape: '4:8'}\n"
    )
    assert read_events(path, SHAPE) == [
        HostEvent(60.5, Kind.ADD, "", 1, Shape(4, 8)),
        HostEvent(5400, Kind.FAIL, "", 2, SHAPE),
        HostEvent(172800, Kind.DRAIN, "a", 0, SHAPE),
    ]
    path.write_text('[{"at": 3, "kind": "fail", "host": "a"}]')
    assert read_events(path, SHAPE)[0].host == "a"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{at: 1", "events.yaml: "),
        ("at: 1", "Expected `array`"),
        ("- {kind: fail, host: a}", "missing required field `at`"),
        ("- {at: 1, kind: burn, host: a}", "Invalid enum value 'burn'"),
        ("- {at: 1, kind: fail}", "write either host: NAME or number: N"),
        ("- {at: 1, kind: fail, host: a, number: 2}", "write either host: NAME"),
        ("- {at: 1, kind: fail, number: 0}", ">= 1"),
        ("- {at: -1, kind: fail, number: 1}", "-1.0 is no time"),
        ("- {at: .nan, kind: fail, number: 1}", "nan is no time"),
        ("- {at: soon, kind: fail, number: 1}", "'soon' is no time"),
        ("- {at: 1, kind: add, number: 1, shape: big}", "'big' is no shape"),
        ("- {at: 1, kind: fail, number: 1, rack: r1}", "unknown field `rack`"),
        ('- {at: "\\e[2J", kind: fail, number: 1}', "is no time"),
    ],
)
def test_wrong_file_gets_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "events.yaml"
    path.write_text(text)
    with pytest.raises(EventsError) as caught:
        read_events(path, SHAPE)
    assert message in str(caught.value)
    assert str(caught.value).isprintable()


def test_missing_file_and_unknown_host_are_named(tmp_path: Path) -> None:
    with pytest.raises(EventsError, match="none: cannot be read: No such file"):
        read_events(tmp_path / "none", SHAPE)
    with pytest.raises(EventsError, match=r"fail of h9 .*: there is no such host"):
        run(2, ROWS, event(50, "fail", "h9"))


@pytest.mark.parametrize("kind", ["fail", "drain"])
def test_moved_instances_keep_their_age(kind: str, tmp_path: Path) -> None:
    model = tmp_path / "lifetimes.json"
    model.write_text(LIFETIMES.to_json())
    cloud = SimulatedCloud(options(lifetime_model=str(model)), small_hosts(2), seed=0)
    cloud.now = 100.0
    for uuid in (instance_uuid(1), instance_uuid(2)):
        cloud.place(request_spec(1, 512, 0), [uuid])
    cloud.now = 5000.0
    HostEvents(cloud, Units(), [event(5000, kind, "host0")], seed=0).happen()
    launches = [row for of in cloud.table.batch().launches for row in of]
    assert [launched_at for launched_at, *_ in launches] == [100, 100]


def test_host_of_a_view_without_heartbeats_is_out_of_service_until_it_is_back(
    tmp_path: Path,
) -> None:
    with started_scheduler(tmp_path, host("a"), host("b")) as scheduler:
        [dead] = scheduler.table.nodes_of("a")
        scheduler.table.change_many({dead: {"last_seen_up": 1.0}})
        view = StoredView.decode(CapturedView.of(scheduler.parts).encode())
    cloud = SimulatedCloud(options(), view, seed=0)
    assert cloud.hosts_in_service().host.tolist() == ["b"]
    HostEvents(cloud, Units(), [event(0, "add", "a")], seed=0).happen()
    assert sorted(cloud.hosts_in_service().host) == ["a", "b"]
    HostEvents(cloud, Units(), [event(0, "drain", "b")], seed=0).happen()
    record = cloud.place(request_spec(1, 512, 0), [instance_uuid(1)])
    assert [instance.host for instance in record.instances] == ["a"]
