# SPDX-License-Identifier: Apache-2.0
"""Whether a table still is what was read of it, asked of the database in two numbers.

The database counts the rows and adds up a number that each row has, with a weight that
depends on its id. Where both are what they were, the table is taken as unchanged; a
full comparison finds what slips through. Which rows changed is found by the same
numbers of buckets of ids; to group by them costs more, so it is done where the whole
differs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import sqlalchemy as sa

from .packing import bunch_of, joined

_BUCKET_BITS: Final = 8
#: Larger than a bucket, so that the ids of one have different weights.
_WEIGHTS: Final = 1009
#: A prime; a bucket's sum of such numbers with their weights is an int64.
_MODULUS: Final = 2**31 - 1

#: How many rows there are, and their weighted sum.
Sums = tuple[int, int]
_NOTHING: Final = (0, 0)


def bucket_of(row_id: int) -> int:
    """Return the bucket of a row."""
    return row_id >> _BUCKET_BITS


def ids_of(bucket: int) -> tuple[int, int]:
    """Return the first and the last id of a bucket."""
    return bucket << _BUCKET_BITS, ((bucket + 1) << _BUCKET_BITS) - 1


@dataclasses.dataclass(frozen=True, slots=True)
class Queries:
    """What asks for the sums of a table's rows: of all, and by bucket.

    `total` also tells the ids of late rows, with commas between them; NULL: of none.
    """

    total: sa.Select[int, int, str]
    by_bucket: sa.Select[int, int, int]


def sum_queries(
    row_id: sa.ColumnElement[int],
    number: sa.ColumnElement[int],
    *conditions: sa.ColumnElement[bool],
    late: sa.ColumnElement[bool] | None = None,
) -> Queries:
    """Return the questions about the rows that fulfil the conditions.

    Parameters
    ----------
    number : column expression
        A whole number that changes when the row does, neither negative nor NULL.
    late : column expression, optional
        Which rows count as late; None: none of them.
    """
    weighted = number % _MODULUS * (row_id % _WEIGHTS + 1)
    sums = (sa.func.count(), sa.func.sum(weighted))
    ids: sa.ColumnElement[Any] = sa.null()
    if late is not None:
        ids = joined(sa.cast(sa.case((late, row_id)), sa.Text))
    bucket = bunch_of(row_id, _BUCKET_BITS).label("bucket")
    return Queries(
        total=sa.select(*sums, ids).where(*conditions),
        by_bucket=sa.select(bucket, *sums)
        .where(*conditions)
        .group_by(sa.text("bucket")),
    )


def late_ids(total: Sequence[Any]) -> list[int]:
    """Return the ids that an answer to `Queries.total` tells."""
    ids: str | None = total[2]
    return [int(row_id) for row_id in ids.split(",")] if ids else []


class Signatures:
    """The same sums over the rows that were read, kept as these change.

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
        """Return whether a row is there with that number."""
        return self.numbers.get(row_id) == number

    def put(self, row_id: int, number: int) -> None:
        """Say that a row is there, and its number."""
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
        """Say that a row is not there."""
        if row_id in self.numbers:
            number = self.numbers.pop(row_id)
            self._total = _plus(self._total, row_id, number, sign=-1)

    def agrees(self, row: Sequence[Any]) -> bool:
        """Return whether the total is what the database answered."""
        return self._total == _sums(row)

    def differing(self, rows: Iterable[Sequence[Any]]) -> list[int]:
        """Return the buckets that are not as the database answered, ascending."""
        told = {int(bucket): _sums(sums) for bucket, *sums in rows}
        ours: dict[int, Sums] = {}
        for row_id, number in self.numbers.items():
            bucket = bucket_of(row_id)
            ours[bucket] = _plus(ours.get(bucket, _NOTHING), row_id, number)
        return sorted(
            bucket
            for bucket in told.keys() | ours.keys()
            if told.get(bucket) != ours.get(bucket)
        )


def _plus(sums: Sums, row_id: int, number: int, sign: int = 1) -> Sums:
    """Return the sums with one row more, or less."""
    count, weighted = sums
    weight = sign * (row_id % _WEIGHTS + 1)
    return count + sign, weighted + number % _MODULUS * weight


def _sums(row: Sequence[Any]) -> Sums:
    """Return an answer as whole numbers; a sum of no rows is NULL."""
    count, weighted, *_ = row
    return int(count), int(weighted or 0)
