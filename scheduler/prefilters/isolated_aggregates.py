# SPDX-License-Identifier: Apache-2.0
"""Exclude aggregates that are reserved for requests with certain traits."""

from __future__ import annotations

from ..request.flavor_and_image import FlavorAndImage
from ..request.flavor_groups import flavor_groups
from ..request.resources import query_groups
from .base import AggregateFacts, PrefilterRequest

_PREFIX = "trait:"


def isolate_aggregates(request: PrefilterRequest) -> None:
    """Forbid each aggregate with a ``trait:T=required`` that the request lacks.

    The required traits of all groups count: those of the flavor, the image, ports,
    devices and guest features; not those of the root provider that other prefilters
    add (nova's rule). Enabled by ``[scheduler] enable_isolated_aggregate_filtering``.
    """
    if not request.conf.scheduler.enable_isolated_aggregate_filtering:
        return
    isolated = [(a.uuid, traits) for a in request.aggregates if (traits := _traits(a))]
    if not isolated:
        return
    guest = FlavorAndImage.of(request.spec_obj)
    in_flavor = flavor_groups(guest.extra_specs)
    groups = query_groups(request.spec_obj, guest, in_flavor, is_pinned=True)
    required = {trait for group in groups for trait in group.required}
    request.requirements.forbidden_aggregates.update(
        uuid for uuid, traits in isolated if not traits <= required
    )


def _traits(aggregate: AggregateFacts) -> set[str]:
    return {
        key.removeprefix(_PREFIX)
        for key, value in aggregate.metadata.items()
        if key.startswith(_PREFIX) and value == "required"
    }
