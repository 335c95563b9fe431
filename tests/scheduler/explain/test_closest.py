# SPDX-License-Identifier: Apache-2.0
"""A change that is named admits its hosts when it is made; none is left out."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Iterator

import os_traits
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.objects import RequestSpec
from moorage.scheduler.drivers.record import Outcome
from moorage.scheduler.explain import (
    Change,
    CheckStage,
    ClosestGroup,
    ClosestReport,
    Explainer,
    HostVerdict,
    ProvidersFrom,
)
from moorage.scheduler.placement.memory import ProviderCandidatesSource
from moorage.scheduler.service import Scheduler

from ...fixtures.clouds import CONTEXT, request
from ...fixtures.explained_clouds import (
    NAMES,
    ExplainedClouds,
    explained_requests,
    only_on,
)
from ...fixtures.property_tests import examples

_DISABLED = os_traits.COMPUTE_STATUS_DISABLED
_NEVER_ZERO = {"VCPU", "MEMORY_MB"}


@pytest.fixture(scope="module")
def clouds() -> Iterator[ExplainedClouds]:
    with contextlib.closing(ExplainedClouds()) as made:
        yield made


# -- making a change -------------------------------------------------------------------


def _make(spec: RequestSpec, change: Change) -> None:
    """Change a request as an operator would."""
    flavor, specs = spec.flavor, spec.flavor.extra_specs
    match change.check:
        case "MEMORY_MB":
            flavor.memory_mb -= change.less_by
        case "VCPU":
            flavor.vcpus -= change.less_by
        case "DISK_GB":
            flavor.root_gb -= change.less_by
        case "VGPU":
            assert change.less_by == 1
            del specs["resources:VGPU"]
        case "aggregate":
            spec.availability_zone = None
        case "ignore_hosts" | "force_hosts":
            setattr(spec, change.check, None)
        case trait if change.stage is CheckStage.PLACEMENT:
            del specs[f"trait:{trait}"]


@contextlib.contextmanager
def _enabled(scheduler: Scheduler, names: list[str]) -> Iterator[None]:
    """Enable hosts for a while, in the host table and among the providers."""
    table, source = scheduler.table, scheduler.candidates
    assert isinstance(source, ProviderCandidatesSource)
    nodes = [node for name in names for node in table.nodes_of(name)]
    state = source.follower.table.view().state
    records = [record for node in nodes if (record := state.record(node)) is not None]
    without = [dataclasses.replace(r, traits=r.traits - {_DISABLED}) for r in records]
    table.change_many({node: {"disabled": False} for node in nodes})
    source.follower.table.put(without)
    try:
        yield
    finally:
        table.change_many({node: {"disabled": True} for node in nodes})
        source.follower.table.put(records)


def _admits(
    scheduler: Scheduler, spec: RequestSpec, group: ClosestGroup, name: str
) -> bool:
    made, parts = copy.deepcopy(spec), scheduler.parts
    with contextlib.ExitStack() as stack:
        for change in group.changes:
            if change.check == "ComputeFilter":
                stack.enter_context(_enabled(scheduler, [name]))
            elif change.stage is CheckStage.FILTER:
                left = [f for f in parts.filters if type(f).__name__ != change.check]
                parts = dataclasses.replace(parts, filters=left)
            else:
                _make(made, change)
        explainer = Explainer(lambda: parts, scheduler.candidates.provider_view)
        record = explainer.dry_run(CONTEXT, only_on(made, name), 1)
    return record.outcome is Outcome.SELECTED


@examples(0.1)
@given(seed=st.integers(0, 2), spec=explained_requests())
def test_a_named_change_admits_its_hosts_when_it_is_made(
    clouds: ExplainedClouds, seed: int, spec: RequestSpec
) -> None:
    scheduler, explainer = clouds.of(seed)
    for group in explainer.closest(CONTEXT, spec).groups:
        assert group.n_hosts == len(group.hosts) > 0
        for name in group.hosts:
            assert _admits(scheduler, spec, group, name), group.text


# -- the checks ------------------------------------------------------------------------


def _checks(verdict: HostVerdict) -> set[str]:
    """What a host fails, where a disabled host fails one check."""
    found = {each.check for each in verdict.reasons}
    return found - {_DISABLED} | {"ComputeFilter"} if _DISABLED in found else found


@examples(0.1)
@given(seed=st.integers(0, 2), spec=explained_requests())
def test_the_hosts_of_a_group_fail_just_what_it_changes(
    clouds: ExplainedClouds, seed: int, spec: RequestSpec
) -> None:
    _, explainer = clouds.of(seed)
    report = explainer.closest(CONTEXT, spec)
    failed = {}
    for name in NAMES:
        [verdict] = explainer.why_not(CONTEXT, spec, name)
        failed[name] = _checks(verdict)
    assert report.n_passing == sum(not each for each in failed.values())
    named = {name for group in report.groups for name in group.hosts}
    for group in report.groups:
        assert len(group.changes) == report.n_changes
        for name in group.hosts:
            assert failed[name] == {change.check for change in group.changes}
    if report.n_changes == 1:
        # A flavor has some CPUs and memory: a host without any is not named.
        single = {n for n, checks in failed.items() if len(checks) == 1}
        assert named == {n for n in single if n in named or failed[n] & _NEVER_ZERO}


@examples(0.06)
@given(seed=st.integers(0, 2), spec=explained_requests())
def test_providers_read_from_placement_give_the_same_groups(
    clouds: ExplainedClouds, seed: int, spec: RequestSpec
) -> None:
    scheduler, explainer = clouds.of(seed)
    from_placement = Explainer(lambda: scheduler.parts)
    read, expected = (e.closest(CONTEXT, spec) for e in (from_placement, explainer))
    assert read.groups == expected.groups
    if expected.providers_from is ProvidersFrom.MEMORY:
        assert read.providers_from is ProvidersFrom.PLACEMENT


# -- words -----------------------------------------------------------------------------


def _report(clouds: ExplainedClouds, **changes: object) -> ClosestReport:
    return clouds.of(1)[1].closest(CONTEXT, request(**changes))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"root_gb": 7}, "2 GB less disk"),
        ({"root_gb": 0, "memory_mb": 17408}, "1 GiB less memory"),
        ({"root_gb": 0, "vcpus": 3}, "1 fewer vCPU"),
        (
            {"root_gb": 0, "extra_specs": {"trait:CUSTOM_GOLD": "forbidden"}},
            "another flavor, without extra spec trait:CUSTOM_GOLD=forbidden",
        ),
        ({"root_gb": 0, "ignore_hosts": list(NAMES)}, "without ignore_hosts"),
    ],
)
def test_a_change_is_in_words(
    clouds: ExplainedClouds, changes: dict[str, object], text: str
) -> None:
    groups = _report(clouds, **changes).groups
    assert [group for group in groups if group.text.startswith(text)], groups


def test_two_changes_are_named_if_no_single_one_admits_a_host(
    clouds: ExplainedClouds,
) -> None:
    report = _report(clouds, root_gb=7, vcpus=3)
    assert report.n_changes == 2
    assert "2 GB less disk and 1 fewer vCPU" in [g.text for g in report.groups]


def test_a_host_that_does_not_report_is_up_again(clouds: ExplainedClouds) -> None:
    scheduler, explainer = clouds.of(1)
    [node] = scheduler.table.nodes_of("h1")
    spec = request(memory_mb=256, root_gb=0)
    assert explainer.closest(CONTEXT, spec).n_passing == 1
    scheduler.table.change_many({node: {"forced_down": True}})
    try:
        [group] = explainer.closest(CONTEXT, only_on(spec, "h1")).groups
    finally:
        scheduler.table.change_many({node: {"forced_down": False}})
    assert (group.text, group.hosts) == ("the host's compute service up again", ("h1",))


def test_a_host_that_is_disabled_and_down_needs_both_changes(
    clouds: ExplainedClouds,
) -> None:
    scheduler, explainer = clouds.of(1)
    [node] = scheduler.table.nodes_of("h1")
    spec = only_on(request(memory_mb=256, root_gb=0), "h1")
    scheduler.table.change_many({node: {"forced_down": True, "disabled": True}})
    try:
        groups = explainer.closest(CONTEXT, spec).groups
    finally:
        scheduler.table.change_many({node: {"forced_down": False, "disabled": False}})
    texts = {"the host enabled again", "the host's compute service up again"}
    [group] = [each for each in groups if each.hosts == ("h1",)]
    assert set(group.text.split(" and ")) == texts
