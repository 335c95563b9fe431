# SPDX-License-Identifier: Apache-2.0
"""Rows that the database writes as JSON, many of them in one text.

To take a row apart costs a driver that is written in Python more than all the rest that
is done with it; JSON is decoded in C, and of thousands of rows at once. Long texts,
which are JSON mostly, are not written as such once more: they stand beside their row's.
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

#: Bits of an id that rows of one text may differ in: 256 rows, some ten kilobytes, or
#: with long texts a megabyte or two.
_BITS: Final = 8
#: Bytes of one text. MariaDB's default is a mebibyte, MySQL's 1024 bytes; both cut off
#: what is longer.
_MAX_BYTES: Final = 2**24
#: Between long texts, and between rows that have such; no JSON has it.
_END: Final = "\x1f"
#: Noted of a connection whose session takes as much.
_WIDE: Final = "moorage.group_concat_max_len"


class json_row(functions.GenericFunction[str]):
    """Whole numbers, texts and NULLs of one row as the text of a JSON array."""

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
    """A number with a fraction as a text that loses nothing; NULL for NULL."""

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


class in_a_row(functions.GenericFunction[str]):
    """Texts, none of them NULL, with `_END` between them."""

    type = sa.Text()
    inherit_cache = True


@compiles(in_a_row, "mysql")
@compiles(in_a_row, "mariadb")
@compiles(in_a_row, "postgresql")
def _in_a_row(element: in_a_row, compiler: SQLCompiler, **kw: object) -> str:
    return f"concat_ws('{_END}', {compiler.process(element.clauses, **kw)})"


@compiles(in_a_row, "sqlite")
def _in_a_row_in_sqlite(element: in_a_row, compiler: SQLCompiler, **kw: object) -> str:
    texts = [compiler.process(text, **kw) for text in element.clauses]
    return f" || '{_END}' || ".join(texts)


class joined(functions.GenericFunction[str]):
    """The texts of all rows of a group, with commas between them."""

    type = sa.Text()
    inherit_cache = True
    separator = ","


class joined_rows(joined):
    """The texts of all rows of a group, with `_END` between them."""

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
    """Return what selects the columns, to be run by `unpacked`.

    Parameters
    ----------
    row_id : column expression
        The table's primary key, by which rows are put together.
    columns : column expressions
        Whole numbers and short texts.
    """
    return sa.select(joined(json_row(*columns))).group_by(bunch_of(row_id))


def bunch_of(row_id: sa.ColumnElement[int], bits: int = _BITS) -> sa.ColumnElement[int]:
    """Return a number that all rows share whose ids differ in the lowest bits only."""
    return row_id.op(">>", return_type=sa.BigInteger())(bits)


def unpacked(
    connection: sa.Connection,
    query: sa.Select[str],
    values: Mapping[str, object] | None = None,
) -> list[list[Any]]:
    """Return the rows that a query made by `packed` finds, in no order."""
    return decoded(run(connection, query, values).scalars())


def run(
    connection: sa.Connection,
    query: sa.Executable,
    values: Mapping[str, object] | None = None,
) -> sa.CursorResult[Any]:
    """Run a query that has `joined` texts, which may be long."""
    if connection.dialect.name in ("mysql", "mariadb") and _WIDE not in connection.info:
        connection.exec_driver_sql(f"SET SESSION group_concat_max_len = {_MAX_BYTES}")
        connection.info[_WIDE] = True
    return connection.execute(query, values)


def written_out(query: sa.CompoundSelect[Any]) -> sa.CompoundSelect[Any]:
    """Return the query with its fixed numbers in its text.

    A driver that is written in Python takes longer to quote them, each time, than to
    read what a short answer says.
    """

    def number(element: object, **_: object) -> sa.ColumnElement[Any] | None:
        if isinstance(element, sa.BindParameter) and type(element.value) is int:
            return sa.literal_column(str(element.value), element.type)
        return None

    replaced = visitors.replacement_traverse(query, {}, number)
    return cast(sa.CompoundSelect[Any], replaced)


def decoded(texts: Iterable[str]) -> list[list[Any]]:
    """Return what texts of `json_row` say, or of several of them `joined`."""
    rows: list[list[Any]] = loads(f"[{','.join(texts)}]")
    return rows


class LongRow(NamedTuple):
    """A row with long texts; one that is NULL is empty.

    Attributes
    ----------
    content : int
        A hash of all of it.
    """

    content: int
    values: list[Any]
    texts: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class LongRows:
    """What selects rows with long texts, many rows in one text.

    Where that cannot be, as a text has what ends a field, or the texts together are
    longer than the database makes any, the fields are selected one by one.

    Attributes
    ----------
    packed, single : Select
        All rows of a bunch in one text, and how many they are; each row in a text of
        its own, which takes the database less where there are few.
    plain : Select
        Each field by itself.
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
        """Select columns as `packed` does, and long texts beside them."""
        short = json_row(*columns)
        nothing = sa.literal_column("''", sa.Text)
        # Last: what was cut off has no end of it.
        fields = [*(sa.func.coalesce(text, nothing) for text in texts), short]
        row = in_a_row(*fields)
        return cls(
            packed=sa.select(joined_rows(row), sa.func.count()).group_by(
                bunch_of(row_id)
            ),
            single=sa.select(row, sa.literal_column("1", sa.Integer)),
            plain=sa.select(*fields),
        )

    def where(self, *conditions: sa.ColumnElement[bool]) -> LongRows:
        """Select only the rows that fulfil the conditions."""
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
        """Return the rows that are found, in no order; `are_few`: some hundred."""
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
        The texts have more or less than that.
    """
    for bunch, n_rows in bunches:
        fields = (bunch or "").split(_END)
        if len(fields) != n_rows * n_fields:
            raise ValueError("Not all fields of all rows are there")
        yield from zip(*[iter(fields)] * n_fields, strict=True)


def _long_rows(found: Iterable[Sequence[Any]]) -> list[LongRow]:
    """Return rows whose last field is what `json_row` wrote."""
    rows = list(map(tuple, found))
    values_of_all = decoded(row[-1] for row in rows)
    return [
        LongRow(hash(row), values, row[:-1])
        for row, values in zip(rows, values_of_all, strict=True)
    ]
