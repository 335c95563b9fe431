# SPDX-License-Identifier: Apache-2.0
"""The library assigns revisions to reports, and sends only changes."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from moorage.agent import Reply, Reporter
from moorage.scheduler.hosts import HostPools, HostTopology
from moorage.scheduler.sources.report_columns import read_record, report_values
from moorage.testing.builders import (
    host,
    instance_uuid,
    node_uuid,
    numa_cell,
    numa_topology,
    pci_pool,
    pci_pools,
)

NODE = node_uuid("h1")
A, B = map(instance_uuid, "ab")


class Sent(list[list[dict[str, Any]]]):
    """Casts; `last` is the data of the last report."""

    @property
    def last(self) -> dict[str, Any]:
        data: dict[str, Any] = self[-1][-1]["moorage_object.data"]
        return data

    @property
    def kinds(self) -> list[str]:
        return [report["moorage_object.name"] for cast in self for report in cast]


@pytest.fixture
def sent() -> Sent:
    return Sent()


@pytest.fixture
def reporter(sent: Sent) -> Reporter:
    return Reporter(sent.append, reply=Reply("topic", "server"))


def test_first_report_is_whole_and_the_next_have_changes(
    reporter: Reporter, sent: Sent
) -> None:
    reporter.report(host(host="h1"), [A])
    assert sent.last["revision"] == 1
    assert sent.last["instances"] == [A]
    reporter.report(host(host="h1", vcpus_used=5), [B])
    reported = {k: sent.last[k] for k in ("since", "revision", "changes")}
    assert reported == {"since": 1, "revision": 2, "changes": {"vcpus_used": 5}}
    assert sent.last["instances_added"] == [B]
    assert sent.last["instances_removed"] == [A]
    assert sent.kinds == ["HostReport", "HostDelta"]


@pytest.mark.parametrize("sends_deltas", [True, False])
def test_deletions_are_sent_once_with_any_report(
    sent: Sent, sends_deltas: bool
) -> None:
    reporter = Reporter(sent.append, sends_deltas=sends_deltas)
    reporter.report(host(host="h1"), [A], deleted=[B])
    assert sent.last["instances_deleted"] == [B]
    reporter.report(host(host="h1"), [A], deleted=iter([B]))
    assert (sent.kinds[-1], sent.last["instances_deleted"]) == ("HostDelta", [B])
    reporter.report(host(host="h1"), [A])
    assert "instances_deleted" not in sent.last


def test_sign_of_life_has_no_revision_of_its_own(
    reporter: Reporter, sent: Sent
) -> None:
    for _ in range(3):
        reporter.report(host(host="h1"))
    assert (sent.last["since"], sent.last["revision"]) == (1, 1)
    assert sent.last["changes"] == {}


def test_changed_host_is_reported_whole_where_deltas_cannot_be_sent(sent: Sent) -> None:
    reporter = Reporter(sent.append, sends_deltas=False)
    for used, instances in ((1, []), (1, []), (2, []), (2, [A]), (2, [A])):
        reporter.report(host(host="h1", vcpus_used=used), instances)
    whole, delta = "HostReport", "HostDelta"
    assert sent.kinds == [whole, delta, whole, whole, delta]
    assert (sent.last["since"], sent.last["revision"]) == (3, 3)


def test_every_message_names_the_topic_and_server_of_its_agent(
    reporter: Reporter, sent: Sent
) -> None:
    for _ in range(2):
        reporter.report(host(host="h1"))
        assert (sent.last["reply_topic"], sent.last["reply_server"]) == (
            "topic",
            "server",
        )


def test_each_start_is_an_incarnation(sent: Sent) -> None:
    for _ in range(2):
        Reporter(sent.append).report(host(host="h1"))
    first, second = (cast[0]["moorage_object.data"]["incarnation"] for cast in sent)
    assert first != second


def test_host_under_another_name_is_reported_whole(
    reporter: Reporter, sent: Sent
) -> None:
    record = host(host="h1")
    reporter.report(record)
    reporter.report(dataclasses.replace(record, host="h2"))
    assert sent.kinds == ["HostReport", "HostReport"]
    assert sent.last["revision"] == 2


def test_unsent_change_is_reported_whole_the_next_time(sent: Sent) -> None:
    is_away = False

    def send(reports: list[dict[str, Any]]) -> None:
        if is_away:
            raise ConnectionError("away")
        sent.append(reports)

    reporter = Reporter(send)
    reporter.report(host(host="h1"))
    is_away = True
    with pytest.raises(ConnectionError):
        reporter.report(host(host="h1", vcpus_used=5))
    is_away = False
    reporter.report(host(host="h1", vcpus_used=5))
    assert sent.kinds == ["HostReport", "HostReport"]
    assert sent.last["vcpus_used"] == 5
    assert sent.last["revision"] == 3


def test_hosts_of_failed_casts_are_reported_whole(sent: Sent) -> None:
    n_left = 5

    def send(reports: list[dict[str, Any]]) -> None:
        nonlocal n_left
        n_left -= 1
        if n_left == 0:
            raise ConnectionError("away")
        sent.append(reports)

    reporter = Reporter(send)
    hosts = [(host(host=f"h{i}"), ()) for i in range(1200)]
    reporter.report_many(hosts)
    with pytest.raises(ConnectionError):
        reporter.report_many(hosts)
    sent.clear()
    reporter.report_many(hosts)
    assert sent.kinds == ["HostDelta"] * 500 + ["HostReport"] * 700


def test_many_hosts_are_sent_in_few_casts(reporter: Reporter, sent: Sent) -> None:
    reporter.report_many([(host(host=f"h{i}"), []) for i in range(1200)])
    assert [len(cast) for cast in sent] == [500, 500, 200]


def test_whole_report_is_sent_when_requested(reporter: Reporter, sent: Sent) -> None:
    assert not reporter.send_whole_report(NODE)
    reporter.report(host(host="h1"), [A])
    assert reporter.send_whole_report(NODE)
    assert sent.kinds == ["HostReport", "HostReport"]
    assert (sent.last["revision"], sent.last["instances"]) == (1, [A])
    reporter.forget(NODE)
    assert not reporter.send_whole_report(NODE)


def test_mapping_may_leave_out_what_has_a_default(
    reporter: Reporter, sent: Sent
) -> None:
    whole = report_values(host(host="h1"))
    less = {k: v for k, v in whole.items() if k not in ("stats", "failed_builds")}
    reporter.report(less)
    assert sent.last["stats"] == {}
    assert sent.last["failed_builds"] == 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"colour": "blue"}, "host 'h1': colour: there is no such column"),
        ({"vcpus_total": -1}, "host 'h1': vcpus_total: -1 where an integer from 0"),
        ({"uuid": "h1"}, "host 'h1': uuid: 'h1' where a UUID is needed"),
    ],
)
def test_bad_value_is_refused_before_it_is_sent(
    reporter: Reporter, sent: Sent, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        reporter.report(report_values(host(host="h1")) | changes)
    assert sent == []


def test_missing_column_is_reported(reporter: Reporter) -> None:
    less = report_values(host(host="h1"))
    del less["free_ram_mb"]
    with pytest.raises(ValueError, match="host 'h1': free_ram_mb: not given"):
        reporter.report(less)


def test_image_properties_are_sent_once_and_when_they_change(
    reporter: Reporter, sent: Sent
) -> None:
    linux, windows = {"os_type": "linux"}, {"os_type": "windows"}
    reporter.report(host(host="h1"), {A: linux, B: linux})
    whole = {"properties": linux, "instances": sorted([A, B])}
    assert sent.last["image_properties"] == [whole]
    reporter.report(host(host="h1"), {A: linux, B: linux})
    assert "image_properties" not in sent.last
    assert sent.last["since"] == sent.last["revision"], "it is a heartbeat"
    reporter.report(host(host="h1"), {A: windows, B: linux})
    changed = {"properties": windows, "instances": [A]}
    assert sent.last["image_properties"] == [changed]
    assert sent.last["since"] < sent.last["revision"]
    with pytest.raises(ValueError, match="texts by name"):
        reporter.report(host(host="h1"), {A: {"hw_boot_menu": True}})


def test_record_is_read_as_it_was_written() -> None:
    record = host(
        stats={"a": "b"},
        metrics={"cpu": 1.5},
        numa_topology=HostTopology.read(numa_topology(numa_cell(0), numa_cell(1))),
        pci_stats=HostPools.read(
            pci_pools(pci_pool(2), pci_pool(1, rp_uuid=NODE, tag="x"))
        ),
        last_seen_up=5.0,
    )
    assert read_record(json.loads(json.dumps(report_values(record))), 5.0) == record


def test_wire_form_is_pinned() -> None:
    """Agents and schedulers of different releases exchange these reports."""
    sent: list[dict[str, Any]] = []
    reporter = Reporter(
        sent.extend,
        reply=Reply("moorage-agent", "a1"),
        incarnation="c0a80101-0000-4000-8000-000000000000",
    )
    record = host(host="h1", stats={"a": "1"}, metrics={"cpu.percent": 0.5})
    instances = [f"c0a80101-0000-4000-8000-00000000000{i}" for i in (1, 2)]
    reporter.report(record, {uuid: {"os_type": "linux"} for uuid in instances})
    reporter.report(dataclasses.replace(record, free_ram_mb=1, metrics=None))
    path = Path(__file__).parents[1] / "data" / "host_reports.json"
    assert sent == json.loads(path.read_text())
