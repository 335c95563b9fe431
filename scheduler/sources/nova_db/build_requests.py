# SPDX-License-Identifier: Apache-2.0
"""The volumes that new instances boot from, as nova's API has written them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import sqlalchemy as sa
from oslo_utils import uuidutils

from ...decoding import loads
from . import schema

#: An instance may have dozens of devices, of about a kilobyte each.
_MAX_CHARACTERS: Final = 1 << 20

_C: Final = schema.build_requests.c
_MAPPINGS_OF: Final = sa.select(_C.block_device_mappings).where(
    _C.instance_uuid == sa.bindparam("instance_uuid"),
    sa.func.length(_C.block_device_mappings) <= _MAX_CHARACTERS,
)


def read_boot_volumes(connection: sa.Connection, instance_uuid: str) -> Sequence[str]:
    """Return the volume that an instance boots from; empty: it exists only later.

    That of an image or a snapshot is created on the compute host.
    """
    row = connection.execute(_MAPPINGS_OF, {"instance_uuid": instance_uuid}).first()
    if row is None or not row.block_device_mappings:
        return ()
    return tuple(_boot_volumes(loads(row.block_device_mappings)))


def _boot_volumes(primitive: Any) -> Iterator[str]:  # noqa: ANN401 - JSON's own types
    """Yield the volume of a BlockDeviceMappingList whose boot index is 0."""
    for mapping in primitive["nova_object.data"]["objects"]:
        match mapping["nova_object.data"]:
            case {"boot_index": 0, "volume_id": str(uuid)} if uuidutils.is_uuid_like(
                uuid
            ):
                yield uuid
