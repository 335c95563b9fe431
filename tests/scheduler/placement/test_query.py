# SPDX-License-Identifier: Apache-2.0
"""The query to Placement for a request, rule by rule."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.objects import (
    Destination,
    Flavor,
    ImageMeta,
    ImageMetaProps,
    RequestGroup,
    RequestLevelParams,
    RequestSpec,
)
from moorage.scheduler.candidates import CandidatesQuery
from moorage.scheduler.errors import InvalidRequest, NoValidHost
from moorage.scheduler.placement.query import Requirements, build_query
from moorage.scheduler.request import Request

NODE = "3f1f6a8e-6f0f-4a0b-9d3b-0c6a8f6f7f10"
AGGREGATES = [f"7d0c2d42-0d39-4a5b-8f3c-7c3a3f3d9b0{n}" for n in range(1, 4)]


def flavor(**changes: Any) -> Flavor:
    values = {
        "name": "four",
        "vcpus": 4,
        "memory_mb": 2048,
        "root_gb": 10,
        "ephemeral_gb": 0,
        "swap": 0,
        "extra_specs": {},
    }
    return Flavor(**values | changes)


def spec(
    extra_specs: dict[str, str] | None = None,
    properties: dict[str, Any] | None = None,
    **changes: Any,
) -> RequestSpec:
    values: dict[str, Any] = {
        "flavor": flavor(extra_specs=extra_specs or {}),
        "num_instances": 1,
        "availability_zone": None,
    }
    if properties is not None:
        values["image"] = ImageMeta(properties=ImageMetaProps(**properties))
    return RequestSpec(**values | changes)


def group(requester_id: str | None, **fields: Any) -> RequestGroup:
    return RequestGroup(requester_id=requester_id, **fields)


def query_for(
    spec_obj: RequestSpec, requirements: Requirements | None = None
) -> CandidatesQuery:
    request = Request.validated(spec_obj)
    return build_query(request, requirements or Requirements(), limit=1000)


def params_for(
    spec_obj: RequestSpec, requirements: Requirements | None = None
) -> dict[str, list[str]]:
    params: dict[str, list[str]] = {}
    for name, value in query_for(spec_obj, requirements).params:
        params.setdefault(name, []).append(value)
    return params


def added_to_plain(params: dict[str, list[str]]) -> dict[str, list[str]]:
    """Leave out what a plain request's query has as well."""
    plain = {"limit": ["1000"], "resources": ["DISK_GB:10,MEMORY_MB:2048,VCPU:4"]}
    return {
        name: values for name, values in params.items() if plain.get(name) != values
    }


def test_plain_request_requires_the_flavors_amounts() -> None:
    requirements = Requirements(root_forbidden={"COMPUTE_STATUS_DISABLED"})

    assert query_for(spec(), requirements).path == (
        "/allocation_candidates?limit=1000"
        "&resources=DISK_GB%3A10%2CMEMORY_MB%3A2048%2CVCPU%3A4"
        "&root_required=%21COMPUTE_STATUS_DISABLED"
    )


@pytest.mark.parametrize(
    ("changes", "is_bfv", "resources"),
    [
        pytest.param({"swap": 1}, False, "DISK_GB:11", id="swap is rounded up"),
        pytest.param({"swap": 1024}, False, "DISK_GB:11", id="a full GiB of swap"),
        pytest.param({"swap": 1025}, False, "DISK_GB:12", id="a MiB more"),
        pytest.param({"ephemeral_gb": 5}, False, "DISK_GB:15", id="ephemeral"),
        pytest.param({"ephemeral_gb": 5}, True, "DISK_GB:5", id="root is a volume"),
        pytest.param({}, True, "", id="no disk is not required"),
        pytest.param({"root_gb": 0}, False, "", id="no root disk"),
    ],
)
def test_disk(changes: dict[str, int], is_bfv: bool, resources: str) -> None:
    params = params_for(spec(flavor=flavor(**changes), is_bfv=is_bfv))

    want = [name for name in (resources, "MEMORY_MB:2048", "VCPU:4") if name]
    assert params["resources"] == [",".join(want)]


EXTRA_SPECS = [
    pytest.param(
        {"resources:VGPU": "1"},
        {"resources": ["DISK_GB:10,MEMORY_MB:2048,VCPU:4,VGPU:1"]},
        id="a class more",
    ),
    pytest.param(
        {"resources:VCPU": "2", "resources:DISK_GB": "0"},
        {"resources": ["MEMORY_MB:2048,VCPU:2"]},
        id="named classes replace the flavor's amounts",
    ),
    pytest.param(
        {"resources:PCPU": "3"},
        {"resources": ["DISK_GB:10,MEMORY_MB:2048,PCPU:3"]},
        id="PCPU stands for VCPU too",
    ),
    pytest.param(
        {"resources1:VCPU": "4"},
        {"resources": ["DISK_GB:10,MEMORY_MB:2048"], "resources1": ["VCPU:4"]},
        id="in whatever group",
    ),
    pytest.param(
        {"resources_gpu-1:VGPU": "1", "trait_gpu-1:CUSTOM_FAST": "required"},
        {"resources_gpu-1": ["VGPU:1"], "required_gpu-1": ["CUSTOM_FAST"]},
        id="a group with a suffix",
    ),
    pytest.param(
        {"resources1:VGPU": "1", "resources2:VGPU": "1", "group_policy": "isolate"},
        {
            "group_policy": ["isolate"],
            "resources1": ["VGPU:1"],
            "resources2": ["VGPU:1"],
        },
        id="group policy",
    ),
    pytest.param(
        {"resources1:VGPU": "1", "resources2:VGPU": "1"},
        {"resources1": ["VGPU:1"], "resources2": ["VGPU:1"]},
        id="no group policy is made up for a flavor",
    ),
    pytest.param({"resources1:VGPU": "0"}, {}, id="an empty group is dropped"),
    pytest.param(
        {"trait:CUSTOM_B": "required", "trait:CUSTOM_A": "forbidden"},
        {"required": ["CUSTOM_B,!CUSTOM_A"]},
        id="traits, the required ones first",
    ),
    pytest.param(
        {"hw:cpu_policy": "dedicated"},
        {"resources": ["DISK_GB:10,MEMORY_MB:2048,PCPU:4"]},
        id="dedicated",
    ),
    pytest.param(
        {"hw:cpu_policy": "dedicated", "hw:emulator_threads_policy": "isolate"},
        {"resources": ["DISK_GB:10,MEMORY_MB:2048,PCPU:5"]},
        id="dedicated, one more for the emulator",
    ),
    pytest.param(
        {"hw:cpu_policy": "dedicated", "resources:PCPU": "9"},
        {"resources": ["DISK_GB:10,MEMORY_MB:2048,PCPU:4"]},
        id="the policy replaces an amount",
    ),
    pytest.param(
        {"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "0-1"},
        {"resources": ["DISK_GB:10,MEMORY_MB:2048,PCPU:2,VCPU:2"]},
        id="mixed",
    ),
    pytest.param(
        {
            "hw:cpu_policy": "mixed",
            "hw:cpu_dedicated_mask": "^0",
            "hw:emulator_threads_policy": "isolate",
        },
        {"resources": ["DISK_GB:10,MEMORY_MB:2048,PCPU:4,VCPU:1"]},
        id="mixed, all but one, and the emulator",
    ),
    pytest.param(
        {
            "hw:cpu_policy": "mixed",
            "hw:cpu_realtime": "yes",
            "hw:cpu_realtime_mask": "1-3,^2",
        },
        {"resources": ["DISK_GB:10,MEMORY_MB:2048,PCPU:2,VCPU:2"]},
        id="mixed by the realtime mask",
    ),
    pytest.param(
        {"hw:cpu_thread_policy": "require"},
        {"required": ["HW_CPU_HYPERTHREADING"]},
        id="threads required",
    ),
    pytest.param(
        {"hw:cpu_thread_policy": "isolate"},
        {"required": ["!HW_CPU_HYPERTHREADING"]},
        id="threads isolated",
    ),
    pytest.param({"hw:cpu_thread_policy": "prefer"}, {}, id="threads preferred"),
    pytest.param(
        {"hw:pmem": "6GB, 6GB,a-b,"},
        {
            "resources": [
                "CUSTOM_PMEM_NAMESPACE_6GB:2,CUSTOM_PMEM_NAMESPACE_A_B:1,"
                "DISK_GB:10,MEMORY_MB:2048,VCPU:4"
            ]
        },
        id="persistent memory",
    ),
    pytest.param(
        {"hw:tpm_version": "1.2"},
        {"required": ["COMPUTE_SECURITY_TPM_1_2,COMPUTE_SECURITY_TPM_TIS"]},
        id="TPM",
    ),
    pytest.param(
        {"hw:tpm_version": "2.0", "hw:tpm_model": "tpm-crb"},
        {"required": ["COMPUTE_SECURITY_TPM_2_0,COMPUTE_SECURITY_TPM_CRB"]},
        id="TPM 2.0 with CRB",
    ),
    pytest.param({"hw:tpm_model": "tpm-crb"}, {}, id="no TPM without a version"),
    pytest.param(
        {"os:secure_boot": "required"},
        {"required": ["COMPUTE_SECURITY_UEFI_SECURE_BOOT"]},
        id="secure boot",
    ),
    pytest.param({"os:secure_boot": "optional"}, {}, id="optional secure boot"),
    pytest.param(
        {"hw:maxphysaddr_mode": "emulate"},
        {"required": ["COMPUTE_ADDRESS_SPACE_EMULATED"]},
        id="emulated address space",
    ),
    pytest.param(
        {"hw:maxphysaddr_mode": "passthrough"},
        {"required": ["COMPUTE_ADDRESS_SPACE_PASSTHROUGH"]},
        id="address space of the host",
    ),
    pytest.param(
        {"hw:pci_numa_affinity_policy": "socket"},
        {"required": ["COMPUTE_SOCKET_PCI_NUMA_AFFINITY"]},
        id="PCI devices of the same socket",
    ),
    pytest.param({"hw:pci_numa_affinity_policy": "required"}, {}, id="of the node"),
]


@pytest.mark.parametrize(("extra_specs", "added"), EXTRA_SPECS)
def test_extra_specs(extra_specs: dict[str, str], added: dict[str, list[str]]) -> None:
    assert added_to_plain(params_for(spec(extra_specs))) == added


@pytest.mark.parametrize(
    ("image", "added"),
    [
        pytest.param({}, {}, id="nothing"),
        pytest.param(
            {"traits_required": ["CUSTOM_B", "CUSTOM_A"]},
            {"required": ["CUSTOM_A,CUSTOM_B"]},
            id="traits",
        ),
        pytest.param(
            {"hw_cpu_policy": "dedicated"},
            {"resources": ["DISK_GB:10,MEMORY_MB:2048,PCPU:4"]},
            id="dedicated",
        ),
        pytest.param(
            {"hw_firmware_stateless": True, "hw_firmware_type": "uefi"},
            {"required": ["COMPUTE_SECURITY_STATELESS_FIRMWARE"]},
            id="stateless firmware",
        ),
        pytest.param(
            {"hw_firmware_stateless": True, "hw_firmware_type": "bios"},
            {},
            id="stateless firmware of a BIOS",
        ),
        pytest.param(
            {"hw_tpm_version": "2.0"},
            {"required": ["COMPUTE_SECURITY_TPM_2_0,COMPUTE_SECURITY_TPM_TIS"]},
            id="TPM",
        ),
        pytest.param(
            {"os_secure_boot": "required"},
            {"required": ["COMPUTE_SECURITY_UEFI_SECURE_BOOT"]},
            id="secure boot",
        ),
        pytest.param(
            {"hw_mem_encryption": True, "hw_firmware_type": "uefi"},
            {
                "required": ["HW_CPU_X86_AMD_SEV"],
                "resources": [
                    "DISK_GB:10,MEMORY_MB:2048,MEM_ENCRYPTION_CONTEXT:1,VCPU:4"
                ],
            },
            id="memory encryption",
        ),
    ],
)
def test_image_properties(image: dict[str, Any], added: dict[str, list[str]]) -> None:
    assert added_to_plain(params_for(spec(properties=image))) == added


@pytest.mark.parametrize(
    "changes", [{}, {"image": None}, {"image": ImageMeta()}], ids=["unset", "None", "-"]
)
def test_request_without_image_properties_is_queried(changes: dict[str, Any]) -> None:
    assert added_to_plain(params_for(spec(**changes))) == {}


def test_groups_of_ports_and_devices_are_required() -> None:
    port = group(
        "port",
        resources={"NET_BW_EGR_KILOBIT_PER_SEC": 1, "NET_BW_IGR_KILOBIT_PER_SEC": 0},
        required_traits={"CUSTOM_B"},
        forbidden_traits={"CUSTOM_A"},
        aggregates=[["b", "a"], ["c"]],
        forbidden_aggregates={"d"},
        in_tree=NODE,
    )

    assert added_to_plain(params_for(spec(requested_resources=[port]))) == {
        "resourcesport": ["NET_BW_EGR_KILOBIT_PER_SEC:1"],
        "requiredport": ["CUSTOM_B,!CUSTOM_A"],
        "member_ofport": ["!in:d", "in:a,b", "in:c"],
        "in_treeport": [NODE],
    }


@pytest.mark.parametrize(
    ("extra_specs", "policy"),
    [
        pytest.param({}, ["none"], id="two ports"),
        pytest.param({"resources1:VGPU": "1"}, ["none"], id="one group of the flavor"),
        pytest.param({"group_policy": "isolate"}, ["isolate"], id="flavor says"),
        pytest.param(
            {"resources1:VGPU": "1", "resources2:VGPU": "1"},
            None,
            id="two groups of the flavor, which has to say",
        ),
        pytest.param(
            {"resources1:VGPU": "1", "resources2:VGPU": "0"},
            ["none"],
            id="an empty group of the flavor does not count",
        ),
    ],
)
def test_group_policy(extra_specs: dict[str, str], policy: list[str] | None) -> None:
    ports = [group(name, resources={"CUSTOM_N": 1}) for name in ("p1", "p2")]

    params = params_for(spec(extra_specs, requested_resources=ports))

    assert params.get("group_policy") == policy


def test_request_level_params_and_requirements_are_joined() -> None:
    level = RequestLevelParams(
        root_required={"CUSTOM_B"},
        root_forbidden={"CUSTOM_Z"},
        same_subtree=[["p2", "p1"]],
    )
    ports = [group(name, resources={"CUSTOM_N": 1}) for name in ("p1", "p2")]
    requirements = Requirements(root_required={"CUSTOM_A"}, root_forbidden={"CUSTOM_Y"})

    params = params_for(
        spec(requested_resources=ports, request_level_params=level), requirements
    )

    assert params["root_required"] == ["CUSTOM_A,CUSTOM_B,!CUSTOM_Y,!CUSTOM_Z"]
    assert params["same_subtree"] == ["p1,p2"]


def test_destination_and_requirements_are_joined() -> None:
    destination = Destination(aggregates=["b,a", "c"], forbidden_aggregates={"z"})
    requirements = Requirements(
        member_of=[frozenset({"e", "d"})], forbidden_aggregates={"y"}, in_tree=NODE
    )

    params = params_for(spec(requested_destination=destination), requirements)

    assert params["member_of"] == ["!in:y,z", "in:a,b", "in:c", "in:d,e"]
    assert params["in_tree"] == [NODE]


@pytest.mark.parametrize(
    ("hints", "limit"),
    [
        ({"group": ["g"]}, None),
        ({"same_host": ["i"]}, None),
        ({"different_host": ["i"]}, None),
        ({"query": ["q"]}, 1000),
        ({}, 1000),
        (None, 1000),
    ],
)
def test_hints_that_need_all_candidates(hints: Any, limit: int | None) -> None:
    query = query_for(spec(scheduler_hints=hints))

    assert query.limit == limit
    assert (("limit", "1000") in query.params) == (limit is not None)


def test_host_with_several_nodes_has_no_limit() -> None:
    assert query_for(spec(), Requirements(is_limited=False)).limit is None


@pytest.mark.parametrize(
    ("extra_specs", "path"),
    [
        ({}, None),
        ({"hw:cpu_policy": "shared"}, None),
        ({"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "0"}, None),
        (
            {"hw:cpu_policy": "dedicated", "hw:cpu_thread_policy": "require"},
            "/allocation_candidates?limit=1000"
            "&resources=DISK_GB%3A10%2CMEMORY_MB%3A2048%2CVCPU%3A4",
        ),
    ],
    ids=["none", "shared", "mixed", "dedicated"],
)
def test_fallback_is_for_dedicated_guests(
    extra_specs: dict[str, str], path: str | None
) -> None:
    request = Request.validated(spec(extra_specs))
    groups = request.fallback_groups
    assert (groups is None) == (path is None)
    if groups is not None:
        query = build_query(request, Requirements(), limit=1000, groups=groups)
        assert query.path == path


ALL_IN_GROUPS = {
    "resources_cpu:VCPU": "4",
    "resources_cpu:MEMORY_MB": "2048",
    "resources_disk:DISK_GB": "10",
    "group_policy": "none",
}


def test_traits_of_the_host_are_the_roots_where_no_amount_is_left() -> None:
    extra_specs = {
        **ALL_IN_GROUPS,
        "trait:CUSTOM_A": "required",
        "trait:CUSTOM_B": "forbidden",
    }

    params = params_for(spec(extra_specs))

    assert params["root_required"] == ["CUSTOM_A,!CUSTOM_B"]
    assert not {"required", "resources"} & params.keys()


def test_aggregates_and_tree_are_the_cpu_groups_where_no_amount_is_left() -> None:
    requirements = Requirements(
        member_of=[frozenset({"a"})], forbidden_aggregates={"z"}, in_tree=NODE
    )

    params = params_for(spec(ALL_IN_GROUPS), requirements)

    assert params["member_of_cpu"] == ["!in:z", "in:a"]
    assert params["in_tree_cpu"] == [NODE]
    assert not {"member_of", "member_of_disk", "in_tree", "in_tree_disk"} & set(params)


def test_group_of_traits_alone_is_a_subtree_of_its_own() -> None:
    params = params_for(spec({"trait1:CUSTOM_A": "required"}))

    assert params["required1"] == ["CUSTOM_A"]
    assert params["same_subtree"] == ["1"]
    assert "resources1" not in params


def test_groups_of_traits_alone_need_no_policy() -> None:
    extra_specs = {
        "resources1:VGPU": "1",
        "trait2:CUSTOM_A": "required",
        "trait3:CUSTOM_B": "required",
    }

    assert params_for(spec(extra_specs))["group_policy"] == ["none"]


def test_subtree_loses_the_group_without_requirements() -> None:
    ports = [
        group("p1", resources={"CUSTOM_N": 0}),
        group("p2", resources={"CUSTOM_N": 1}),
    ]
    level = RequestLevelParams(same_subtree=[["p1", "p2"], ["p1"]])

    params = params_for(spec(requested_resources=ports, request_level_params=level))

    assert params["same_subtree"] == ["p2"]


def test_any_of_traits_are_queried_in_the_microversion_with_them() -> None:
    plain = query_for(spec({"trait:CUSTOM_A": "required"}))
    any_of = query_for(
        spec({"trait:CUSTOM_A": "required", "trait:X": "in:CUSTOM_C,CUSTOM_B"})
    )

    assert plain.microversion == "1.36"
    assert any_of.microversion == "1.39"
    assert any_of.unlimited().microversion == "1.39"
    assert added_to_plain({k: [v] for k, v in any_of.params}).keys() == {"required"}
    assert ("required", "CUSTOM_A") in any_of.params
    assert ("required", "in:CUSTOM_B,CUSTOM_C") in any_of.params


def test_any_of_traits_are_the_cpu_groups_where_no_amount_is_left() -> None:
    params = params_for(spec({**ALL_IN_GROUPS, "trait:X": "in:CUSTOM_A,CUSTOM_B"}))

    assert params["required_cpu"] == ["in:CUSTOM_A,CUSTOM_B"]
    assert not {"required", "required_disk", "root_required"} & params.keys()


def test_aggregates_and_tree_of_the_flavor_join_those_of_the_request() -> None:
    extra_specs = {
        "member_of": f"in:{AGGREGATES[1]},{AGGREGATES[0]}",
        "member_of:not": f"!{AGGREGATES[2]}",
        "in_tree": NODE,
    }
    requirements = Requirements(
        member_of=[frozenset({"x"})], forbidden_aggregates={"y"}, in_tree=NODE
    )

    params = params_for(spec(extra_specs), requirements)

    assert params["in_tree"] == [NODE]
    assert params["member_of"] == [
        f"!in:{AGGREGATES[2]},y",
        f"in:{AGGREGATES[0]},{AGGREGATES[1]}",
        "in:x",
    ]


@pytest.mark.parametrize(
    "extra_specs",
    [{"in_tree": NODE}, {"in_tree_cpu": NODE, **ALL_IN_GROUPS}],
    ids=["unsuffixed", "group of the CPUs"],
)
def test_flavor_that_is_confined_to_another_host_fits_nowhere(
    extra_specs: dict[str, str],
) -> None:
    with pytest.raises(NoValidHost, match="in_tree"):
        query_for(spec(extra_specs), Requirements(in_tree=AGGREGATES[0]))


def test_fallback_without_requirements_is_not_queried() -> None:
    extra_specs = {
        "hw:cpu_policy": "dedicated",
        "resources:VCPU": "0",
        "resources:MEMORY_MB": "0",
        "resources:DISK_GB": "0",
    }

    assert params_for(spec(extra_specs))["resources"] == ["PCPU:4"]
    request = Request.validated(spec(extra_specs))
    assert request.fallback_groups is None


def test_group_of_traits_alone_stays_in_the_subtree_that_names_it() -> None:
    ports = [
        group("p1", required_traits={"CUSTOM_A"}),
        group("p2", resources={"CUSTOM_N": 1}),
    ]
    level = RequestLevelParams(same_subtree=[["p1", "p2"]])

    params = params_for(spec(requested_resources=ports, request_level_params=level))

    assert params["same_subtree"] == ["p1,p2"]


IGNORED = [
    {"resources:FOO": "1"},
    {"resources:VGPU": "-1"},
    {"resources:VGPU": "many"},
    {"trait:CUSTOM_A": "perhaps"},
    {"group_policy": "both"},
]


@pytest.mark.parametrize("extra_specs", IGNORED, ids=str)
def test_contradictory_requirement_is_ignored_and_logged(
    extra_specs: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        params = params_for(spec(extra_specs))

    assert added_to_plain(params) == {}
    assert [next(iter(extra_specs)) in text for text in caplog.messages] == [True]


CONTRADICTIONS = [
    ({"hw:cpu_policy": "many"}, {}, "hw:cpu_policy"),
    ({"hw:cpu_policy": "shared"}, {"hw_cpu_policy": "dedicated"}, "hw_cpu_policy"),
    ({"hw:cpu_policy": "mixed"}, {"hw_cpu_policy": "dedicated"}, "hw_cpu_policy"),
    ({"hw:cpu_thread_policy": "few"}, {}, "hw:cpu_thread_policy"),
    (
        {"hw:cpu_thread_policy": "require"},
        {"hw_cpu_thread_policy": "isolate"},
        "hw_cpu_thread_policy",
    ),
    ({"hw:emulator_threads_policy": "x"}, {}, "hw:emulator_threads_policy"),
    (
        {"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "0-4"},
        {},
        "hw:cpu_dedicated_mask",
    ),
    (
        {"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "0-3"},
        {},
        "at least one vCPU shared",
    ),
    (
        {"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "0-99999999999"},
        {},
        "hw:cpu_dedicated_mask",
    ),
    (
        {"hw:cpu_policy": "mixed", "hw:cpu_realtime": "yes"},
        {},
        "hw:emulator_threads_policy",
    ),
    ({"hw:tpm_version": "3"}, {}, "hw:tpm_version"),
    ({"hw:tpm_version": "1.2", "hw:tpm_model": "tpm-crb"}, {}, "hw:tpm_model"),
    ({"hw:tpm_version": "1.2"}, {"hw_tpm_version": "2.0"}, "hw_tpm_version"),
    ({"hw:mem_encryption": "no"}, {"hw_mem_encryption": True}, "hw_mem_encryption"),
    (
        {"hw:mem_encryption": "yes", "hw:mem_encryption_model": "rot13"},
        {},
        "hw:mem_encryption_model",
    ),
    ({"os:secure_boot": "maybe"}, {}, "os:secure_boot"),
    ({"hw:maxphysaddr_mode": "x"}, {}, "hw:maxphysaddr_mode"),
    ({"hw:pci_numa_affinity_policy": "x"}, {}, "hw:pci_numa_affinity_policy"),
]


@pytest.mark.parametrize(("extra_specs", "image", "named"), CONTRADICTIONS, ids=str)
def test_contradictions_are_refused(
    extra_specs: dict[str, str], image: dict[str, Any], named: str
) -> None:
    with pytest.raises(InvalidRequest, match=named):
        query_for(spec(extra_specs, image))


def test_request_for_nothing_is_refused() -> None:
    nothing = {
        "resources:VCPU": "0",
        "resources:MEMORY_MB": "0",
        "resources:DISK_GB": "0",
    }

    with pytest.raises(InvalidRequest, match="every amount"):
        query_for(spec(nothing))


KNOWN = (
    "resources",
    "trait",
    "group_policy",
    "member_of",
    "in_tree",
    "hw:",
    "os:",
)
unknown_extra_specs = st.dictionaries(
    st.text(max_size=20).filter(lambda key: not key.startswith(KNOWN)),
    st.text(max_size=20),
    max_size=5,
)
known_extra_specs = st.sampled_from([case.values[0] for case in EXTRA_SPECS])


@given(known=known_extra_specs, unknown=unknown_extra_specs)
def test_unknown_extra_specs_change_nothing(
    known: dict[str, str], unknown: dict[str, str]
) -> None:
    assert query_for(spec(unknown | known)) == query_for(spec(known))


@given(known=known_extra_specs, unknown=unknown_extra_specs, zero=st.booleans())
def test_building_writes_nothing_to_the_request(
    known: dict[str, str], unknown: dict[str, str], zero: bool
) -> None:
    port = group("port", resources={"CUSTOM_N": 1, "CUSTOM_M": 0 if zero else 1})
    spec_obj = spec(
        unknown | known,
        properties={"traits_required": ["CUSTOM_I"]},
        requested_resources=[port],
        requested_destination=Destination(aggregates=["a"], forbidden_aggregates={"b"}),
    )
    requirements = Requirements(
        member_of=[frozenset({"x"})], root_required={"CUSTOM_R"}
    )
    before = written(spec_obj)

    request = Request.validated(spec_obj)
    first = build_query(request, requirements, limit=10)
    build_query(request, requirements, limit=10, groups=request.fallback_groups)

    assert written(spec_obj) == before
    assert requirements.member_of == [frozenset({"x"})]
    assert requirements.root_required == {"CUSTOM_R"}
    assert build_query(request, requirements, limit=10) == first


def written(spec_obj: RequestSpec) -> str:
    return json.dumps(spec_obj.obj_to_primitive(), sort_keys=True, default=sorted)
