# SPDX-License-Identifier: Apache-2.0
"""Decisions are found again, in every database, by whatever process stored them."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from typing import Any

import pytest
import sqlalchemy as sa

from moorage.objects import RequestGroup
from moorage.scheduler.decision_store import DecisionQuery, DecisionStore, Demand
from moorage.scheduler.decision_store.schema import DECISIONS
from moorage.scheduler.drivers.record import ClaimAttempt, Outcome
from moorage.testing.builders import NOW, instance_uuid, spec

from ...fixtures.stored_decisions import decisions_in
from .conftest import make_record


def found(store: DecisionStore, **query: Any) -> list[str | None]:
    return [each.request_id for each in decisions_in(store, **query)]


def test_decision_is_read_as_it_was_stored(store: DecisionStore) -> None:
    record = make_record()
    request = record.request
    store.add(record)
    store.flush()
    [decision] = decisions_in(store, request_id="req-1")
    assert decision.record == dataclasses.replace(record, request=None)
    assert request is not None
    assert decision.request is not None
    assert decision.request.obj_to_primitive() == request.obj_to_primitive()
    assert decision.decided_at == NOW + 1
    assert decision.project_id == "p1"
    assert decision.outcome is Outcome.SELECTED
    assert decision.instance_uuids == (instance_uuid(1),)
    assert decision.hosts == ("a",)
    assert (store.n_written, store.n_dropped, store.failure) == (1, 0, "")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, [4, 3, 2, 1]),
        ({"limit": 2}, [4, 3]),
        ({"request_id": "req-2"}, [2]),
        ({"instance_uuid": instance_uuid(3)}, [3]),
        ({"project_id": "p1"}, [4, 2, 1]),
        ({"project_id": "p1", "failed": True}, [4]),
        ({"host": "a"}, [4, 1]),
        ({"host": "a", "failed": False}, [1]),
        ({"host": "A"}, []),
        ({"failed": True}, [4]),
        ({"since_s": NOW + 3}, [4, 3]),
        ({"after": 1 << 63}, [4, 3, 2, 1]),
        ({"newer_than": 1 << 63}, []),
        ({"instance_uuid": instance_uuid(3), "project_id": "p1"}, []),
        ({"request_id": ""}, [4, 3, 2, 1]),
    ],
)
def test_query_finds_what_matches_all_of_it(
    store: DecisionStore, query: dict[str, Any], expected: list[int]
) -> None:
    store.add(make_record(1))
    store.add(make_record(2, host="b"))
    store.add(make_record(3, host="b", project_id="p2"))
    refused = ClaimAttempt((instance_uuid(4),), ("a",), "refused", 1, "")
    store.add(
        make_record(4, outcome=Outcome.NO_VALID_HOST, instances=[], claims=[refused])
    )
    store.flush()
    assert found(store, **query) == [f"req-{number}" for number in expected]


def test_demand_is_counted_by_flavor_in_every_database(store: DecisionStore) -> None:
    def requested(number: int, flavor: str, **changes: Any) -> None:
        record = make_record(number, **changes)
        assert record.request is not None
        record.request.flavor.name = flavor
        store.add(record)

    refused = {"outcome": Outcome.NO_VALID_HOST, "instances": [], "claims": []}
    requested(1, "old")
    requested(10, "small")
    requested(11, "small", **refused)
    requested(12, "small", project_id="p2")
    requested(13, "large", outcome=Outcome.FAILED, instances=[], claims=[])
    store.flush()
    names = ["small", "large", "old", "unknown"]
    assert store.demand(DecisionQuery(since_s=NOW + 5), names) == {
        "small": Demand(3, 1),
        "large": Demand(1, 1),
        "old": Demand(),
        "unknown": Demand(),
    }
    of_project = DecisionQuery(project_id="p1", since_s=NOW + 5)
    assert store.demand(of_project, ["small"]) == {"small": Demand(2, 1)}
    assert store.demand(DecisionQuery(), []) == {}


def test_pages_follow_each_other(store: DecisionStore) -> None:
    for number in range(7):
        store.add(make_record(number))
    store.flush()
    pages, last = [], None
    while page := decisions_in(store, limit=3, after=last):
        pages.append([each.request_id for each in page])
        last = page[-1].id
    assert pages == [
        ["req-6", "req-5", "req-4"],
        ["req-3", "req-2", "req-1"],
        ["req-0"],
    ]


def test_unreadable_decisions_end_no_listing(
    store: DecisionStore, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(5):
        store.add(make_record(number))
    store.flush()
    _damage(database, [each.id for each in decisions_in(store)[:3]])
    pages, last = [], None
    while True:
        page = store.page(DecisionQuery(limit=2, after=last))
        pages.append([each.request_id for each in page.decisions])
        last = page.next_id
        if last is None:
            break
    assert pages == [[], ["req-1"], ["req-0"]]
    logged = [each.getMessage() for each in caplog.records]
    assert [text.split(",")[0] for text in logged] == [
        "2 stored decision(s) cannot be read and are left out",
        "1 stored decision(s) cannot be read and are left out",
    ]


def _damage(url: str, ids: list[int]) -> None:
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        damaged = sa.update(DECISIONS).values(record=b"\x02junk")
        connection.execute(damaged.where(DECISIONS.c.id.in_(ids)))
    engine.dispose()


def test_newer_decisions_come_in_the_order_of_time(store: DecisionStore) -> None:
    store.add(make_record(1))
    store.flush()
    [first] = decisions_in(store)
    for number in (2, 3, 4):
        store.add(make_record(number))
    store.flush()
    assert found(store, newer_than=first.id, limit=2) == ["req-2", "req-3"]


def test_request_that_was_decided_again_is_found_newest_first(
    store: DecisionStore,
) -> None:
    for number in (1, 2):
        store.add(make_record(number, request_id="req-1"))
    store.flush()
    times = [each.decided_at for each in decisions_in(store, request_id="req-1")]
    assert times == [NOW + 2, NOW + 1]


def test_request_is_stored_without_the_providers_of_its_claim(
    store: DecisionStore,
) -> None:
    group = RequestGroup(requester_id="port", provider_uuids=[instance_uuid(9)])
    store.add(make_record(request=spec(requested_resources=[group])))
    store.flush()
    [decision] = decisions_in(store, request_id="req-1")
    assert decision.request is not None
    [stored] = decision.request.requested_resources
    assert stored.provider_uuids == []


# -- views -----------------------------------------------------------------------------


def test_a_view_is_read_as_it_was_stored(database: str) -> None:
    store = DecisionStore(database, max_views=2)
    data = bytes(range(256)) * 10_000  # several pieces
    [first, second] = [store.add_view(lambda: data), store.add_view(lambda: b"x")]
    store.flush()
    assert store.view(first) == data
    assert store.view(second) == b"x"
    assert store.view("12345") is store.view("9" * 19) is None
    store.stop()


def test_the_newest_views_are_kept(database: str) -> None:
    seconds = itertools.count(NOW)
    store = DecisionStore(database, max_views=2, clock=lambda: next(seconds))
    ids = []
    for number in range(4):
        ids.append(store.add_view(functools.partial(bytes, [number] * 1_000_000)))
        store.flush()
    found = [store.view(id_) for id_ in ids]
    store.stop()
    assert [each and each[0] for each in found] == [None, None, 2, 3]


def test_a_view_that_cannot_be_encoded_is_left_out(
    store: DecisionStore, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> bytes:
        raise ValueError("broken")

    id_ = store.add_view(fail)
    store.add(make_record())
    store.flush()
    assert store.view(id_) is None
    assert found(store) == ["req-1"]
    assert "A view of decisions cannot be stored" in caplog.text
