# SPDX-License-Identifier: Apache-2.0
"""Restrict a project's instances to the aggregates that are reserved for it."""

from __future__ import annotations

from .base import PrefilterRequest, no_valid_host

_KEY = "filter_tenant_id"


def require_tenant_aggregate(request: PrefilterRequest) -> None:
    """Require one of the aggregates of the request's project.

    Their metadata has exactly the project's ID under a key that starts with
    ``filter_tenant_id``. Enabled by
    ``[scheduler] limit_tenants_to_placement_aggregate``.

    Raises
    ------
    NoValidHost
        There is none, and ``placement_aggregate_required_for_tenants`` is enabled.
    """
    options = request.conf.scheduler
    if not options.limit_tenants_to_placement_aggregate:
        return
    spec_obj = request.spec_obj
    project_id = spec_obj.project_id if "project_id" in spec_obj else None
    uuids = frozenset(
        aggregate.uuid
        for aggregate in request.aggregates
        for key, value in aggregate.metadata.items()
        if value == project_id and key.startswith(_KEY)
    )
    if uuids:
        request.requirements.member_of.append(uuids)
    elif options.placement_aggregate_required_for_tenants:
        raise no_valid_host("No hosts available for tenant")
