# SPDX-License-Identifier: Apache-2.0
"""Require the aggregates of the requested availability zone."""

from __future__ import annotations

from .base import PrefilterRequest

_KEY = "availability_zone"


def map_az_to_placement_aggregate(request: PrefilterRequest) -> None:
    """Require one of the aggregates of the requested zone.

    A zone without aggregates restricts nothing, as in nova 34: the default zone, of
    hosts in no aggregate, has none.
    """
    spec_obj = request.spec_obj
    zone = spec_obj.availability_zone if _KEY in spec_obj else None
    if not zone:
        return
    if uuids := request.aggregates.uuids_with_metadata(_KEY, zone):
        request.requirements.member_of.append(uuids)
