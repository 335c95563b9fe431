# SPDX-License-Identifier: Apache-2.0
"""Prefilters by host aggregates: availability zones, tenants, isolation by traits."""

from __future__ import annotations

from ..request import Request
from .base import AggregateFacts, PrefilterRequest, no_valid_host

_ZONE_KEY = "availability_zone"
_MAX_CHARACTERS = 200
_TENANT_KEY = "filter_tenant_id"
_TRAIT_PREFIX = "trait:"


def map_az_to_placement_aggregate(request: PrefilterRequest) -> None:
    """Require one of the aggregates of the requested zone.

    A zone without an aggregate restricts nothing, as in nova 34: the default zone is
    that of hosts without a zone, and has no aggregate. If no API has checked that the
    zone exists, only ``[DEFAULT] default_availability_zone`` may be without one.

    Raises
    ------
    NoValidHost
        The zone does not exist.
    """
    zone = Request.of(request.spec_obj).availability_zone
    if not zone:
        return
    if uuids := request.aggregates.uuids_with_metadata(_ZONE_KEY, zone):
        request.requirements.member_of.append(uuids)
        return
    if not (
        request.are_zones_checked or zone == request.conf.default_availability_zone
    ):
        raise no_valid_host(
            f"No aggregate has the availability zone {zone[:_MAX_CHARACTERS]!r}"
        )


def require_tenant_aggregate(request: PrefilterRequest) -> None:
    """Require one of the aggregates of the request's project.

    An aggregate is one of these if its metadata has exactly the project's ID under a
    key that starts with ``filter_tenant_id``. The prefilter is enabled by
    ``[scheduler] limit_tenants_to_placement_aggregate``.

    Raises
    ------
    NoValidHost
        The project has no aggregate, and ``placement_aggregate_required_for_tenants``
        is enabled.
    """
    project_id = Request.of(request.spec_obj).project_id
    uuids = frozenset(
        aggregate.uuid
        for aggregate in request.aggregates
        for key, value in aggregate.metadata.items()
        if value == project_id and key.startswith(_TENANT_KEY)
    )
    if uuids:
        request.requirements.member_of.append(uuids)
    elif request.conf.scheduler.placement_aggregate_required_for_tenants:
        raise no_valid_host("No hosts available for tenant")


def isolate_aggregates(request: PrefilterRequest) -> None:
    """Forbid each aggregate with a ``trait:T=required`` that the request lacks.

    The request has the traits that any of its request groups requires: traits of the
    flavor, the image, ports, devices and guest features. Traits that other prefilters
    require of the root provider do not count (nova's rule). The prefilter is enabled by
    ``[scheduler] enable_isolated_aggregate_filtering``.
    """
    isolated = [(a.uuid, traits) for a in request.aggregates if (traits := _traits(a))]
    if not isolated:
        return
    groups = Request.of(request.spec_obj).groups
    required = {trait for group in groups for trait in group.required}
    request.requirements.forbidden_aggregates.update(
        uuid for uuid, traits in isolated if not traits <= required
    )


def _traits(aggregate: AggregateFacts) -> set[str]:
    return {
        key.removeprefix(_TRAIT_PREFIX)
        for key, value in aggregate.metadata.items()
        if key.startswith(_TRAIT_PREFIX) and value == "required"
    }
