# SPDX-License-Identifier: Apache-2.0
"""Tolerated deviations are read, others are refused with the place named."""

import copy
import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.objects import (
    Flavor,
    ImageMetaProps,
    MalformedObject,
    OpaqueObject,
    RequestSpec,
    Selection,
    Serializer,
    UnsupportedObject,
    WireObject,
)


def envelope(name, version="1.0", **data):
    return {
        "nova_object.name": name,
        "nova_object.namespace": "nova",
        "nova_object.version": version,
        "nova_object.data": data,
    }


def spec(version="1.15", **data):
    flavor = envelope("Flavor", "1.2", vcpus=1, memory_mb=512, extra_specs={})
    return envelope("RequestSpec", version, **{"flavor": flavor, **data})


def read(primitive):
    return Serializer().deserialize_entity({}, primitive)


def test_newer_minor_version_keeps_what_is_unknown():
    message = spec("1.99", moon_phase={"full": [1, 2]}, num_instances=2)
    message["nova_object.changes"] = ["moon_phase", "num_instances"]

    obj = read(message)

    assert obj.num_instances == 2
    assert obj.obj_to_primitive() == message
    assert copy.deepcopy(obj).obj_to_primitive() == message


def test_newer_child_keeps_what_is_unknown():
    message = spec(flavor=envelope("Flavor", "1.7", vcpus=1, shiny=True))

    assert read(message).obj_to_primitive() == message


def test_what_is_unknown_is_not_sent_to_older_peers():
    back = read(spec("1.99", moon_phase=1)).obj_to_primitive("1.15")

    assert "moon_phase" not in back["nova_object.data"]


def test_third_part_of_a_version_is_kept_and_never_matters():
    assert read(spec("1.15.3")).obj_to_primitive()["nova_object.version"] == "1.15.3"


@pytest.mark.parametrize(
    ("version", "is_read"), [("1.45", True), ("1.44", False), ("1.3", False)]
)
def test_unknown_enum_value_is_read_from_newer_peers_only(version, is_read):
    message = envelope("ImageMetaProps", version, hw_vif_model="warp")
    if is_read:
        assert read(message).hw_vif_model == "warp"
        assert read(message).obj_to_primitive() == message
        assert "warp" in repr(read(message))
    else:
        with pytest.raises(MalformedObject, match=r"ImageMetaProps\.hw_vif_model.*igb"):
            read(message)


def test_unknown_kind_of_device_is_kept():
    bus = envelope("PCIDeviceBus", address="0:0")
    nic = envelope("NetworkInterfaceMetadata", "1.2", mac="x", bus=bus, tags=["a"])
    disk = envelope("DeviceMetadata", tags=[], bus=bus)
    message = envelope("InstanceDeviceMetadata", devices=[nic, disk])

    obj = read(message)

    assert isinstance(obj.devices[0], OpaqueObject)
    assert obj.devices[0].obj_name() == "NetworkInterfaceMetadata"
    assert isinstance(obj.devices[1].bus, OpaqueObject)
    assert copy.deepcopy(obj).obj_to_primitive() == message
    assert "PCIDeviceBus" in repr(obj.devices[1])


@pytest.mark.parametrize(
    ("message", "place"),
    [
        (spec("2.0"), "RequestSpec"),
        (spec("one"), "RequestSpec"),
        (spec(num_instances="7"), "RequestSpec.num_instances"),
        (spec(num_instances=True), "RequestSpec.num_instances"),
        (spec(num_instances=1.5), "RequestSpec.num_instances"),
        (spec(is_bfv="maybe"), "RequestSpec.is_bfv"),
        (spec(flavor=None), "RequestSpec.flavor"),
        (spec(flavor=[]), "RequestSpec.flavor"),
        (spec(flavor=envelope("Selection", "1.1")), "RequestSpec.flavor"),
        (spec(flavor=envelope("Flavor", "3.1")), "RequestSpec.flavor"),
        (spec(flavor=envelope("Flavor", vcpus="x")), "RequestSpec.flavor.vcpus"),
        (spec(ignore_hosts=["a", 3]), "RequestSpec.ignore_hosts[1]"),
        (
            spec(scheduler_hints={"group": ["a", None]}),
            "RequestSpec.scheduler_hints['group'][1]",
        ),
        (
            spec(
                requested_resources=[
                    envelope("RequestGroup", resources={"VCPU": "many"})
                ]
            ),
            "RequestSpec.requested_resources[0].resources['VCPU']",
        ),
        (envelope("Aggregate", created_at="soon"), "Aggregate.created_at"),
        (envelope("NetworkRequest", address="1.2.3"), "NetworkRequest.address"),
    ],
)
def test_refusal_names_the_place(message, place):
    with pytest.raises(MalformedObject) as caught:
        read(message)

    assert caught.value.path.startswith(place)
    assert str(caught.value).startswith(place)
    assert type(caught.value.value).__name__ in str(caught.value)


@pytest.mark.parametrize("key", ["namespace", "version", "data"])
def test_missing_key_is_named(key):
    message = spec()
    del message[f"nova_object.{key}"]

    with pytest.raises(MalformedObject, match=f"RequestSpec.*nova_object.{key}"):
        read(message)


def test_unknown_object_is_named():
    with pytest.raises(UnsupportedObject, match="Starship"):
        read(envelope("Starship"))
    with pytest.raises(UnsupportedObject, match=r"RequestSpec\.flavor.*Starship"):
        read(spec(flavor=envelope("Starship")))


def test_other_project_is_refused():
    message = spec() | {"nova_object.namespace": "cinder"}

    with pytest.raises(MalformedObject, match="cinder"):
        read(message)


def test_object_of_another_class_is_malformed():
    with pytest.raises(MalformedObject, match="Selection"):
        Selection.obj_from_primitive(spec())
    assert isinstance(WireObject.obj_from_primitive(spec()), RequestSpec)


def test_very_deep_message_is_refused():
    deep: list = []
    for _ in range(5000):
        deep = [deep]

    with pytest.raises(MalformedObject):
        Serializer().deserialize_entity({}, {"a": deep})


def test_old_spelling_of_an_enum_is_understood():
    assert ImageMetaProps(hw_architecture="AMD64").hw_architecture == "x86_64"
    props = read(envelope("ImageMetaProps", img_hv_type="KVM"))
    assert props.img_hv_type == "kvm"


@given(st.datetimes(timezones=st.just(datetime.UTC)))
def test_time_survives_the_wire(time):
    flavor = Flavor(created_at=time)

    again = Flavor.obj_from_primitive(flavor.obj_to_primitive())

    assert again.created_at == time


def test_cpus_of_an_image_are_no_more_than_a_host_can_have():
    props = ImageMetaProps.from_dict({"hw_numa_cpus.0": "0-65535"})
    assert len(props.hw_numa_cpus[0]) == 65_536
    with pytest.raises(ValueError, match="CPU above 65535"):
        ImageMetaProps.from_dict({"hw_numa_cpus.0": "0-9999999999999"})


def test_inverted_range_of_cpus_is_refused():
    with pytest.raises(ValueError, match="inverted range, 5-3"):
        ImageMetaProps.from_dict({"hw_numa_cpus.0": "0,5-3"})
