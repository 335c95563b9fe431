# SPDX-License-Identifier: Apache-2.0
"""Run filters for explanations and rechecks, without recording their steps."""

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

    Only filters that apply to the request run: no filters if hosts are forced, and only
    filters with ``RUN_ON_REBUILD`` for a rebuild. No decision record gets the reasons.

    Parameters
    ----------
    filters : sequence of BaseHostFilter
        The enabled filters; this function prepares them for the request.

    Raises
    ------
    PluginError
        A filter failed.
    """
    request = Request.of(spec_obj)
    if request.skips_filters:
        return []
    applied = applicable(filters, 0, request.is_rebuild)
    reasons = (_explain_one(filter_, host_state, spec_obj) for filter_ in applied)
    return [reason for reason in reasons if reason is not None]


def rejections(
    filters: Sequence[BaseHostFilter], hosts: HostBatch, spec_obj: RequestSpec
) -> Iterator[tuple[BaseHostFilter, Mask]]:
    """Yield each filter and which hosts it rejects when it is run alone.

    The same filters run, and the same errors are raised, as by `explain_rejections`.

    Yields
    ------
    filter : BaseHostFilter
        A filter, prepared for this request.
    rejected : ndarray of bool, shape (n_hosts,)
        Which hosts it rejects.
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
    """Return the hosts that pass for an instance other than the first of its request.

    Filters with ``run_filter_once_per_request`` do not run. Parameters and errors are
    those of `filter_hosts`; no steps are recorded.
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
