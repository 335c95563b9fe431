# SPDX-License-Identifier: Apache-2.0
"""An instance's copies of image properties are read as the image itself is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from moorage.objects import (
    ImageMeta,
    ImageMetaProps,
    Instance,
    InstanceList,
)
from moorage.scheduler.hosts import properties_of_image, properties_of_instance

WIRE = Path(__file__).parents[3] / "examples/data/wire/cast-update_instance_info.json"


def found_in(metadata: dict[str, Any]) -> Any:
    return properties_of_instance(Instance(uuid=UUID, system_metadata=metadata))


UUID = "6f70656e-7374-4163-8b20-342065766572"


@pytest.mark.parametrize(
    ("kept", "properties"),
    [
        ({"image_hw_disk_bus": "virtio"}, {"hw_disk_bus": "virtio"}),
        ({"image_architecture": "x86_64"}, {"hw_architecture": "x86_64"}),
        ({"image_hw_numa_cpus.0": "3,1"}, {"hw_numa_cpus": [{1, 3}]}),
        ({"image_trait:CUSTOM_T": "required"}, {"traits_required": ["CUSTOM_T"]}),
        ({"image_hw_boot_menu": "true"}, {"hw_boot_menu": True}),
        ({"image_mappings": "[]", "image_min_ram": "1", "hw_disk_bus": "ide"}, {}),
        ({"image_os_distro": None}, {}),
        ({}, {}),
    ],
)
def test_instance_has_the_properties_of_its_image(
    kept: dict[str, str], properties: dict[str, Any]
) -> None:
    image = ImageMeta(properties=ImageMetaProps(**properties))
    assert found_in(kept) == properties_of_image(image)
    assert len(found_in(kept)) == len(properties)


def test_unreported_property_is_unknown() -> None:
    assert properties_of_instance(Instance(uuid=UUID)) is None
    assert properties_of_image(None) == frozenset()
    assert properties_of_image(ImageMeta()) == frozenset()


def test_value_that_cannot_be_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    assert found_in({"image_hw_disk_bus": "nonsense"}) == frozenset()
    assert UUID in caplog.text


def test_real_report_is_read() -> None:
    arguments = json.loads(WIRE.read_text())["message"]["args"]
    [instance] = InstanceList.obj_from_primitive(arguments["instance_info"])
    found = dict(properties_of_instance(instance) or ())
    assert found["hw_architecture"] == "x86_64"
    assert found["hw_disk_bus"] == "virtio"
