# SPDX-License-Identifier: Apache-2.0
"""A request is read once in a decision, and by one rule."""

from __future__ import annotations

import copy
import cProfile
import pickle
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from moorage.objects import CellMapping, Destination, NetworkRequestList
from moorage.scheduler.errors import InvalidRequest
from moorage.scheduler.request import Request
from moorage.scheduler.request.checks import check_fields, check_groups, check_query
from moorage.scheduler.request.flavor_and_image import FlavorAndImage
from moorage.scheduler.request.groups import flavor_groups, query_groups
from moorage.scheduler.service import Scheduler

from ...fixtures.clouds import CONTEXT, host, new_uuids, request, started_scheduler


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[Scheduler]:
    with started_scheduler(tmp_path, host("h1"), host("h2")) as scheduler:
        yield scheduler


def n_calls(run: Callable[[], object]) -> Counter[Any]:
    """Return how often each function was called, by its code."""
    profile = cProfile.Profile()
    profile.runcall(run)
    return Counter({entry.code: entry.callcount for entry in profile.getstats()})


def test_plain_request_is_read_once(scheduler: Scheduler) -> None:
    spec_obj, uuids = request(), new_uuids()
    calls = n_calls(
        lambda: scheduler.select_destinations(
            CONTEXT, spec_obj, uuids, return_objects=True, return_alternates=True
        )
    )
    readers: list[Any] = [
        check_fields,
        check_groups,
        check_query,
        FlavorAndImage.of,
        flavor_groups,
        query_groups,
        Request.validated,
    ]
    assert {each.__name__: calls[each.__code__] for each in readers} == {
        each.__name__: 1 for each in readers
    }


def test_plugins_get_the_request_of_the_decision() -> None:
    spec_obj = request()
    validated = Request.validated(spec_obj)
    assert Request.of(spec_obj) is validated
    assert Request.of(request()) is not validated


@pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, lambda spec_obj: pickle.loads(pickle.dumps(spec_obj))],
    ids=["copy", "deepcopy", "pickle"],
)
def test_copy_of_a_request_is_read_for_itself(copied: Callable[[Any], Any]) -> None:
    """A plugin may change a copy, and pass it to one of our filters."""
    spec_obj = request()
    validated = Request.validated(spec_obj)
    other = copied(spec_obj)
    other.flavor = copy.deepcopy(spec_obj.flavor)
    other.flavor.extra_specs = {"hw:mem_page_size": "large"}
    assert Request.of(other).settings.extra_specs == {"hw:mem_page_size": "large"}
    assert Request.of(spec_obj) is validated


def test_request_that_is_used_again_is_read_again() -> None:
    spec_obj = request()
    assert Request.validated(spec_obj).settings.extra_specs == {}
    spec_obj.flavor.extra_specs = {"hw:mem_page_size": "large"}
    assert Request.of(spec_obj).settings.extra_specs == {"hw:mem_page_size": "large"}


def test_invalid_setting_is_refused_before_the_query(
    scheduler: Scheduler,
) -> None:
    spec_obj = request(extra_specs={"hw:cpu_policy": "many"})
    with pytest.raises(InvalidRequest, match="hw:cpu_policy"):
        scheduler.select_destinations(CONTEXT, spec_obj, new_uuids())
    [record] = scheduler.decisions.newest()
    assert record.queries == []


def test_networks_whose_list_is_not_set_are_none() -> None:
    primitive = NetworkRequestList().obj_to_primitive()
    primitive["nova_object.data"].clear()
    networks = NetworkRequestList.obj_from_primitive(primitive)
    spec_obj = request(requested_networks=networks)
    assert list(Request.validated(spec_obj).requested_networks) == []


@pytest.mark.parametrize(
    ("may_leave", "cells"), [(False, ("x", None)), (True, (None, "x"))]
)
def test_cell_of_the_destination(
    may_leave: bool, cells: tuple[str | None, str | None]
) -> None:
    uuid = "3f1f6a8e-6f0f-4a0b-9d3b-0c6a8f6f7f10"
    wanted = Destination(
        cell=CellMapping(uuid=uuid), allow_cross_cell_move=may_leave, host="h"
    )
    found = Request.of(request(requested_destination=wanted)).destination
    assert (found.host, found.node) == ("h", None)
    assert [found.cell, found.preferred_cell] == [each and uuid for each in cells]
