# SPDX-License-Identifier: Apache-2.0
"""Whether a table still is what was read of it, asked of the database in a few sums.

The database counts the rows and adds up a number that each row has, once as it is and
once with a weight that depends on its id. Where these three are what they were, the
table is taken as unchanged; a full comparison finds what slips through. Which rows
changed is found by the same sums of buckets of ids; to group by them costs three times
as much, so it is done where the whole differs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, Final

import sqlalchemy as sa

_BUCKET_BITS: Final = 8
#: Larger than a bucket, so that the ids of one have different weights.
_WEIGHTS: Final = 1009
#: A prime; a bucket's sum of such numbers with their weights is an int64.
_MODULUS: Final = 2**31 - 1
#: Rows, sum and weighted sum.
Sums = tuple[int, int, int]

#: Of a row whose number is NULL.
_NONE: Final = -1


def bucket_of(row_id: int) -> int:
    """Return the bucket of a row."""
    return row_id >> _BUCKET_BITS


def ids_of(bucket: int) -> tuple[int, int]:
    """Return the first and the last id of a bucket."""
    return bucket << _BUCKET_BITS, ((bucket + 1) << _BUCKET_BITS) - 1


@dataclasses.dataclass(frozen=True, slots=True)
class Queries:
    """What asks for the sums of a table's rows: of all, and by bucket."""

    total: sa.Select[int, int, int]
    by_bucket: sa.Select[int, int, int, int]


def sum_queries(
    row_id: sa.ColumnElement[int],
    number: sa.ColumnElement[int],
    *conditions: sa.ColumnElement[bool],
) -> Queries:
    """Return the questions about the rows that fulfil the conditions.

    Parameters
    ----------
    number : column expression
        A whole number that changes when the row does, or NULL.
    """
    rest = sa.func.coalesce(number % _MODULUS, _NONE)
    sums = (sa.func.count(), sa.func.sum(rest), sa.func.sum(rest * (row_id % _WEIGHTS)))
    bucket = row_id.op(">>", return_type=sa.BigInteger())(_BUCKET_BITS).label("bucket")
    return Queries(
        total=sa.select(*sums).where(*conditions),
        by_bucket=sa.select(bucket, *sums)
        .where(*conditions)
        .group_by(sa.text("bucket")),
    )


class Signatures:
    """The same sums over the rows that were read, kept as these change."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._of_bucket: dict[int, Sums] = {}
        self._total: Sums = (0, 0, 0)

    def has(self, row_id: int, number: int | None) -> bool:
        """Return whether a row is there with that number, as far as sums can tell."""
        return self._numbers.get(row_id) == _rest(number)

    def put(self, row_id: int, number: int | None) -> None:
        """Say that a row is there, and its number."""
        rest = _rest(number)
        before = self._numbers.get(row_id)
        if before != rest:
            self.drop(row_id)
            self._numbers[row_id] = rest
            self._add(row_id, rest, 1)

    def drop(self, row_id: int) -> None:
        """Say that a row is not there."""
        rest = self._numbers.pop(row_id, None)
        if rest is not None:
            self._add(row_id, rest, -1)

    def _add(self, row_id: int, rest: int, sign: int) -> None:
        bucket, plain = row_id >> _BUCKET_BITS, sign * rest
        weighted = plain * (row_id % _WEIGHTS)
        n, p, w = self._total
        self._total = (n + sign, p + plain, w + weighted)
        n, p, w = self._of_bucket.get(bucket, (0, 0, 0))
        if n + sign:
            self._of_bucket[bucket] = (n + sign, p + plain, w + weighted)
        else:
            del self._of_bucket[bucket]

    def agrees(self, row: Sequence[Any]) -> bool:
        """Return whether the total is what the database answered."""
        return self._total == _sums(row)

    def differing(self, rows: Iterable[Sequence[Any]]) -> list[int]:
        """Return the buckets that are not as the database answered, ascending."""
        told = {int(bucket): _sums(sums) for bucket, *sums in rows}
        return sorted(
            bucket
            for bucket in told.keys() | self._of_bucket.keys()
            if told.get(bucket) != self._of_bucket.get(bucket)
        )


def _rest(number: int | None) -> int:
    return _NONE if number is None else number % _MODULUS


def _sums(row: Sequence[Any]) -> Sums:
    """Return an answer as whole numbers; a sum of no rows is NULL."""
    count, plain, weighted = (int(value or 0) for value in row)
    return (count, plain, weighted)
