# SPDX-License-Identifier: Apache-2.0
"""Do the host's aggregates allow the project?"""

from __future__ import annotations

from collections.abc import Sequence

from ..objects import RequestSpec
from ..scheduler.hosts import HostAggregate, HostBatch, HostState
from .aggregate_metadata import merged_metadata
from .base import BaseHostFilter, Mask
from .rejection import Rejection

REASON = "an aggregate is for other projects"

_PREFIX = "filter_tenant_id"


class AggregateMultiTenancyIsolation(BaseHostFilter):
    """Pass hosts whose aggregates allow the project, or do not restrict projects.

    All metadata whose key begins with ``filter_tenant_id`` lists projects. A listed
    project may still go to other hosts; the prefilter ``require_tenant_aggregate``
    confines it to its own.
    """

    REASON = REASON
    run_filter_once_per_request = True

    def passing(self, hosts: HostBatch, spec_obj: RequestSpec) -> Mask:
        """Return which hosts' aggregates allow the project, shape (n_hosts,)."""
        project = spec_obj.project_id

        def is_allowed(aggregates: Sequence[HostAggregate]) -> bool:
            projects = _projects(aggregates)
            return not projects or project in projects

        mask: Mask = hosts.map_distinct("aggregates", is_allowed, bool)
        return mask

    def explain_rejection(
        self, host_state: HostState, spec_obj: RequestSpec
    ) -> Rejection | None:
        """Return the project and those that the aggregates allow."""
        rejection = super().explain_rejection(host_state, spec_obj)
        return rejection and rejection.because(
            f"aggregates' {_PREFIX}",
            required=spec_obj.project_id,
            available=_projects(host_state.aggregates),
        )


def _projects(aggregates: Sequence[HostAggregate]) -> frozenset[str]:
    metadata = merged_metadata(aggregates)
    listed = (metadata[key] for key in metadata if key.startswith(_PREFIX))
    return frozenset[str]().union(*listed)
