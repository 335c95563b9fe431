# SPDX-License-Identifier: Apache-2.0
"""Leave out aggregates that are kept for requests of certain traits."""

from __future__ import annotations

from ..placement.flavor_groups import flavor_groups
from ..placement.flavor_resources import request_groups
from ..placement.guest import Guest
from .base import AggregateFacts, PrefilterRequest

_PREFIX = "trait:"


def isolate_aggregates(request: PrefilterRequest) -> None:
    """Forbid each aggregate with a ``trait:T=required`` that the request lacks.

    What counts are the required traits of all groups: those of the flavor, of the
    image, of ports and devices, and of what the guest's features mean; not those of
    the root provider that other prefilters add (nova's rule). On with
    ``[scheduler] enable_isolated_aggregate_filtering``.
    """
    if not request.conf.scheduler.enable_isolated_aggregate_filtering:
        return
    kept = [(a.uuid, needed) for a in request.aggregates if (needed := _traits(a))]
    if not kept:
        return
    guest = Guest.of(request.spec_obj)
    asked = flavor_groups(guest.extra_specs)
    groups = request_groups(request.spec_obj, guest, asked, is_pinned=True)
    required = {trait for group in groups for trait in group.required}
    request.requirements.forbidden_aggregates.update(
        uuid for uuid, needed in kept if not needed <= required
    )


def _traits(aggregate: AggregateFacts) -> set[str]:
    return {
        key.removeprefix(_PREFIX)
        for key, value in aggregate.metadata.items()
        if key.startswith(_PREFIX) and value == "required"
    }
