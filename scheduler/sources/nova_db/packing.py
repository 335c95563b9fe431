# SPDX-License-Identifier: Apache-2.0
"""Rows that the database writes as JSON, many of them in one text.

To take a row apart costs a driver that is written in Python more than all the rest that
is done with it; JSON is decoded in C, and of thousands of rows at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import functions

#: Bits of an id that rows of one text may differ in: 256 rows, some ten kilobytes.
_BITS: Final = 8
#: Bytes of one text. MariaDB's default is a mebibyte, MySQL's 1024 bytes; both cut off
#: what is longer.
_MAX_BYTES: Final = 2**24
#: Noted of a connection whose session takes as much.
_WIDE: Final = "moorage.group_concat_max_len"


class json_row(functions.GenericFunction[str]):
    """Whole numbers, texts and NULLs of one row as the text of a JSON array."""

    type = sa.Text()
    inherit_cache = True


@compiles(json_row, "mysql")
@compiles(json_row, "mariadb")
@compiles(json_row, "sqlite")
def _as_json(element: json_row, compiler: Any, **kw: Any) -> str:
    return f"json_array({compiler.process(element.clauses, **kw)})"


@compiles(json_row, "postgresql")
def _as_json_in_postgresql(element: json_row, compiler: Any, **kw: Any) -> str:
    values = compiler.process(element.clauses, **kw)
    return f"CAST(json_build_array({values}) AS TEXT)"


class exact(functions.GenericFunction[str]):
    """A number with a fraction as a text that loses nothing; NULL for NULL."""

    type = sa.Text()
    inherit_cache = True


@compiles(exact, "mysql")
@compiles(exact, "mariadb")
def _exact_in_mysql(element: exact, compiler: Any, **kw: Any) -> str:
    return f"concat({compiler.process(element.clauses, **kw)})"


@compiles(exact, "postgresql")
def _exact_in_postgresql(element: exact, compiler: Any, **kw: Any) -> str:
    return f"CAST({compiler.process(element.clauses, **kw)} AS TEXT)"


@compiles(exact, "sqlite")
def _exact_in_sqlite(element: exact, compiler: Any, **kw: Any) -> str:
    number = compiler.process(element.clauses, **kw)
    return f"CASE WHEN {number} IS NOT NULL THEN printf('%!.17g', {number}) END"


class joined(functions.GenericFunction[str]):
    """The texts of all rows of a group, with commas between them."""

    type = sa.Text()
    inherit_cache = True


@compiles(joined, "mysql")
@compiles(joined, "mariadb")
@compiles(joined, "sqlite")
def _joined(element: joined, compiler: Any, **kw: Any) -> str:
    return f"group_concat({compiler.process(element.clauses, **kw)})"


@compiles(joined, "postgresql")
def _joined_in_postgresql(element: joined, compiler: Any, **kw: Any) -> str:
    return f"string_agg({compiler.process(element.clauses, **kw)}, ',')"


def packed(
    row_id: sa.ColumnElement[int], *columns: sa.ColumnElement[Any]
) -> sa.Select[int, str]:
    """Return what selects the columns, to be run by `unpacked`.

    Parameters
    ----------
    row_id : column expression
        The table's primary key, by which rows are put together.
    columns : column expressions
        Whole numbers and short texts.
    """
    group = row_id.op(">>", return_type=sa.BigInteger())(_BITS).label("bunch")
    texts = sa.select(group, joined(json_row(*columns)).label("texts"))
    return texts.group_by(sa.text("bunch"))


def unpacked(
    connection: sa.Connection, query: sa.Select[int, str], values: Any = None
) -> list[list[Any]]:
    """Return the rows that a query made by `packed` finds, in no order."""
    if connection.dialect.name in ("mysql", "mariadb") and _WIDE not in connection.info:
        connection.exec_driver_sql(f"SET SESSION group_concat_max_len = {_MAX_BYTES}")
        connection.info[_WIDE] = True
    return decoded(text for _, text in connection.execute(query, values))


def decoded(texts: Iterable[str]) -> list[list[Any]]:
    """Return what texts of `json_row` say, or of several of them `joined`."""
    rows: list[list[Any]] = json.loads(f"[{','.join(texts)}]")
    return rows
