# SPDX-License-Identifier: Apache-2.0
"""Run the filters over a batch of hosts, as a decision does."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from ...filters import BaseHostFilter
from ...objects import RequestSpec
from .. import tracing
from ..candidates import Rows
from ..errors import PluginError, SchedulerError
from ..hosts import HostBatch
from .record import FilterStep

LOG = logging.getLogger(__name__)

Mask = npt.NDArray[np.bool_]


def filter_hosts(  # noqa: PLR0913 - five by name
    filters: Sequence[BaseHostFilter],
    hosts: HostBatch,
    spec_obj: RequestSpec,
    *,
    index: int,
    is_rebuild: bool,
    steps: list[FilterStep],
    instance: int | None = None,
    changed: Rows | None = None,
) -> HostBatch:
    """Return the hosts that pass every filter; append a step for each to `steps`.

    Parameters
    ----------
    filters : sequence of BaseHostFilter
        Prepared for this request.
    index : int
        The number of the instance among those that are placed. Filters with
        ``run_filter_once_per_request`` run for number 0 only.
    is_rebuild : bool
        Run only the filters with ``RUN_ON_REBUILD``.
    instance : int, optional
        The position of the instance in the request, for the steps.
    changed : ndarray of intp, optional
        The indices of the hosts that have changed since all hosts passed the filters
        for an earlier instance of the request; None: they have not passed yet. Filters
        with ``ROWWISE`` are asked for these hosts only.

    Raises
    ------
    PluginError
        A filter failed, or its result is not a mask of the hosts.
    """
    LOG.debug("Starting with %d host(s)", len(hosts))
    first = len(steps)
    for filter_ in applicable(filters, index, is_rebuild):
        if not len(hosts):
            break
        before, name = hosts, type(filter_).__name__
        with tracing.span(name, kind="filter", hosts_in=len(before)) as span:
            hosts = passed(filter_, before, spec_obj, changed)
            n_hosts = len(hosts)
            if changed is not None and n_hosts < len(before):
                changed = hosts.indices_of(before.rows[changed])
            if span is not None:
                span.set_attribute("moorage.hosts_out", n_hosts)
        reason = filter_.reason_for(spec_obj, None if n_hosts else before)
        steps.append(FilterStep(name, len(before), n_hosts, reason, instance))
        # The wording, here and below, is nova's: operators search for it.
        if n_hosts:
            LOG.debug("Filter %s returned %d host(s)", name, n_hosts)
        else:
            LOG.info("Filter %s returned 0 hosts", name)
    if not len(hosts):
        run = steps[first:]
        results = [f"{s.name}: (start: {s.n_in}, end: {s.n_out})" for s in run]
        LOG.info(
            "Filtering removed all hosts for the request with instance ID '%s'. "
            "Filter results: %s",
            spec_obj.instance_uuid if "instance_uuid" in spec_obj else None, results,
        )  # fmt: skip
    return hosts


def failed(filter_: BaseHostFilter, error: Exception) -> PluginError:
    """Return the PluginError to raise when a filter raised an exception."""
    # Third-party code may raise anything: the error names the filter.
    return PluginError(
        f"filter {type(filter_).__name__} failed: {type(error).__name__}: {error}"
    )


def applicable(
    filters: Sequence[BaseHostFilter], index: int, is_rebuild: bool
) -> Iterator[BaseHostFilter]:
    """Yield the filters that run for an instance; see `filter_hosts`."""
    for filter_ in filters:
        is_answered = filter_.run_filter_once_per_request and index > 0
        if not is_answered and (filter_.RUN_ON_REBUILD or not is_rebuild):
            yield filter_


def passed(
    filter_: BaseHostFilter,
    hosts: HostBatch,
    spec_obj: RequestSpec,
    changed: Rows | None = None,
) -> HostBatch:
    """Return the hosts that pass one filter, each with the candidates that pass.

    Parameters
    ----------
    changed : ndarray of intp, optional
        See `filter_hosts`.

    Raises
    ------
    PluginError
        The filter failed, or its result is not a mask of the hosts or candidates.
    """
    if not filter_.ROWWISE:
        changed = None
    asked = hosts if changed is None else hosts.take(changed)
    try:
        of_candidates = filter_.passing_candidates(asked, spec_obj)
        answer = of_candidates
        if answer is None:
            answer = filter_.passing(asked, spec_obj)
    except SchedulerError:
        raise
    except Exception as e:
        raise failed(filter_, e) from e
    is_of_hosts = of_candidates is None
    mask = checked(filter_, answer, len(asked if is_of_hosts else asked.candidates))
    if mask.all():
        return hosts
    if changed is not None:
        answer = mask
        if is_of_hosts:
            mask = np.ones(len(hosts), bool)
            mask[changed] = answer
        else:
            # Both batches have the candidates of a host in the same order.
            mask = np.ones(len(hosts.candidates), bool)
            mask[np.isin(hosts.candidates.rows, changed)] = answer
    return hosts.take(mask) if is_of_hosts else hosts.take_candidates(mask)


def checked(filter_: BaseHostFilter, result: Mask, length: int) -> Mask:
    """Return the mask that a filter has returned.

    Raises
    ------
    PluginError
        The result is not a boolean array of shape (length,).
    """
    mask = np.asarray(result)
    if mask.shape != (length,) or mask.dtype != bool:
        raise PluginError(
            f"filter {type(filter_).__name__} returned an array of shape {mask.shape} "
            f"and type {mask.dtype}; it must be bool of shape ({length},)"
        )
    return mask


def collect_limits(
    filters: Sequence[BaseHostFilter],
    hosts: HostBatch,
    index: int,
    spec_obj: RequestSpec,
    *,
    is_rebuild: bool,
) -> dict[str, object]:
    """Return the limits that the filters add to the selection of a host.

    Raises
    ------
    PluginError
        A filter failed.
    """
    limits: dict[str, object] = {}
    for filter_ in applicable(filters, 0, is_rebuild):
        if type(filter_).selection_limits is BaseHostFilter.selection_limits:
            continue  # so that no host state has to be created
        try:
            limits.update(filter_.selection_limits(hosts[index], spec_obj))
        except SchedulerError:
            raise
        except Exception as e:
            raise failed(filter_, e) from e
    return limits
