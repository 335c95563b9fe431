# SPDX-License-Identifier: Apache-2.0
"""Allocation candidates of the rows of a host table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.intp]
Codes = npt.NDArray[np.int32]

#: One allocation request as Placement wrote it. It is opaque and sent back unchanged.
AllocationRequest = Mapping[str, Any]

#: The candidate of a host for which Placement was not asked.
_NOTHING: AllocationRequest = {"allocations": {}, "mappings": {}}


@dataclass(frozen=True, slots=True)
class HostLayout:
    """Which row of a host table each compute node has.

    Attributes
    ----------
    token : hashable
        Differs between tables, and after a row was added or removed.
    rows_of : callable
        Returns the row of each compute node, by UUID; -1: the node has no row.
    """

    token: Hashable
    rows_of: Callable[[Iterable[str]], Rows]


class ProviderCoder(Protocol):
    """Gives each resource provider that it knows a number, the provider's code.

    The code of a known provider does not change; all unknown providers share one code.
    """

    @property
    def n_known(self) -> int:
        """How many providers are known, and so have a code of their own."""

    def provider_codes(self, uuids: Sequence[str | None]) -> Codes:
        """Return the codes of resource providers, shape (n_uuids,)."""


class CandidateContents(Protocol):
    """What the candidates of an offer contain, by their numbers in the offer."""

    def request(self, number: int) -> AllocationRequest:
        """Return one candidate as Placement returns it."""

    def groups(self) -> Collection[str]:
        """Return the request groups for which candidates have providers."""

    def provider_codes(self, group: str, numbers: Rows, coder: ProviderCoder) -> Codes:
        """Return the code of the group's first provider in each candidate.

        If a candidate has no provider for the group, its code is the one that `coder`
        gives to None. Shape (n_numbers,).
        """


class HostCandidates(Protocol):
    """The candidates of an `Offer`, by row of a host table.

    Attributes
    ----------
    rows : ndarray of intp, shape (n,)
        The rows that have a candidate, in any order; a row can occur again.
    """

    @property
    def rows(self) -> Rows:
        """The rows that have a candidate, in any order; a row can occur again."""

    def groups(self) -> Collection[str]:
        """Return the request groups for which candidates have providers."""

    def within(self, rows: Rows) -> CandidateRows:
        """Return the candidates of these table rows.

        The `rows` of the result are indices into the parameter `rows`.
        """


@dataclass(frozen=True, slots=True, eq=False)
class CandidateRows:
    """The candidates of some hosts; those of one host are in the order of the offer.

    Attributes
    ----------
    rows : ndarray of intp, shape (n_candidates,)
        The row of each candidate's host: in the host table, or in a host batch if the
        batch has these candidates.
    numbers : ndarray of intp, shape (n_candidates,)
        The number of each candidate in the offer.
    contents : CandidateContents
        What the candidates contain, by their numbers.
    """

    rows: Rows
    numbers: Rows
    contents: CandidateContents

    def __len__(self) -> int:
        return len(self.numbers)

    def request(self, index: int) -> AllocationRequest:
        """Return one candidate as Placement returned it."""
        return self.contents.request(int(self.numbers[index]))

    def mappings_of(self, index: int) -> Mapping[str, Sequence[str]]:
        """Return one candidate's providers by request group."""
        mappings: Mapping[str, Sequence[str]] = self.request(index)["mappings"]
        return mappings

    def groups(self) -> Collection[str]:
        """Return the request groups for which the candidates have providers."""
        return self.contents.groups()

    def provider_codes(self, group: str, coder: ProviderCoder) -> Codes:
        """Return the code of each candidate's provider for a request group."""
        return self.contents.provider_codes(group, self.numbers, coder)

    def by_row(self, n_rows: int) -> list[Rows]:
        """Return the indices of each row's candidates, length n_rows."""
        order = np.argsort(self.rows, kind="stable")
        ends = np.searchsorted(self.rows[order], np.arange(1, n_rows))
        return np.split(order, ends)

    def take(self, picked: Mask | Rows) -> CandidateRows:
        """Return the candidates that a mask or an array of indices picks."""
        return CandidateRows(self.rows[picked], self.numbers[picked], self.contents)

    def within(self, rows: Rows) -> CandidateRows:
        """Return the candidates of these table rows.

        The `rows` of the result are indices into the parameter `rows`.
        """
        indices = indices_within(rows, self.rows)
        is_within = indices >= 0
        return CandidateRows(indices[is_within], self.numbers[is_within], self.contents)


def indices_within(rows: Rows, wanted: Rows) -> Rows:
    """Return the index in `rows` of each of the rows `wanted`; -1: it is not there."""
    n_rows = 1 + max(rows.max(initial=-1), wanted.max(initial=-1))
    index_of = np.full(n_rows + 1, -1, np.intp)  # -1 in `wanted` finds the last element
    index_of[rows] = np.arange(len(rows))
    indices: Rows = index_of[wanted]
    return indices


class _NoContents:
    """One candidate without any mapping."""

    def request(self, _number: int) -> AllocationRequest:
        return _NOTHING

    def groups(self) -> Collection[str]:
        return ()

    def provider_codes(self, _group: str, numbers: Rows, coder: ProviderCoder) -> Codes:
        return coder.provider_codes([None] * len(numbers))


def empty_candidates(n_hosts: int) -> CandidateRows:
    """Return one candidate for each host with no mappings: Placement was not asked."""
    zeros = np.zeros(n_hosts, np.intp)
    return CandidateRows(np.arange(n_hosts), zeros, _NoContents())
