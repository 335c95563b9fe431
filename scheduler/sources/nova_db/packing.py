# SPDX-License-Identifier: Apache-2.0
"""Queries whose rows the database returns as JSON, many rows in one text.

A driver written in Python takes longer to parse a row than all other processing takes;
JSON is decoded in C, thousands of rows at once. Long texts, most of which are JSON
themselves, are not encoded again: they stand beside their row's JSON.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import functions, visitors
from sqlalchemy.sql.compiler import SQLCompiler

from ...decoding import loads

#: Low bits of the id in which rows of one text differ: 256 rows, about ten kilobytes,
#: or one to two megabytes with long texts.
_BITS: Final = 8
#: Longest text in bytes. MariaDB's default is a mebibyte, MySQL's 1024 bytes; both
#: truncate longer ones.
_MAX_BYTES: Final = 2**24
#: Separates long texts, and rows that have such; JSON never contains it.
_END: Final = "\x1f"
#: Set in the info of a connection whose session allows `_MAX_BYTES`.
_WIDE: Final = "moorage.group_concat_max_len"


class json_row(functions.GenericFunction[str]):
    """Integers, texts and NULLs of one row as the text of a JSON array."""

    type = sa.Text()
    inherit_cache = True


@compiles(json_row, "mysql")
@compiles(json_row, "mariadb")
@compiles(json_row, "sqlite")
def _as_json(element: json_row, compiler: SQLCompiler, **kw: object) -> str:
    return f"json_array({compiler.process(element.clauses, **kw)})"


@compiles(json_row, "postgresql")
def _as_json_in_postgresql(
    element: json_row, compiler: SQLCompiler, **kw: object
) -> str:
    values = compiler.process(element.clauses, **kw)
    return f"CAST(json_build_array({values}) AS TEXT)"


class exact(functions.GenericFunction[str]):
    """A floating-point number as text without loss of precision; NULL for NULL."""

    type = sa.Text()
    inherit_cache = True


@compiles(exact, "mysql")
@compiles(exact, "mariadb")
def _exact_in_mysql(element: exact, compiler: SQLCompiler, **kw: object) -> str:
    return f"concat({compiler.process(element.clauses, **kw)})"


@compiles(exact, "postgresql")
def _exact_in_postgresql(element: exact, compiler: SQLCompiler, **kw: object) -> str:
    return f"CAST({compiler.process(element.clauses, **kw)} AS TEXT)"


@compiles(exact, "sqlite")
def _exact_in_sqlite(element: exact, compiler: SQLCompiler, **kw: object) -> str:
    number = compiler.process(element.clauses, **kw)
    return f"CASE WHEN {number} IS NOT NULL THEN printf('%!.17g', {number}) END"


class concat_fields(functions.GenericFunction[str]):
    """Texts, none of them NULL, separated by `_END`."""

    type = sa.Text()
    inherit_cache = True


@compiles(concat_fields, "mysql")
@compiles(concat_fields, "mariadb")
@compiles(concat_fields, "postgresql")
def _concat_fields(element: concat_fields, compiler: SQLCompiler, **kw: object) -> str:
    return f"concat_ws('{_END}', {compiler.process(element.clauses, **kw)})"


@compiles(concat_fields, "sqlite")
def _concat_fields_in_sqlite(
    element: concat_fields, compiler: SQLCompiler, **kw: object
) -> str:
    texts = [compiler.process(text, **kw) for text in element.clauses]
    return f" || '{_END}' || ".join(texts)


class joined(functions.GenericFunction[str]):
    """The texts of all rows of a group, separated by commas."""

    type = sa.Text()
    inherit_cache = True
    separator = ","


class joined_rows(joined):
    """The texts of all rows of a group, separated by `_END`."""

    inherit_cache = True
    separator = _END


@compiles(joined, "mysql")
@compiles(joined, "mariadb")
def _joined(element: joined, compiler: SQLCompiler, **kw: object) -> str:
    texts = compiler.process(element.clauses, **kw)
    return f"group_concat({texts} SEPARATOR '{element.separator}')"


@compiles(joined, "sqlite")
def _joined_in_sqlite(element: joined, compiler: SQLCompiler, **kw: object) -> str:
    texts = compiler.process(element.clauses, **kw)
    return f"group_concat({texts}, '{element.separator}')"


@compiles(joined, "postgresql")
def _joined_in_postgresql(element: joined, compiler: SQLCompiler, **kw: object) -> str:
    texts = compiler.process(element.clauses, **kw)
    return f"string_agg({texts}, '{element.separator}')"


def packed(
    row_id: sa.ColumnElement[int], *columns: sa.ColumnElement[Any]
) -> sa.Select[str]:
    """Return a query for the columns, to be run by `unpacked`.

    Parameters
    ----------
    row_id : column expression
        The table's primary key, by which rows are grouped.
    columns : column expressions
        Integers and short texts.
    """
    return sa.select(joined(json_row(*columns))).group_by(group_of(row_id))


def group_of(row_id: sa.ColumnElement[int], bits: int = _BITS) -> sa.ColumnElement[int]:
    """Return an expression that is equal for ids that differ in the low bits only."""
    return row_id.op(">>", return_type=sa.BigInteger())(bits)


def unpacked(
    connection: sa.Connection,
    query: sa.Select[str],
    values: Mapping[str, object] | None = None,
) -> list[list[Any]]:
    """Return the rows of a query made by `packed`, in no particular order."""
    return decoded(run(connection, query, values).scalars())


def run(
    connection: sa.Connection,
    query: sa.Executable,
    values: Mapping[str, object] | None = None,
) -> sa.CursorResult[Any]:
    """Run a query with `joined` texts, which may be long."""
    if connection.dialect.name in ("mysql", "mariadb") and _WIDE not in connection.info:
        connection.exec_driver_sql(f"SET SESSION group_concat_max_len = {_MAX_BYTES}")
        connection.info[_WIDE] = True
    return connection.execute(query, values)


def inline_numbers(query: sa.CompoundSelect[Any]) -> sa.CompoundSelect[Any]:
    """Return the query with its constant integers rendered into its text.

    A driver written in Python takes longer to quote them for each execution than to
    read a short result.
    """

    def number(element: object, **_: object) -> sa.ColumnElement[Any] | None:
        if isinstance(element, sa.BindParameter) and type(element.value) is int:
            return sa.literal_column(str(element.value), element.type)
        return None

    replaced = visitors.replacement_traverse(query, {}, number)
    return cast(sa.CompoundSelect[Any], replaced)


def decoded(texts: Iterable[str]) -> list[list[Any]]:
    """Return the rows in texts of `json_row`, or of several of them `joined`."""
    rows: list[list[Any]] = loads(f"[{','.join(texts)}]")
    return rows


class LongRow(NamedTuple):
    """A row with long texts; NULL is read as an empty text.

    Attributes
    ----------
    content : int
        A hash of the whole row.
    """

    content: int
    values: list[Any]
    texts: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class LongRows:
    """Queries for rows with long texts, many rows in one text.

    If a text contains the separator, or the combined texts exceed the database's limit,
    the fields are selected separately.

    Attributes
    ----------
    packed, single : Select
        All rows of a group in one text, with their number; or each row in its own text,
        which is cheaper for the database if there are few.
    plain : Select
        Each field separately.
    """

    packed: sa.Select[str, int]
    single: sa.Select[str, int]
    plain: sa.Select[Any]

    @classmethod
    def of(
        cls,
        row_id: sa.ColumnElement[int],
        columns: Iterable[sa.ColumnElement[Any]],
        texts: Sequence[sa.ColumnElement[Any]],
    ) -> LongRows:
        """Select columns as `packed` does, with long texts beside them."""
        short = json_row(*columns)
        nothing = sa.literal_column("''", sa.Text)
        # The JSON is last: a truncated text then lacks its end.
        fields = [*(sa.func.coalesce(text, nothing) for text in texts), short]
        row = concat_fields(*fields)
        return cls(
            packed=sa.select(joined_rows(row), sa.func.count()).group_by(
                group_of(row_id)
            ),
            single=sa.select(row, sa.literal_column("1", sa.Integer)),
            plain=sa.select(*fields),
        )

    def where(self, *conditions: sa.ColumnElement[bool]) -> LongRows:
        """Select only the rows that match the conditions."""
        return LongRows(
            packed=self.packed.where(*conditions),
            single=self.single.where(*conditions),
            plain=self.plain.where(*conditions),
        )

    def read(
        self,
        connection: sa.Connection,
        values: Mapping[str, object] | None = None,
        *,
        are_few: bool = False,
    ) -> list[LongRow]:
        """Return the rows, in no particular order; `are_few`: at most some hundred."""
        n_fields = len(self.plain.selected_columns)
        query = self.single if are_few else self.packed
        try:
            bunches = run(connection, query, values).all()
            return _long_rows(_split(bunches, n_fields))
        except ValueError:
            return _long_rows(connection.execute(self.plain, values).all())


def _split(
    bunches: Iterable[Sequence[Any]], n_fields: int
) -> Iterator[tuple[str, ...]]:
    """Yield the fields of each row.

    Raises
    ------
    ValueError
        The number of fields is wrong.
    """
    for bunch, n_rows in bunches:
        fields = (bunch or "").split(_END)
        if len(fields) != n_rows * n_fields:
            raise ValueError("Some fields are missing or surplus")
        yield from zip(*[iter(fields)] * n_fields, strict=True)


def _long_rows(found: Iterable[Sequence[Any]]) -> list[LongRow]:
    """Return rows whose last field is the text of `json_row`."""
    rows = list(map(tuple, found))
    values_of_all = decoded(row[-1] for row in rows)
    return [
        LongRow(hash(row), values, row[:-1])
        for row, values in zip(rows, values_of_all, strict=True)
    ]
