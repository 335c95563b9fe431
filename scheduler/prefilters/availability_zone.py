# SPDX-License-Identifier: Apache-2.0
"""Require the aggregates of the requested availability zone."""

from __future__ import annotations

from .base import PrefilterRequest, no_valid_host

_KEY = "availability_zone"
_MAX_CHARACTERS = 200


def map_az_to_placement_aggregate(request: PrefilterRequest) -> None:
    """Require one of the aggregates of the requested zone.

    A zone of which no aggregate is known restricts nothing, as in nova 34: the default
    zone, of hosts in no aggregate, has none. If no API has checked that the zone
    exists, only ``[DEFAULT] default_availability_zone`` may have none.

    Raises
    ------
    NoValidHost
        The zone does not exist.
    """
    spec_obj = request.spec_obj
    zone = spec_obj.availability_zone if _KEY in spec_obj else None
    if not zone:
        return
    if uuids := request.aggregates.uuids_with_metadata(_KEY, zone):
        request.requirements.member_of.append(uuids)
    elif not (request.are_zones_checked or zone == _default_zone(request)):
        raise no_valid_host(
            f"No aggregate has the availability zone {zone[:_MAX_CHARACTERS]!r}"
        )


def _default_zone(request: PrefilterRequest) -> str:
    zone: str = request.conf.default_availability_zone
    return zone
