# SPDX-License-Identifier: Apache-2.0
"""Do the host's aggregates satisfy the flavor's extra specs?"""

from __future__ import annotations

from collections.abc import Iterator

from ..objects import RequestSpec
from ..scheduler.hosts import HostBatch, HostState, metadata_values
from .base import BaseHostFilter, Mask, all_hosts
from .extra_specs_ops import match
from .rejection import Rejection
from .requested import extra_specs

REASON = "no aggregate has what an extra spec asks for"

_SCOPE = "aggregate_instance_extra_specs"


class AggregateInstanceExtraSpecsFilter(BaseHostFilter):
    """Pass hosts whose aggregates satisfy the extra specs that apply to aggregates.

    These are the ones with scope ``aggregate_instance_extra_specs:`` or no scope. One
    value of one of a host's aggregates must match; without a value the host fails.
    """

    REASON = REASON
    run_filter_once_per_request = True

    def passing(self, hosts: HostBatch, spec_obj: RequestSpec) -> Mask:
        """Return which hosts' aggregates satisfy them all, shape (n_hosts,)."""
        passing = all_hosts(hosts)
        for key, required in _requirements(spec_obj):
            passing &= _satisfying(hosts, key, required)
        return passing

    def explain_rejection(
        self, host_state: HostState, spec_obj: RequestSpec
    ) -> Rejection | None:
        """Return the first extra spec that is not satisfied, and the values."""
        rejection = super().explain_rejection(host_state, spec_obj)
        if rejection is None:
            return None
        host = host_state.as_batch()
        key, required = next(
            (key, required)
            for key, required in _requirements(spec_obj)
            if not _satisfying(host, key, required)[0]
        )
        return rejection.because(
            f"aggregates' {key}",
            required=required,
            available=metadata_values(host_state.aggregates, key),
        )


def _requirements(spec_obj: RequestSpec) -> Iterator[tuple[str, str]]:
    for key, required in extra_specs(spec_obj).items():
        scope, is_scoped, name = key.partition(":")
        if not is_scoped:
            yield key, required
        elif scope == _SCOPE:
            yield name, required


def _satisfying(hosts: HostBatch, key: str, required: str) -> Mask:
    mask: Mask = hosts.map_distinct(
        "aggregates",
        lambda mine: any(match(v, required) for v in metadata_values(mine, key)),
        bool,
    )
    return mask
