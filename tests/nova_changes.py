# SPDX-License-Identifier: Apache-2.0
"""Random changes of nova's databases, written as nova's services write them."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import RowMapping

from .nova_databases import Cell, NovaDatabases
from .nova_rows import THEN, Row, Rows, add_aggregate

_MOST_AT_ONCE = 6
_STEPS_S = (0.0, 0.0, 0.4, 1.0, 7.0, 40.0)

#: A compute whose clock is ahead of all others.
_SKEW = datetime.timedelta(seconds=90)


class Changes:
    """Rounds of changes; all follows from the seed.

    Parameters
    ----------
    rows : Rows
        What filled the databases.
    most_cells : int
        Until which new cells are added.

    Attributes
    ----------
    now : datetime.datetime
        Of all computes with a good clock. It moves on from round to round, or does not.
    """

    def __init__(
        self, databases: NovaDatabases, rows: Rows, seed: int, *, most_cells: int = 5
    ) -> None:
        self._databases = databases
        self._rows = rows
        self._rng = random.Random(seed)
        self._most_cells = most_cells
        self._disabled: set[str] = set()
        #: What the next round does first.
        self._owed: list[Callable[[], str]] = []
        #: Whether the next round is in the same second as this one.
        self._stays = False
        self.now = THEN

    def clock(self) -> float:
        """Return the time of a scheduler with a good clock, seconds since the epoch."""
        return self.now.replace(tzinfo=datetime.UTC).timestamp()

    def round(self) -> list[str]:
        """Do some changes; return what was done, in words."""
        if not self._stays:
            self.now += datetime.timedelta(seconds=self._rng.choice(_STEPS_S))
        self._stays = False
        owed, self._owed = self._owed, []
        done = [change() for change in owed]
        names = [name for name, weight in _CHANGES.items() for _ in range(weight)]
        chosen = self._rng.choices(names, k=self._rng.randint(1, _MOST_AT_ONCE))
        done += [getattr(self, name)() for name in chosen]
        return done

    # -- hosts ---------------------------------------------------------------------

    def add_host(self) -> str:
        """Start a compute: its usage may be reported now, or in the next round."""
        cell, host = self._cell(), self._rows.name("new")
        self._insert(cell, "services", self._rows.service(host, self.now))
        node = self._rows.compute_node(host, host, self.now)
        is_late = self._rng.random() < 0.5
        if is_late:
            node |= {**self._rows.not_reported(), "updated_at": None}
        made = self._insert(cell, "compute_nodes", node)
        self._map(host, cell)
        if is_late:
            self._owed.append(lambda: self._report(cell, made))
        return f"added {host} to {cell.name}"

    def soft_delete_host(self) -> str:
        """Delete a compute as nova's API does."""
        cell = self._cell()
        if (node := self._one(cell, "compute_nodes")) is None:
            return "nothing"
        for table in ("services", "compute_nodes"):
            for row in self._all(cell, table, host=node["host"]):
                self._soft_delete(cell, table, row["id"])
        self._unmap(node["host"])
        return f"deleted {node['host']} of {cell.name}"

    def hard_delete_node(self) -> str:
        """Delete the row of a node, as people with a database client do."""
        cell = self._cell()
        if (node := self._one(cell, "compute_nodes")) is None:
            return "nothing"
        self._delete(cell, "compute_nodes", node["id"])
        return f"removed node {node['id']} of {cell.name}"

    def archive(self) -> str:
        """Remove what was deleted, as `nova-manage db archive_deleted_rows` does."""
        cell = self._cell()
        for table in ("services", "compute_nodes", "instances"):
            deleted = self._databases.tables[table]
            with self._databases.engine(cell.url).begin() as connected:
                connected.execute(deleted.delete().where(deleted.c.deleted != 0))
        return f"archived {cell.name}"

    def delete_service(self) -> str:
        """Delete a service only: its nodes count no more."""
        cell = self._cell()
        if (service := self._one(cell, "services")) is None:
            return "nothing"
        self._soft_delete(cell, "services", service["id"])
        host = service["host"]
        if self._rng.random() < 0.7:
            self._owed.append(lambda: self._restore_service(cell, host))
        return f"deleted the service of {host}"

    def _restore_service(self, cell: Cell, host: str) -> str:
        if not self._all(cell, "services", host=host):
            self._insert(cell, "services", self._rows.service(host, self.now))
        return f"made a service of {host} again"

    def move_host(self) -> str:
        """Move a plain host to another cell with all it has; UUIDs stay."""
        cell, other = self._cell(), self._cell()
        node = self._one(cell, "compute_nodes")
        if cell == other or node is None or node["host"] != node["hypervisor_hostname"]:
            return "nothing"
        host = node["host"]
        for table in ("instances", "services", "compute_nodes"):
            for row in self._all(cell, table, host=host):
                moved = {k: v for k, v in row.items() if k != "id"}
                self._soft_delete(cell, table, row["id"])
                # UUIDs of deleted rows are in the way of a host that returns.
                self._hard_delete_where(other, table, uuid=row["uuid"])
                self._insert(other, table, {**moved, "updated_at": self.now})
        self._unmap(host)
        self._map(host, other)
        return f"moved {host} from {cell.name} to {other.name}"

    def rehome_node(self) -> str:
        """Give a node to another service, as ironic's were."""
        cell = self._cell()
        nodes = [
            node
            for node in self._all(cell, "compute_nodes")
            if node["host"] != node["hypervisor_hostname"]
        ]
        service = self._one(cell, "services")
        if not nodes or service is None:
            return "nothing"
        node = self._rng.choice(nodes)
        self._update(cell, "compute_nodes", node["id"], host=service["host"])
        return f"gave {node['hypervisor_hostname']} to {service['host']}"

    # -- what computes report ------------------------------------------------------

    def report(self) -> str:
        """Write a node's usage, as its resource tracker does."""
        return self._of_a_node(self._report)

    def report_again(self) -> str:
        """Write it now, and again in the next round with the same time."""
        when, self._stays = self.now, True

        def twice(cell: Cell, node: int) -> str:
            self._owed.append(lambda: self._report(cell, node, updated_at=when))
            return self._report(cell, node, updated_at=when)

        return self._of_a_node(twice)

    def report_in_the_past(self) -> str:
        """Write it with an older time than the row had."""
        back = self.now - datetime.timedelta(seconds=self._rng.choice([1, 60, 86400]))
        return self._of_a_node(lambda c, n: self._report(c, n, updated_at=back))

    def report_in_the_future(self) -> str:
        """Write it by a clock that is ahead."""
        ahead = self.now + _SKEW
        return self._of_a_node(lambda c, n: self._report(c, n, updated_at=ahead))

    def report_without_time(self) -> str:
        """Write it with no time at all."""
        return self._of_a_node(lambda c, n: self._report(c, n, updated_at=None))

    def many_reports(self) -> str:
        """Write the usage of half a cell's nodes."""
        cell = self._cell()
        for node in self._all(cell, "compute_nodes")[::2]:
            self._report(cell, node["id"])
        return f"reports of half of {cell.name}"

    def _of_a_node(self, change: Callable[[Cell, int], str]) -> str:
        cell = self._cell()
        node = self._one(cell, "compute_nodes")
        return "nothing" if node is None else change(cell, node["id"])

    def _report(self, cell: Cell, node: int, **changes: Any) -> str:
        values = {**self._rows.usage(), **changes}
        self._update(cell, "compute_nodes", node, **values)
        return f"report of {cell.name}/{node}: {changes}"

    # -- services ------------------------------------------------------------------

    def heartbeats(self) -> str:
        """Beat for most services of a cell."""
        cell = self._cell()
        for service in self._all(cell, "services"):
            if self._rng.random() < 0.8:
                count = service["report_count"] + 1
                self._update(
                    cell, "services", service["id"],
                    report_count=count, last_seen_up=self.now,
                )  # fmt: skip
        return f"heartbeats of {cell.name}"

    def disable_or_enable(self) -> str:
        return self._toggle("disabled")

    def force_down_or_not(self) -> str:
        return self._toggle("forced_down")

    def _toggle(self, column: str) -> str:
        cell = self._cell()
        if (service := self._one(cell, "services")) is None:
            return "nothing"
        value = not service[column]
        self._update(cell, "services", service["id"], **{column: value})
        return f"{column} of {service['host']}: {value}"

    # -- aggregates ----------------------------------------------------------------

    def create_aggregate(self) -> str:
        name = self._rows.name("aggregate")
        hosts = [row["host"] for row in self._all(self._cell(), "services")[:3]]
        metadata = {"key": self._rows.name("value")}
        add_aggregate(self._databases, self._rng, name, hosts, metadata, self.now)
        return f"created {name}"

    def delete_aggregate(self) -> str:
        if (aggregate := self._an_aggregate()) is None:
            return "nothing"
        for name in ("aggregate_hosts", "aggregate_metadata", "aggregates"):
            table = self._databases.tables[name]
            column = table.c.id if name == "aggregates" else table.c.aggregate_id
            with self._databases.api.begin() as connected:
                connected.execute(table.delete().where(column == aggregate["id"]))
        return f"deleted {aggregate['name']}"

    def edit_aggregate_hosts(self) -> str:
        """Take a host out, or put one in."""
        aggregate = self._an_aggregate()
        service = self._one(self._cell(), "services")
        if aggregate is None or service is None:
            return "nothing"
        table, host = self._databases.tables["aggregate_hosts"], service["host"]
        here = (table.c.aggregate_id == aggregate["id"]) & (table.c.host == host)
        row = {"aggregate_id": aggregate["id"], "host": host, "created_at": self.now}
        with self._databases.api.begin() as connected:
            if not connected.execute(table.delete().where(here)).rowcount:
                connected.execute(table.insert().values(row))
        return f"{host} in {aggregate['name']} or out of it"

    def edit_aggregate_metadata(self) -> str:
        """Change a value, add a key, or remove one."""
        if (aggregate := self._an_aggregate()) is None:
            return "nothing"
        table, key = self._databases.tables["aggregate_metadata"], "key1"
        here = (table.c.aggregate_id == aggregate["id"]) & (table.c.key == key)
        values = {"value": self._rows.name("value"), "updated_at": self.now}
        with self._databases.api.begin() as connected:
            if self._rng.random() < 0.3:
                connected.execute(table.delete().where(here))
            elif not connected.execute(
                table.update().where(here).values(values)
            ).rowcount:
                row = {"aggregate_id": aggregate["id"], "key": key, **values}
                connected.execute(table.insert().values(row))
        return f"metadata of {aggregate['name']}"

    def rename_aggregate(self) -> str:
        if (aggregate := self._an_aggregate()) is None:
            return "nothing"
        table, name = self._databases.tables["aggregates"], self._rows.name("renamed")
        with self._databases.api.begin() as connected:
            connected.execute(
                table.update()
                .where(table.c.id == aggregate["id"])
                .values(name=name, updated_at=self.now)
            )
        return f"renamed {aggregate['name']}"

    def _an_aggregate(self) -> RowMapping | None:
        with self._databases.api.connect() as connected:
            found = connected.execute(self._databases.tables["aggregates"].select())
            every = found.mappings().all()
        return self._rng.choice(every) if every else None

    # -- instances -----------------------------------------------------------------

    def build_instance(self) -> str:
        """Make an instance: with its host at once, or in the next round."""
        cell = self._cell()
        node = self._mapped_node(cell)
        if node is None:
            return "nothing"
        where = {"host": node["host"], "node": node["hypervisor_hostname"]}
        is_late = self._rng.random() < 0.5
        first = (None, None) if is_late else tuple(where.values())
        row = self._rows.instance(*first, self.now)
        made = self._insert(cell, "instances", row)
        if is_late:
            self._owed.append(lambda: self._change_instance(cell, made, **where))
        return f"built {made} on {where}, late: {is_late}"

    def move_instance(self) -> str:
        """Change an instance's host within its cell; offload it rarely."""
        cell = self._cell()
        node, instance = self._mapped_node(cell), self._one(cell, "instances")
        if node is None or instance is None:
            return "nothing"
        where: Row = {"host": node["host"], "node": node["hypervisor_hostname"]}
        if self._rng.random() < 0.1:
            where = {"host": None, "node": None}
        return self._change_instance(cell, instance["id"], **where)

    def delete_instance(self) -> str:
        """Delete an instance: nova saves it and deletes it, perhaps a while after."""
        cell = self._cell()
        if (instance := self._one(cell, "instances")) is None:
            return "nothing"
        number = instance["id"]
        told = self._change_instance(cell, number, vm_state="deleted")
        if self._rng.random() < 0.5:
            self._soft_delete(cell, "instances", number)
        else:
            self._owed.append(lambda: self._soft_delete(cell, "instances", number))
        return f"{told}, deleted"

    def _change_instance(self, cell: Cell, number: int, **values: Any) -> str:
        self._update(cell, "instances", number, **values)
        return f"instance {cell.name}/{number}: {values}"

    def _mapped_node(self, cell: Cell) -> RowMapping | None:
        """Return a node of a host on which instances are built: one that is mapped."""
        node = self._one(cell, "compute_nodes")
        table = self._databases.tables["host_mappings"]
        if node is None:
            return None
        with self._databases.api.connect() as connected:
            here = (table.c.host == node["host"]) & (table.c.cell_id == cell.id)
            return (
                node if connected.execute(table.select().where(here)).first() else None
            )

    # -- cells -----------------------------------------------------------------------

    def disable_or_enable_cell(self) -> str:
        """Disable a cell's mapping, or enable it again; one stays enabled."""
        cell = self._cell()
        is_on = cell.uuid not in self._disabled
        if is_on and len(self._disabled) + 1 >= len(self._databases.cells):
            return "nothing"
        self._disabled ^= {cell.uuid}
        self._databases.change_mapping(cell, disabled=is_on, updated_at=self.now)
        return f"{cell.name} disabled: {is_on}"

    def add_cell(self) -> str:
        if len(self._databases.cells) >= self._most_cells:
            return "nothing"
        cell = self._databases.add_cell()
        host = self._rows.name("new")
        self._insert(cell, "services", self._rows.service(host, self.now))
        node = self._rows.compute_node(host, host, self.now)
        self._insert(cell, "compute_nodes", node)
        self._map(host, cell)
        return f"added {cell.name}"

    # -- rows ----------------------------------------------------------------------

    def _cell(self) -> Cell:
        return self._rng.choice(self._databases.cells)

    def _all(self, cell: Cell, table: str, **where: Any) -> Sequence[RowMapping]:
        """Return the rows that are not deleted; of services, computes'."""
        it = self._databases.tables[table]
        if table == "services":
            where["binary"] = "nova-compute"
        wanted = it.select().filter_by(deleted=0, **where).order_by(it.c.id)
        with self._databases.engine(cell.url).connect() as connected:
            return connected.execute(wanted).mappings().all()

    def _one(self, cell: Cell, table: str) -> RowMapping | None:
        every = self._all(cell, table)
        return self._rng.choice(every) if every else None

    def _insert(self, cell: Cell, table: str, row: Row) -> int:
        it = self._databases.tables[table]
        with self._databases.engine(cell.url).begin() as connected:
            made = connected.execute(it.insert().values(dict(row)))
            return int(made.inserted_primary_key[0])

    def _update(self, cell: Cell, table: str, number: int, **values: Any) -> None:
        """Change a row; its time is now unless it is told."""
        self._write(cell, table, number, {"updated_at": self.now, **values})

    def _soft_delete(self, cell: Cell, table: str, number: int) -> str:
        """Mark a row as deleted as oslo.db does: updated_at stays."""
        values = {"deleted": number, "deleted_at": self.now}
        self._write(cell, table, number, values)
        return f"deleted {table} {cell.name}/{number}"

    def _write(self, cell: Cell, table: str, number: int, values: Row) -> None:
        it = self._databases.tables[table]
        self._run(cell, it.update().where(it.c.id == number).values(values))

    def _delete(self, cell: Cell, table: str, number: int) -> None:
        it = self._databases.tables[table]
        self._run(cell, it.delete().where(it.c.id == number))

    def _hard_delete_where(self, cell: Cell, table: str, **where: Any) -> None:
        self._run(cell, self._databases.tables[table].delete().filter_by(**where))

    def _run(self, cell: Cell, statement: Any) -> None:
        with self._databases.engine(cell.url).begin() as connected:
            connected.execute(statement)

    def _map(self, host: str, cell: Cell) -> None:
        row = {"host": host, "cell_id": cell.id, "created_at": self.now}
        self._databases.insert(self._databases.api_url, "host_mappings", [row])

    def _unmap(self, host: str) -> None:
        table = self._databases.tables["host_mappings"]
        with self._databases.api.begin() as connected:
            connected.execute(table.delete().where(table.c.host == host))


#: How often each is done, beside the others.
_CHANGES = {
    "add_host": 2, "soft_delete_host": 1, "hard_delete_node": 1, "archive": 1,
    "delete_service": 1, "move_host": 2, "rehome_node": 1,
    "report": 6, "report_again": 3, "report_in_the_past": 2, "many_reports": 1,
    "report_in_the_future": 1, "report_without_time": 1,
    "heartbeats": 4, "disable_or_enable": 2, "force_down_or_not": 1,
    "create_aggregate": 1, "delete_aggregate": 1, "edit_aggregate_hosts": 2,
    "edit_aggregate_metadata": 2, "rename_aggregate": 1,
    "build_instance": 4, "move_instance": 3, "delete_instance": 3,
    "disable_or_enable_cell": 1, "add_cell": 1,
}  # fmt: skip
