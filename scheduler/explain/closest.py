# SPDX-License-Identifier: Apache-2.0
"""What would have to change for a request to fit: hosts that fail the fewest checks.

    checks, each on all hosts at once ─▶ hosts that fail one ─▶ changes, each tried
                                      └▶ or two, if no single change admits a host

A check is what `host_reasons` and `HostTree` name for one host. A change is reported
only if the changed request was tried on the hosts, and admits some.
"""

from __future__ import annotations

import copy
import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ...filters import BaseHostFilter
from ..candidates import CandidatesQuery
from ..drivers.filtering import rejections
from ..drivers.parts import Parts
from ..drivers.restrictions import restrictions
from ..request import Request
from .capacity import HostCounter, HostCounts
from .changes import Change, Edit
from .host_checks import AskedQuery, HostCheck, HostChecks
from .reasons import ProvidersFrom
from .zones import zones_of

Mask = npt.NDArray[np.bool_]

#: The maximum number of hosts, and of zones, that a group names.
MAX_NAMED: Final = 5
#: The maximum number of sets of failed checks for which changes are tried.
MAX_TRIED: Final = 30


@dataclasses.dataclass(frozen=True, slots=True)
class ClosestGroup:
    """The hosts that one change, or two together, would admit.

    Attributes
    ----------
    n_hosts : int
        The number of these compute nodes, including those that a smaller change of the
        same resource admits.
    hosts : tuple of str
        The service hosts of some of these compute nodes.
    zones : tuple of (str, int)
        The zones that have most of these compute nodes, each with their number, in
        descending order.
    n_instances : int or None
        How many instances of the changed request fit on these compute nodes; with
        `is_exact` False, at most. None: Placement was not asked, or other instances
        influence where each of them may be, as in a server group.
    is_exact : bool
    """

    changes: tuple[Change, ...]
    n_hosts: int
    hosts: tuple[str, ...]
    zones: tuple[tuple[str, int], ...]
    n_instances: int | None = None
    is_exact: bool = True

    @property
    def text(self) -> str:
        """The changes in words."""
        return " and ".join(change.text for change in self.changes)

    def to_dict(self) -> dict[str, Any]:
        """Return the group as plain data that JSON can hold."""
        return {**dataclasses.asdict(self), "text": self.text}


@dataclasses.dataclass(frozen=True, slots=True)
class ClosestReport:
    """What would have to change for a request to fit.

    Attributes
    ----------
    n_known : int
        The number of all compute nodes.
    n_checked : int
        How many compute nodes were checked: fewer than `n_known` if each of them has to
        be read from Placement.
    n_passing : int
        How many of the checked compute nodes pass every check now.
    n_instances : int
        How many instances the request is for.
    n_fitting : int
        How many of the instances fit at once now, according to a decision without
        claims.
    refusal : str
        The answer to the request now, with counts of hosts by cause; empty if all of
        its instances fit, or it has only one.
    n_changes : int
        How many changes each group has: 1, or 2 if no single change admits a host; 0:
        no group was found. A group admits hosts for one instance.
    groups : tuple of ClosestGroup
        The groups, in descending order of `n_hosts`.
    """

    n_known: int
    n_checked: int
    n_passing: int
    n_instances: int
    n_fitting: int
    refusal: str
    n_changes: int
    groups: tuple[ClosestGroup, ...]
    providers_from: ProvidersFrom

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data that JSON can hold."""
        values = {
            field.name: getattr(self, field.name) for field in dataclasses.fields(self)
        }
        return {**values, "groups": [group.to_dict() for group in self.groups]}


class ClosestSearch:
    """Searches for the hosts that are closest to a request; see `HostChecks`."""

    def __init__(self, parts: Parts, checks: HostChecks) -> None:
        self._parts = parts
        self._checks = checks
        self._hosts = checks.hosts
        self._n = len(checks.hosts)
        self._counter: HostCounter | None = None
        if checks.view is not None:
            self._counter = HostCounter(parts, checks.view, checks.hosts)

    def report(self, origin: ProvidersFrom) -> ClosestReport:
        """Return the closest hosts."""
        alternatives = self._checks.alternatives()
        counts = self._checks.counts(alternatives)
        groups: list[ClosestGroup] = []
        n_changes = 0
        for n_changes in (1, 2):
            tried = [
                group
                for query, checks, n_failed in zip(
                    self._checks.queries, alternatives, counts, strict=True
                )
                for group in self._groups(
                    query, checks, (n_failed == n_changes) & (counts.min(axis=0) > 0)
                )
            ]
            groups = sorted(_distinct(tried), key=lambda group: -group.n_hosts)
            if groups:
                break
        n_passing = int(np.count_nonzero(counts.min(axis=0) == 0))
        return ClosestReport(
            n_known=len(self._parts.table),
            n_checked=self._n,
            n_passing=n_passing,
            n_instances=1,
            n_fitting=min(n_passing, 1),
            refusal="",
            n_changes=n_changes if groups else 0,
            groups=tuple(groups),
            providers_from=origin,
        )

    def _groups(
        self, query: AskedQuery, checks: Sequence[HostCheck], mask: Mask
    ) -> Iterator[ClosestGroup]:
        """Yield groups of changes for each set of hosts that fail the same checks."""
        if not mask.any():
            return
        fails = np.stack([check.fails[mask] for check in checks], axis=1)
        kinds, kind_of, sizes = np.unique(
            fails, axis=0, return_inverse=True, return_counts=True
        )
        hosts = np.flatnonzero(mask)
        for i in np.argsort(-sizes, kind="stable")[:MAX_TRIED].tolist():
            of_kind = np.zeros(self._n, np.bool_)
            of_kind[hosts[kind_of.reshape(-1) == i]] = True
            yield from self._try_changes(
                query, [checks[j] for j in np.flatnonzero(kinds[i]).tolist()], of_kind
            )

    def _try_changes(
        self, query: AskedQuery, checks: Sequence[HostCheck], mask: Mask
    ) -> Iterator[ClosestGroup]:
        """Yield the groups of changes that admit some of the hosts in a mask."""
        for check in checks:
            mask = mask & check.can_change()
        if not mask.any():
            return
        n_before = 0
        for amounts in _amounts_to_try(checks, mask):
            edits = [
                check.edit_to(amount)
                for check, amount in zip(checks, amounts, strict=True)
            ]
            changing = [edit for edit in edits if edit is not None]
            with_room = mask.copy()
            for check, amount in zip(checks, amounts, strict=True):
                if check.part is not None:
                    with_room &= check.available >= amount
            admitted = self._admitted(query, changing, with_room)
            # A larger change is reported only if it admits twice as many hosts.
            if np.count_nonzero(admitted) >= max(1, 2 * n_before):
                n_before = int(np.count_nonzero(admitted))
                group = self._group(changing, admitted)
                counts = self._count_instances(query, changing, admitted)
                if counts is not None:
                    group = dataclasses.replace(
                        group,
                        n_instances=int(counts.n_on_host.sum()),
                        is_exact=counts.is_exact,
                    )
                yield group

    def _count_instances(
        self, query: AskedQuery, edits: Sequence[Edit], admitted: Mask
    ) -> HostCounts | None:
        """Return how many instances of the changed request fit each admitted host."""
        if self._counter is None or query.query is None:
            return None
        request = self._edited_request(edits)
        if request.server_group is not None:
            return None
        params = list(query.query.params)
        hosts = self._hosts
        for edit in edits:
            params = edit.of_query(params)
            if edit.numbers:
                hosts = hosts.with_numbers(edit.numbers)
        parts = dataclasses.replace(self._parts, filters=self._remaining(edits))
        queries = [CandidatesQuery(tuple(params))]
        return self._counter.count_at(parts, hosts, request, queries, admitted)

    def _remaining(self, edits: Sequence[Edit]) -> list[BaseHostFilter]:
        """Return the filters that run after changes."""
        dropped = {edit.without_filter for edit in edits}
        return [
            filter_
            for filter_ in self._parts.filters
            if type(filter_).__name__ not in dropped
        ]

    def _admitted(self, query: AskedQuery, edits: Sequence[Edit], mask: Mask) -> Mask:
        """Return which hosts in a mask pass every check after changes, (n_hosts,)."""
        admitted = np.zeros(self._n, np.bool_)
        offered = self._checks.offered(query, edits, mask)
        if offered is None:
            return admitted
        rows, hosts = offered
        for edit in edits:
            if edit.numbers:
                hosts = hosts.with_numbers(edit.numbers)
        request = self._edited_request(edits)
        passes = np.ones(len(hosts), np.bool_)
        for restriction in restrictions(request):
            passes &= restriction.allows(hosts)
        filters = self._remaining(edits)
        for _, rejected in rejections(filters, hosts, request.spec_obj):
            passes &= ~rejected
        admitted[rows[passes]] = True
        return admitted

    def _edited_request(self, edits: Sequence[Edit]) -> Request:
        spec_obj = copy.deepcopy(self._checks.request.spec_obj)
        for edit in edits:
            edit.of_request(spec_obj)
        return Request.validated(spec_obj)

    def _group(self, edits: Sequence[Edit], admitted: Mask) -> ClosestGroup:
        hosts = self._hosts.take(admitted)
        names = sorted(set(hosts.host.tolist()))
        default = self._parts.conf.default_availability_zone
        zones = Counter(zones_of(hosts, default).tolist())
        return ClosestGroup(
            tuple(edit.change_for(hosts) for edit in edits),
            len(hosts),
            tuple(names[:MAX_NAMED]),
            tuple(zones.most_common(MAX_NAMED)),
        )


def _amounts_to_try(checks: Sequence[HostCheck], mask: Mask) -> list[tuple[int, ...]]:
    """Return tuples of amounts to try, one amount a check: 0 if it is of no resource.

    For a single check, several tuples; for several checks, the one with which a host
    needs the smallest change.
    """
    if len(checks) == 1:
        return [(amount,) for amount in checks[0].levels(mask)]
    cost = np.where(mask, np.sum([check.cost() for check in checks], axis=0), np.inf)
    closest = int(np.argmin(cost))
    return [tuple(int(c.available[closest]) if c.part else 0 for c in checks)]


def _distinct(groups: Sequence[ClosestGroup]) -> list[ClosestGroup]:
    """Return the groups; of several with equal changes, only the largest."""
    largest: dict[tuple[Change, ...], ClosestGroup] = {}
    for group in groups:
        key = tuple(dataclasses.replace(c, offered="") for c in group.changes)
        previous = largest.get(key)
        if previous is None or previous.n_hosts < group.n_hosts:
            largest[key] = group
    return list(largest.values())
