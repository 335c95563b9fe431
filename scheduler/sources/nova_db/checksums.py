# SPDX-License-Identifier: Apache-2.0
"""Checksums by which the database finds whether a table has changed since it was read.

The database counts the rows, and sums one number of each row with a weight that depends
on its id. If both are unchanged, the table counts as unchanged; a full comparison finds
what this misses. The same sums by bucket of ids show which rows changed; grouping costs
more, so it is done only if the total differs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import sqlalchemy as sa

from .packing import group_of, joined

_BUCKET_BITS: Final = 8
#: Larger than a bucket, so that ids in one bucket have different weights.
_WEIGHTS: Final = 1009
#: A prime; a bucket's sum of such numbers with their weights is an int64.
_MODULUS: Final = 2**31 - 1

#: The number of rows, and their weighted sum.
Sums = tuple[int, int]
_NOTHING: Final = (0, 0)


def bucket_of(row_id: int) -> int:
    """Return the bucket of a row."""
    return row_id >> _BUCKET_BITS


def ids_of(bucket: int) -> tuple[int, int]:
    """Return the first and the last id of a bucket."""
    return bucket << _BUCKET_BITS, ((bucket + 1) << _BUCKET_BITS) - 1


@dataclasses.dataclass(frozen=True, slots=True)
class ChecksumQueries:
    """Queries for the checksums of a table: of all rows, and by bucket.

    `total` also selects the ids of late rows, separated by commas; NULL if none.
    """

    total: sa.Select[int, int, str]
    by_bucket: sa.Select[int, int, int]


def checksum_queries(
    row_id: sa.ColumnElement[int],
    number: sa.ColumnElement[int],
    *conditions: sa.ColumnElement[bool],
    late: sa.ColumnElement[bool] | None = None,
) -> ChecksumQueries:
    """Return the queries for the rows that match the conditions.

    Parameters
    ----------
    number : column expression
        An integer that changes with the row, neither negative nor NULL.
    late : column expression, optional
        The condition of late rows; None: there are none.
    """
    weighted = number % _MODULUS * (row_id % _WEIGHTS + 1)
    sums = (sa.func.count(), sa.func.sum(weighted))
    ids: sa.ColumnElement[Any] = sa.null()
    if late is not None:
        ids = joined(sa.cast(sa.case((late, row_id)), sa.Text))
    bucket = group_of(row_id, _BUCKET_BITS).label("bucket")
    return ChecksumQueries(
        total=sa.select(*sums, ids).where(*conditions),
        by_bucket=sa.select(bucket, *sums)
        .where(*conditions)
        .group_by(sa.text("bucket")),
    )


def late_ids(total: Sequence[Any]) -> list[int]:
    """Return the ids of late rows in a result of `ChecksumQueries.total`."""
    ids: str | None = total[2]
    return [int(row_id) for row_id in ids.split(",")] if ids else []


class TableChecksum:
    """The same sums over the rows that were read, updated as these change.

    Attributes
    ----------
    numbers : dict
        Each row's number by its id.
    """

    def __init__(self, numbers: Mapping[int, int] = MappingProxyType({})) -> None:
        self.numbers = dict(numbers)
        self._total: Sums = _NOTHING
        for row_id, number in numbers.items():
            self._total = _plus(self._total, row_id, number)

    def has(self, row_id: int, number: int) -> bool:
        """Return whether a row with that number is known."""
        return self.numbers.get(row_id) == number

    def put(self, row_id: int, number: int) -> None:
        """Add or update a row."""
        numbers = self.numbers
        count, weighted = self._total
        if row_id in numbers:
            change = number % _MODULUS - numbers[row_id] % _MODULUS
        else:
            count += 1
            change = number % _MODULUS
        numbers[row_id] = number
        self._total = (count, weighted + change * (row_id % _WEIGHTS + 1))

    def drop(self, row_id: int) -> None:
        """Remove a row."""
        if row_id in self.numbers:
            number = self.numbers.pop(row_id)
            self._total = _plus(self._total, row_id, number, sign=-1)

    def matches(self, row: Sequence[Any]) -> bool:
        """Return whether the total equals that of the database."""
        return self._total == _sums(row)

    def differing(self, rows: Iterable[Sequence[Any]]) -> list[int]:
        """Return the buckets whose sums differ from the database's, ascending."""
        theirs = {int(bucket): _sums(sums) for bucket, *sums in rows}
        ours: dict[int, Sums] = {}
        for row_id, number in self.numbers.items():
            bucket = bucket_of(row_id)
            ours[bucket] = _plus(ours.get(bucket, _NOTHING), row_id, number)
        return sorted(
            bucket
            for bucket in theirs.keys() | ours.keys()
            if theirs.get(bucket) != ours.get(bucket)
        )


def _plus(sums: Sums, row_id: int, number: int, sign: int = 1) -> Sums:
    """Return the sums with one row added, or removed."""
    count, weighted = sums
    weight = sign * (row_id % _WEIGHTS + 1)
    return count + sign, weighted + number % _MODULUS * weight


def _sums(row: Sequence[Any]) -> Sums:
    """Return a result row as integers; the sum of no rows is NULL."""
    count, weighted, *_ = row
    return int(count), int(weighted or 0)
