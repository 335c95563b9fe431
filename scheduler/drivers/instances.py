# SPDX-License-Identifier: Apache-2.0
"""The instances of a request, one by one."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from oslo_utils import uuidutils

from ...objects import RequestSpec
from ..errors import InvalidRequest, NoValidHost, excerpt

NOT_ENOUGH: Final = "There are not enough hosts available."


def uuids_of(spec_obj: RequestSpec, instance_uuids: Sequence[str] | None) -> list[str]:
    """Return an entry an instance; UUIDs that are given beat ``num_instances``.

    An old conductor gives none: its instances have UUIDs that no instance has.
    """
    if instance_uuids is not None:
        return _checked(instance_uuids)
    number = spec_obj.num_instances if "num_instances" in spec_obj else 1
    uuids = [str(UUID(int=i)) for i in range(number)]
    if "instance_uuid" in spec_obj:
        uuids[0] = spec_obj.instance_uuid
    return uuids


def _checked(instance_uuids: Sequence[str]) -> list[str]:
    if not instance_uuids:
        raise NoValidHost(NOT_ENOUGH)  # nova's answer to a request for none
    for each in instance_uuids:
        if not uuidutils.is_uuid_like(each):
            raise InvalidRequest(f"instance_uuids: {excerpt(each)} is no UUID")
    [(uuid, count)] = Counter(instance_uuids).most_common(1)
    if count > 1:
        raise InvalidRequest(f"instance_uuids: an instance is there twice: {uuid}")
    return list(instance_uuids)


def of_instance(spec_obj: RequestSpec, uuid: str) -> RequestSpec:
    """Return the request for one instance; the request itself is left alone."""
    if "instance_uuid" in spec_obj and spec_obj.instance_uuid == uuid:
        return spec_obj
    mine = copy.copy(spec_obj)
    # A copy shares its set of changes, which has no public name.
    mine._changed_fields = set(spec_obj._changed_fields)  # noqa: SLF001
    mine.instance_uuid = uuid
    return mine
