# SPDX-License-Identifier: Apache-2.0
"""Why the real Placement has no candidates, of hosts plain, nested and sharing."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from moorage.objects import Destination
from moorage.scheduler.candidates import CandidatesQuery
from moorage.scheduler.errors import NoValidHost
from moorage.scheduler.placement.client import PlacementClient
from moorage.scheduler.placement.constraints import ConstraintKind
from moorage.scheduler.placement.diagnosis import MAX_CONSTRAINTS, diagnose
from moorage.scheduler.placement.findings import Cause, Diagnosis
from moorage.scheduler.placement.seed import Provider, seed
from moorage.testing import PlacementFixture, SchedulerFixture

from ...conftest import host, spec
from ...fixtures.property_tests import examples

GOLD, SLOW = "CUSTOM_GOLD", "CUSTOM_SLOW"
SHARES = "MISC_SHARES_VIA_AGGREGATE"


def uuid_of(name: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, name))


def provider(
    name: str,
    traits: Iterable[str] = (),
    aggregates: Iterable[str] = (),
    parent: str | None = None,
    **amounts: int,
) -> Provider:
    return Provider(
        uuid_of(name),
        name,
        {c: {"total": n, "max_unit": n} for c, n in amounts.items()},
        frozenset(traits),
        frozenset(map(uuid_of, aggregates)),
        uuid_of(parent) if parent else None,
    )


def question(*params: tuple[str, str], limit: int = 1000) -> CandidatesQuery:
    every = (("limit", str(limit)), *params)
    return CandidatesQuery(tuple(sorted(every)), limit)


class Counting:
    """An adapter that records the URLs."""

    def __init__(self, adapter: Any) -> None:
        self._adapter = adapter
        self.urls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._adapter, name)

    def get(self, url: str, **more: Any) -> Any:
        self.urls.append(url)
        return self._adapter.get(url, **more)


class DiagnosedPlacement:
    """A Placement of some providers; the roots among them that do not share are hosts.

    `n_gets` counts the GETs of the last diagnosis; `client` is not counted.
    """

    def __init__(self, placement: PlacementFixture) -> None:
        self.client = placement.client
        self._counting = Counting(placement.embedded.adapter)
        self.hosts: set[str] = set()
        self.n_gets = 0

    def seed(self, *providers: Provider) -> None:
        seed(self.client, providers)
        hosts = {p.uuid for p in providers if not p.parent_uuid}
        self.hosts |= hosts - {p.uuid for p in providers if SHARES in p.traits}

    def define(self, *traits: str) -> None:
        for trait in traits:
            self._counting.put(f"/traits/{trait}", json=None, microversion="1.36")

    def diagnose(
        self, *params: tuple[str, str], limit: int = 1000, knows_hosts: bool = True
    ) -> Diagnosis:
        self._counting.urls.clear()
        found = diagnose(
            PlacementClient(self._counting),
            question(*params, limit=limit),
            is_host=self.hosts.__contains__ if knows_hosts else None,
        )
        self.n_gets = len(self._counting.urls)
        return found


@pytest.fixture
def diagnosed() -> Iterator[DiagnosedPlacement]:
    with PlacementFixture() as placement:
        yield DiagnosedPlacement(placement)


@pytest.fixture
def plain(diagnosed: DiagnosedPlacement) -> DiagnosedPlacement:
    """Three hosts: large without anything, small in an aggregate, small and gold."""
    diagnosed.seed(
        provider("large", VCPU=16, MEMORY_MB=1024),
        provider("near", [SLOW], ["rack"], VCPU=2, MEMORY_MB=8192),
        provider("gold", [GOLD], VCPU=2, MEMORY_MB=8192),
    )
    return diagnosed


def alone(diagnosis: Diagnosis) -> dict[str, int]:
    return {finding.description: finding.n_hosts for finding in diagnosis.findings}


def culprits(diagnosis: Diagnosis) -> list[str]:
    return [finding.description for finding in diagnosis.culprits]


# -- the four kinds of constraint on plain hosts -------------------------------------

RACK, NOWHERE = uuid_of("rack"), uuid_of("nowhere")


@pytest.mark.parametrize(
    ("param", "kind", "words"),
    [
        pytest.param(
            ("resources", "VCPU:32"),
            ConstraintKind.RESOURCE,
            "VCPU 32",
            id="resource amount",
        ),
        pytest.param(
            ("required", "HW_CPU_X86_AVX512F"),
            ConstraintKind.TRAIT,
            "trait HW_CPU_X86_AVX512F required",
            id="trait",
        ),
        pytest.param(
            ("root_required", "HW_CPU_X86_AVX512F"),
            ConstraintKind.TRAIT,
            "trait HW_CPU_X86_AVX512F required of the compute node itself",
            id="trait of the root",
        ),
        pytest.param(
            ("member_of", f"in:{NOWHERE}"),
            ConstraintKind.AGGREGATE,
            f"in the aggregate {NOWHERE}",
            id="aggregate",
        ),
        pytest.param(
            ("in_tree", NOWHERE),
            ConstraintKind.TREE,
            "the compute node that the request names",
            id="tree",
        ),
        pytest.param(
            ("resources_x", "VCPU:64"),
            ConstraintKind.GROUP,
            "group _x (VCPU 64)",
            id="group",
        ),
    ],
)
def test_constraint_that_alone_leaves_none_is_the_cause(
    plain: DiagnosedPlacement, param: tuple[str, str], kind: ConstraintKind, words: str
) -> None:
    plenty = ("resources", "MEMORY_MB:512")
    rest = () if param[0] == "resources" else (plenty,)

    found = plain.diagnose(param, *rest)

    assert found.cause is Cause.ALONE
    assert [(each.kind, each.description) for each in found.culprits] == [(kind, words)]
    assert found.culprits[0].n_hosts == 0
    assert found.culprits[0].n_hosts_without == (3 if rest else None)


def test_each_constraint_has_the_number_of_hosts_it_leaves(
    plain: DiagnosedPlacement,
) -> None:
    found = plain.diagnose(
        ("resources", "MEMORY_MB:4096,VCPU:4"),
        ("required", f"{GOLD},!{SLOW}"),
        ("member_of", f"!in:{RACK}"),
    )

    assert alone(found) == {
        "MEMORY_MB 4096": 2,
        "VCPU 4": 1,
        f"trait {GOLD} required": 1,
        f"trait {SLOW} forbidden": 2,
        f"outside the aggregate {RACK}": 2,
    }


def test_constraints_that_leave_none_only_together_are_distinguished(
    plain: DiagnosedPlacement,
) -> None:
    found = plain.diagnose(
        ("resources", "MEMORY_MB:512,VCPU:1"),
        ("required", GOLD),
        ("member_of", f"in:{RACK}"),
    )

    assert found.cause is Cause.TOGETHER
    assert culprits(found) == [f"trait {GOLD} required", f"in the aggregate {RACK}"]
    assert [each.n_hosts_without for each in found.findings] == [0, 0, 1, 1]


def test_allocated_amount_is_not_available(plain: DiagnosedPlacement) -> None:
    consumer = str(uuid.uuid4())
    body = {
        "allocations": {uuid_of("large"): {"resources": {"VCPU": 14}}},
        "project_id": "p",
        "user_id": "u",
        "consumer_generation": None,
    }
    assert plain.client.put_allocations(consumer, body).is_done

    found = plain.diagnose(("resources", "VCPU:4"))

    assert (found.cause, alone(found)) == (Cause.ALONE, {"VCPU 4": 0})


def test_query_with_candidates_has_no_cause(plain: DiagnosedPlacement) -> None:
    found = plain.diagnose(("resources", "VCPU:1"))

    assert found == Diagnosis(Cause.NONE)
    assert plain.n_gets == 1


# -- Placement itself ----------------------------------------------------------------


def test_empty_placement_is_reported(diagnosed: DiagnosedPlacement) -> None:
    found = diagnosed.diagnose(("resources", "VCPU:1"))

    assert found.cause is Cause.EMPTY
    assert "no compute service has registered" in str(found)


def test_providers_that_leave_nothing_are_not_an_empty_placement(
    diagnosed: DiagnosedPlacement,
) -> None:
    diagnosed.seed(provider("host", VCPU=4))

    found = diagnosed.diagnose(("resources", "MEMORY_MB:1"))

    assert (found.cause, culprits(found)) == (Cause.ALONE, ["MEMORY_MB 1"])


@pytest.mark.parametrize(
    ("param", "named"),
    [
        pytest.param(("required", "CUSTOM_NO"), "No such trait", id="trait"),
        pytest.param(("resources1", "CUSTOM_NO:1"), "CUSTOM_NO", id="class"),
    ],
)
def test_query_that_placement_refuses_is_reported_in_its_words(
    plain: DiagnosedPlacement, param: tuple[str, str], named: str
) -> None:
    found = plain.diagnose(("resources", "VCPU:1"), param)

    assert found.cause is Cause.REFUSED
    assert named in found.refusal
    assert found.refusal in str(found)
    assert "GET" not in found.refusal
    assert plain.n_gets == 1


def test_one_of_several_traits_is_required(plain: DiagnosedPlacement) -> None:
    found = plain.diagnose(
        ("resources", "VCPU:1"), ("required", "in:HW_CPU_X86_VMX,HW_CPU_X86_SVM")
    )

    assert found.cause is Cause.ALONE
    assert [finding.kind for finding in found.culprits] == [ConstraintKind.TRAIT]


def test_hosts_unknown_to_the_scheduler_are_reported(
    diagnosed: DiagnosedPlacement,
) -> None:
    with_row = provider("known", VCPU=2)
    diagnosed.seed(with_row)
    seed(diagnosed.client, [provider("unknown", VCPU=8)])

    found = diagnosed.diagnose(("resources", "VCPU:4,MEMORY_MB:1"))

    vcpu = found.findings[0]
    assert (vcpu.description, vcpu.n_hosts, vcpu.n_unknown) == ("VCPU 4", 0, 1)
    assert "1 that the scheduler does not know" in str(vcpu)


# -- trees, groups and sharing providers ---------------------------------------------


@pytest.fixture
def nested(diagnosed: DiagnosedPlacement) -> DiagnosedPlacement:
    """One host of two network cards; each card's functions are below it."""
    diagnosed.seed(
        provider("node", VCPU=8),
        *(provider(nic, [GOLD], parent="node") for nic in ("nic1", "nic2")),
        provider("vf1", parent="nic1", SRIOV_NET_VF=4),
        provider("gpu", parent="nic2", VGPU=4),
    )
    return diagnosed


def test_resource_of_a_nested_provider_counts_for_its_host(
    nested: DiagnosedPlacement,
) -> None:
    found = nested.diagnose(("resources", "SRIOV_NET_VF:2,VCPU:16"))

    assert alone(found) == {"SRIOV_NET_VF 2": 1, "VCPU 16": 0}
    assert culprits(found) == ["VCPU 16"]


def test_trait_of_a_nested_provider_is_none_of_the_root(
    nested: DiagnosedPlacement,
) -> None:
    found = nested.diagnose(("resources", "VCPU:1"), ("root_required", GOLD))

    words = f"trait {GOLD} required of the compute node itself"
    assert alone(found) == {"VCPU 1": 1, words: 0}
    assert culprits(found) == [words]


def test_group_is_required_of_one_provider(nested: DiagnosedPlacement) -> None:
    found = nested.diagnose(
        ("resources", "VCPU:1"),
        ("resources1", "SRIOV_NET_VF:1"),
        ("required1", GOLD),
    )

    assert culprits(found) == [f"group 1 (SRIOV_NET_VF 1, trait {GOLD} required)"]


def test_groups_that_no_subtree_has_name_the_subtree_as_cause(
    nested: DiagnosedPlacement,
) -> None:
    found = nested.diagnose(
        ("resources", "VCPU:1"),
        ("resources_vf", "SRIOV_NET_VF:1"),
        ("resources_gpu", "VGPU:1"),
        ("required_nic", GOLD),
        ("same_subtree", "_vf,_gpu,_nic"),
        ("group_policy", "none"),
    )

    assert culprits(found) == ["groups _vf, _gpu, _nic in one subtree"]
    assert set(alone(found).values()) == {0, 1}


def test_isolated_groups_without_a_provider_each_name_the_policy_as_cause(
    nested: DiagnosedPlacement,
) -> None:
    found = nested.diagnose(
        ("resources1", "SRIOV_NET_VF:1"),
        ("resources2", "SRIOV_NET_VF:1"),
        ("group_policy", "isolate"),
    )

    assert culprits(found) == ["groups 1, 2 from a provider each"]


def test_hosts_that_meet_all_but_not_at_once_are_counted(
    nested: DiagnosedPlacement,
) -> None:
    found = nested.diagnose(("resources", "VCPU:1"), ("required", GOLD))

    assert (found.cause, found.culprits, found.n_together) == (Cause.PROVIDERS, (), 1)
    assert "1 host(s) may meet each constraint" in str(found)


@pytest.mark.parametrize("knows_hosts", [True, False])
def test_sharing_provider_is_no_host_and_no_cause(
    diagnosed: DiagnosedPlacement, knows_hosts: bool
) -> None:
    diagnosed.seed(
        provider("near", aggregates=["nfs"], VCPU=2),
        provider("far", VCPU=8),
        provider("nfs", [SHARES], ["nfs"], DISK_GB=100),
    )

    found = diagnosed.diagnose(
        ("resources", "DISK_GB:10,VCPU:4"), knows_hosts=knows_hosts
    )

    assert alone(found) == {"DISK_GB 10": 0, "VCPU 4": 1}
    assert (found.cause, found.culprits) == (Cause.PROVIDERS, ())
    disk = found.findings[0]
    assert (disk.is_shared, disk.n_unknown) == (True, 0)
    assert "those that share" in str(disk)


def test_disk_shared_by_a_host_counts_for_that_host_only(
    diagnosed: DiagnosedPlacement,
) -> None:
    diagnosed.seed(
        provider("taker", aggregates=["nfs"], VCPU=8),
        provider("full", aggregates=["nfs"], VCPU=2, DISK_GB=5),
    )
    sharing = provider("giver", [SHARES], ["nfs"], VCPU=2, DISK_GB=100)
    diagnosed.define(GOLD)
    diagnosed.seed(sharing)
    diagnosed.hosts.add(sharing.uuid)

    found = diagnosed.diagnose(("resources", "DISK_GB:10,VCPU:4"), ("required", GOLD))

    assert alone(found)["DISK_GB 10"] == 1
    assert found.findings[0].is_shared
    assert culprits(found) == [f"trait {GOLD} required"]


# -- costs and messages --------------------------------------------------------------


def test_constraints_above_the_limit_are_not_queried(plain: DiagnosedPlacement) -> None:
    traits = [f"CUSTOM_T{i}" for i in range(MAX_CONSTRAINTS + 4)]
    plain.define(*traits)

    found = plain.diagnose(("resources", "VCPU:1"), ("required", ",".join(traits)))

    assert found.n_not_queried == 5
    assert len(found.findings) == MAX_CONSTRAINTS
    assert plain.n_gets <= MAX_CONSTRAINTS + 2
    assert "5 more constraint(s), not queried" in str(found)


def test_text_has_the_cause_first_and_no_host(plain: DiagnosedPlacement) -> None:
    found = plain.diagnose(
        ("resources", "MEMORY_MB:4096,VCPU:4"),
        ("required", GOLD),
        ("in_tree", uuid_of("gold")),
    )

    assert str(found).splitlines() == [
        "No host meets these together: VCPU 4; the compute node that the request names",
        "  MEMORY_MB 4096: 2 hosts; without it no host",
        "  VCPU 4: 1 host; without it at most 1 host",
        f"  trait {GOLD} required: 1 host; without it no host",
        "  the compute node that the request names: 1 host; without it no host",
    ]


# -- against a model -----------------------------------------------------------------

_CLASSES = ("VCPU", "MEMORY_MB", "DISK_GB")
_TRAITS = tuple(f"CUSTOM_{letter}" for letter in "ABCD")
_AGGREGATES = ("rack1", "rack2", "rack3")

#: What each host has, by its number; spread so that most pairs occur.
_AMOUNTS: list[dict[str, Any]] = [
    {c: 1 + (i * (j + 3)) % 7 for j, c in enumerate(_CLASSES)} for i in range(8)
]
_HAS = [{t for j, t in enumerate(_TRAITS) if (i >> j) & 1} for i in range(8)]
_IN = [{_AGGREGATES[i % 3], _AGGREGATES[i % 2]} for i in range(8)]


@pytest.fixture
def crowd(diagnosed: DiagnosedPlacement) -> DiagnosedPlacement:
    """Eight hosts that no example changes."""
    diagnosed.define(*_TRAITS)
    diagnosed.seed(
        *(
            provider(f"host{i}", _HAS[i], _IN[i], **_AMOUNTS[i])
            for i in range(len(_HAS))
        )
    )
    return diagnosed


_AMOUNT = st.dictionaries(
    st.sampled_from(_CLASSES), st.integers(1, 9), min_size=1, max_size=3
)
_REQUIRED_TRAITS = st.dictionaries(st.sampled_from(_TRAITS), st.booleans(), max_size=3)
_REQUIRED_AGGREGATES = st.lists(st.sampled_from(_AGGREGATES), max_size=2, unique=True)


def left_by(
    amounts: Mapping[str, int], traits: Mapping[str, bool], aggregates: list[str]
) -> dict[str, set[int]]:
    """The numbers of the hosts that each constraint leaves, by its words."""
    every = range(len(_HAS))
    left = {
        f"{c} {n}": {i for i in every if _AMOUNTS[i][c] >= n}
        for c, n in amounts.items()
    }
    for trait, must in traits.items():
        words = f"trait {trait} {'required' if must else 'forbidden'}"
        left[words] = {i for i in every if (trait in _HAS[i]) is must}
    for name in aggregates:
        left[f"in the aggregate {uuid_of(name)}"] = {i for i in every if name in _IN[i]}
    return left


@given(amounts=_AMOUNT, traits=_REQUIRED_TRAITS, aggregates=_REQUIRED_AGGREGATES)
@examples(
    1,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_plain_hosts_are_diagnosed_exactly(
    crowd: DiagnosedPlacement,
    amounts: dict[str, int],
    traits: dict[str, bool],
    aggregates: list[str],
) -> None:
    left = left_by(amounts, traits, aggregates)
    params = [("resources", ",".join(f"{c}:{n}" for c, n in amounts.items()))]
    if traits:
        names = (("" if must else "!") + trait for trait, must in traits.items())
        params.append(("required", ",".join(names)))
    params += [("member_of", f"in:{uuid_of(name)}") for name in aggregates]

    found = crowd.diagnose(*params)

    if set.intersection(*left.values()):
        assert found.cause is Cause.NONE
        return
    assert alone(found) == {words: len(hosts) for words, hosts in left.items()}
    assert crowd.n_gets <= 2 + len(left)
    for finding in found.findings:
        others = [
            hosts for words, hosts in left.items() if words != finding.description
        ]
        n_others = len(set.intersection(*others)) if others else None
        assert finding.n_hosts_without == n_others
    blamed = [left[words] for words in culprits(found)]
    if found.cause is Cause.ALONE:
        assert len(blamed) == sum(not hosts for hosts in left.values())
        assert not any(blamed)
        return
    assert found.cause is Cause.TOGETHER
    assert not set.intersection(*blamed)
    for i in range(len(blamed)):
        assert set.intersection(*(blamed[:i] + blamed[i + 1 :]))


# -- through the scheduler -----------------------------------------------------------


def test_scheduler_diagnoses_a_request_by_its_own_query() -> None:
    with SchedulerFixture(host(host="a"), host(host="b")) as cloud:
        request = spec(vcpus=64)
        with pytest.raises(NoValidHost):
            cloud.scheduler.select_destinations({}, request, [str(uuid.uuid4())])

        (found,) = cloud.scheduler.diagnose({}, request)

        assert culprits(found) == ["VCPU 64"]
        assert alone(found)["MEMORY_MB 1024"] == 2


def test_scheduler_diagnoses_both_queries_of_a_pinned_guest() -> None:
    with SchedulerFixture(host(host="a")) as cloud:
        pinned = spec(vcpus=64, extra_specs={"hw:cpu_policy": "dedicated"})

        own, fallback = cloud.scheduler.diagnose({}, pinned)

        assert "PCPU 64" in culprits(own)
        assert culprits(fallback) == ["VCPU 64"]


def test_unknown_host_is_not_queried_in_placement() -> None:
    with SchedulerFixture(host(host="a")) as cloud:
        request = spec(requested_destination=Destination(host="b", node=None))

        with pytest.raises(NoValidHost, match="No such host"):
            cloud.scheduler.diagnose({}, request)
