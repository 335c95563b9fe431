# SPDX-License-Identifier: Apache-2.0
"""Lifetimes are learned, and hosts weighed by how long the instance outlives others."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from moorage.objects import ImageMeta, RequestSpec
from moorage.scheduler.drivers.plugins import load_weighers
from moorage.scheduler.errors import ConfigurationError, PluginError
from moorage.scheduler.hosts import (
    COLUMNS,
    Consumption,
    Group,
    HostBatch,
    HostTable,
    Launches,
)
from moorage.scheduler.request import Request
from moorage.testing import builders
from moorage.weighers.lifetime import LifetimeWeigher
from moorage.weighers.lifetime_model import Life, LifetimeModel, group_of, learn

from ..conftest import NOW, batch, host, options, spec, table
from ..fixtures.property_tests import examples

HOUR = 3600.0
DAY = 24 * HOUR
SHORT: Group = ("short", 1, 1024, "")
LONG: Group = ("long", 1, 1024, "")
AGES = np.array([0.0, HOUR, 10 * HOUR])
#: Short ones end within two hours, or live long from then on; long ones live for ten
#: days.
MODEL = LifetimeModel.of(
    AGES,
    np.array([[HOUR, HOUR, HOUR], [HOUR, 5 * DAY, 5 * DAY], [10 * DAY] * 3]),
    {
        (None, None, None, None): 1,
        ("short", 1, 1024, None): 1,
        ("long", None, None, None): 1,
    },
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "lifetimes.json"
    path.write_text(MODEL.to_json())
    return path


def weigher(path: Path, at: float = NOW) -> LifetimeWeigher:
    conf = options(lifetime_model=str(path), lifetime_weight_multiplier=1.0)
    return LifetimeWeigher(conf, clock=lambda: at)


def of_project(project: str, **changes: Any) -> RequestSpec:
    return spec(project_id=project, vcpus=1, memory_mb=1024, is_bfv=True, **changes)


def launched(*launches: tuple[float, Group]) -> Launches:
    """Launches so many hours before NOW."""
    return tuple(sorted((int(NOW - h * HOUR), *group) for h, group in launches))


def order(hosts: HostBatch, of: LifetimeWeigher, request: RequestSpec) -> list[str]:
    """Return the names of hosts, the best first."""
    raw = of.prepare(request).weigh_all(hosts, request)
    assert (raw >= -1).all()
    assert (raw <= 0).all()
    return [hosts.value("host", i) for i in np.argsort(-raw, kind="stable").tolist()]


# -- weighing --------------------------------------------------------------------------

HOSTS = {
    "empty": (),
    "unknown": None,
    "new short": launched((0, SHORT)),
    "old short": launched((1.5, SHORT)),
    "long": launched((0, LONG), (0, SHORT)),
}


def hosts(**changes: Any) -> HostBatch:
    return batch(*(host(host=n, launches=v) for n, v in {**HOSTS, **changes}.items()))


def test_hosts_that_stay_anyway_are_used_first_and_empty_ones_last(path: Path) -> None:
    for project, expected in (
        ("long", ["long", "unknown", "old short", "new short", "empty"]),
        ("short", ["new short", "old short", "long", "unknown", "empty"]),
    ):
        assert order(hosts(), weigher(path), of_project(project)) == expected


def test_instance_that_outlives_its_prediction_is_expected_to_live_on(
    path: Path,
) -> None:
    rows, request = hosts(), of_project("long")
    raw = [
        weigher(path, NOW + age).prepare(request).weigh_all(rows, request)[2]
        for age in (0, 0.9 * HOUR, 1.1 * HOUR)
    ]
    assert raw[0] == pytest.approx(raw[1], abs=0.001)
    assert raw[2] > raw[1] + 0.05


def test_later_instances_of_a_request_are_weighed_as_at_its_beginning(
    path: Path,
) -> None:
    times = iter([NOW, NOW + HOUR])
    conf = options(lifetime_model=str(path), lifetime_weight_multiplier=1.0)
    rows, request = hosts(), of_project("long")
    of = LifetimeWeigher(conf, clock=times.__next__).prepare(request)
    first, second = (of.weigh_all(rows, request).tolist() for _ in range(2))
    assert first == second


def test_instances_of_the_same_request_are_counted_with_it(path: Path) -> None:
    empty = table(host(host="a", launches=()), host(host="b", launches=()))
    of, request = weigher(path), of_project("long")
    rows = empty.batch().with_instance(1, "one", consumption(LONG))
    raw = of.prepare(request).weigh_all(rows, request)
    assert raw[0] < -0.5
    assert raw[1] == pytest.approx(0, abs=0.01)


def consumption(group: Group) -> Consumption:
    return Consumption(memory_mb=1, disk_mb=1, vcpus=1, group=group)


def test_claims_are_launches_until_their_host_reports() -> None:
    made = HostTable(lambda: NOW)
    made.put_many([host(host="a", launches=()), host(host="b")])
    for name in ("a", "b"):
        node, uuid = builders.node_uuid(name), builders.instance_uuid(name)
        made.claims.consume(node, uuid, consumption(LONG))
    assert made.batch().launches.tolist() == [((int(NOW), *LONG),), None]
    reported = launched((1, SHORT))
    made.change_many({builders.node_uuid("a"): {"launches": reported}})
    [both, _] = made.batch().launches
    assert both == (*reported, (int(NOW), *LONG))
    made.claims.release("a", builders.instance_uuid("a"))
    assert made.batch().launches[0] == reported


LAUNCHES = st.none() | st.lists(
    st.tuples(st.floats(0, 400), st.sampled_from([SHORT, LONG, ("x", 2, 1, "i")])),
    max_size=5,
)


@examples(1)
@given(
    states=st.lists(LAUNCHES, min_size=1, max_size=8),
    project=st.sampled_from(["short", "long", "other"]),
    later_s=st.integers(0, 10**6),
)
def test_weights_are_those_of_the_formula(
    path: Path, states: list[Any], project: str, later_s: int
) -> None:
    request = of_project(project)
    values = [None if s is None else launched(*s) for s in states]
    rows = batch(*(host(host=f"h{i}", launches=v) for i, v in enumerate(values)))
    now = NOW + later_s
    minute = now // 60 * 60

    def lifetime_s(group: Group, age_s: float) -> float:
        row = {"short": 1, "long": 2}.get(group[0], 0)
        n = max(i for i, least in enumerate(AGES) if least <= max(0.0, age_s))
        return float(MODEL.remaining_s[row][n])

    own = minute + lifetime_s((project, 1, 1024, ""), 0)

    def weight(launches: Launches | None) -> float:
        ends = [
            minute + lifetime_s(launch[1:], minute - launch[0])
            for launch in launches or ()
        ]
        stay_s = max(0.0, own - max([minute, *ends]))
        raw = -math.log1p(stay_s / HOUR) / math.log1p(365 * 24)
        return raw / 2 if launches is None else raw

    prepared = weigher(path, now).prepare(request)
    for _ in range(2):  # also with what was computed before
        raw = prepared.weigh_all(rows, request).tolist()
        assert raw == pytest.approx([weight(v) for v in values])


def test_multiplier_needs_a_model() -> None:
    with pytest.raises(ConfigurationError, match="moorage lifetimes"):
        LifetimeWeigher(options(lifetime_weight_multiplier=1.0))


def test_without_a_model_all_hosts_weigh_the_same() -> None:
    of = LifetimeWeigher(options())
    assert of.weigh_all(hosts(), spec()).tolist() == [0] * len(HOSTS)


@pytest.mark.parametrize(
    "value",
    [
        {},
        [[5, "p", 1, 512]],
        [[5.5, "p", 1, 512, ""]],
        [[-5, "p", 1, 512, ""]],
        [[5, "p", 1, 2**63, ""]],
        [[5, None, 1, 512, ""]],
        [[5, "p", True, 512, ""]],
    ],
)
def test_report_of_other_launches_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="launched_at, project_id"):
        COLUMNS["launches"].read(value)


@pytest.mark.parametrize(
    "value", [None, [], [[5, "p", 1, 512, ""], [7, "", 0, 0, "i"]]]
)
def test_reported_launches_are_read_and_written(value: object) -> None:
    column = COLUMNS["launches"]
    assert column.write is not None
    assert column.write(column.read(value)) == value


# -- learning --------------------------------------------------------------------------


def lives(
    group: Group, lifetimes_h: list[float], *, until_h: float, spaced_h: float = 0.1
) -> list[Life]:
    """Instances that are launched one after the other, and observed up to a time."""
    observed = (
        Life.observed(group, i * spaced_h * HOUR, (i * spaced_h + h) * HOUR,
                      0.0, until_h * HOUR)
        for i, h in enumerate(lifetimes_h)
    )  # fmt: skip
    return [life for life in observed if life is not None]


def test_lifetimes_of_a_constant_rate_are_found_though_half_of_them_go_on() -> None:
    rng = random.Random(7)
    ages = [rng.expovariate(1 / 40) for _ in range(4000)]
    observed = lives(SHORT, ages, until_h=60, spaced_h=0.01)
    assert 0.4 < sum(life.has_ended for life in observed) / len(observed) < 0.9
    model = learn(observed)
    remaining_h = model.remaining(model.find(SHORT), np.array([0, 3, 12]) * HOUR)
    assert remaining_h / HOUR == pytest.approx([40, 40, 40], rel=0.15)


def test_what_was_old_when_the_observation_began_counts_from_that_age_on() -> None:
    life = Life.observed(SHORT, -10 * HOUR, 2 * HOUR, 0.0, 5 * HOUR)
    assert life == Life(SHORT, 10 * HOUR, 12 * HOUR, has_ended=True)
    assert Life.observed(SHORT, -10 * HOUR, -HOUR, 0.0, 5 * HOUR) is None
    going_on = Life.observed(SHORT, 1 * HOUR, math.inf, 0.0, 5 * HOUR)
    assert going_on == Life(SHORT, 0.0, 4 * HOUR, has_ended=False)


def test_old_instances_are_expected_to_live_longer_where_many_end_early() -> None:
    ages = [0.5, 0.7, 0.4, 400.0] * 200
    model = learn(lives(SHORT, ages, until_h=500))
    young, old = model.remaining(model.find(SHORT), np.array([0, 5 * HOUR])) / HOUR
    assert young < 150
    assert old > 250


def test_groups_of_few_instances_are_part_of_larger_ones() -> None:
    few = ("few", 1, 1024, "image")
    other = ("other", 1, 1024, "image")
    observed = [
        *lives(few, [1.0] * 9, until_h=100),
        *lives(other, [20.0] * 12, until_h=100),
        *lives(("third", 2, 1024, "image"), [90.0] * 12, until_h=100),
    ]
    model = learn(observed)
    assert model.find(few) == model.row_of[None, 1, 1024, None]
    assert model.find(other) == model.row_of[other]
    assert model.find(("new", 7, 7, "")) == model.row_of[None, None, None, None]
    with pytest.raises(ValueError, match="no instance"):
        learn([])


# -- the file --------------------------------------------------------------------------


def test_file_has_the_model_and_its_version(path: Path) -> None:
    read = LifetimeModel.read(path)
    assert (read.remaining_s == MODEL.remaining_s).all()
    assert (read.row_of, read.version) == (MODEL.row_of, MODEL.version)
    assert weigher(path).origin == f"3 groups, version {MODEL.version}"
    other = LifetimeModel.of(AGES, MODEL.remaining_s + 1, dict(MODEL.row_of))
    assert other.version != MODEL.version


def changed(**changes: Any) -> str:
    return json.dumps({**json.loads(MODEL.to_json()), **changes})


GROUPS = json.loads(MODEL.to_json())["groups"]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param(MODEL.to_json()[:100], id="truncated"),
        pytest.param("[]", id="a list"),
        pytest.param(changed(format=2), id="another format"),
        pytest.param(changed(ages_s=[1, 2, 3]), id="no age 0"),
        pytest.param(changed(ages_s=[0, 2, 2]), id="equal ages"),
        pytest.param(changed(ages_s=[0]), id="too few ages"),
        pytest.param(changed(groups=GROUPS[1:]), id="nothing for all"),
        pytest.param(changed(groups=[*GROUPS, GROUPS[1]]), id="twice"),
        pytest.param(
            changed(groups=[{**GROUPS[0], "remaining_s": [-1, 1, 1]}]), id="negative"
        ),
        pytest.param(
            changed(groups=[{**GROUPS[0], "remaining_s": ["x"] * 3}]), id="a text"
        ),
        pytest.param(changed(groups=[{**GROUPS[0], "memory_mb": -0.5}]), id="a half"),
        pytest.param(None, id="no file"),
    ],
)
def test_damaged_file_gets_one_line(text: str | None, tmp_path: Path) -> None:
    path = tmp_path / "lifetimes.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(PluginError) as error:
        load_weighers(options(lifetime_model=str(path)), lambda: NOW)
    message = str(error.value)
    assert "[filter_scheduler] lifetime_model" in message
    assert str(path) in message
    assert "\n" not in message


def test_image_of_a_volume_backed_instance_is_not_its_group() -> None:
    image = ImageMeta(id=builders.instance_uuid("image"))
    for is_bfv, expected in ((True, ""), (False, image.id)):
        request = spec(project_id="p", image=image, is_bfv=is_bfv, vcpus=3, memory_mb=9)
        assert group_of(Request.of(request)) == ("p", 3, 9, expected)
