# SPDX-License-Identifier: Apache-2.0
"""Columns of times in SQL, as whole microseconds since the epoch."""

from __future__ import annotations

import datetime
from typing import Final

import sqlalchemy as sa
from sqlalchemy.engine import Dialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import functions
from sqlalchemy.sql.compiler import SQLCompiler

_EPOCH = datetime.datetime(1970, 1, 1)
_MICROSECOND = datetime.timedelta(microseconds=1)
US_PER_S: Final = 1_000_000


class UtcMicroseconds(sa.types.TypeDecorator[int]):
    """A naive UTC DATETIME whose parameters are whole microseconds since the epoch."""

    impl = sa.DateTime
    cache_ok = True

    def process_bind_param(
        self,
        value: int | None,
        dialect: Dialect,  # noqa: ARG002 - TypeDecorator's signature
    ) -> datetime.datetime | None:
        """Return the value as a naive UTC datetime."""
        return None if value is None else _EPOCH + value * _MICROSECOND


class microseconds(functions.GenericFunction[int]):
    """A DATETIME in SQL, as microseconds since the epoch; NULL for NULL."""

    type = sa.BigInteger()
    inherit_cache = True


def seconds(at_us: int | None) -> float | None:
    """Return a time of `microseconds` in seconds; None: it is unknown, or zero."""
    return at_us / US_PER_S if at_us else None


@compiles(microseconds, "mysql")
@compiles(microseconds, "mariadb")
def _in_mysql(element: microseconds, compiler: SQLCompiler, **kw: object) -> str:
    # Not UNIX_TIMESTAMP: it would interpret the value in the session's time zone.
    column = compiler.process(element.clauses, **kw)
    # A string instead of the literal would be parsed again for each row.
    return f"TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', {column})"


@compiles(microseconds, "postgresql")
def _in_postgresql(element: microseconds, compiler: SQLCompiler, **kw: object) -> str:
    column = compiler.process(element.clauses, **kw)
    return f"CAST(EXTRACT(EPOCH FROM {column}) * {US_PER_S} AS BIGINT)"


@compiles(microseconds, "sqlite")
def _in_sqlite(element: microseconds, compiler: SQLCompiler, **kw: object) -> str:
    column = compiler.process(element.clauses, **kw)
    # Without the fraction, as strftime rounds 10.9995 to the eleventh second.
    return (
        f"(CAST(strftime('%s', substr({column}, 1, 19)) AS INTEGER) * {US_PER_S}"
        f" + CAST(substr({column} || '.000000', 21, 6) AS INTEGER))"
    )
