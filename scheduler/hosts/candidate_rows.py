# SPDX-License-Identifier: Apache-2.0
"""Placement's allocation candidates, and the rows of their hosts."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from ..candidates import AllocationCandidates, AllocationRequest, Mask

Rows = npt.NDArray[np.intp]

#: The candidate of a host for which Placement was not asked.
_NOTHING: AllocationRequest = {"allocations": {}, "mappings": {}}


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class CandidateRows:
    """The candidates of some hosts; those of one host are in Placement's order.

    Attributes
    ----------
    rows : ndarray of intp, shape (n_candidates,)
        The row of each, in the table or in a batch, depending on the holder.
    numbers : ndarray of intp, shape (n_candidates,)
        The number of each in `requests`.
    requests : sequence of mapping
        All of Placement's allocation requests, by number.
    """

    rows: Rows
    numbers: Rows
    requests: Sequence[AllocationRequest]

    def __len__(self) -> int:
        return len(self.numbers)

    def mappings(self) -> list[Mapping[str, Sequence[str]]]:
        """Return each candidate's providers by request group, length n_candidates."""
        requests = self.requests
        return [requests[number]["mappings"] for number in self.numbers.tolist()]

    def mappings_of(self, index: int) -> Mapping[str, Sequence[str]]:
        """Return one candidate's providers by request group."""
        mappings: Mapping[str, Sequence[str]]
        mappings = self.requests[int(self.numbers[index])]["mappings"]
        return mappings

    def by_row(self, n_rows: int) -> list[Rows]:
        """Return the indices of each row's candidates, length n_rows."""
        order = np.argsort(self.rows, kind="stable")
        ends = np.searchsorted(self.rows[order], np.arange(1, n_rows))
        return np.split(order, ends)

    def take(self, picked: Mask | Rows) -> CandidateRows:
        """Return the candidates that a mask or an array of indices picks."""
        return CandidateRows(self.rows[picked], self.numbers[picked], self.requests)

    def within(self, rows: Rows) -> CandidateRows:
        """Return the candidates of these table rows; new rows are indices into them."""
        n_rows = 1 + max(rows.max(initial=-1), self.rows.max(initial=-1))
        place = np.full(n_rows, -1, np.intp)
        place[rows] = np.arange(len(rows))
        places = place[self.rows]
        kept = places >= 0
        return CandidateRows(places[kept], self.numbers[kept], self.requests)


def empty_candidates(n_hosts: int) -> CandidateRows:
    """Return one candidate for each host with no mappings: Placement was not asked."""
    zeros = np.zeros(n_hosts, np.intp)
    return CandidateRows(np.arange(n_hosts), zeros, [_NOTHING])


def candidate_rows(answer: AllocationCandidates, rows: Rows) -> CandidateRows:
    """Return an answer's candidates with the table rows of their hosts.

    Parameters
    ----------
    rows : ndarray of intp, shape (n_roots,)
        The table row of each root of `answer`, in its order; -1: not a known host.
    """
    of_roots = answer.by_host.values()
    counts = np.fromiter(map(len, of_roots), np.intp, count=len(of_roots))
    numbers = np.fromiter(
        itertools.chain.from_iterable(of_roots), np.intp, count=int(counts.sum())
    )
    every = CandidateRows(np.repeat(rows, counts), numbers, answer.allocation_requests)
    return every.take(every.rows >= 0)
