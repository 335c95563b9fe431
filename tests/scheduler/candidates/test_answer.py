# SPDX-License-Identifier: Apache-2.0
"""Candidates are indexed by the roots they use, and stay opaque."""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from moorage.scheduler.candidates import (
    CandidatesAnswer,
    CandidatesQuery,
    resources_of,
)
from moorage.scheduler.errors import PlacementUnavailable
from moorage.scheduler.placement.answers import read_candidates


def _summary(root, capacity=8, used=0):
    resources = {"VCPU": {"capacity": capacity, "used": used}}
    return {"resources": resources, "traits": [], "root_provider_uuid": root}


def _request(**providers):
    allocations = {u: {"resources": {"VCPU": n}} for u, n in providers.items()}
    return {"allocations": allocations, "mappings": {"": list(providers)}}


BODY = {
    "allocation_requests": [
        _request(host1=1),
        _request(numa1=1, share=5),
        _request(host2=1, share=5),
    ],
    "provider_summaries": {
        "host1": _summary("host1", used=3),
        "numa1": _summary("host1"),
        "host2": _summary("host2"),
        "share": _summary("share"),
    },
}


def _parse(body=BODY):
    return read_candidates(body)


def test_requests_are_found_by_every_root_they_use():
    found = {root: list(indices) for root, indices in _parse().by_host.items()}
    assert found == {"host1": [0, 1], "share": [1, 2], "host2": [2]}


def test_allocation_requests_are_not_copied():
    candidates, body = _parse(), cast(dict[str, Any], BODY)
    assert candidates.allocation_requests[1] is body["allocation_requests"][1]
    assert resources_of(candidates.allocation_requests[1]) == {
        "numa1": {"VCPU": 1},
        "share": {"VCPU": 5},
    }


@pytest.mark.parametrize(
    ("limit", "is_truncated"), [(None, False), (4, False), (3, True)]
)
def test_answer_as_long_as_the_limit_counts_as_truncated(limit, is_truncated):
    query = CandidatesQuery((), limit)
    answer = CandidatesAnswer(query, _parse(), began=1, began_at=0.0)
    assert answer.is_truncated is is_truncated


PORTS = [f"{n}d0c2d42-0d39-4a5b-8f3c-7c3a3f3d9b01" for n in (7, 3)]


def _query(nic, pci, *, subtree=(), flavor="1"):
    params = [
        ("resources", "VCPU:1"),
        (f"resources{flavor}", "VGPU:1"),
        (f"resources{nic}", "NET_BW_EGR_KILOBIT_PER_SEC:1"),
        (f"required{nic}", "CUSTOM_PHYSNET"),
        (f"resources{pci}-0", "CUSTOM_PCI:1"),
        *(("same_subtree", ",".join(sorted(suffixes))) for suffixes in subtree),
    ]
    return CandidatesQuery(tuple(sorted(params)), 10)


def test_queries_that_differ_in_ids_of_ports_and_devices_are_one():
    nic, pci = PORTS
    first, of_first = _query(nic, pci, subtree=[(nic, f"{pci}-0")]).canonical()
    second, of_second = _query(pci, nic, subtree=[(pci, f"{nic}-0")]).canonical()
    assert first == second
    swapped = {nic: pci, f"{pci}-0": f"{nic}-0"}
    assert of_second == {suffix: swapped[own] for suffix, own in of_first.items()}
    text = dict(first.params)
    [of_pci] = [s for s, t in of_first.items() if t == f"{pci}-0"]
    assert text[f"resources{of_pci}"] == "CUSTOM_PCI:1"
    assert text["same_subtree"] == ",".join(sorted(of_first))
    assert text["resources1"] == "VGPU:1"
    assert first.limit == 10


def test_equal_groups_keep_a_name_each():
    params = tuple(sorted((f"resources{port}", "NET:1") for port in PORTS))
    query, suffixes = CandidatesQuery(params).canonical()
    assert len(query.params) == 2
    assert sorted(suffixes.values()) == sorted(PORTS)


def test_other_content_or_flavor_group_is_another_query():
    query = _query(*PORTS)
    assert query.canonical()[0] != _query(*PORTS, flavor="2").canonical()[0]
    assert query.canonical()[0] != _query(*PORTS, subtree=[PORTS]).canonical()[0]


def test_query_without_ids_is_its_own_canonical_one():
    query = CandidatesQuery((("resources1", "VGPU:1"), ("resources_A-B", "PCPU:1")))
    assert query.canonical() == (query, {})


def test_free_is_capacity_less_used():
    assert _parse().free("host1", "VCPU") == 5
    assert _parse().free("host1", "VGPU") == 0
    assert _parse().free("elsewhere", "VCPU") == 0


def test_nothing_fits_is_no_failure():
    candidates = _parse({"allocation_requests": [], "provider_summaries": {}})
    assert (candidates.n_requests, candidates.by_host) == (0, {})


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        {"allocation_requests": []},
        {"allocation_requests": {}, "provider_summaries": {}},
        {**BODY, "provider_summaries": {}},
        {**BODY, "provider_summaries": {"host1": 7}},
        {**BODY, "allocation_requests": ["x"]},
        {**BODY, "allocation_requests": [{"allocations": {"host1": 7}}]},
        {**BODY, "allocation_requests": [{"allocations": {"host1": {"resources": 7}}}]},
    ],
)
def test_wrong_shape_is_unavailable(body):
    with pytest.raises(PlacementUnavailable, match="not Placement's"):
        _parse(body)


def test_what_is_derived_of_an_answer_is_made_once_a_token():
    candidates, made = _parse(), []
    for token in ("layout 1", "layout 2", "layout 1"):
        rows = candidates.derived.get(token, lambda: made.append(1) or len(made))
    assert (rows, len(made)) == (1, 2)


def test_few_derived_things_are_kept_the_newest():
    candidates, made = _parse(), []
    for token in [*range(9), 8, 0]:
        candidates.derived.get(token, lambda t=token: made.append(t))
    assert made == [*range(9), 0]


def test_derived_thing_is_made_by_one_of_many_threads():
    candidates, made = _parse(), []
    with ThreadPoolExecutor(8) as pool:
        list(
            pool.map(
                lambda _: candidates.derived.get(
                    "rows", lambda: time.sleep(0.05) or made.append(1)
                ),
                range(8),
            )
        )
    assert made == [1]


def test_answers_have_separate_derived_values():
    first, second = _parse(), _parse()
    assert first.derived.get("rows", lambda: 1) == 1
    assert second.derived.get("rows", lambda: 2) == 2
