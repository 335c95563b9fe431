# SPDX-License-Identifier: Apache-2.0
"""The push source: restarts, unavailable stores, silent hosts."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from moorage.scheduler.conf import load
from moorage.scheduler.errors import ConfigurationError
from moorage.scheduler.hosts import HostTable
from moorage.scheduler.instances import InstanceState
from moorage.scheduler.sources.push import PushSource
from moorage.testing.builders import host, instance_uuid, node_uuid

from ....fixtures.waiting import wait_until
from .conftest import Clock, Scheduler, Wire
from .test_hosts import RICH, row_of

NODE = node_uuid("h1")
A, B = map(instance_uuid, "ab")
WAIT_S = 30.0

Make = Callable[..., Scheduler]


def polling(scheduler: Scheduler) -> Scheduler:
    scheduler.source.start_polling(scheduler.table)
    return scheduler


def test_restart_forgets_nothing(make: Make, wire: Wire) -> None:
    first = polling(make())
    wire.reporter.report_many([(RICH, [A]), (host(host="h2"), [])])
    first.receive(*wire.casts())
    first.source.stop()
    second = make()
    assert second.row(NODE) == row_of(RICH)
    assert second.table.instances.of_host("h1") == {A}
    assert len(second.table) == 2
    # It continues where the first one was, without a report request.
    wire.reporter.report(host(host="h1", vcpus_used=5))
    second.receive(*wire.casts())
    assert second.value(NODE, "vcpus_used") == 5
    assert second.source.counts.gaps == 0


def test_missed_delta_is_noticed_after_a_restart(make: Make, wire: Wire) -> None:
    first = polling(make())
    wire.reporter.report(host(host="h1"))
    first.receive(*wire.casts())
    first.source.stop()
    wire.reporter.report(host(host="h1", vcpus_used=5))
    wire.casts()
    second = make()
    wire.reporter.report(host(host="h1", vcpus_used=5))
    second.receive(*wire.casts())
    assert second.source.counts.gaps == 1


def test_received_report_is_in_the_store_soon(make: Make, wire: Wire) -> None:
    first, second = polling(make()), None
    wire.reporter.report(host(host="h1"))
    first.receive(*wire.casts())

    def is_stored() -> bool:
        nonlocal second
        second = make()
        return second.table.has_node(NODE)

    wait_until(is_stored)


def test_time_without_a_scheduler_is_no_silence(
    make: Make, wire: Wire, clock: Clock
) -> None:
    first = polling(make())
    wire.reporter.report_many([(host(host=name), []) for name in ("h1", "h2")])
    first.receive(*wire.casts())
    clock.now += 100
    wire.reporter.report(host(host="h2"))
    first.receive(*wire.casts())
    first.source.stop()
    clock.now += 3 * 86400
    second = make()
    assert second.value(node_uuid("h2"), "last_seen_up") == clock.now
    assert second.value(NODE, "last_seen_up") == clock.now - 100


def test_clock_that_was_ahead_forgets_no_host(
    make: Make, wire: Wire, clock: Clock
) -> None:
    first = polling(make(forget_hosts_after=1000))
    wire.reporter.report(host(host="h1"))
    first.receive(*wire.casts())
    clock.now += 1e6
    wire.reporter.report(host(host="h2"))
    first.receive(*wire.casts())
    first.source.stop()
    clock.now -= 1e6 - 10
    second = make(forget_hosts_after=1000)
    assert len(second.table) == 2
    assert second.value(node_uuid("h2"), "last_seen_up") == clock.now


def test_clock_that_is_set_back_hides_no_newer_state(
    make: Make, wire: Wire, clock: Clock
) -> None:
    first = polling(make())
    wire.reporter.report(host(host="h1"))
    first.receive(*wire.casts())
    first.source.stop()
    clock.now -= 3600
    second = polling(make())
    wire.reporter.report(host(host="h1", vcpus_used=2))
    wire.restart()
    wire.reporter.report(host(host="h1", vcpus_used=5))
    second.receive(*wire.casts())
    second.source.stop()
    assert make().value(NODE, "vcpus_used") == 5


def test_agent_that_restarts_after_the_clock_was_set_back_is_stored(
    make: Make, wire: Wire, clock: Clock
) -> None:
    first = polling(make())
    wire.reporter.report(host(host="h1"))
    first.receive(*wire.casts())
    wait_until(lambda: make().table.has_node(NODE))
    clock.now -= 3600
    for used in (5, 6):
        wire.restart()
        wire.reporter.report(host(host="h1", vcpus_used=used))
        first.receive(*wire.casts())
    first.source.stop()
    assert make().value(NODE, "vcpus_used") == 6


def test_silent_host_is_forgotten(make: Make, wire: Wire, clock: Clock) -> None:
    scheduler = make(forget_hosts_after=1000)
    hosts = scheduler.hosts
    wire.reporter.report_many([(host(host=name), [A]) for name in ("h1", "h2")])
    scheduler.receive(*wire.casts())
    clock.now += 900
    wire.reporter.report(host(host="h2"), [A])
    scheduler.receive(*wire.casts())
    clock.now += 200
    assert hosts.forget_lost() == [NODE]
    assert not scheduler.table.has_node(NODE)
    assert scheduler.table.instances.of_host("h1") == frozenset()
    # It is not lost for good: after its next sign of life all of it is requested.
    wire.reporter.report(host(host="h1"), [A])
    scheduler.receive(*wire.casts())
    assert scheduler.source.counts.gaps == 1


def test_host_that_was_silent_too_long_is_left_in_the_store(
    make: Make, wire: Wire, clock: Clock
) -> None:
    first = polling(make())
    wire.reporter.report_many([(host(host=name), [A]) for name in ("h1", "h2")])
    first.receive(*wire.casts())
    clock.now += 2000
    wire.reporter.report(host(host="h2"), [A])
    first.receive(*wire.casts())
    first.source.stop()
    second = make(forget_hosts_after=1000)
    assert not second.table.has_node(NODE)
    assert second.table.has_node(node_uuid("h2"))
    never = make(forget_hosts_after=0)
    assert never.table.has_node(NODE)


def test_two_schedulers_share_a_store(make: Make, wire: Wire) -> None:
    both = [polling(make()) for _ in range(2)]
    for used in range(5):
        wire.reporter.report(host(host="h1", vcpus_used=used), [A])
        cast = wire.casts()
        for each in both:
            each.receive(*cast)
    for each in both:
        each.source.stop()
    third = make()
    assert third.row(NODE) == row_of(host(host="h1", vcpus_used=4))


def test_unavailable_store_stops_nothing(
    make: Make, wire: Wire, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    folder = tmp_path / "later"
    folder.write_text("in the way")
    url = f"sqlite:///{folder}/hosts.sqlite"
    scheduler = polling(make(url))
    assert "cannot be used" in caplog.text
    note, _ = scheduler.source.notes()
    assert "The store of hosts cannot be used since" in note
    assert scheduler.source.troubles() == (note,)
    wire.reporter.report(host(host="h1"))
    scheduler.receive(*wire.casts())
    assert scheduler.table.has_node(NODE)
    folder.unlink()
    scheduler.source.refresh(scheduler.table)
    wait_until(lambda: scheduler.source.notes() == list(scheduler.source.unknowns()))
    assert not scheduler.source.troubles()
    scheduler.source.stop()
    assert make(url).table.has_node(NODE)


def test_hosts_of_a_store_that_comes_late_are_known_then(
    make: Make, wire: Wire, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "folder").symlink_to("elsewhere")
    url = f"sqlite:///{tmp_path}/folder/hosts.sqlite"
    first = polling(make(url))
    wire.reporter.report_many([(host(host=name), []) for name in ("h1", "h2")])
    first.receive(*wire.casts())
    first.source.stop()
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "file").rename(tmp_path / "folder")
    second = polling(make(url))
    assert len(second.table) == 0
    wire.restart()
    wire.reporter.report(host(host="h1", vcpus_used=7))
    second.receive(*wire.casts())
    # At once: the source would create a folder that is missing.
    (tmp_path / "again").symlink_to("elsewhere")
    (tmp_path / "again").rename(tmp_path / "folder")
    second.source.refresh(second.table)
    wait_until(lambda: len(second.table) == 2)
    assert second.value(NODE, "vcpus_used") == 7


def test_invalid_url_stops_the_start() -> None:
    conf = load([], config_files=[])
    conf.set_override("store_connection", "nothing", group="moorage")
    with pytest.raises(ConfigurationError, match="store_connection"):
        PushSource(conf).start(HostTable())


def _lose_first_report(scheduler: Scheduler, wire: Wire) -> None:
    """Deliver only the second report of h1, so that the scheduler misses its state."""
    wire.reporter.report(host(host="h1"))
    wire.casts()
    wire.reporter.report(host(host="h1"))
    scheduler.receive(*wire.casts())


def test_gap_is_followed_by_a_report_request(scheduler: Scheduler, wire: Wire) -> None:
    def request_report(topic: str, server: str, node: str) -> bool:
        assert (topic, server) == ("moorage-agent", "agent-1")
        return wire.reporter.send_whole_report(node)

    _lose_first_report(scheduler, wire)
    scheduler.source.connect(request_report)
    polling(scheduler)
    wait_until(lambda: wire.sent)
    scheduler.receive(*wire.casts())
    assert scheduler.table.has_node(NODE)


def test_missing_reports_are_requested_after_an_unexpected_error(
    scheduler: Scheduler, wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    errors = [RuntimeError("can't start new thread")]

    def request_report(_topic: str, _server: str, node: str) -> bool:
        if errors:
            raise errors.pop()
        return wire.reporter.send_whole_report(node)

    _lose_first_report(scheduler, wire)
    scheduler.source.connect(request_report)
    polling(scheduler)
    wait_until(lambda: wire.sent)
    assert "Requesting reports and forgetting hosts failed; retrying" in caplog.text


def test_reports_before_the_start_are_left_out(wire: Wire) -> None:
    source = PushSource()
    wire.reporter.report(host(host="h1"))
    source.apply(wire.casts())
    assert source.seen_at() is None
    assert source.notes() == []
    source.stop()


def test_polling_needs_a_start() -> None:
    with pytest.raises(RuntimeError, match="call start first"):
        PushSource().start_polling(HostTable())


def test_instance_is_located_by_the_reports(make: Make, wire: Wire) -> None:
    scheduler = polling(make())
    assert scheduler.source.locate_instance(A).state is InstanceState.PENDING
    wire.reporter.report(host(host="h1"), [A])
    scheduler.receive(*wire.casts())
    found = scheduler.source.locate_instance(A)
    assert (found.state, found.host) == (InstanceState.ON_HOST, "h1")
    other = host(uuid=node_uuid("h2"), host="h2", hypervisor_hostname="h2")
    wire.reporter.report(other, [A])  # while it is migrated live
    scheduler.receive(*wire.casts())
    found = scheduler.source.locate_instance(A)
    assert {found.host, *found.also_on} == {"h1", "h2"}


def test_instance_is_gone_once_its_deletion_was_reported(
    make: Make, wire: Wire
) -> None:
    """By an agent, or by a conductor; that a host has it no more is not enough."""
    scheduler = polling(make())
    source = scheduler.source
    wire.reporter.report(host(host="h1"), [A, B])
    wire.reporter.report(host(host="h1"), [B])
    scheduler.receive(*wire.casts())
    assert source.locate_instance(A).state is InstanceState.PENDING
    wire.reporter.report(host(host="h1"), [B], deleted=[A])
    scheduler.receive(*wire.casts())
    assert source.locate_instance(A).state is InstanceState.GONE
    source.mark_deleted([B])
    assert source.locate_instance(B).state is InstanceState.ON_HOST, "still reported"
    wire.reporter.report(host(host="h1"))
    scheduler.receive(*wire.casts())
    assert source.locate_instance(B).state is InstanceState.GONE


def test_report_with_a_malformed_deletion_is_refused(make: Make, wire: Wire) -> None:
    scheduler = polling(make())
    wire.reporter.report(host(host="h1"), [A], deleted=["7"])
    scheduler.receive(*wire.casts())
    assert not scheduler.table.has_node(NODE)
