# SPDX-License-Identifier: Apache-2.0
"""The volume that a new instance boots from, in its build request."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from oslo_config import cfg

from moorage.scheduler.sources.base import BuildRequestUnavailable
from moorage.scheduler.sources.nova_db import schema

from ....conftest import instance_uuid
from .databases import Nova

INSTANCE, ROOT, DATA = map(instance_uuid, ("instance", "root", "data"))


def _device(**changes: Any) -> dict[str, Any]:
    """A block device as nova 34 writes it."""
    fields = {
        "source_type": "volume",
        "destination_type": "volume",
        "guest_format": None,
        "device_type": "disk",
        "disk_bus": None,
        "boot_index": 0,
        "device_name": None,
        "delete_on_termination": False,
        "snapshot_id": None,
        "volume_id": ROOT,
        "volume_size": 10,
        "image_id": None,
        "no_device": False,
        "connection_info": None,
        "tag": None,
        "attachment_id": None,
        "instance_uuid": INSTANCE,
        **changes,
    }
    return {
        "nova_object.name": "BlockDeviceMapping",
        "nova_object.namespace": "nova",
        "nova_object.version": "1.21",
        "nova_object.data": fields,
        "nova_object.changes": sorted(fields),
    }


def _mappings(*devices: dict[str, Any]) -> str:
    return json.dumps(
        {
            "nova_object.name": "BlockDeviceMappingList",
            "nova_object.namespace": "nova",
            "nova_object.version": "1.18",
            "nova_object.data": {"objects": list(devices)},
            "nova_object.changes": ["objects"],
        }
    )


@pytest.fixture
def nova(tmp_path: Path) -> Iterator[Nova]:
    with Nova(tmp_path) as nova:
        yield nova


def _add(nova: Nova, mappings: str | None) -> None:
    nova.insert(
        nova.api, schema.build_requests, instance_uuid=INSTANCE,
        project_id="project", block_device_mappings=mappings,
    )  # fmt: skip


FROM_IMAGE = {"source_type": "image", "volume_id": None, "image_id": DATA}
BESIDE = {"boot_index": None, "volume_id": DATA}


@pytest.mark.parametrize(
    ("mappings", "found"),
    [
        (_mappings(_device()), (ROOT,)),
        (_mappings(_device(**BESIDE), _device()), (ROOT,)),
        (_mappings(_device(boot_index=-1)), ()),
        (_mappings(_device(**FROM_IMAGE)), ()),
        (_mappings(_device(volume_id="../x")), ()),
        (_mappings(_device(), _device(tag="x" * (1 << 20))), ()),
        (_mappings(), ()),
        (None, ()),
    ],
    ids=[
        "volume", "data volume", "no boot volume", "made later", "no UUID", "huge",
        "empty", "old API",
    ],
)  # fmt: skip
def test_boot_volume(
    nova: Nova, conf: cfg.ConfigOpts, mappings: str | None, found: tuple[str, ...]
) -> None:
    _add(nova, mappings)
    assert nova.source(conf).boot_volumes(INSTANCE) == found


def test_instance_without_build_request(nova: Nova, conf: cfg.ConfigOpts) -> None:
    assert nova.source(conf).boot_volumes(INSTANCE) == ()


@pytest.mark.parametrize("mappings", ["{", "[]", '{"nova_object.data": {}}'])
def test_malformed_build_request_is_an_error(
    nova: Nova, conf: cfg.ConfigOpts, mappings: str
) -> None:
    _add(nova, mappings)
    with pytest.raises(BuildRequestUnavailable, match="Reading a build request of"):
        nova.source(conf).boot_volumes(INSTANCE)


def test_database_that_fails_is_an_error(nova: Nova, conf: cfg.ConfigOpts) -> None:
    schema.build_requests.drop(nova.api)
    with pytest.raises(BuildRequestUnavailable, match="no such table"):
        nova.source(conf).boot_volumes(INSTANCE)
