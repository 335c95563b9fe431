# SPDX-License-Identifier: Apache-2.0
"""Rules about places: hints, the group's level, a spread, each checked one by one."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from oslo_config import cfg

from moorage.filters.locality import LocalityFilter
from moorage.objects import InstanceGroup, RequestSpec
from moorage.scheduler.errors import InvalidRequest
from moorage.scheduler.hosts import Consumption, HostBatch
from moorage.scheduler.locality.hints import locality_rules
from moorage.scheduler.request import Request
from moorage.scheduler.request.locality import AtMost, Spread

from ..conftest import (
    aggregate,
    batch,
    group,
    host,
    instance_uuid,
    node_uuid,
    options,
    spec,
    table,
)
from ..fixtures.property_tests import examples

LEVELS = ("rack", "row")
SMALL = Consumption(memory_mb=1, disk_mb=1, vcpus=1)
ONE, TWO, THREE, GONE = map(instance_uuid, ("one", "two", "three", "gone"))
MINE = instance_uuid("asked for")
GROUP = instance_uuid("group")

#: Two racks a row and two hosts a rack; x has no place.
RACKS = {"a": "r1", "b": "r1", "c": "r2", "d": "r2", "e": "r3", "f": "r3"}
ROWS = {"r1": "left", "r2": "left", "r3": "right"}


@functools.cache
def _conf() -> cfg.ConfigOpts:
    conf = options()
    conf.set_override("levels", list(LEVELS), group="locality")
    return conf


def _places(rack: str | None) -> tuple[tuple[str, str], ...]:
    return () if rack is None else (("rack", rack), ("row", ROWS[rack]))


def _cloud(on: Mapping[str, list[str]]) -> HostBatch:
    racks = {**RACKS, "x": None}
    return batch(
        *(host(host=name, places=_places(rack)) for name, rack in racks.items()),
        instances={name: list(uuids) for name, uuids in on.items()},
    )


def _passing(rows: HostBatch, **changes: Any) -> str:
    spec_obj = spec(**changes)
    prepared = LocalityFilter(_conf()).prepare(spec_obj)
    return "".join(rows.host[prepared.passing(rows, spec_obj)])


def _together(rows: HostBatch, **changes: Any) -> str:
    """The hosts that the rules for several instances at once allow."""
    spec_obj = spec(**changes)
    prepared = LocalityFilter(_conf()).prepare(spec_obj)
    allowed = np.ones(len(rows), bool)
    for rule in prepared.joint_rules(rows, spec_obj):
        allowed &= rule.allowed
    return "".join(rows.host[allowed])


def _group(policy: str, *members: str) -> InstanceGroup:
    return group(policy, members=list(members), uuid=GROUP)


ON = {"a": [ONE], "c": [TWO], "f": [THREE]}


@pytest.mark.parametrize(
    ("hints", "passing"),
    [
        ({}, "abcdefx"),
        ({"in_rack": ["r2"]}, "cd"),
        ({"in_rack": ["r1", "r3"]}, "abef"),
        ({"in_row": ["left"]}, "abcd"),
        ({"in_rack": ["nowhere"]}, ""),
        ({"not_in_rack": ["r2"]}, "abef"),
        ({"not_in_rack": ["nowhere"]}, "abcdef"),
        ({"in_row": ["left"], "not_in_rack": ["r1"]}, "cd"),
        ({"same_rack": [ONE]}, "ab"),
        ({"same_rack": [ONE, TWO]}, "abcd"),
        ({"same_row": [ONE]}, "abcd"),
        ({"same_rack": [GONE]}, ""),
        ({"same_rack": [GONE, ONE]}, "ab"),
        ({"different_rack": [ONE]}, "cdef"),
        ({"different_rack": [ONE, THREE]}, "cd"),
        ({"different_row": [ONE]}, "ef"),
        ({"different_rack": [GONE]}, "abcdef"),
        ({"same_row": [ONE], "different_rack": [ONE]}, "cd"),
        ({"same_shelf": ["no level"], "different_host": ["x"]}, "abcdefx"),
    ],
    ids=str,
)
def test_hints(hints: dict[str, list[str]], passing: str) -> None:
    assert _passing(_cloud(ON), scheduler_hints=hints) == passing
    assert _together(_cloud(ON), scheduler_hints=hints) == passing


@pytest.mark.parametrize(
    ("policy", "hints", "extra_specs", "passing"),
    [
        ("anti-affinity", {}, {}, "abcdefx"),
        ("anti-affinity", {"group_level": ["rack"]}, {}, "ef"),
        ("anti-affinity", {}, {"moorage:group_level": "rack"}, "ef"),
        ("anti-affinity", {"group_level": ["row"]}, {}, "ef"),
        (
            "anti-affinity",
            {"group_level": ["row"], "max_server_per_row": ["3"]},
            {},
            "abcdef",
        ),
        ("soft-anti-affinity", {"group_level": ["rack"]}, {}, "abcdefx"),
        ("soft-anti-affinity", {"max_server_per_row": ["2"]}, {}, "ef"),
        ("soft-anti-affinity", {"max_server_per_row": ["3"]}, {}, "abcdef"),
        (
            "soft-anti-affinity",
            {"max_server_per_row": ["3"]},
            {"moorage:max_server_per_row": "2"},
            "ef",
        ),
        ("soft-affinity", {"same_rack": [GROUP]}, {}, "abcd"),
        ("soft-affinity", {"different_rack": [GROUP]}, {}, "ef"),
        ("soft-affinity", {"spread_level": ["rack"]}, {}, "ef"),
        ("soft-affinity", {"spread_level": ["rack"], "max_skew": ["2"]}, {}, "abcdef"),
        ("soft-affinity", {}, {"moorage:spread_level": "row"}, "ef"),
    ],
    ids=str,
)
def test_group(
    policy: str, hints: dict[str, list[str]], extra_specs: dict[str, str], passing: str
) -> None:
    changes = {"scheduler_hints": hints, "extra_specs": extra_specs}
    group_of_two = _group(policy, ONE, TWO)
    assert _passing(_cloud(ON), instance_group=group_of_two, **changes) == passing
    # A place that has too many now has not once others have more.
    is_spread = any("spread_level" in name for name in (*hints, *extra_specs))
    allowed = _together(_cloud(ON), instance_group=group_of_two, **changes)
    assert allowed == ("abcdef" if is_spread else passing)


@pytest.mark.parametrize(
    ("flavor", "hints", "limits"),
    [
        ("group_level=rack", {"max_server_per_rack": ["9"]}, {"rack": 1}),
        ("group_level=rack", {"group_level": ["row"]}, {"rack": 1, "row": 1}),
        (
            "group_level=rack max_server_per_rack=3",
            {"group_level": ["rack"], "max_server_per_rack": ["9"]},
            {"rack": 3},
        ),
        ("max_server_per_rack=3", {"group_level": ["rack"]}, {"rack": 3}),
        ("max_server_per_rack=3", {"max_server_per_rack": ["2"]}, {"rack": 2}),
        ("group_level=rack", {"max_server_per_row": ["9"]}, {"rack": 1, "row": 9}),
        ("", {"group_level": ["rack"], "max_server_per_rack": ["9"]}, {"rack": 9}),
        ("spread_level=rack", {"max_skew": ["9"]}, {"rack": 1}),
        ("spread_level=rack max_skew=3", {"max_skew": ["9"]}, {"rack": 3}),
        ("spread_level=rack max_skew=3", {"max_skew": ["2"]}, {"rack": 2}),
        (
            "spread_level=rack",
            {"spread_level": ["rack", "row"], "max_skew": ["9"]},
            {"rack": 1, "row": 9},
        ),
        ("", {"spread_level": ["rack"], "max_skew": ["9"]}, {"rack": 9}),
    ],
    ids=str,
)
def test_hints_never_loosen_what_the_flavor_sets(
    flavor: str, hints: dict[str, list[str]], limits: dict[str, int]
) -> None:
    specs = dict(f"moorage:{each}".split("=") for each in flavor.split())
    members = _group("anti-affinity", ONE, TWO)
    asked = spec(instance_group=members, scheduler_hints=hints, extra_specs=specs)
    found: dict[str, int] = {}
    for rule in locality_rules(Request.validated(asked), LEVELS):
        assert isinstance(rule, AtMost | Spread)
        found[rule.level] = rule.limit if isinstance(rule, AtMost) else rule.max_skew
    assert found == limits


def test_first_member_of_a_group_goes_anywhere_and_the_next_ones_follow() -> None:
    changes: dict[str, Any] = {
        "instance_group": _group("soft-affinity"),
        "scheduler_hints": {"same_rack": [GROUP]},
    }
    rows = _cloud({})
    assert _passing(rows, **changes) == "abcdef"
    assert _together(rows, **changes) == "abcdef"
    after = rows.with_instance(2, ONE, SMALL)
    assert _passing(after, **changes) == _together(after, **changes) == "cd"


def test_instances_of_a_request_without_a_group_are_spread() -> None:
    rows = _cloud({}).with_instance(0, ONE, SMALL).with_instance(2, TWO, SMALL)
    assert _passing(rows, scheduler_hints={"spread_level": ["rack"]}) == "ef"


def test_places_without_a_host_that_is_left_do_not_hold_back_a_spread() -> None:
    rows = _cloud(ON).take([0, 1, 2, 3])
    hints = {"spread_level": ["rack"]}
    soft = _group("soft-affinity", ONE, TWO)
    assert _passing(rows, instance_group=soft, scheduler_hints=hints) == "abcd"


def test_instance_may_stay_on_its_host_and_does_not_count_itself() -> None:
    rows = _cloud({"a": [MINE, ONE], "b": [], "c": [TWO]})
    changes = {
        "instance_group": _group("anti-affinity", MINE, ONE, TWO),
        "scheduler_hints": {"group_level": ["rack"]},
    }
    assert _passing(rows, **changes) == "aef"
    alone = _cloud({"a": [MINE], "c": [TWO]})
    assert _passing(alone, **changes) == "abef"


def test_host_that_an_instance_is_only_claimed_on_is_not_its_host() -> None:
    made = table(
        *(host(host=name, places=_places(rack)) for name, rack in RACKS.items()),
        instances={"b": [ONE]},
    )
    changes = {
        "instance_group": _group("anti-affinity", MINE, ONE),
        "instance_uuid": MINE,
        "scheduler_hints": {"group_level": ["rack"]},
    }
    made.claims.consume(node_uuid("a"), MINE, SMALL)
    assert _passing(made.batch(), **changes) == "cdef"
    made.claims.mark_reported(node_uuid("a"), [MINE])
    assert _passing(made.batch(), **changes) == "acdef"


def test_members_outside_of_the_batch_count() -> None:
    rows = _cloud(ON).take([1, 3, 5])
    assert _passing(rows, scheduler_hints={"different_rack": [ONE]}) == "df"


def test_aggregates_and_reports_name_the_same_places() -> None:
    rows = batch(
        *(host(host=name) for name in "ab"),
        host(host="c", places=(("rack", "r1"),)),
        host(host="d", places=(("rack", "r2"),)),
        aggregates=[
            aggregate(1, "a", **{"moorage:level": "rack", "moorage:place": "r1"}),
            aggregate(2, "b", **{"moorage:level": "rack"}),
        ],
        instances={"a": [ONE]},
    )
    assert _passing(rows, scheduler_hints={"same_rack": [ONE]}) == "ac"
    assert _passing(rows, scheduler_hints={"in_rack": ["aggregate2"]}) == "b"


def test_host_in_two_places_of_a_level_is_in_none() -> None:
    in_two = [
        aggregate(1, "a", **{"moorage:level": "rack"}),
        aggregate(2, "a", "b", **{"moorage:level": "rack"}),
        aggregate(3, "c", **{"moorage:level": "rack"}),
    ]
    rows = batch(
        host(host="a"),
        host(host="b"),
        host(host="c", places=(("rack", "another"),)),
        aggregates=in_two,
    )
    names = ["aggregate1", "aggregate2", "aggregate3", "another"]
    assert _passing(rows, scheduler_hints={"in_rack": names}) == "b"


@pytest.mark.parametrize(
    ("hints", "reason"),
    [
        pytest.param(
            {"in_rack": ["nosuch"]}, "in_rack: no host is in rack 'nosuch'", id="one"
        ),
        pytest.param(
            {"in_row": ["nosuch", "none"]},
            "in_row: no host is in row 'none' or 'nosuch'",
            id="several",
        ),
        pytest.param({"in_rack": ["r2"]}, "in_rack: in another rack", id="some-hosts"),
        pytest.param(
            {"in_rack": ["r2", "nosuch"]}, "in_rack: in another rack", id="one-of-two"
        ),
    ],
)
def test_place_without_any_host_is_named(
    hints: dict[str, list[str]], reason: str
) -> None:
    spec_obj = spec(scheduler_hints=hints)
    prepared = LocalityFilter(_conf()).prepare(spec_obj)
    rows = _cloud(ON).take([0])
    assert not prepared.passing(rows, spec_obj).any()
    assert prepared.reason_for(spec_obj, rows) == reason
    [host_state] = rows
    rejection = prepared.explain_rejection(host_state, spec_obj)
    assert rejection is not None
    assert rejection.reason == reason


@pytest.mark.parametrize(
    ("hints", "host_name", "attribute", "required", "available"),
    [
        ({"in_rack": ["r1"]}, "c", "rack", "r1 (in_rack)", "rack r2"),
        ({"not_in_rack": ["r2"]}, "c", "rack", "not r2 (not_in_rack)", "rack r2"),
        ({"in_row": ["left"]}, "x", "row", "left (in_row)", "no row"),
        ({"same_rack": [ONE]}, "c", "rack", "r1 (same_rack)", "rack r2"),
        (
            {"same_rack": [GONE]}, "c", "rack",
            "an instance whose rack is known (same_rack)", "rack r2",
        ),
        (
            {"different_rack": [ONE]}, "b", "rack",
            "none of these instances (different_rack)",
            "rack r1 has 1 of these instances",
        ),
        (
            {"max_server_per_row": ["2"]}, "b", "row",
            "fewer than 2 members (max_server_per_row)", "row left has 2 of 2 members",
        ),
        (
            {"spread_level": ["row"]}, "b", "row",
            "fewer than 1 members (spread_level=row)", "row left has 2 members",
        ),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)  # fmt: skip
def test_rejection_names_level_and_place(
    hints: dict[str, list[str]],
    host_name: str,
    attribute: str,
    required: str,
    available: str,
) -> None:
    spec_obj = spec(scheduler_hints=hints, instance_group=_group("affinity", ONE, TWO))
    rows = _cloud(ON)
    [index] = rows.matches("host", [host_name]).nonzero()[0]
    prepared = LocalityFilter(_conf()).prepare(spec_obj)
    found = prepared.explain_rejection(rows[int(index)], spec_obj)
    assert found is not None
    assert (found.attribute, found.required, found.available) == (
        attribute, required, available,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("hints", "extra_specs", "message"),
    [
        ({"same_rack": ["r7"]}, {}, "scheduler_hints: same_rack is 'r7'; it must be"),
        ({"group_level": ["shelf"]}, {}, "'shelf'; it must be one of rack, row"),
        ({}, {"moorage:spread_level": "shelf"}, "moorage:spread_level is 'shelf'"),
        ({"max_server_per_rack": ["0"]}, {}, "is '0'; it must be a number from 1 to"),
        ({"max_server_per_rack": ["9" * 9]}, {}, "a number from 1 to 10000"),
        (
            {"spread_level": ["rack"], "max_skew": ["-1"]},
            {},
            "max_skew is '-1'; it must be a number",
        ),
        ({"in_rack": ["r" * 256]}, {}, "at most 255 characters"),
        ({"in_rack": ["r1"] * 60, "in_row": ["x"] * 41}, {}, "at most 100 together"),
    ],
    ids=["uuid", "level", "flavor", "zero", "large", "skew", "long", "many"],
)
def test_malformed_value_is_an_invalid_request(
    hints: dict[str, list[str]], extra_specs: dict[str, str], message: str
) -> None:
    spec_obj = spec(scheduler_hints=hints, extra_specs=extra_specs)
    with pytest.raises(InvalidRequest, match=message):
        LocalityFilter(_conf()).prepare(spec_obj)


def test_without_levels_hints_about_places_are_not_read(conf: cfg.ConfigOpts) -> None:
    spec_obj = spec(scheduler_hints={"same_rack": ["no UUID"], "in_rack": ["r1"]})
    rows = _cloud({})
    assert LocalityFilter(conf).prepare(spec_obj).passing(rows, spec_obj).all()


# -- one host at a time, in plain Python -----------------------------------------------


def _allowed(
    name: str,
    places: Mapping[str, Mapping[str, str]],
    on: Mapping[str, list[str]],
    spec_obj: RequestSpec,
    left: list[str],
) -> bool:
    """Return what the rules say of one host, as the documentation puts it."""
    hints: Mapping[str, list[str]] = spec_obj.scheduler_hints
    members = set(spec_obj.instance_group.members)

    def instances_in(level: str, place: str, some: set[str]) -> int:
        return sum(
            uuid in some and uuid != spec_obj.instance_uuid
            for each, uuids in on.items()
            for uuid in uuids
            if places[each].get(level) == place
        )

    def rules(name: str, level: str) -> Any:
        mine = places[name].get(level)
        is_mine = spec_obj.instance_uuid in on.get(name, ())
        if inside := hints.get(f"in_{level}"):
            yield mine in inside
        if outside := hints.get(f"not_in_{level}"):
            yield mine is not None and mine not in outside
        if same := hints.get(f"same_{level}"):
            yield mine is not None and instances_in(level, mine, set(same)) > 0
        if apart := hints.get(f"different_{level}"):
            is_free = mine is not None and not instances_in(level, mine, set(apart))
            yield is_free or is_mine
        limit = hints.get(f"max_server_per_{level}")
        if level in hints.get("group_level", ()):
            limit = limit or ["1"]
        if limit:
            n_here = 0 if mine is None else instances_in(level, mine, members)
            yield (mine is not None and n_here < int(limit[0])) or is_mine

    def spread(level: str) -> bool:
        mine = places[name].get(level)
        is_mine = spec_obj.instance_uuid in on.get(name, ())
        if level in hints.get("spread_level", ()):
            allowed = [h for h in left if all(a for at in LEVELS for a in rules(h, at))]
            domains = {places[h][level] for h in allowed if level in places[h]}
            counts = Counter({d: instances_in(level, d, members) for d in domains})
            skew = int(hints.get("max_skew", ["1"])[0])
            least = min(counts.values(), default=0)
            n_here = 0 if mine is None else instances_in(level, mine, members)
            return is_mine or (mine is not None and n_here + 1 - least <= skew)
        return True

    answers = [answer for level in LEVELS for answer in rules(name, level)]
    return all([*answers, *map(spread, LEVELS)])


UUIDS = [*map(instance_uuid, range(5)), MINE]
NAMES = [f"h{i}" for i in range(8)]
_SOME = st.lists(st.sampled_from(UUIDS[:5]), min_size=1, max_size=3, unique=True)
_NAMED = {"rack": ["r0", "r1", "r2", "r3"], "row": ["w0", "w1"]}


@st.composite
def _requests(draw: st.DrawFn) -> dict[str, list[str]]:
    choices: dict[str, st.SearchStrategy[list[str]]] = {
        "group_level": st.lists(st.sampled_from(LEVELS), min_size=1, unique=True),
        "spread_level": st.lists(st.sampled_from(LEVELS), min_size=1, unique=True),
        "max_skew": st.sampled_from([["1"], ["2"]]),
    }
    for level in LEVELS:
        named = st.lists(st.sampled_from(_NAMED[level]), min_size=1, unique=True)
        choices |= {f"in_{level}": named, f"not_in_{level}": named}
        choices |= {f"same_{level}": _SOME, f"different_{level}": _SOME}
        choices[f"max_server_per_{level}"] = st.sampled_from([["1"], ["2"]])
    chosen = draw(st.lists(st.sampled_from(sorted(choices)), max_size=3, unique=True))
    return {name: draw(choices[name]) for name in chosen}


@examples(4)
@given(
    hints=_requests(),
    members=st.lists(st.sampled_from(UUIDS), unique=True),
    places=st.lists(
        st.fixed_dictionaries(
            {}, optional={k: st.sampled_from(v) for k, v in _NAMED.items()}
        ),
        min_size=len(NAMES),
        max_size=len(NAMES),
    ),
    is_reported=st.lists(st.booleans(), min_size=len(NAMES), max_size=len(NAMES)),
    on=st.dictionaries(
        st.sampled_from(NAMES), st.lists(st.sampled_from(UUIDS), unique=True)
    ),
    left=st.lists(st.sampled_from(NAMES), min_size=1, unique=True).map(sorted),
)
def test_filter_agrees_with_the_rules_of_one_host(
    hints: dict[str, list[str]],
    members: list[str],
    places: list[dict[str, str]],
    is_reported: list[bool],
    on: dict[str, list[str]],
    left: list[str],
) -> None:
    of_host = dict(zip(NAMES, places, strict=True))
    reported = {n for n, is_it in zip(NAMES, is_reported, strict=True) if is_it}
    others = [n for n in NAMES if n not in reported]
    in_aggregates = [
        (level, place, [n for n in others if of_host[n].get(level) == place])
        for level, all_places in _NAMED.items()
        for place in all_places
    ]
    rows = batch(
        *(
            host(host=n, places=tuple(of_host[n].items()) if n in reported else ())
            for n in NAMES
        ),
        instances=on,
        aggregates=[
            aggregate(i, *hosts, **{"moorage:level": level, "moorage:place": place})
            for i, (level, place, hosts) in enumerate(in_aggregates)
        ],
    )
    spec_obj = spec(
        scheduler_hints=hints, instance_group=_group("anti-affinity", *members)
    )
    some = rows.take(rows.matches("host", left))
    prepared = LocalityFilter(_conf()).prepare(spec_obj)
    mask = prepared.passing(some, spec_obj)
    expected = [_allowed(n, of_host, on, spec_obj, left) for n in some.host]
    assert mask.tolist() == expected
