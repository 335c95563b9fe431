# SPDX-License-Identifier: Apache-2.0
"""Every reason is named, none is made up, and a dry run is what then happens."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.objects import RequestSpec
from moorage.scheduler.candidates import CandidatesQuery
from moorage.scheduler.drivers.record import DecisionRecord, Outcome
from moorage.scheduler.errors import NoValidHost
from moorage.scheduler.explain import (
    CheckStage,
    Explainer,
    HostVerdict,
    ProvidersFrom,
    UnknownHost,
)
from moorage.scheduler.explain.explainer import similar_names
from moorage.scheduler.placement.constraints import ConstraintKind, constraints
from moorage.scheduler.service import Scheduler

from ...fixtures.clouds import CONTEXT, new_uuids, request, usages
from ...fixtures.explained_clouds import (
    NAMES,
    ExplainedClouds,
    explained_requests,
    only_on,
)
from ...fixtures.property_tests import examples

Cloud = tuple[Scheduler, Explainer]


@pytest.fixture(scope="module")
def clouds() -> Iterator[ExplainedClouds]:
    with contextlib.closing(ExplainedClouds()) as made:
        yield made


def _verdict(cloud: Cloud, spec: RequestSpec, name: str) -> HostVerdict:
    [verdict] = cloud[1].why_not(CONTEXT, spec, name)
    return verdict


def _checks(verdict: HostVerdict, stage: CheckStage) -> set[str]:
    return {each.check for each in verdict.reasons if each.stage is stage}


# -- the checks, each run alone by other code ------------------------------------------


def _rejecting_filters(
    scheduler: Scheduler, spec: RequestSpec, verdict: HostVerdict
) -> set[str]:
    if spec.force_hosts:
        return set()
    host = scheduler.table.batch([verdict.node_uuid])
    return {
        type(each).__name__
        for each in scheduler.parts.filters
        if not each.prepare(spec).passing(host, spec)[0]
    }


def _rejecting_restrictions(spec: RequestSpec, name: str) -> set[str]:
    found = set()
    if name.lower() in [each.lower() for each in spec.ignore_hosts or ()]:
        found.add("ignore_hosts")
    # As in nova, only the first counts, and its case matters there.
    if spec.force_hosts and name != spec.force_hosts[0]:
        found.add("force_hosts")
    return found


def _unmet_in_placement(scheduler: Scheduler, path: str, node: str) -> set[str]:
    """The parts of a query that the real Placement says one flat provider lacks."""
    client = scheduler.placement
    params = [p for p in parse_qsl(urlsplit(path).query) if p[0] != "in_tree"]
    found = set()
    for part in constraints(params):
        [(name, value)] = part.params
        alone = [(name, value), ("in_tree", node)]
        if part.kind is ConstraintKind.RESOURCE:
            query = CandidatesQuery(tuple(sorted(alone)))
            if not client.allocation_candidates(query).n_requests:
                found.add(value.split(":")[0])
            continue
        body: Any = client.read(f"/resource_providers?{urlencode(alone)}")
        if not body["resource_providers"]:
            is_trait = part.kind is ConstraintKind.TRAIT
            found.add(value.removeprefix("!") if is_trait else "aggregate")
    return found


@examples(0.1)
@given(seed=st.integers(0, 2), spec=explained_requests())
def test_exactly_the_checks_that_reject_a_host_alone_are_named(
    clouds: ExplainedClouds, seed: int, spec: RequestSpec
) -> None:
    cloud = clouds.of(seed)
    scheduler = cloud[0]
    # Without forced hosts, so that the query is sent for all hosts.
    unforced = copy.deepcopy(spec)
    unforced.force_hosts = None
    record = cloud[1].dry_run(CONTEXT, unforced, 1)
    for name in NAMES:
        verdict = _verdict(cloud, spec, name)
        assert _checks(verdict, CheckStage.FILTER) == _rejecting_filters(
            scheduler, spec, verdict
        )
        assert _checks(verdict, CheckStage.RESTRICTION) == _rejecting_restrictions(
            spec, name
        )
        if not record.queries:
            [prefilter] = _checks(verdict, CheckStage.PREFILTER)
            assert record.no_answer.startswith(f"Placement not queried: {prefilter}")
            continue
        assert verdict.providers_from is ProvidersFrom.MEMORY
        unmet = _unmet_in_placement(scheduler, record.queries[0], verdict.node_uuid)
        assert _checks(verdict, CheckStage.PLACEMENT) == unmet


@examples(0.06)
@given(seed=st.integers(0, 2), spec=explained_requests())
def test_providers_read_from_placement_give_the_same_verdicts(
    clouds: ExplainedClouds, seed: int, spec: RequestSpec
) -> None:
    cloud = clouds.of(seed)
    scheduler = cloud[0]
    from_placement = Explainer(lambda: scheduler.parts)
    for name in NAMES:
        verdict = _verdict(cloud, spec, name)
        read = _verdict((scheduler, from_placement), spec, name)
        assert read.reasons == verdict.reasons
        if verdict.providers_from is ProvidersFrom.MEMORY:
            assert read.providers_from is ProvidersFrom.PLACEMENT


@examples(0.06)
@given(seed=st.integers(0, 2), spec=explained_requests())
def test_a_host_without_reasons_is_one_that_a_decision_selects(
    clouds: ExplainedClouds, seed: int, spec: RequestSpec
) -> None:
    cloud = clouds.of(seed)
    for name in NAMES:
        record = cloud[1].dry_run(CONTEXT, only_on(spec, name), 1)
        is_selected = record.outcome is Outcome.SELECTED
        assert is_selected is _verdict(cloud, spec, name).passes


# -- dry runs --------------------------------------------------------------------------


def _selected(record: DecisionRecord) -> list[tuple[str, tuple[str, ...]]]:
    return [(each.host, each.alternates) for each in record.instances]


@examples(0.1)
@given(seed=st.integers(0, 2), spec=explained_requests(), n_instances=st.integers(1, 4))
def test_a_dry_run_selects_what_the_real_request_selects(
    clouds: ExplainedClouds, seed: int, spec: RequestSpec, n_instances: int
) -> None:
    scheduler, explainer = clouds.of(seed)
    dry = explainer.dry_run(CONTEXT, spec, n_instances)
    spec.num_instances = n_instances
    uuids = new_uuids(n_instances)
    with contextlib.suppress(NoValidHost):
        scheduler.select_destinations(CONTEXT, spec, uuids, True, True)
    real = scheduler.decisions.newest(1)[0]
    for placed in real.instances:
        assert placed.instance_uuid is not None
        scheduler.placement.delete_allocations(placed.instance_uuid)
        scheduler.table.claims.release(placed.host, placed.instance_uuid)
    assert (dry.outcome, dry.reason) == (real.outcome, real.reason)
    if real.outcome is Outcome.SELECTED:
        assert _selected(dry) == _selected(real)
    assert [step.name for step in dry.steps] == [step.name for step in real.steps]


def test_a_dry_run_claims_and_consumes_nothing(clouds: ExplainedClouds) -> None:
    scheduler, explainer = clouds.of(0)
    nodes = list(scheduler.table.batch().uuid)
    before = usages(scheduler.placement, nodes), scheduler.table.revision
    n_records = len(scheduler.decisions)
    record = explainer.dry_run(CONTEXT, request(memory_mb=256, root_gb=0), 2)
    assert record.outcome is Outcome.SELECTED
    assert (usages(scheduler.placement, nodes), scheduler.table.revision) == before
    assert len(scheduler.decisions) == n_records
    assert record.claims == []


def test_a_request_is_not_changed(clouds: ExplainedClouds) -> None:
    cloud = clouds.of(0)
    spec = request(availability_zone="zone0")
    before = spec.obj_to_primitive()
    cloud[1].dry_run(CONTEXT, spec, 3)
    _verdict(cloud, spec, "h1")
    assert spec.obj_to_primitive() == before


def test_an_unknown_host_is_an_error_that_names_similar_ones(
    clouds: ExplainedClouds,
) -> None:
    with pytest.raises(UnknownHost, match=r"no host 'h11' among 5; similar: h1"):
        _verdict(clouds.of(0), request(), "h11")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("std-1", ["std-1-01", "std-1-02"]),
        ("dense-1-1", ["dense-1-01"]),
        ("", []),
        ("other", []),
    ],
)
def test_names_that_begin_with_a_name_are_the_similar_ones(
    name: str, expected: list[str]
) -> None:
    known = ["dense-1-01", "std-1-01", "std-1-02", "std-3-11"]
    assert similar_names(name, known) == expected
