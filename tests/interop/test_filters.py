# SPDX-License-Identifier: Apache-2.0
"""The same hosts pass our filters and nova 34's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import example, given

from moorage.objects import RequestSpec
from moorage.scheduler.drivers.filter_chain import applicable
from moorage.scheduler.errors import SchedulerError
from moorage.scheduler.hosts import HostBatch
from moorage.scheduler.request import Request
from moorage.testing import aggregate, host, image, spec
from moorage.testing.strategies import DrawnHosts

from ..fixtures.nova_peer import Peer
from .judged import OPTIONS, Case, cases, examples, known, novas, our_filters

pytestmark = [pytest.mark.deep, pytest.mark.peer, pytest.mark.usefixtures("quiet")]

#: Filters of ours that nova has, too: all that are registered.
FILTERS = sorted(known("moorage.filters"))

#: Where nova fails the request, by filter: exception -> what it trips over, what we do.
FAILURES: Mapping[str, Mapping[str, str]] = {
    "AggregateInstanceExtraSpecsFilter": {
        "ValueError": "a number is compared with what is none; that does not match",
        "IndexError": "<or> without an operand; that does not match",
    },
    "ComputeCapabilitiesFilter": {
        "ValueError": "a number is compared with what is none; that does not match",
        "IndexError": "<or> without an operand; that does not match",
    },
    "ImagePropertiesFilter": {
        "AttributeError": "hw_maxphysaddr_bits; cpu_info is text, which we read",
    },
    "NUMATopologyFilter": {
        "AttributeError": "no image, as with a volume; what it would say is not needed",
    },
    "SimpleCIDRAffinityFilter": {
        "TypeError": "a host without an address; we reject it",
    },
}


#: A "not" inside of another term: nova always treats the list of its results as true.
NESTED_NOT = '["and", [">", "$vcpus_total", 4], ["not", ["=", "$host", "h0"]]]'


def is_known(name: str, spec_obj: RequestSpec, nova: object) -> bool:
    """Return whether nova is known to be wrong there, so that we differ on purpose."""
    if name == "JsonFilter":
        [query] = spec_obj.scheduler_hints.get("query", [""])
        return '["not"' in query[1:]
    return isinstance(nova, str) and nova in FAILURES.get(name, {})


def passing(
    name: str, case: Case, hosts: HostBatch, spec_obj: RequestSpec
) -> list[Any]:
    """Return whether each host passes, or that the request is refused."""
    [filter_] = our_filters(case.options, [name])
    if not list(applicable([filter_], 0, Request.of(spec_obj).is_rebuild)):
        return [True] * len(hosts)
    try:
        return filter_.prepare(spec_obj).passing(hosts, spec_obj).tolist()
    except SchedulerError:
        return ["refused"] * len(hosts)


def differences(peer: Peer, case: Case, names: list[str]) -> list[tuple[Any, ...]]:
    """Return filter, request, ours and nova's where they differ for some host."""
    hosts, found = case.cloud.batch(), []
    for spec_obj, answer in zip(
        case.requests, novas(peer, case, filters=names), strict=True
    ):
        for name, theirs in answer["passing"].items():
            ours = passing(name, case, hosts, spec_obj)
            for each, nova in zip(ours, theirs, strict=True):
                if each != nova and not is_known(name, spec_obj, nova):
                    found.append((name, spec_obj.obj_to_primitive(), ours, theirs))
                    break
    return found


def case(cloud: DrawnHosts, *spec_obj: RequestSpec, options: int = 0) -> Case:
    return Case(cloud, spec_obj, OPTIONS[options])


ONE_HOST = DrawnHosts((host(host="h0"),))


@examples(1200)
@given(case=cases())
@example(
    case=case(
        DrawnHosts(
            (host(host="h0"), host(host="h1")), (aggregate(1, "h0", ssd="true"),)
        ),
        spec(extra_specs={"ssd": "true"}),
    )
).via("an unscoped extra spec")
def test_same_hosts_pass(peer: Peer, case: Case) -> None:
    assert differences(peer, case, FILTERS) == []


@pytest.mark.parametrize(
    ("name", "spec_obj", "passes"),
    [
        pytest.param(
            "ComputeCapabilitiesFilter",
            spec(extra_specs={"capabilities:hypervisor_type": "== 1"}),
            False,
            id="number against text",
        ),
        pytest.param(
            "ImagePropertiesFilter",
            spec(image=image(hw_architecture="x86_64", hw_maxphysaddr_bits=40)),
            True,
            id="hw_maxphysaddr_bits",
        ),
        pytest.param(
            "SimpleCIDRAffinityFilter",
            spec(scheduler_hints={"build_near_host_ip": ["10.0.0.77"]}),
            False,
            id="host without an address",
        ),
    ],
)
def test_where_nova_fails_we_answer(
    peer: Peer, name: str, spec_obj: RequestSpec, passes: bool
) -> None:
    one = case(ONE_HOST, spec_obj)
    [answer] = novas(peer, one, filters=[name])
    assert answer["passing"][name][0] in FAILURES[name]
    assert passing(name, one, ONE_HOST.batch(), spec_obj) == [passes]


def test_query_is_not_read_on_rebuild(peer: Peer) -> None:
    hints = {"query": ['["and", "x", ["<", "$host"]]'], "_nova_check_type": ["rebuild"]}
    one = case(ONE_HOST, spec(scheduler_hints=hints))
    assert differences(peer, one, ["JsonFilter"]) == []
    [answer] = novas(peer, one, filters=["JsonFilter"])
    assert answer["passing"]["JsonFilter"] == [True]


def test_not_inside_of_another_term_is_not_ignored(peer: Peer) -> None:
    one = case(ONE_HOST, spec(scheduler_hints={"query": [NESTED_NOT]}))
    [answer] = novas(peer, one, filters=["JsonFilter"])
    assert answer["passing"]["JsonFilter"] == [True]
    hosts = ONE_HOST.batch()
    assert passing("JsonFilter", one, hosts, one.requests[0]) == [False]
