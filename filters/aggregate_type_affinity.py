# SPDX-License-Identifier: Apache-2.0
"""Do the host's aggregates allow the flavor?"""

from __future__ import annotations

from collections.abc import Sequence

from ..objects import RequestSpec
from ..scheduler.hosts import HostAggregate, HostBatch, HostState, metadata_values
from .base import BaseHostFilter, Mask
from .rejection import Rejection

REASON = "an aggregate is for other flavors"

_KEY = "instance_type"


class AggregateTypeAffinityFilter(BaseHostFilter):
    """Pass hosts whose aggregates allow the flavor, or do not restrict flavors.

    The metadata ``instance_type`` lists the names of flavors.
    """

    REASON = REASON
    run_filter_once_per_request = True

    def passing(self, hosts: HostBatch, spec_obj: RequestSpec) -> Mask:
        """Return which hosts' aggregates allow the flavor, shape (n_hosts,)."""
        name = _flavor_name(spec_obj)

        def is_allowed(aggregates: Sequence[HostAggregate]) -> bool:
            names = metadata_values(aggregates, _KEY)
            return not names or name in names

        mask: Mask = hosts.map_distinct("aggregates", is_allowed, bool)
        return mask

    def explain_rejection(
        self, host_state: HostState, spec_obj: RequestSpec
    ) -> Rejection | None:
        """Return the flavor and those that the aggregates allow."""
        rejection = super().explain_rejection(host_state, spec_obj)
        return rejection and rejection.because(
            f"aggregates' {_KEY}",
            required=_flavor_name(spec_obj),
            available=metadata_values(host_state.aggregates, _KEY),
        )


def _flavor_name(spec_obj: RequestSpec) -> str | None:
    return spec_obj.flavor.name if "name" in spec_obj.flavor else None
