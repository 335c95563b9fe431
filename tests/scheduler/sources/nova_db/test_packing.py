# SPDX-License-Identifier: Apache-2.0
"""What a database writes as JSON is read as what is in its rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from moorage.scheduler.sources.nova_db import packing
from moorage.scheduler.sources.nova_db.packing import (
    LongRows,
    decoded,
    exact,
    inline_numbers,
    json_row,
    packed,
    unpacked,
)

from ....conftest import instance_uuid
from ....fixtures.database_servers import Database
from .databases import INSTANCES, NODES, Nova, node, us
from .test_changes import DATABASES

#: Enough for several texts.
N_ROWS = 1000
ODD = ('a "quoted" \\ name', "ünïcode", "a,b],[c", "line\nfeed\x1f", "", None)

pytestmark = DATABASES


@pytest.fixture
def cell(kind: Database | None, tmp_path: Path) -> Iterator[sa.Engine]:
    with Nova(tmp_path, kind=kind) as nova:
        yield nova.cells["cell1"]


def test_all_rows_are_unpacked_as_they_are(cell: sa.Engine) -> None:
    c = INSTANCES.c
    told = [
        {
            "id": 1 + 3 * i,
            "uuid": instance_uuid(i),
            "host": ODD[i % len(ODD)],
            "deleted": 2**31 - 1 - i,
            "updated_at": us(i),
        }
        for i in range(N_ROWS)
    ]
    with cell.begin() as connection:
        connection.execute(INSTANCES.insert(), told)
    with cell.connect() as connection:
        rows = unpacked(connection, packed(c.id, c.id, c.uuid, c.host, c.deleted))
        assert sorted(rows) == [
            [row["id"], row["uuid"], row["host"], row["deleted"]] for row in told
        ]
        nothing = packed(c.id, c.id).where(c.id < 0)
        assert unpacked(connection, nothing) == []


LONG = {
    "as they are written": ['{"a": 1}', None, "", 'a "text" \\ \u00fc', "[]"],
    "with the end of a field": ["a\x1fb", None, "c\x1f", "\x1f", "d"],
    "longer than a text may be": ["a" * 3000, None, "b" * 2000, "c", "d" * 900],
}


@pytest.mark.parametrize("texts", [pytest.param(t, id=n) for n, t in LONG.items()])
def test_long_texts_are_read_as_they_are(
    cell: sa.Engine, texts: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "_MAX_BYTES", 4096)
    c = NODES.c
    told = [
        node(f"n{i}", stats=text, metrics=texts[i - 1]) for i, text in enumerate(texts)
    ]
    with cell.begin() as connection:
        connection.execute(NODES.insert(), told)
    query = LongRows.of(c.id, [c.id, c.host], [c.stats, c.metrics])
    with cell.connect() as connection:
        rows = query.where(c.host != "n3").read(connection)
        again = query.read(connection, are_few=True)
    assert sorted((row.values[1], *row.texts) for row in rows) == [
        (each["host"], each["stats"] or "", each["metrics"] or "")
        for each in told
        if each["host"] != "n3"
    ]
    contents = {row.values[1]: row.content for row in again}
    assert all(contents[row.values[1]] == row.content for row in rows)
    assert len(set(contents.values())) == len(texts)


def test_only_texts_and_what_is_told_later_are_bound(cell: sa.Engine) -> None:
    c = INSTANCES.c
    is_wanted = (c.deleted == 7) & (c.host == "a") & (c.id > sa.bindparam("first"))
    query = sa.union_all(*(sa.select(c.id % 3 - 1).where(is_wanted) for _ in range(2)))
    compiled = inline_numbers(query).compile(cell)
    assert set(compiled.params.values()) == {"a", None}
    row = {"id": 5, "uuid": instance_uuid(1), "host": "a", "deleted": 7}
    with cell.begin() as connection:
        connection.execute(INSTANCES.insert(), [row])
        for first, found in ((4, [1, 1]), (5, [])):
            rows = connection.execute(inline_numbers(query), {"first": first}).scalars()
            assert rows.all() == found


@pytest.mark.parametrize("ratio", [16.0, 1.1, 0.1, 0.0, 1.25, None])
def test_ratio_is_exactly_what_a_driver_would_read(
    cell: sa.Engine, ratio: float | None
) -> None:
    column = NODES.c.cpu_allocation_ratio
    with cell.begin() as connection:
        connection.execute(NODES.insert(), [node("a", cpu_allocation_ratio=ratio)])
        [plain] = connection.execute(sa.select(column)).scalars()
        [[text]] = decoded(
            connection.execute(sa.select(json_row(exact(column)))).scalars()
        )
    assert (None if text is None else float(text)) == plain == ratio
