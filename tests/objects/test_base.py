# SPDX-License-Identifier: Apache-2.0
"""Defaults, unset fields, change tracking, copies, going back to older versions."""

import copy

import pytest
from oslo_versionedobjects.base import VersionedObjectRegistry
from oslo_versionedobjects.exception import InvalidTargetVersion, ReadOnlyFieldError

from moorage.objects import (
    REGISTRY,
    Aggregate,
    CellMapping,
    ComputeNode,
    Destination,
    Flavor,
    HVSpec,
    ImageMeta,
    ImageMetaProps,
    InstanceNUMACell,
    InstanceNUMATopology,
    NetworkRequest,
    PciDevice,
    PciDevicePool,
    RequestGroup,
    RequestSpec,
    SecurityGroup,
    SecurityGroupList,
    Selection,
    TooNewValue,
    UnsetField,
    WireObject,
)


def test_registry_of_the_process_stays_without_ours():
    theirs = VersionedObjectRegistry.obj_classes()

    assert not {c for cs in theirs.values() for c in cs} & set(REGISTRY.values())


def test_unset_field_is_named():
    with pytest.raises(UnsetField, match=r"Flavor\.vcpus"):
        _ = Flavor().vcpus
    with pytest.raises(NotImplementedError):  # what plugins written for nova catch
        _ = Flavor().vcpus


def test_declared_default_is_read_and_does_not_appear_on_the_wire():
    destination = Destination(host="a")
    before = destination.obj_to_primitive()

    assert destination.aggregates is None
    assert destination.allow_cross_cell_move is False
    assert destination.obj_to_primitive() == before
    assert "aggregates" not in destination


def test_defaults_of_ephemeral_objects_are_set_when_made():
    assert RequestGroup().obj_to_primitive()["nova_object.data"]["resources"] == {}
    assert "pagesize" in InstanceNUMACell()


def test_mutable_defaults_are_not_shared():
    one, other = RequestGroup(), RequestGroup()
    one.required_traits.add("HW_CPU_X86_AVX")

    assert other.required_traits == set()


def test_default_that_is_added_to_stays():
    spec = RequestSpec()
    spec.root_required.add("COMPUTE_STATUS")

    assert spec.root_required == {"COMPUTE_STATUS"}
    assert copy.deepcopy(spec).root_required == {"COMPUTE_STATUS"}
    assert "request_level_params" not in spec


def test_changes_are_visible_at_the_top_object():
    groups = SecurityGroupList(objects=[SecurityGroup(name="a")])
    groups.obj_reset_changes(recursive=True)
    spec = RequestSpec(security_groups=groups)
    spec.obj_reset_changes(recursive=True)
    assert "nova_object.changes" not in spec.obj_to_primitive()

    groups[0].name = "b"

    back = spec.obj_to_primitive()
    assert back["nova_object.changes"] == ["security_groups"]
    assert spec.obj_what_changed() == {"security_groups"}


def test_copy_shares_nothing():
    spec = RequestSpec(flavor=Flavor(vcpus=1, extra_specs={"a": "b"}))
    twin = copy.deepcopy(spec)
    twin.flavor.extra_specs["a"] = "c"
    twin.flavor.vcpus = 2

    assert (spec.flavor.vcpus, spec.flavor.extra_specs) == (1, {"a": "b"})


def test_read_only_field_is_set_once():
    cell = CellMapping(id=1)

    with pytest.raises(ReadOnlyFieldError):
        cell.id = 2


def test_dict_access_where_nova_has_it():
    assert Flavor(vcpus=3)["vcpus"] == 3
    assert "vcpus" not in Flavor()


def test_sets_become_lists():
    data = Destination(forbidden_aggregates={"b", "a"}).obj_to_primitive()

    assert data["nova_object.data"]["forbidden_aggregates"] == ["a", "b"]


def test_equal_selections_are_equal():
    assert Selection(service_host="a") == Selection(service_host="a")
    assert Selection(service_host="a") != Selection(service_host="b")


def test_aggregate_knows_its_zone():
    assert Aggregate(metadata={"availability_zone": "az"}).availability_zone == "az"
    assert Aggregate(metadata={}).availability_zone is None


def added_fields():
    for name, cls in REGISTRY.items():
        yield from ((name, field, version) for field, version in cls.ADDED.items())


def before(version):
    major, minor = version.split(".")
    return f"{major}.{int(minor) - 1}"


@pytest.mark.parametrize(("name", "field", "version"), list(added_fields()))
def test_field_is_dropped_for_versions_without_it(name, field, version):
    cls = REGISTRY[name]
    assert field in cls.fields
    obj = cls()
    nullable = cls.fields[field].nullable
    obj.__dict__[f"_obj_{field}"] = None if nullable else _some(cls, field)

    assert field in obj.obj_to_primitive(version)["nova_object.data"]
    assert field not in obj.obj_to_primitive(before(version))["nova_object.data"]


def _some(cls, field):
    writes = cls._writers[field][1]
    return None if writes is not None else "x"


@pytest.mark.parametrize(
    ("obj", "has_it", "lacks_it"),
    [
        (ImageMetaProps(hw_vif_model="igb"), "1.39", "1.38"),
        (ImageMetaProps(hw_mem_encryption_model="intel-tdx"), "1.44", "1.43"),
        (ImageMetaProps(hw_video_model="bochs"), "1.30", "1.29"),
        (InstanceNUMACell(cpu_policy="mixed"), "1.6", "1.5"),
        (PciDevice(dev_type="vdpa"), "1.7", "1.6"),
    ],
)
def test_value_too_new_is_refused(obj, has_it, lacks_it):
    obj.obj_to_primitive(has_it)

    with pytest.raises(TooNewValue, match=lacks_it):
        obj.obj_to_primitive(lacks_it)


def test_value_goes_with_its_field():
    data = ImageMetaProps(hw_mem_encryption_model="intel-tdx").obj_to_primitive("1.41")

    assert data["nova_object.data"] == {}


def test_vz_was_called_parallels():
    back = HVSpec(hv_type="vz").obj_to_primitive("1.0")

    assert back["nova_object.data"]["hv_type"] == "parallels"


def test_watchdog_that_does_nothing_is_left_out():
    props = ImageMetaProps(hw_watchdog_action="disabled")

    assert props.obj_to_primitive("1.15")["nova_object.data"] == {}


def test_pinned_cpus_go_back_to_cpuset():
    cell = InstanceNUMACell(cpuset=set(), pcpuset={2, 3}, cpu_policy="dedicated")
    data = cell.obj_to_primitive("1.4")["nova_object.data"]

    assert data["cpuset"] == [2, 3]
    assert "pcpuset" not in data


def test_service_id_is_added_for_versions_that_need_one():
    data = ComputeNode(host="a").obj_to_primitive("1.12")["nova_object.data"]

    assert data["service_id"] == -1


def test_parent_address_moves_to_extra_info_in_old_versions():
    device = PciDevice(parent_addr="0:1", extra_info={})
    data = device.obj_to_primitive("1.3")["nova_object.data"]

    assert data == {"extra_info": {"phys_function": "0:1"}}


def test_future_version_cannot_be_written():
    with pytest.raises(InvalidTargetVersion):
        Flavor().obj_to_primitive("1.3")


def test_children_keep_their_version_without_a_manifest():
    spec = RequestSpec(flavor=Flavor(description="d"))
    data = spec.obj_to_primitive("1.5")["nova_object.data"]

    assert data["flavor"]["nova_object.version"] == "1.2"


def test_manifest_downgrades_children():
    spec = RequestSpec(
        flavor=Flavor(description="d"),
        image=ImageMeta(properties=ImageMetaProps(hw_pmu=True)),
        numa_topology=InstanceNUMATopology(cells=[InstanceNUMACell(pagesize=4)]),
    )
    manifest = {
        "Flavor": "1.1",
        "ImageMeta": "1.8",
        "ImageMetaProps": "1.22",
        "InstanceNUMATopology": "1.3",
        "InstanceNUMACell": "1.4",
    }

    data = spec.obj_to_primitive("1.15", manifest)["nova_object.data"]

    assert data["flavor"]["nova_object.version"] == "1.1"
    assert data["flavor"]["nova_object.data"] == {}
    image = data["image"]["nova_object.data"]
    assert image["properties"]["nova_object.version"] == "1.22"
    assert image["properties"]["nova_object.data"] == {}
    cell = data["numa_topology"]["nova_object.data"]["cells"][0]
    assert cell["nova_object.version"] == "1.4"


def test_manifest_leaves_older_children_and_unknown_ones():
    bus = {
        "nova_object.name": "PCIDeviceBus",
        "nova_object.namespace": "nova",
        "nova_object.version": "1.0",
        "nova_object.data": {},
    }
    nic = bus | {"nova_object.name": "NetworkInterfaceMetadata"}
    devices = bus | {
        "nova_object.name": "InstanceDeviceMetadata",
        "nova_object.data": {"devices": [nic]},
    }
    flavor = bus | {"nova_object.name": "Flavor"}
    instance = bus | {
        "nova_object.name": "Instance",
        "nova_object.version": "2.7",
        "nova_object.data": {"device_metadata": devices, "flavor": flavor},
    }
    manifest = {name: cls.VERSION for name, cls in REGISTRY.items()}

    back = WireObject.obj_from_primitive(instance).obj_to_primitive("2.5", manifest)

    assert back == instance | {"nova_object.version": "2.5"}


def test_unset_fields_of_a_network_request_are_none():
    assert NetworkRequest().port_id is None


def test_pool_has_a_flat_form():
    flat = {
        "vendor_id": "8086",
        "product_id": "1",
        "numa_node": 0,
        "count": 2,
        "physnet": "a",
    }

    assert PciDevicePool.from_dict(flat).to_dict() == flat
