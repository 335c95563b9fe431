# SPDX-License-Identifier: Apache-2.0
"""Filters by instances that a scheduler hint names: on their hosts, or on other hosts.

The owner and the existence of the instances are not checked, as in nova.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from ..objects import RequestSpec
from ..scheduler.hosts import HostBatch, HostState
from ..scheduler.request import Request
from .base import BaseHostFilter, Mask, all_hosts
from .rejection import Mismatch
from .remedy import Remedy


class HintedInstancesFilter(BaseHostFilter):
    """Pass hosts that have, or have not, one of the instances that a hint names.

    Attributes
    ----------
    HINT : str
        The hint; all hosts pass if it names no instance.
    IS_WITH : bool
        Whether a host must have one of the instances; otherwise it must have none.
    """

    HINT: ClassVar[str]
    IS_WITH: ClassVar[bool]
    run_filter_once_per_request = True

    def passing(self, hosts: HostBatch, spec_obj: RequestSpec) -> Mask:
        """Return which hosts pass, shape (n_hosts,)."""
        uuids = Request.of(spec_obj).hint_values(self.HINT)
        if not uuids:
            return all_hosts(hosts)
        has_some: Mask = hosts.count_instances(uuids) > 0
        return has_some if self.IS_WITH else ~has_some

    def mismatch(self, host_state: HostState, spec_obj: RequestSpec) -> Mismatch:
        """Return the instances of the hint, and which of them are on the host."""
        uuids = Request.of(spec_obj).hint_values(self.HINT)
        required = f"{'one' if self.IS_WITH else 'none'} of {', '.join(uuids)}"
        return "instances", required, host_state.instances.keys() & set(uuids)

    def remedies(
        self, hosts: HostBatch, spec_obj: RequestSpec, rejected: Mask
    ) -> Iterator[Remedy]:
        """Yield the request without the hint."""
        text = f"without hint {self.HINT}, or with other instances in it"
        yield Remedy(rejected, text, hints=(self.HINT,))


class SameHostFilter(HintedInstancesFilter):
    """Pass hosts with at least one instance that the hint ``same_host`` names.

    One instance is enough, as in nova, although nova's documentation requires all.
    """

    REASON = "has no instance that the hint same_host names"
    HINT = "same_host"
    IS_WITH = True
    ROWWISE = True


class DifferentHostFilter(HintedInstancesFilter):
    """Pass hosts with none of the instances that the hint ``different_host`` names."""

    REASON = "has an instance that the hint different_host names"
    HINT = "different_host"
    IS_WITH = False
    ROWWISE = True
