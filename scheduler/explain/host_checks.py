# SPDX-License-Identifier: Apache-2.0
"""Run every check of a request on many hosts, and find a change for each failed one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import os_traits

from ...filters import BaseHostFilter
from ...filters.compute import ComputeFilter
from ...filters.locality import LocalityFilter
from ..candidates import CandidatesQuery, DerivedData, Offer
from ..drivers.filtering import rejections
from ..drivers.parts import Parts
from ..drivers.restrictions import restrictions
from ..hosts import HostBatch
from ..placement.constraints import Constraint, ConstraintKind
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
    remedied,
    running,
    without_hint,
    without_part,
    without_prefilter,
    without_restriction,
    without_tree,
)
from .query_checks import QueryChecks, QueryPart, tree_of
from .reasons import CheckStage, HostReason
from .zones import zones_of

Mask = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]
Indices = npt.NDArray[np.intp]

#: Stands for the number of failed checks of a host that a query is not about; larger
#: than any real number of failed checks.
_NOT_ASKED: Final = np.iinfo(np.int64).max
#: The parameter of a query that forbids the trait of disabled hosts.
_NOT_DISABLED: Final = [("required", f"!{os_traits.COMPUTE_STATUS_DISABLED}")]


@dataclasses.dataclass(frozen=True, slots=True)
class NamedNode:
    """The one compute node that a request names, and the queries about it.

    The queries name the tree of the node (``in_tree``), so that providers which share
    resources with it serve nothing of the group without a suffix.
    """

    uuid: str
    queries: Sequence[CandidatesQuery]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class HostCheck:
    """A check, the hosts that fail it, and the change that makes it pass.

    Attributes
    ----------
    fails : ndarray of bool, shape (n_hosts,)
    edit : Edit or None
        The change; None: there is none, or `part` is set.
    part : QueryPart or None
        The resource that the check is about; a request for less of it passes. None: the
        check is not about a resource.
    required : int
        The requested amount of the resource.
    available : ndarray of int64, shape (n_hosts,)
        The largest amount of the resource that each host could allocate at once, at
        most `required`.
    """

    fails: Mask
    edit: Edit | None = None
    part: QueryPart | None = None
    required: int = 0
    available: Int64s = dataclasses.field(default_factory=lambda: np.empty(0, np.int64))

    def edit_to(self, amount: int) -> Edit | None:
        """Return the change; `amount`: how much of the resource is still requested."""
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
        """Return the missing share of the resource on each host; 1 without a resource.

        Shape (n_hosts,).
        """
        if self.part is None:
            return np.ones(len(self.fails))
        cost: npt.NDArray[np.float64]
        cost = (self.required - self.available) / self.required
        return cost

    def levels(self, at: Mask) -> list[int]:
        """Return the amounts to try on the hosts in `at`, the smallest change first."""
        if self.part is None:
            return [0]
        amounts = np.sort(self.available[at])[::-1]
        chosen = [amounts[0], amounts[len(amounts) // 2], amounts[-1]]
        return list(dict.fromkeys(int(amount) for amount in chosen))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class AskedQuery:
    """A query of a request, and the hosts about which Placement is asked it.

    Attributes
    ----------
    query : CandidatesQuery or None
        None: Placement is not queried.
    at : ndarray of bool, shape (n_hosts,)
        The hosts that the query is about.
    checks : QueryChecks or None
        The checks of the trees of these hosts, in the order of the hosts.
    other_tree : str or None
        The provider that the query names, if it is in none of these trees.
    """

    query: CandidatesQuery | None
    at: Mask
    checks: QueryChecks | None = None
    other_tree: str | None = None


class HostChecks:
    """The checks of a request on some hosts.

    Parameters
    ----------
    request : Request
        The validated request.
    queries : sequence of CandidatesQuery or None
        The queries of the request, of which a host has to meet one. They are built
        without the prefilters that reject the request, and as if it named no host.
        None: Placement is not queried.
    refusals : sequence of HostReason
        The reasons of the prefilters that reject the request.
    view : ProviderView or None
        The providers; None: Placement is not queried.
    hosts : HostBatch
        The hosts to check.
    named : NamedNode, optional
        The one compute node that the request names.
    """

    def __init__(
        self,
        parts: Parts,
        request: Request,
        queries: Sequence[CandidatesQuery] | None,
        refusals: Sequence[HostReason],
        view: ProviderView | None,
        hosts: HostBatch,
        named: NamedNode | None = None,
    ) -> None:
        self._parts = parts
        self._request = request
        self._refusals = refusals
        self._hosts = hosts
        self._n = len(hosts)
        self.view = view
        self._index = {uuid: i for i, uuid in enumerate(hosts.uuid.tolist())}
        self._roots = np.full(self._n, -1, np.int32)
        everywhere = np.ones(self._n, np.bool_)
        self._queries: Sequence[AskedQuery] = [AskedQuery(None, everywhere)]
        if view is not None and queries is not None:
            self._roots = _root_rows(view, hosts)
            is_named = everywhere & False
            if named is not None:
                is_named = hosts.matches("uuid", [named.uuid])
            self._queries = [
                asked
                for at, queries_at in (
                    (~is_named, queries),
                    (is_named, () if named is None else named.queries),
                )
                for query in queries_at
                for asked in self._asked(view, query, at)
            ] or self._queries

    @property
    def request(self) -> Request:
        """The request."""
        return self._request

    @property
    def hosts(self) -> HostBatch:
        """The hosts."""
        return self._hosts

    @property
    def queries(self) -> Sequence[AskedQuery]:
        """The queries; a host has to meet one of those that are about the host."""
        return self._queries

    def _asked(
        self, view: ProviderView, query: CandidatesQuery, at: Mask
    ) -> Iterator[AskedQuery]:
        """Yield a query about the hosts in the tree that it names, and about others."""
        tree, trees = tree_of(query), view.state.trees
        is_in = np.ones(self._n, np.bool_)
        if tree is not None:
            provider = trees.find(tree)
            is_in &= provider >= 0
            is_in &= self._roots == trees.roots[provider]
        for mask, of_query, other_tree in (
            (at & is_in, tree, None), (at & ~is_in, None, tree)
        ):  # fmt: skip
            if mask.any():
                roots = self._roots[mask & (self._roots >= 0)]
                checks = QueryChecks(view, roots, of_query)
                yield AskedQuery(query, mask, checks, other_tree)

    def n_failing(self) -> Int64s:
        """Return how many checks each host fails, shape (n_hosts,)."""
        fewest: Int64s = self.counts(self.alternatives()).min(axis=0)
        return fewest

    def counts(self, alternatives: Sequence[Sequence[HostCheck]]) -> Int64s:
        """Return how many checks each host fails, shape (n_alternatives, n_hosts)."""
        counts = np.zeros((len(alternatives), self._n), np.int64)
        for asked, count, checks in zip(
            self._queries, counts, alternatives, strict=True
        ):
            for check in checks:
                count += check.fails
            count[~asked.at] = _NOT_ASKED
        return counts

    def alternatives(self) -> list[list[HostCheck]]:
        """Return the checks of the request with each of its queries."""
        query_independent = [*self._request_checks(), *self._filter_checks()]
        disabled = next(
            (check for check in query_independent if _is_enabling(check)), None
        )
        alternatives = []
        for asked in self._queries:
            checks = list(self._query_checks(asked))
            enabling = next((check for check in checks if _is_enabling(check)), None)
            remaining = query_independent
            if enabling is not None and disabled is not None:
                # A disabled host fails the check of its trait and the check of its
                # column: one change makes both pass.
                checks.remove(enabling)
                remaining = [
                    check for check in query_independent if check is not disabled
                ]
                fails = enabling.fails | disabled.fails
                checks.append(dataclasses.replace(enabling, fails=fails))
            alternatives.append([*checks, *remaining])
        return alternatives

    def _request_checks(self) -> Iterator[HostCheck]:
        everywhere = np.ones(self._n, np.bool_)
        for reason in self._refusals:
            default = self._parts.conf.default_availability_zone
            zones = set(zones_of(self._hosts, default).tolist())
            edit = without_prefilter(reason, self._request, zones)
            yield HostCheck(everywhere, edit)
        allowed = everywhere.copy()
        for restriction in restrictions(self._request):
            allows = restriction.allows(self._hosts)
            if not restriction.is_forbidding:
                allowed &= allows
            yield HostCheck(~allows, without_restriction(restriction))
        requested = self._request.requested_host
        if requested is not None:
            # Of several forced hosts only the first is considered.
            nodes = self._parts.table.nodes_of(*requested)
            yield HostCheck(allowed & ~self._hosts.matches("uuid", nodes))

    def _filter_checks(self) -> Iterator[HostCheck]:
        fails: dict[int, tuple[Any, Mask]] = {}
        for indices, hosts in self._batches_with_candidates():
            for i, (filter_, rejected) in enumerate(self._rejections(hosts)):
                mask = fails.setdefault(i, (filter_, np.zeros(self._n, np.bool_)))[1]
                mask[indices] = rejected
        for filter_, mask in fails.values():
            if isinstance(filter_, ComputeFilter):
                yield from self._compute_filter_checks(filter_, mask)
            elif isinstance(filter_, LocalityFilter):
                yield from self._hint_checks(filter_)
        yield from self._remedied_checks(
            [
                (filter_, mask)
                for filter_, mask in fails.values()
                if not isinstance(filter_, ComputeFilter | LocalityFilter)
            ]
        )

    def _remedied_checks(
        self, rejected: Iterable[tuple[BaseHostFilter, Mask]]
    ) -> Iterator[HostCheck]:
        """Yield the checks that filters name; one for an extra spec that two read."""
        checks: list[HostCheck] = []
        index_of: dict[tuple[str, ...], int] = {}
        for filter_, mask in rejected:
            spec_obj = self._request.spec_obj
            for remedy in filter_.remedies(self._hosts, spec_obj, mask):
                edit = remedied(filter_, remedy)
                index = index_of.get(edit.extra_specs)
                if index is not None:
                    fails = checks[index].fails | remedy.fails
                    change = dataclasses.replace(edit.change, alternative="")
                    edit = dataclasses.replace(edit, change=change)
                    checks[index] = HostCheck(fails, edit)
                    continue
                if edit.extra_specs:
                    index_of[edit.extra_specs] = len(checks)
                checks.append(HostCheck(remedy.fails, edit))
        yield from checks

    def _rejections(self, hosts: HostBatch) -> Iterator[tuple[Any, Mask]]:
        return rejections(self._parts.filters, hosts, self._request.spec_obj)

    def _compute_filter_checks(
        self, filter_: ComputeFilter, mask: Mask
    ) -> Iterator[HostCheck]:
        name = type(filter_).__name__
        spec = self._request.spec_obj
        is_up = filter_.passing(self._hosts.with_numbers(ENABLED), spec)
        is_enabled = filter_.passing(self._hosts.with_numbers(RUNNING), spec)
        yield HostCheck(mask & ~is_enabled, enabled(name, None))
        yield HostCheck(mask & ~is_up, running(name))

    def _hint_checks(self, filter_: LocalityFilter) -> Iterator[HostCheck]:
        """Yield a check for each hint about places; a hint may make several rules."""
        fails: dict[str, Mask] = {}
        findings: dict[str, list[str]] = {}
        for broken in filter_.broken(self._hosts, self._request.spec_obj):
            hint = broken.rule.hint
            previous = fails.get(hint)
            fails[hint] = broken.fails if previous is None else previous | broken.fails
            findings.setdefault(hint, []).extend(broken.findings(MAX_NAMES + 1))
        for hint, mask in fails.items():
            yield HostCheck(mask, without_hint(hint, findings[hint]))

    def _batches_with_candidates(self) -> Iterator[tuple[Indices, HostBatch]]:
        """Yield the hosts in batches, with their candidates where they have any."""
        remaining = np.ones(self._n, np.bool_)
        for asked in self._queries:
            offered = self.offered(asked, [], remaining & asked.at)
            if offered is not None and asked.query is not None:
                remaining[offered[0]] = False
                yield offered
        yield np.flatnonzero(remaining), self._hosts.take(remaining)

    def _query_checks(self, asked: AskedQuery) -> Iterator[HostCheck]:
        if asked.query is None or asked.checks is None:
            return
        has_root = self._roots >= 0
        if not has_root.all():
            yield HostCheck(~has_root)  # these hosts have no resource provider
        if asked.other_tree is not None:
            yield HostCheck(asked.at, without_tree(asked.other_tree))
        try:
            unmet = asked.checks.unmet(asked.query)
        except QueryNotCovered:
            yield HostCheck(has_root)
            return
        for part, of_roots in unmet:
            fails = self._spread_to_hosts(asked, of_roots)
            if part.constraint is None:
                yield HostCheck(fails)
            elif part.constraint.params == _NOT_DISABLED:
                yield HostCheck(fails, enabled(ComputeFilter.__name__, part))
            elif part.constraint.kind is ConstraintKind.RESOURCE:
                name, _, amount = part.constraint.params[0][1].partition(":")
                available_of_roots = asked.checks.available(
                    name, int(amount), part.suffix
                )
                available = self._spread_to_hosts(asked, available_of_roots)
                yield HostCheck(fails, None, part, int(amount), available)
            else:
                yield from self._part_checks(part, part.constraint, asked.checks, fails)

    def _part_checks(
        self,
        part: QueryPart,
        constraint: Constraint,
        checks: QueryChecks,
        fails: Mask,
    ) -> Iterator[HostCheck]:
        """Yield the checks of a part that is not a resource."""
        aggregates = self._parts.table.aggregates
        is_of_host = fails.copy()
        if constraint.kind is ConstraintKind.AGGREGATE and part.group is None:
            [(_, value)] = constraint.params
            has_root = self._roots >= 0
            is_of_host[has_root] &= ~checks.in_aggregates(self._roots[has_root], value)
            is_of_sharing = fails & ~is_of_host
            if is_of_sharing.any():
                edit = without_part(part, aggregates, self._request, is_of_sharing=True)
                yield HostCheck(is_of_sharing, edit)
        yield HostCheck(is_of_host, without_part(part, aggregates, self._request))

    def _spread_to_hosts(
        self, asked: AskedQuery, of_roots: npt.NDArray[Any]
    ) -> npt.NDArray[Any]:
        values = np.zeros(self._n, of_roots.dtype)
        values[asked.at & (self._roots >= 0)] = of_roots
        return values

    def offered(
        self, asked: AskedQuery, edits: Sequence[Edit], at: Mask
    ) -> tuple[Indices, HostBatch] | None:
        """Return which hosts in `at` meet a query after changes, with candidates.

        Returns
        -------
        rows : ndarray of intp, shape (n,)
            The indices of these hosts in `HostChecks.hosts`.
        hosts : HostBatch
            These hosts, with their candidates.

        None: Placement would refuse the query.
        """
        if asked.query is None or asked.checks is None:
            return np.flatnonzero(at), self._hosts.take(at)
        params = list(asked.query.params)
        for edit in edits:
            params = edit.of_query(params)
        try:
            matches = asked.checks.match(params)
        except QueryNotCovered:
            return None
        keep = np.isin(matches.roots, self._roots[at])
        matches = dataclasses.replace(
            matches, roots=matches.roots[keep], n_options=matches.n_options[:, keep]
        )
        changed = CandidatesQuery(tuple(params))
        offer = TableOffer(changed, matches, DerivedData(), began=0, began_at=0)
        hosts = self._parts.table.batch_of_offer(Offer([offer]))
        rows = np.array(
            [self._index.get(uuid, -1) for uuid in hosts.uuid.tolist()], np.intp
        )
        return rows[rows >= 0], hosts.take(rows >= 0)


def _is_enabling(check: HostCheck) -> bool:
    return check.edit is not None and check.edit.numbers is ENABLED


def _root_rows(view: ProviderView, hosts: HostBatch) -> npt.NDArray[np.int32]:
    """Return the row of each host's root provider, or -1; shape (n_hosts,)."""
    trees = view.state.trees
    rows = np.array([trees.find(uuid) for uuid in hosts.uuid.tolist()], np.int32)
    is_root = (
        (rows >= 0) & (trees.parents[rows] < 0) if len(trees.parents) else rows >= 0
    )
    return np.where(is_root, rows, -1).astype(np.int32)


@dataclasses.dataclass(frozen=True, slots=True)
class FailedCheck:
    """A check that hosts fail.

    Attributes
    ----------
    text : str
        What would have to change; for a resource, what is required and available.
    n_hosts : int
        The hosts that fail it.
    n_alone : int
        Those of them that fail no other check.
    """

    stage: CheckStage
    check: str
    text: str
    n_hosts: int
    n_alone: int


def failed_checks(checks: HostChecks) -> list[FailedCheck]:
    """Return each check that hosts fail, that of the most hosts first.

    The hosts that the request ignores are not counted. Of several queries, the one with
    the fewest failures counts.
    """
    alternatives = checks.alternatives()
    counts = checks.counts(alternatives)
    # The sum over hosts, without the overflow by hosts that a query is not about.
    best = int(np.argmin(np.minimum(counts, len(alternatives[0]) + 1).sum(axis=1)))
    considered = np.ones(len(checks.hosts), np.bool_)
    remaining = []
    for check in alternatives[best]:
        if check.edit is not None and check.edit.change.check == "ignore_hosts":
            considered &= ~check.fails
        else:
            remaining.append(check)
    n_failing = sum((check.fails.astype(np.int64) for check in remaining), np.int64(0))
    failed = []
    for check in remaining:
        fails = check.fails & considered
        if not fails.any():
            continue
        if check.part is not None and check.part.constraint is not None:
            name = check.part.constraint.params[0][1].partition(":")[0]
            most = int(check.available[fails].max())
            text = f"{check.required:,} required, at most {most:,} available"
            stage = CheckStage.PLACEMENT
        elif check.edit is not None:
            change = check.edit.change
            stage, name, text = change.stage, change.check, change.text
        else:
            stage, name = CheckStage.PLACEMENT, "provider"
            text = "no resource provider, or none that meets all parts at once"
        n_alone = int(np.count_nonzero(fails & (n_failing == 1)))
        n_hosts = int(np.count_nonzero(fails))
        failed.append(FailedCheck(stage, name, text, n_hosts, n_alone))
    return sorted(failed, key=lambda check: (-check.n_hosts, -check.n_alone))
