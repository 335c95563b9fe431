# SPDX-License-Identifier: Apache-2.0
"""Every check of a request on many hosts: which fail it, and what makes it pass."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import os_traits

from ...filters.compute import ComputeFilter
from ...filters.locality import LocalityFilter
from ..candidates import CandidatesQuery, DerivedData, Offer
from ..drivers.filtering import rejections
from ..drivers.parts import Parts
from ..drivers.restrictions import requested_host, restrictions
from ..hosts import HostBatch
from ..placement.constraints import ConstraintKind
from ..placement.memory import TableOffer
from ..placement.providers import ProviderView, QueryNotCovered
from ..request import Request
from .changes import (
    ENABLED,
    MAX_NAMES,
    NEVER_ZERO,
    RUNNING,
    Edit,
    enabled,
    less,
    running,
    without_filter,
    without_hint,
    without_part,
    without_prefilter,
    without_restriction,
)
from .query_checks import QueryChecks, QueryPart
from .reasons import HostReason

Mask = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]
Indices = npt.NDArray[np.intp]

#: What forbids the trait of disabled hosts in a query.
_NOT_DISABLED: Final = [("required", f"!{os_traits.COMPUTE_STATUS_DISABLED}")]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class HostCheck:
    """A check, the hosts that fail it, and what makes it pass.

    Attributes
    ----------
    fails : ndarray of bool, shape (n_hosts,)
    edit : Edit or None
        None: nothing does, or `part` is a resource.
    part : QueryPart or None
        A resource of which less makes it pass.
    available : ndarray of int64, shape (n_hosts,)
        The most of the resource that each host could allocate at once, at most what is
        required.
    """

    fails: Mask
    edit: Edit | None = None
    part: QueryPart | None = None
    required: int = 0
    available: Int64s = dataclasses.field(default_factory=lambda: np.empty(0, np.int64))

    def made(self, amount: int) -> Edit | None:
        """Return the change; `amount`: of the resource that is left."""
        return self.edit if self.part is None else less(self.part, amount)

    def can_change(self) -> Mask:
        """Return for which hosts there is a change, shape (n_hosts,)."""
        if self.part is None:
            return np.full(len(self.fails), self.edit is not None)
        assert self.part.constraint is not None
        name = self.part.constraint.params[0][1].partition(":")[0]
        is_positive: Mask = self.available > 0
        return is_positive | (name not in NEVER_ZERO)

    def cost(self) -> npt.NDArray[np.float64]:
        """Return the size of the change for each host, a share; 1: all of it."""
        if self.part is None:
            return np.ones(len(self.fails))
        cost: npt.NDArray[np.float64]
        cost = (self.required - self.available) / self.required
        return cost

    def levels(self, at: Mask) -> list[int]:
        """Return amounts to try for some hosts: the smallest change first."""
        if self.part is None:
            return [0]
        amounts = np.sort(self.available[at])[::-1]
        chosen = [amounts[0], amounts[len(amounts) // 2], amounts[-1]]
        return list(dict.fromkeys(int(each) for each in chosen))


class HostChecks:
    """The checks of a request on some hosts.

    Parameters
    ----------
    request : Request
        Validated.
    queries : sequence of CandidatesQuery or None
        Its queries, of which a host has to meet one, without the prefilters that
        reject it; None: Placement is not queried.
    refusals : sequence of HostReason
        Of the prefilters that reject the request.
    view : ProviderView or None
        The providers; None: Placement is not queried.
    hosts : HostBatch
        Those to check.
    """

    def __init__(
        self,
        parts: Parts,
        request: Request,
        queries: Sequence[CandidatesQuery] | None,
        refusals: Sequence[HostReason],
        view: ProviderView | None,
        hosts: HostBatch,
    ) -> None:
        self._parts = parts
        self._request = request
        self._queries: Sequence[CandidatesQuery | None]
        self._queries = [None] if queries is None else queries
        self._refusals = refusals
        self._hosts = hosts
        self._n = len(hosts)
        self._index = {uuid: i for i, uuid in enumerate(hosts.uuid.tolist())}
        self._roots = np.full(self._n, -1, np.int32)
        self._checks: QueryChecks | None = None
        if view is not None and queries is not None:
            self._roots = _root_rows(view, hosts)
            self._checks = QueryChecks(view, self._roots[self._roots >= 0])

    @property
    def request(self) -> Request:
        """The request."""
        return self._request

    @property
    def hosts(self) -> HostBatch:
        """The hosts."""
        return self._hosts

    @property
    def queries(self) -> Sequence[CandidatesQuery | None]:
        """The queries, of which a host has to meet one; None: there is none."""
        return self._queries

    def n_failing(self) -> Int64s:
        """Return how many checks each host fails, shape (n_hosts,)."""
        fewest: Int64s = self.counts(self.alternatives()).min(axis=0)
        return fewest

    def counts(self, alternatives: Sequence[Sequence[HostCheck]]) -> Int64s:
        """Return how many checks each host fails with each query."""
        counts = np.zeros((len(alternatives), self._n), np.int64)
        for count, checks in zip(counts, alternatives, strict=True):
            for check in checks:
                count += check.fails
        return counts

    def alternatives(self) -> list[list[HostCheck]]:
        """Return the checks with each query of the request."""
        others = [*self._of_request(), *self._of_filters()]
        if self._checks is None:
            return [others]
        disabled = next((c for c in others if _is_enabling(c)), None)
        found = []
        for query in self._queries:
            assert query is not None
            checks = list(self._of_query(query))
            both = next((c for c in checks if _is_enabling(c)), None)
            rest = others
            if both is not None and disabled is not None:
                # One change is enough: a disabled host has a trait and a column.
                checks.remove(both)
                rest = [each for each in others if each is not disabled]
                fails = both.fails | disabled.fails
                checks.append(dataclasses.replace(both, fails=fails))
            found.append([*checks, *rest])
        return found

    def _of_request(self) -> Iterator[HostCheck]:
        everywhere = np.ones(self._n, np.bool_)
        for reason in self._refusals:
            yield HostCheck(everywhere, without_prefilter(reason))
        allowed = everywhere.copy()
        for restriction in restrictions(self._request):
            allows = restriction.allows(self._hosts)
            if not restriction.is_forbidding:
                allowed &= allows
            yield HostCheck(~allows, without_restriction(restriction))
        requested = requested_host(self._request)
        if requested is not None:
            # Of several forced hosts only the first is considered.
            nodes = self._parts.table.nodes_of(*requested)
            yield HostCheck(allowed & ~self._hosts.matches("uuid", nodes))

    def _of_filters(self) -> Iterator[HostCheck]:
        fails: dict[int, tuple[Any, Mask]] = {}
        for at, hosts in self._batches():
            for i, (filter_, rejected) in enumerate(self._rejections(hosts)):
                mask = fails.setdefault(i, (filter_, np.zeros(self._n, np.bool_)))[1]
                mask[at] = rejected
        for filter_, mask in fails.values():
            if isinstance(filter_, ComputeFilter):
                yield from self._of_compute_filter(filter_, mask)
            elif isinstance(filter_, LocalityFilter):
                yield from self._of_hints(filter_)
            else:
                yield HostCheck(mask, without_filter(filter_, self._request.spec_obj))

    def _rejections(self, hosts: HostBatch) -> Iterator[tuple[Any, Mask]]:
        return rejections(self._parts.filters, hosts, self._request.spec_obj)

    def _of_compute_filter(
        self, filter_: ComputeFilter, mask: Mask
    ) -> Iterator[HostCheck]:
        name = type(filter_).__name__
        spec = self._request.spec_obj
        is_up = filter_.passing(self._hosts.with_numbers(ENABLED), spec)
        is_enabled = filter_.passing(self._hosts.with_numbers(RUNNING), spec)
        yield HostCheck(mask & ~is_enabled, enabled(name, None))
        yield HostCheck(mask & ~is_up, running(name))

    def _of_hints(self, filter_: LocalityFilter) -> Iterator[HostCheck]:
        """Yield a check for each hint about places; a hint can be several rules."""
        fails: dict[str, Mask] = {}
        findings: dict[str, list[str]] = {}
        for broken in filter_.broken(self._hosts, self._request.spec_obj):
            hint = broken.rule.hint
            before = fails.get(hint)
            fails[hint] = broken.fails if before is None else before | broken.fails
            findings.setdefault(hint, []).extend(broken.findings(MAX_NAMES + 1))
        for hint, mask in fails.items():
            yield HostCheck(mask, without_hint(hint, findings[hint]))

    def _batches(self) -> Iterator[tuple[Indices, HostBatch]]:
        """Yield the hosts, with their candidates where they have any."""
        left = np.ones(self._n, np.bool_)
        for query in self._queries:
            if query is None or self._checks is None:
                continue
            found = self.offered(query, [], left)
            if found is not None:
                left[found[0]] = False
                yield found
        yield np.flatnonzero(left), self._hosts.take(left)

    def _of_query(self, query: CandidatesQuery) -> Iterator[HostCheck]:
        assert self._checks is not None
        has_root = self._roots >= 0
        if not has_root.all():
            yield HostCheck(~has_root)  # it has no resource provider
        try:
            unmet = self._checks.unmet(query)
        except QueryNotCovered:
            yield HostCheck(has_root)
            return
        for part, fails in unmet:
            yield self._of_part(part, self._on_hosts(fails))

    def _of_part(self, part: QueryPart, fails: Mask) -> HostCheck:
        constraint = part.constraint
        if constraint is None or constraint.kind is not ConstraintKind.RESOURCE:
            if constraint is not None and constraint.params == _NOT_DISABLED:
                return HostCheck(fails, enabled(ComputeFilter.__name__, part))
            return HostCheck(fails, without_part(part, self._parts.table.aggregates))
        assert self._checks is not None
        name, _, amount = constraint.params[0][1].partition(":")
        available = self._on_hosts(self._checks.available(name, int(amount)))
        return HostCheck(fails, None, part, int(amount), available)

    def _on_hosts(self, of_roots: npt.NDArray[Any]) -> npt.NDArray[Any]:
        values = np.zeros(self._n, of_roots.dtype)
        values[self._roots >= 0] = of_roots
        return values

    def offered(
        self, query: CandidatesQuery | None, edits: Sequence[Edit], at: Mask
    ) -> tuple[Indices, HostBatch] | None:
        """Return which of some hosts meet a query after changes, with candidates.

        Returns
        -------
        rows : ndarray of intp, shape (n,)
            Their indices in the hosts.
        hosts : HostBatch
        """
        if query is None or self._checks is None:
            return np.flatnonzero(at), self._hosts.take(at)
        params = list(query.params)
        for edit in edits:
            params = edit.of_query(params)
        try:
            matches = self._checks.match(params)
        except QueryNotCovered:
            return None
        keep = np.isin(matches.roots, self._roots[at])
        matches = dataclasses.replace(
            matches, roots=matches.roots[keep], n_options=matches.n_options[:, keep]
        )
        changed = CandidatesQuery(tuple(params))
        offer = TableOffer(changed, matches, DerivedData(), began=0, began_at=0)
        hosts = self._parts.table.batch_of_offer(Offer([offer]))
        rows = np.array([self._index.get(u, -1) for u in hosts.uuid.tolist()], np.intp)
        return rows[rows >= 0], hosts.take(rows >= 0)


def _is_enabling(check: HostCheck) -> bool:
    return check.edit is not None and check.edit.numbers is ENABLED


def _root_rows(view: ProviderView, hosts: HostBatch) -> npt.NDArray[np.int32]:
    """Return the row of each host's root provider, -1: it has none; (n_hosts,)."""
    trees = view.state.trees
    rows = np.array([trees.find(uuid) for uuid in hosts.uuid.tolist()], np.int32)
    is_root = (
        (rows >= 0) & (trees.parents[rows] < 0) if len(trees.parents) else rows >= 0
    )
    return np.where(is_root, rows, -1).astype(np.int32)
