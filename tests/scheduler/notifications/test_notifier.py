# SPDX-License-Identifier: Apache-2.0
"""Notifications are sent when nova sends them, and fail no decision."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from moorage.objects import (
    Destination,
    InstancePCIRequest,
    InstancePCIRequests,
    RequestSpec,
    Serializer,
)
from moorage.scheduler import conf as moorage_conf
from moorage.scheduler.errors import NoValidHost
from moorage.scheduler.notifications.outbox import MAX_WAITING, Notification, Outbox
from moorage.scheduler.service import Scheduler, build
from moorage.testing import builders

from ...fixtures.clouds import CONTEXT, host, new_uuids, request, write_inventory
from ...fixtures.notification_listener import Broken, Listener, Unavailable
from ...fixtures.waiting import wait_until

START, END = (f"scheduler.select_destinations.{each}" for each in ("start", "end"))

HOSTS = (host("h1"), host("h2"))

Make = Callable[..., Scheduler]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Make a started scheduler of two hosts; options of [notifications] by name."""
    made: list[Scheduler] = []

    def start(
        notifier: Any, hosts: Sequence[dict[str, Any]] = HOSTS, **options: str
    ) -> Scheduler:
        conf = moorage_conf.load([], config_files=[])
        path = write_inventory(tmp_path, *hosts)
        conf.set_override("inventory_file", str(path), "moorage")
        conf.set_override("candidates_max_age", 3600.0, "moorage")
        conf.set_override("host", "scheduler1")
        for name, value in options.items():
            conf.set_override(name, value, "notifications")
        made.append(build(conf, notifier=notifier))
        made[-1].start()
        return made[-1]

    yield start
    for scheduler in made:
        scheduler.stop()


def _select(scheduler: Scheduler, uuids: list[str] | None, **changes: Any) -> list[str]:
    spec = (
        _spec(**changes) if uuids is None else _spec(instance_uuid=uuids[0], **changes)
    )
    answer = scheduler.select_destinations(CONTEXT, spec, uuids)
    return [each["host"] for each in answer]  # type: ignore[call-overload]  # dicts


def _spec(**changes: Any) -> RequestSpec:
    """A request with all that nova's payload needs, as received over the wire."""
    changes = {"instance_uuid": new_uuids()[0], **changes}
    spec = request(**changes)
    spec.flavor.disabled, spec.flavor.is_public = False, True
    read: RequestSpec = Serializer().deserialize_entity(
        CONTEXT, Serializer().serialize_entity(CONTEXT, spec)
    )
    return read


def _events(listener: Listener) -> list[str]:
    return [each.event_type for each in listener.received]


@pytest.mark.parametrize(
    ("form", "publishers"),
    [
        ("unversioned", ["scheduler.scheduler1"]),
        ("versioned", ["nova-scheduler:scheduler1"]),
        ("both", ["scheduler.scheduler1", "nova-scheduler:scheduler1"]),
    ],
)
def test_start_and_end_are_sent_in_each_format(
    make: Make, form: str, publishers: list[str]
) -> None:
    scheduler = make(listener := Listener(), notification_format=form)
    _select(scheduler, new_uuids())
    scheduler.stop()
    sent = [(each.publisher_id, each.event_type) for each in listener.received]
    assert sent == [(p, e) for e in (START, END) for p in publishers]


def test_each_format_can_have_its_own_notifier(make: Make) -> None:
    legacy, versioned = Listener(), Listener()
    scheduler = make((legacy, versioned), notification_format="both")
    _select(scheduler, new_uuids())
    scheduler.stop()
    assert [set(each.payload) for each in legacy.received] == [{"request_spec"}] * 2
    names = [each.payload["nova_object.name"] for each in versioned.received]
    assert names == ["RequestSpecPayload"] * 2


def test_end_has_the_last_instance(make: Make) -> None:
    scheduler = make(listener := Listener(), notification_format="versioned")
    uuids = new_uuids(3)
    _select(scheduler, uuids, num_instances=3)
    scheduler.stop()
    sent = [
        each.payload["nova_object.data"]["instance_uuid"] for each in listener.received
    ]
    assert sent == [uuids[0], uuids[2]]


def test_pci_request_is_published_with_its_unset_fields_as_none(make: Make) -> None:
    devices = InstancePCIRequests(
        requests=[InstancePCIRequest(count=1, spec=[{"vendor_id": "8086"}])]
    )
    scheduler = make(listener := Listener(), notification_format="versioned")
    with contextlib.suppress(NoValidHost):  # no host has devices
        _select(scheduler, uuids := new_uuids(), pci_requests=devices)
    scheduler.stop()
    published = listener.received[0].payload["nova_object.data"]["pci_requests"]
    assert published["nova_object.data"]["instance_uuid"] == uuids[0]
    [each] = published["nova_object.data"]["requests"]
    assert each["nova_object.name"] == "InstancePCIRequestPayload"
    assert each["nova_object.data"] == {
        "count": 1,
        "spec": [{"vendor_id": "8086"}],
        "alias_name": None,
        "request_id": None,
        "numa_policy": None,
    }


def _with_cell(name: str, number: int) -> dict[str, Any]:
    """A host with one NUMA cell of 4 CPUs."""
    topology = builders.numa_topology(builders.numa_cell(number))
    return host(name, numa_topology=topology.obj_to_primitive())


def _pinned() -> dict[str, Any]:
    """A guest of one cell with 2 pinned CPUs."""
    return {"numa_topology": builders.guest_topology(builders.guest_cell())}


def _published_cell(listener: Listener) -> dict[str, Any]:
    """The guest's only cell in the last notification."""
    data = listener.received[-1].payload["nova_object.data"]
    [cell] = data["numa_topology"]["nova_object.data"]["cells"]
    sent: dict[str, Any] = cell["nova_object.data"]
    return sent


@pytest.mark.parametrize("is_named", [True, False], ids=["claimed", "old conductor"])
def test_end_has_the_pinned_cpus_of_the_last_instance(
    make: Make, is_named: bool
) -> None:
    listener = Listener()
    scheduler = make(listener, [_with_cell("h1", 3)], notification_format="versioned")
    _select(scheduler, new_uuids(2) if is_named else None, num_instances=2, **_pinned())
    scheduler.stop()
    sent = _published_cell(listener)
    assert (sent["id"], sent["cpu_pinning_raw"]) == (3, {"0": 14, "1": 15})


def test_end_has_the_cells_of_the_host_of_the_last_instance(make: Make) -> None:
    hosts = [_with_cell("h2", 2), _with_cell("h3", 3), _with_cell("h4", 4)]
    for _ in range(5):  # ties are broken at random
        scheduler = make(listener := Listener(), hosts, notification_format="versioned")
        chosen = _select(scheduler, new_uuids(3), num_instances=3, **_pinned())
        scheduler.stop()
        assert f"h{_published_cell(listener)['id']}" == chosen[-1]


def test_request_is_not_modified(make: Make) -> None:
    scheduler = make(Listener(), [_with_cell("h1", 3)])
    spec = _spec(**_pinned())
    before = spec.obj_to_primitive()
    scheduler.select_destinations(CONTEXT, spec, new_uuids())
    assert spec.obj_to_primitive() == before


def test_end_has_the_requested_cells_for_a_host_without_any(make: Make) -> None:
    scheduler = make(listener := Listener(), notification_format="versioned")
    _select(scheduler, new_uuids(), force_hosts=["h1"], **_pinned())
    scheduler.stop()
    sent = _published_cell(listener)
    assert (sent["id"], sent["cpu_pinning_raw"]) == (0, None)


def test_end_has_no_cells_where_they_do_not_fit(make: Make) -> None:
    hosts = [_with_cell("h1", 3)]
    scheduler = make(listener := Listener(), hosts, notification_format="versioned")
    uuids = new_uuids(3)
    _select(scheduler, uuids, num_instances=3, force_hosts=["h1"], **_pinned())
    scheduler.stop()
    assert listener.received[-1].payload["nova_object.data"]["numa_topology"] is None


def test_request_without_candidates_is_not_published(make: Make) -> None:
    scheduler = make(listener := Listener())
    with pytest.raises(NoValidHost):
        _select(scheduler, new_uuids(), vcpus=99)
    scheduler.stop()
    assert listener.received == []


def test_request_that_no_host_passes_has_no_end(make: Make) -> None:
    scheduler = make(listener := Listener())
    with pytest.raises(NoValidHost):
        _select(scheduler, new_uuids(), ignore_hosts=["h1", "h2"])
    scheduler.stop()
    assert _events(listener) == [START]


def test_rebuild_is_published_without_candidates(make: Make) -> None:
    scheduler = make(listener := Listener())
    rebuild = {
        "scheduler_hints": {"_nova_check_type": ["rebuild"]},
        "requested_destination": Destination(host="h1", node="h1"),
    }
    assert _select(scheduler, new_uuids(), vcpus=99, **rebuild) == ["h1"]
    scheduler.stop()
    assert _events(listener) == [START, END]


def test_request_of_an_old_conductor_is_published(make: Make) -> None:
    scheduler = make(listener := Listener())
    assert len(_select(scheduler, None)) == 1
    scheduler.stop()
    assert _events(listener) == [START, END]


def test_request_that_is_decided_twice_is_published_once(make: Make) -> None:
    scheduler = make(listener := Listener())
    _select(scheduler, new_uuids(), vcpus=8)
    with pytest.raises(
        NoValidHost
    ):  # the answer was cached: Placement is queried again
        _select(scheduler, new_uuids(20), num_instances=20, vcpus=8)
    scheduler.stop()
    assert len(scheduler.decisions.newest()[0].queries) > 1
    assert _events(listener) == [START, END, START]


def test_no_token_is_published(make: Make) -> None:
    scheduler = make(listener := Listener(), notification_format="both")
    context = {**CONTEXT, "auth_token": "secret", "service_catalog": [{"x": "secret"}]}
    scheduler.select_destinations(context, _spec(), new_uuids())
    scheduler.stop()
    assert len(listener.received) == 4
    for each in listener.received:
        assert each.context == CONTEXT
        assert "secret" not in str(each)


def test_broken_notifier_fails_no_decision_and_is_logged_once(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    scheduler = make(notifier := Broken())
    with caplog.at_level(logging.WARNING, "moorage.scheduler.notifications"):
        for _ in range(3):
            assert len(_select(scheduler, new_uuids())) == 1
        wait_until(lambda: len(_lost(caplog)) == 1)
        notifier.state["is_broken"] = False
        _select(scheduler, new_uuids())
        scheduler.stop()
    [lost] = _lost(caplog)
    assert "RuntimeError: the notifier is broken" in lost
    assert any("are sent again" in r.getMessage() for r in caplog.records)
    assert _events(notifier)[-1] == END


def test_request_that_cannot_be_published_is_decided(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    scheduler = make(listener := Listener(), notification_format="versioned")
    spec = request()  # its flavor has no `disabled`, which the payload must have
    assert len(scheduler.select_destinations(CONTEXT, spec, new_uuids())) == 1
    scheduler.stop()
    assert listener.received == []
    assert len(_lost(caplog)) == 1


def test_unavailable_bus_delays_no_decision(make: Make) -> None:
    scheduler = make(notifier := Unavailable())
    for _ in range(3):
        assert len(_select(scheduler, new_uuids())) == 1
    assert notifier.received == []
    notifier.is_back.set()
    scheduler.stop()
    assert _events(notifier) == [START, END] * 3


def test_queue_for_the_bus_is_limited(
    caplog: pytest.LogCaptureFixture,
) -> None:
    outbox, notifier = Outbox(), Unavailable()
    for _ in range(MAX_WAITING + 10):
        outbox.put(_notification(notifier))
    assert len(_lost(caplog)) == 1
    notifier.is_back.set()
    wait_until(lambda: len(notifier.received) >= MAX_WAITING)
    outbox.stop()
    assert MAX_WAITING <= len(notifier.received) <= MAX_WAITING + 1


def test_stop_does_not_wait_for_an_unavailable_bus() -> None:
    outbox, notifier = Outbox(max_waiting=1), Unavailable()
    for _ in range(3):
        outbox.put(_notification(notifier))
    began = time.monotonic()
    outbox.stop(timeout_s=0.1)
    assert time.monotonic() - began < 30
    notifier.is_back.set()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_forked_process_sends_its_own_notifications() -> None:
    outbox, listener = Outbox(), Listener()
    outbox.put(_notification(listener))
    wait_until(lambda: len(listener.received) == 1)
    child = os.fork()
    if child == 0:
        outbox.put(_notification(listener))
        outbox.stop()
        os._exit(len(listener.received))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
    outbox.put(_notification(listener))
    outbox.stop()
    assert len(listener.received) == 2


def test_nothing_is_published_by_default(make: Make) -> None:
    scheduler = make(None)
    assert len(_select(scheduler, new_uuids())) == 1


def _notification(notifier: Any) -> Notification:
    prepared = notifier.prepare(publisher_id="p")

    class Context(dict[str, Any]):
        def redacted_copy(self) -> Context:
            return self

        def to_dict(self) -> dict[str, Any]:
            return dict(self)

    return Notification(prepared, Context(), START, {})


def _lost(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [m for m in caplog.messages if "Notifications are lost" in m]
