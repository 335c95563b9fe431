# SPDX-License-Identifier: Apache-2.0
"""Accessors of a request: hints, defaults, the flavor's amounts, old dict forms."""

import json

import pytest

from moorage.objects import (
    Flavor,
    ImageMeta,
    InstanceGroup,
    InstanceNUMACell,
    InstanceNUMATopology,
    InstancePCIRequests,
    NUMATopologyLimits,
    RequestSpec,
    SchedulerLimits,
    Selection,
    UnsetField,
)

UUID = "40116cf1-b1ed-4f13-b1e9-c24e8f218cbc"


@pytest.mark.parametrize(
    ("field", "default"),
    [
        ("requested_destination", None),
        ("requested_resources", None),
        ("is_bfv", False),
        ("num_instances", 1),
        ("scheduler_hints", None),
        ("user_id", None),
        ("project_id", None),
        ("image", None),
        ("ignore_hosts", None),
        ("instance_group", None),
        ("numa_topology", None),
        ("pci_requests", None),
        ("availability_zone", None),
    ],
)
def test_field_that_may_be_missing_reads_as_novas_default(field, default):
    spec = RequestSpec()

    assert getattr(spec, field) == default
    assert field not in spec
    assert spec.obj_what_changed() == set()
    assert spec.obj_to_primitive()["nova_object.data"] == {}


def test_objects_that_may_be_missing_read_as_empty_ones():
    spec = RequestSpec()

    assert list(spec.security_groups) == []
    assert list(spec.requested_networks) == []
    assert spec.network_metadata.physnets == set()
    assert not spec.network_metadata.tunneled
    assert (spec.root_required, spec.root_forbidden, spec.same_subtree) == (
        set(),
        set(),
        [],
    )
    assert spec.obj_to_primitive()["nova_object.data"] == {}


@pytest.mark.parametrize("field", ["flavor", "id", "instance_uuid"])
def test_field_that_must_be_there_is_missed(field):
    with pytest.raises(UnsetField, match=rf"RequestSpec\.{field}"):
        getattr(RequestSpec(), field)


@pytest.mark.parametrize(
    ("hints", "answer"),
    [
        ({"group": ["a"]}, "a"),
        ({"group": ["a", "b"]}, ["a", "b"]),
        ({}, "default"),
        (None, "default"),
    ],
)
def test_hint_of_one_value_is_that_value(hints, answer):
    spec = RequestSpec(scheduler_hints=hints)

    assert spec.get_scheduler_hint("group", "default") == answer
    assert RequestSpec().get_scheduler_hint("group") is None


def test_flavor_answers_for_the_request():
    flavor = Flavor(vcpus=2, memory_mb=4, root_gb=8, ephemeral_gb=16, swap=32)
    spec = RequestSpec(flavor=flavor)

    figures = (spec.vcpus, spec.memory_mb, spec.root_gb, spec.ephemeral_gb, spec.swap)

    assert figures == (2, 4, 8, 16, 32)


def test_request_is_made_of_two_dicts():
    pci = InstancePCIRequests(instance_uuid=UUID, requests=[]).obj_to_primitive()
    cell = InstanceNUMACell(id=0, cpuset={0}, pcpuset=set(), memory=1)
    topology = InstanceNUMATopology(cells=[cell]).obj_to_primitive()
    request = {
        "num_instances": 3,
        "image": {
            "id": UUID,
            "checksum": None,
            "size": None,
            "locations": [],
            "properties": {
                "architecture": "amd64",
                "hw_vif_model": "virtio",
                "hw_numa_mem.0": "512",
                "hw_numa_cpus.0": "0-3,^2",
                "trait:HW_CPU_X86_AVX": "required",
                "vmware_adaptertype": "paraVirtual",
                "colour": "red",
            },
        },
        "instance_properties": {
            "uuid": UUID,
            "project_id": "p",
            "user_id": "u",
            "availability_zone": "az",
            "pci_requests": pci,
            "numa_topology": json.dumps(topology),
        },
        "instance_type": {"vcpus": 2, "memory_mb": 512},
    }
    filters = {
        "ignore_hosts": ["a"],
        "retry": {"num_attempts": 1, "hosts": [["b", "node"]]},
        "limits": {"memory_mb": 100},
        "scheduler_hints": {"one": "x", "more": ["y", "z"]},
        "group_updated": True,
        "group_policies": {"affinity"},
        "group_hosts": {"h"},
        "group_members": {UUID},
        "group_uuid": UUID,
    }

    spec = RequestSpec.from_primitives(None, request, filters)

    properties = spec.image.properties
    assert spec.image.checksum == ""
    assert spec.image.size == 0
    assert properties.hw_architecture == "x86_64"
    assert properties.hw_scsi_model == "vmpvscsi"
    assert properties.hw_numa_mem == [512]
    assert properties.hw_numa_cpus == [{0, 1, 3}]
    assert properties.traits_required == ["HW_CPU_X86_AVX"]
    assert spec.flavor.vcpus == 2
    assert spec.num_instances == 3
    assert (spec.instance_uuid, spec.project_id, spec.availability_zone) == (
        UUID,
        "p",
        "az",
    )
    assert list(spec.pci_requests.requests) == []
    assert spec.numa_topology.cells[0].cpuset == {0}
    assert spec.retry.num_attempts == 1
    assert [(h.host, h.hypervisor_hostname) for h in spec.retry.hosts] == [
        ("b", "node")
    ]
    assert spec.limits.to_dict() == {"memory_mb": 100}
    assert spec.scheduler_hints == {"one": ["x"], "more": ["y", "z"]}
    assert spec.instance_group.policy == "affinity"
    assert spec.instance_group.policies == ["affinity"]
    assert RequestSpec.obj_from_primitive(spec.obj_to_primitive()).vcpus == 2


def test_request_is_made_of_two_empty_dicts():
    spec = RequestSpec.from_primitives(None, {}, {})

    assert spec.image is None
    assert spec.scheduler_hints == {}
    assert spec.limits.to_dict() == {}


def test_image_without_properties():
    assert ImageMeta.from_dict(None).properties.to_dict() == {}


def test_rules_of_a_group_have_numbers():
    group = InstanceGroup(
        policy="anti-affinity", rules={"max_server_per_host": "2", "x": "y"}
    )

    assert group.rules == {"max_server_per_host": 2, "x": "y"}
    data = group.obj_to_primitive()["nova_object.data"]
    assert data["_rules"] == {"max_server_per_host": "2", "x": "y"}
    assert InstanceGroup().rules == {}


def test_group_of_before_policy_had_a_list():
    old = InstanceGroup(policy="affinity", _rules={}).obj_to_primitive("1.10")
    assert old["nova_object.data"] == {"policies": ["affinity"]}

    assert InstanceGroup.obj_from_primitive(old).policy == "affinity"


def test_selection_has_a_dict_form():
    limits = SchedulerLimits(
        numa_topology=NUMATopologyLimits(
            cpu_allocation_ratio=2.0, ram_allocation_ratio=1.5
        )
    )
    selection = Selection(service_host="h", nodename="n", limits=limits)

    form = selection.to_dict()

    assert (form["host"], form["nodename"]) == ("h", "n")
    assert form["limits"]["numa_topology"]["nova_object.name"] == "NUMATopologyLimits"
    assert json.dumps(form)
    selection.limits = None
    assert selection.to_dict()["limits"] == {}


def test_pinning_has_numbers_for_keys():
    cell = InstanceNUMACell(cpuset={0}, pcpuset={1, 2})
    cell.pin_vcpus((1, 10), (2, 11), (0, 9))

    assert cell.cpu_pinning == {1: 10, 2: 11}
    data = cell.obj_to_primitive()["nova_object.data"]
    assert data["cpu_pinning_raw"] == {"1": 10, "2": 11}
