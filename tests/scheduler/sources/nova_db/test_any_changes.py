# SPDX-License-Identifier: Apache-2.0
"""However rows change, polls arrive at the same table as a first poll."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import hypothesis
from hypothesis import strategies as st

from moorage.scheduler.conf import load
from moorage.scheduler.hosts import HostTable

from ....conftest import instance_uuid
from ....fixtures.property_tests import examples
from .databases import (
    INSTANCES,
    NODES,
    SERVICES,
    Nova,
    contents,
    node,
    read_afresh,
    service,
    us,
)

N_HOSTS = 70  # more than are read whole in each poll
CELLS = ("cell1", "cell2")

_hosts = st.integers(0, 3).map("cell1-{}".format)
_cells = st.sampled_from(CELLS)
#: Whole seconds, as MariaDB stores them, around those that rows have already.
_times = st.one_of(st.none(), st.integers(-110, 3).map(us))
_changes = st.one_of(
    st.tuples(st.just("node"), _cells, _hosts, _times, st.integers(1, 1000)),
    st.tuples(st.just("beat"), _cells, _hosts, _times, st.booleans()),
    st.tuples(st.just("drop node"), _cells, _hosts, st.booleans()),
    st.tuples(st.just("drop service"), _cells, _hosts),
    st.tuples(st.just("new"), _cells, _hosts, _times),
    st.tuples(st.just("instance"), _cells, _hosts, st.integers(0, 3), st.booleans()),
    st.tuples(st.just("wait"), st.integers(1, 10)),
)


def _upsert(nova: Nova, cell: str, table: Any, where: Any, row: dict[str, Any]) -> None:
    with nova.cells[cell].begin() as connection:
        done = connection.execute(table.update().where(where).values(**row))
        if not done.rowcount:
            connection.execute(table.insert().values(**row))


def _make(nova: Nova, change: tuple[Any, ...]) -> None:
    kind, *what = change
    if kind == "wait":
        nova.clock.now += what[0]
        return
    cell, host, *values = what
    engine = nova.cells[cell]
    if kind == "node":
        where = NODES.c.host == host
        nova.update(engine, NODES, where, updated_at=values[0], free_ram_mb=values[1])
    elif kind == "beat":
        where = SERVICES.c.host == host
        seen = {"updated_at": values[0], "last_seen_up": values[0]}
        nova.update(engine, SERVICES, where, disabled=values[1], **seen)
    elif kind == "drop node":
        where = NODES.c.host == host
        if values[0]:
            nova.update(engine, NODES, where, deleted=NODES.c.id)
        else:
            nova.delete(engine, NODES, where)
    elif kind == "drop service":
        nova.delete(engine, SERVICES, SERVICES.c.host == host)
    elif kind == "new":
        row = node(host, updated_at=values[0])
        _upsert(nova, cell, NODES, NODES.c.uuid == row["uuid"], row)
        _upsert(nova, cell, SERVICES, SERVICES.c.host == host, service(host))
    else:
        row = {"uuid": instance_uuid(values[0]), "host": host, "updated_at": us(2)}
        row["deleted"] = int(values[1])
        _upsert(nova, cell, INSTANCES, INSTANCES.c.uuid == row["uuid"], row)


@examples(0.5)
@hypothesis.given(st.lists(st.tuples(_changes, st.booleans()), max_size=12))
def test_polls_arrive_at_the_table_of_a_first_poll(
    changes: list[tuple[tuple[Any, ...], bool]],
) -> None:
    conf = load([], config_files=[])
    with tempfile.TemporaryDirectory() as folder, Nova(Path(folder), *CELLS) as nova:
        for cell in CELLS:
            nova.hosts(N_HOSTS, cell)
        table, source = HostTable(), nova.source(conf)
        source.start(table)
        nova.clock.now += 4
        source.refresh_if_stale(table)
        for change, polls in changes:
            _make(nova, change)
            if polls:
                source.refresh_if_stale(table)
        source.refresh_if_stale(table)
        assert contents(table) == read_afresh(nova, conf)
