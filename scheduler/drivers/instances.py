# SPDX-License-Identifier: Apache-2.0
"""The instances of a request."""

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


def instance_uuids_of(
    spec_obj: RequestSpec, instance_uuids: Sequence[str] | None
) -> list[str]:
    """Return a UUID an instance; given UUIDs take precedence over ``num_instances``.

    An old conductor gives none: placeholders that no real instance has stand for them.
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
            raise InvalidRequest(f"instance_uuids: {excerpt(each)} is not a UUID")
    [(uuid, count)] = Counter(instance_uuids).most_common(1)
    if count > 1:
        raise InvalidRequest(f"instance_uuids: duplicate instance: {uuid}")
    return list(instance_uuids)


def spec_of_instance(spec_obj: RequestSpec, uuid: str) -> RequestSpec:
    """Return the request for one instance; the given request is not modified."""
    if "instance_uuid" in spec_obj and spec_obj.instance_uuid == uuid:
        return spec_obj
    mine = copy.copy(spec_obj)
    # A copy shares its set of changes, which has no public name.
    mine._changed_fields = set(spec_obj._changed_fields)  # noqa: SLF001
    mine.instance_uuid = uuid
    return mine
