# SPDX-License-Identifier: Apache-2.0
"""Ask filters about hosts, beside or after a decision."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...filters import BaseHostFilter, Rejection
from ...objects import RequestSpec
from ..errors import SchedulerError
from ..hosts import HostBatch, HostState
from ..request import Request
from .filter_chain import Mask, applicable, checked, failed, passed


def explain_rejections(
    filters: Sequence[BaseHostFilter], host_state: HostState, spec_obj: RequestSpec
) -> list[Rejection]:
    """Return the reasons of all filters that reject a host; none if the host passes.

    Only filters that apply to the request run: none if hosts are forced, those with
    ``RUN_ON_REBUILD`` for a rebuild. A decision does not record these reasons.

    Parameters
    ----------
    filters : sequence of BaseHostFilter
        Prepared for this request, or not.

    Raises
    ------
    PluginError
        A filter failed.
    """
    request = Request.of(spec_obj)
    if request.skips_filters:
        return []
    run = applicable(filters, 0, request.is_rebuild)
    reasons = (_explain_one(filter_, host_state, spec_obj) for filter_ in run)
    return [reason for reason in reasons if reason is not None]


def rejections(
    filters: Sequence[BaseHostFilter], hosts: HostBatch, spec_obj: RequestSpec
) -> Iterator[tuple[BaseHostFilter, Mask]]:
    """Yield each filter and which hosts it rejects when it is run alone.

    Filters and errors are those of `explain_rejections`.

    Yields
    ------
    filter : BaseHostFilter
        Prepared for this request.
    rejected : ndarray of bool, shape (n_hosts,)
    """
    request = Request.of(spec_obj)
    enabled = [] if request.skips_filters else filters
    for filter_ in applicable(enabled, 0, request.is_rebuild):
        try:
            prepared = filter_.prepare(spec_obj)
            passing = checked(prepared, prepared.passing(hosts, spec_obj), len(hosts))
        except SchedulerError:
            raise
        except Exception as e:
            raise failed(filter_, e) from e
        yield prepared, ~passing


def passing_again(
    filters: Sequence[BaseHostFilter],
    hosts: HostBatch,
    spec_obj: RequestSpec,
    *,
    is_rebuild: bool,
) -> HostBatch:
    """Return the hosts that pass for a later instance; nothing is recorded.

    Parameters and errors are those of `filter_hosts`.
    """
    for filter_ in applicable(filters, 1, is_rebuild):
        if len(hosts):
            hosts = passed(filter_, hosts, spec_obj)
    return hosts


def _explain_one(
    filter_: BaseHostFilter, host_state: HostState, spec_obj: RequestSpec
) -> Rejection | None:
    try:
        return filter_.prepare(spec_obj).explain_rejection(host_state, spec_obj)
    except SchedulerError:
        raise
    except Exception as e:
        raise failed(filter_, e) from e
