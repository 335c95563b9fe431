# SPDX-License-Identifier: Apache-2.0
"""Our weighers and nova 34's give hosts the same weights, and multiply them alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given

from moorage.objects import RequestSpec
from moorage.scheduler.errors import HostMetricNotFound, SchedulerError
from moorage.scheduler.hosts import HostBatch
from moorage.testing import aggregate, host, image, spec
from moorage.testing.strategies import DrawnHosts
from moorage.weighers.base import normalize, weight_range

from ..fixtures.nova_peer import Peer
from .judged import (
    OPTIONS,
    Case,
    agree,
    cases,
    examples,
    is_off,
    known,
    novas,
    our_weighers,
)

pytestmark = [pytest.mark.deep, pytest.mark.peer, pytest.mark.usefixtures("quiet")]

WEIGHERS = sorted(known("moorage.weighers"))

#: Where nova fails the request, by weigher: its exception -> ours.
FAILURES: Mapping[str, Mapping[str, type[SchedulerError]]] = {
    "MetricsWeigher": {"ComputeHostMetricNotFound": HostMetricNotFound},
}


def weighed(name: str, case: Case, hosts: HostBatch, spec_obj: RequestSpec) -> Any:
    """Return what nova's side returns of a weigher, or the class of an error."""
    [weigher] = our_weighers(case.options, [name])
    prepared = weigher.prepare(spec_obj)
    try:
        raw = prepared.weigh_all(hosts, spec_obj)
    except SchedulerError as error:
        return type(error)
    return {
        "normalized": normalize(
            raw, *weight_range(raw, weigher.minval, weigher.maxval)
        ),
        "multipliers": prepared.multipliers(hosts),
    }


def is_same(name: str, case: Case, ours: Any, theirs: Any) -> bool:
    if isinstance(theirs, str):
        return FAILURES.get(name, {}).get(theirs) is ours
    if not isinstance(ours, dict) or not agree(
        ours["multipliers"], theirs["multipliers"]
    ):
        return False
    return is_off(name, case) or agree(ours["normalized"], theirs["normalized"])


def differences(peer: Peer, case: Case, names: list[str]) -> list[tuple[Any, ...]]:
    """Return weigher, request, ours and nova's where they differ."""
    hosts, found = case.cloud.batch(), []
    answers = novas(peer, case, weighers=names)
    for spec_obj, answer in zip(case.requests, answers, strict=True):
        for name, theirs in answer["weights"].items():
            ours = weighed(name, case, hosts, spec_obj)
            if not is_same(name, case, ours, theirs):
                found.append((name, spec_obj.obj_to_primitive(), ours, theirs))
    return found


@examples(400)
@given(case=cases())
def test_weights_are_novas(peer: Peer, case: Case) -> None:
    assert differences(peer, case, WEIGHERS) == []


def test_multiplier_of_an_aggregate_suffices_for_image_properties(peer: Peer) -> None:
    name, uuid = "ImagePropertiesWeigher", "9bd1ab68-1f5f-4e33-9d4c-6a1a3ffb3ba6"
    cloud = DrawnHosts(
        (host(host="h0"), host(host="h1")),
        (aggregate(1, "h0", "h1", image_props_weight_multiplier="2"),),
        {"h1": [uuid]},
        {uuid: {"os_distro": "debian"}},
    )
    spec_obj = spec(image=image(os_distro="debian"))
    case = Case(cloud, [spec_obj], OPTIONS[0])
    [answer] = novas(peer, case, weighers=[name])
    assert answer["weights"][name]["normalized"] == [0, 0]
    assert weighed(name, case, cloud.batch(), spec_obj)["normalized"].tolist() == [0, 1]
