# SPDX-License-Identifier: Apache-2.0
"""Near and far: distances by levels and by a matrix, each checked one by one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from moorage.objects import InstanceGroup
from moorage.scheduler.errors import ConfigurationError, InvalidRequest
from moorage.scheduler.hosts import Consumption, HostBatch
from moorage.scheduler.request import Request
from moorage.scheduler.request.locality import SoftRule
from moorage.weighers.locality import LocalityWeigher

from ..conftest import batch, group, host, instance_uuid, options, spec
from ..fixtures.property_tests import examples

LEVELS = ("rack", "row", "room")
ONE, TWO, GONE = map(instance_uuid, ("one", "two", "gone"))
MINE = instance_uuid("asked for")
GROUP = instance_uuid("group")
SMALL = Consumption(memory_mb=1, disk_mb=1, vcpus=1)

#: The rack, row and room of each host; x is nowhere.
AT = {
    "a": ("r1", "w1", "m1"),
    "b": ("r1", "w1", "m1"),
    "c": ("r2", "w1", "m1"),
    "d": ("r3", "w2", "m1"),
    "e": ("r4", "w3", "m2"),
    "x": (),
}
MATRIX = """\
level,from,to,distance
row,w1,w2,40
row,w3,w1,25
row,w2,w3,15
"""


def _weigher(
    path: Path | None = None, distances: Mapping[str, float] | None = None
) -> LocalityWeigher:
    conf = options()
    conf.set_override("levels", list(LEVELS), group="locality")
    conf.set_override("distances", dict(distances or {}), group="locality")
    conf.set_override("distance_file", path and str(path), group="locality")
    return LocalityWeigher(conf)


def _cloud(on: Mapping[str, list[str]]) -> HostBatch:
    return batch(
        *(
            host(host=name, places=tuple(zip(LEVELS, at, strict=False)))
            for name, at in AT.items()
        ),
        instances=on,
    )


def _weights(weigher: LocalityWeigher, rows: HostBatch, **changes: Any) -> list[float]:
    spec_obj = spec(**changes)
    return weigher.prepare(spec_obj).weigh_all(rows, spec_obj).tolist()


ON = {"a": [ONE], "d": [TWO]}


@pytest.mark.parametrize(
    ("hints", "weights"),
    [
        ({}, [0, 0, 0, 0, 0, 0]),
        ({"near": [ONE]}, [0, -1, -2, -3, -4, -4]),
        ({"far": [ONE]}, [0, 1, 2, 3, 4, 4]),
        ({"near": [ONE, TWO]}, [-3, -4, -5, -3, -8, -8]),
        ({"near": [GONE]}, [0, 0, 0, 0, 0, 0]),
        ({"near": ["row=w1"]}, [0, 0, 0, -3, -4, -4]),
        ({"near": ["rack=r1"]}, [0, 0, -2, -3, -4, -4]),
        ({"near": ["room=nowhere"]}, [0, 0, 0, 0, 0, 0]),
        ({"near": ["room=m2"], "far": [ONE]}, [-4, -3, -2, -1, 4, 0]),
    ],
    ids=str,
)
def test_distance_is_the_number_of_levels_up(
    hints: dict[str, list[str]], weights: list[float]
) -> None:
    assert _weights(_weigher(), _cloud(ON), scheduler_hints=hints) == weights


@pytest.mark.parametrize(
    ("distances", "weights"),
    [
        ({"rack": 1, "row": 3, "room": 10}, [0, 1, 3, 10, 20, 20]),
        (
            {"rack": 1, "row": 3, "room": 10, "elsewhere": 100},
            [0, 1, 3, 10, 100, 100],
        ),
        ({"row": 5}, [0, 0, 5, 5, 10, 10]),
    ],
    ids=str,
)
def test_configured_distances(
    distances: dict[str, float], weights: list[float]
) -> None:
    weigher = _weigher(distances=distances)
    assert _weights(weigher, _cloud(ON), scheduler_hints={"far": [ONE]}) == weights


def test_row_or_else_the_row_that_is_closest_to_it(tmp_path: Path) -> None:
    path = tmp_path / "distances.csv"
    path.write_text(MATRIX)
    weigher = _weigher(path, {"rack": 1, "row": 3, "room": 100})
    hints = {"near": ["row=w1"]}
    weights = _weights(weigher, _cloud({}), scheduler_hints=hints)
    assert weights == [0, 0, 0, -40, -25, -200]
    to_one = _weights(weigher, _cloud(ON), scheduler_hints={"far": [ONE]})
    assert to_one == [0, 1, 3, 40, 25, 200]


@pytest.mark.parametrize(
    ("policy", "level", "weights"),
    [
        ("soft-affinity", "rack", [-3, -3, -5, -3, -8, -8]),
        ("soft-affinity", "row", [-3, -3, -3, -3, -8, -8]),
        ("soft-anti-affinity", "rack", [3, 3, 5, 3, 8, 8]),
        ("anti-affinity", "rack", [0, 0, 0, 0, 0, 0]),
    ],
)
def test_soft_group_at_a_level(policy: str, level: str, weights: list[float]) -> None:
    changes: dict[str, Any] = {
        "instance_group": _group(policy, ONE, TWO, MINE),
        "scheduler_hints": {"group_level": [level]},
    }
    assert _weights(_weigher(), _cloud(ON), **changes) == weights
    one = {**changes, "instance_group": _group(policy, ONE, MINE)}
    placed = _cloud({"a": [ONE]}).with_instance(3, TWO, SMALL)
    assert _weights(_weigher(), placed, **one) == weights


@pytest.mark.parametrize(
    ("policy", "weight"), [("soft-affinity", -1.0), ("soft-anti-affinity", 1.0)]
)
def test_members_that_are_placed_together_prefer_few_or_many_places(
    policy: str, weight: float
) -> None:
    rows = _cloud(ON)
    spec_obj = spec(
        instance_group=_group(policy, ONE),
        scheduler_hints={"group_level": ["rack"]},
    )
    prepared = _weigher().prepare(spec_obj)
    [wish] = prepared.joint_wishes(rows, spec_obj)
    at = wish.places.tolist()
    assert at[0] == at[1] != at[2]
    assert {wish.weights[place] for place in at if place >= 0} == {weight}


def _group(policy: str, *members: str) -> InstanceGroup:
    return group(policy, members=list(members), uuid=GROUP)


def test_hint_names_the_group() -> None:
    changes: dict[str, Any] = {
        "instance_group": _group("anti-affinity", ONE),
        "scheduler_hints": {"near": [GROUP]},
    }
    weights = _weights(_weigher(), _cloud(ON), **changes)
    assert weights == [0, -1, -2, -3, -4, -4]


@pytest.mark.parametrize("value", ["r1", "shelf=s1", "rack=", "rack=" + 256 * "r"])
def test_malformed_hint_is_an_invalid_request(value: str) -> None:
    expected = r"near is .*must be a UUID, or rack\|row\|room=<name of a place>"
    with pytest.raises(InvalidRequest, match=expected):
        _weigher().prepare(spec(scheduler_hints={"near": [value]}))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n", "line 1: a,b; it must be level,from,to,distance"),
        ("level,from,to,distance\nrow,a,b,far\n", "line 2: row,a,b,far; it must be"),
        ("level,from,to,distance\nrow,a,b,-1\n", "a distance from 0"),
        ("level,from,to,distance\nrow,a,b\n", "line 2: row,a,b; it must be"),
        (
            "level,from,to,distance\nshelf,a,b,1\n",
            "line 2: there is no level 'shelf'; [locality] levels has rack, row",
        ),
        (
            "level,from,to,distance\nrow,a,b,1\nrow,b,a,2\n",
            "line 3: b and a already have the distance 1.0",
        ),
    ],
    ids=["header", "text", "negative", "short", "level", "twice"],
)
def test_invalid_matrix_names_the_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "distances.csv"
    path.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        _weigher(path)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"[locality] distance_file: {path}, line ")
    missing = tmp_path / "missing"
    with pytest.raises(ConfigurationError) as caught:
        _weigher(missing)
    assert str(caught.value) == (
        f"[locality] distance_file: {missing}: cannot be read: "
        "No such file or directory"
    )


@pytest.mark.parametrize(
    ("distances", "message"),
    [
        ({"shelf": 1}, "there is no level 'shelf'"),
        ({"rack": 5, "row": 3}, "the distance of row is 3; it must be"),
    ],
    ids=["level", "decreasing"],
)
def test_invalid_distances_are_refused(
    distances: dict[str, float], message: str
) -> None:
    named = rf"^\[locality\] distances: {message}"
    with pytest.raises(ConfigurationError, match=named):
        _weigher(distances=distances)


# -- one host at a time, in plain Python -----------------------------------------------

UUIDS = [*map(instance_uuid, range(4)), MINE]
NAMES = [f"h{i}" for i in range(6)]
_NAMED = {"rack": ["r0", "r1", "r2"], "row": ["w0", "w1"], "room": ["m0", "m1"]}
_LENGTHS = {"rack": 1.0, "row": 3.0, "room": 10.0, "elsewhere": 50.0}
_PAIRS = {("row", "w0", "w1"): 7.0, ("rack", "r0", "r2"): 2.0}


@pytest.fixture(scope="module")
def of_pairs(tmp_path_factory: pytest.TempPathFactory) -> LocalityWeigher:
    """A weigher with the lengths of levels and of pairs of places."""
    path = tmp_path_factory.mktemp("distances") / "pairs.csv"
    lines = [f"{','.join(pair)},{length}\n" for pair, length in _PAIRS.items()]
    path.write_text("".join(["level,from,to,distance\n", *lines]))
    return _weigher(path, _LENGTHS)


def _between(
    mine: Mapping[str, str], other: Mapping[str, str], first: int = 0
) -> float:
    for level in LEVELS[first:]:
        one, two = mine.get(level), other.get(level)
        if one is None or two is None:
            continue
        if one == two:
            return _LENGTHS[level]
        for pair in ((level, one, two), (level, two, one)):
            if pair in _PAIRS:
                return _PAIRS[pair]
    return _LENGTHS["elsewhere"]


def _expected(
    name: str,
    places: Mapping[str, Mapping[str, str]],
    on: Mapping[str, list[str]],
    near: list[str],
    level: str,
    members: list[str],
) -> float:
    total = 0.0
    for there, uuids in on.items():
        for uuid in set(uuids) - {MINE}:
            if uuid in near and there != name:
                total -= _between(places[name], places[there])
            if uuid in members:
                first = LEVELS.index(level)
                mine, other = places[name].get(level), places[there].get(level)
                if there != name and (mine is None or mine != other):
                    total += _between(places[name], places[there], first)
    return total


@examples(4)
@given(
    near=st.lists(st.sampled_from(UUIDS), min_size=1, unique=True),
    level=st.sampled_from(LEVELS),
    members=st.lists(st.sampled_from(UUIDS), unique=True),
    places=st.lists(
        st.fixed_dictionaries(
            {}, optional={k: st.sampled_from(v) for k, v in _NAMED.items()}
        ),
        min_size=len(NAMES),
        max_size=len(NAMES),
    ),
    on=st.dictionaries(
        st.sampled_from(NAMES), st.lists(st.sampled_from(UUIDS), unique=True)
    ),
)
def test_weigher_agrees_with_the_distances_of_one_host(
    of_pairs: LocalityWeigher,
    near: list[str],
    level: str,
    members: list[str],
    places: list[dict[str, str]],
    on: dict[str, list[str]],
) -> None:
    of_host = dict(zip(NAMES, places, strict=True))
    rows = batch(
        *(host(host=n, places=tuple(of_host[n].items())) for n in NAMES), instances=on
    )
    weights = _weights(
        of_pairs,
        rows,
        scheduler_hints={"near": near, "group_level": [level]},
        instance_group=_group("soft-anti-affinity", *members),
    )
    expected = [_expected(n, of_host, on, near, level, members) for n in NAMES]
    assert np.allclose(weights, expected)


_HOSTS_AND_PLACES = [("host", name) for name in NAMES] + [
    (level, name) for level, names in _NAMED.items() for name in names
]


def _to_target(
    name: str, places: Mapping[str, Mapping[str, str]], level: str, target: str
) -> float | None:
    """Return the distance of a host to a place or a host; None: nothing is there."""
    if level == "host":
        return 0.0 if name == target else _between(places[name], places[target])
    inside = next((p for p in places.values() if p.get(level) == target), None)
    if inside is None:
        return None
    if places[name].get(level) == target:
        return 0.0
    return _between(places[name], inside, LEVELS.index(level))


@examples(4)
@given(
    targets=st.lists(st.sampled_from(_HOSTS_AND_PLACES), min_size=1, unique=True),
    racks=st.lists(st.sampled_from([*_NAMED["rack"], None]), min_size=6, max_size=6),
)
def test_closest_of_several_places_and_hosts_counts(
    of_pairs: LocalityWeigher,
    targets: list[tuple[str, str]],
    racks: list[str | None],
) -> None:
    # Levels that nest: a place is where any of its hosts is.
    around = {"r0": ("w0", "m0"), "r1": ("w0", "m0"), "r2": ("w1", "m0")}
    of_host = {
        name: {} if rack is None else dict(
            zip(LEVELS, (rack, *around[rack]), strict=True)
        )
        for name, rack in zip(NAMES, racks, strict=True)
    }  # fmt: skip
    rows = batch(*(host(host=n, places=tuple(of_host[n].items())) for n in NAMES))
    spec_obj = spec()
    parsed = Request.validated(spec_obj)
    rule = SoftRule(is_near=True, level="", targets=frozenset(targets))
    parsed.set_attachment_rules([], [rule])
    weights = of_pairs.prepare(spec_obj).weigh_all(rows, spec_obj)
    expected = []
    for name in NAMES:
        lengths = [_to_target(name, of_host, *target) for target in targets]
        expected.append(-min((d for d in lengths if d is not None), default=0.0))
    assert np.allclose(weights, expected)
