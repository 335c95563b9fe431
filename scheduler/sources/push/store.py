# SPDX-License-Identifier: Apache-2.0
"""The database of reported hosts, from which a restarted scheduler restores them."""

from __future__ import annotations

import functools
import itertools
import json
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.engine import Connection

from ...database import StoreDatabase, StoreSchema
from ...hosts import COLUMNS, Columns, HostAggregate, HostRecord
from ...hosts.columns import read_count, read_uuid, read_uuids
from ..report_columns import RefusedReport, read_field, read_record, serializable
from ..report_images import (
    IMAGE_PROPERTIES,
    read_image_properties,
    write_image_properties,
)
from ..reported.revisions import ReportedNode
from .aggregates import ReceivedAggregate

LOG = logging.getLogger(__name__)

_T = TypeVar("_T")

METADATA = sa.MetaData()
HOSTS = sa.Table(
    "hosts",
    METADATA,
    sa.Column("node_uuid", sa.String(36), primary_key=True),
    sa.Column("incarnation", sa.String(36), nullable=False),
    sa.Column("revision", sa.BigInteger, nullable=False),
    # Seconds since the epoch.
    sa.Column("seen_at", sa.Double, nullable=False),
    # JSON: the columns of a HostReport, and its instances.
    sa.Column(
        "report",
        sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb"),
        nullable=False,
    ),
)

#: The hosts that an operator has disabled, whatever they report.
DISABLED = sa.Table(
    "disabled_hosts",
    METADATA,
    sa.Column("host", sa.String(255), primary_key=True),
    sa.Column("reason", sa.String(1000), nullable=False),
    # Seconds since the epoch.
    sa.Column("disabled_at", sa.Double, nullable=False),
)

#: The aggregates of hosts. They are stored since nova's API sends each change once, and
#: never all aggregates.
AGGREGATES = sa.Table(
    "host_aggregates",
    METADATA,
    sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
    # Seconds since the epoch.
    sa.Column("received_at", sa.Double, nullable=False),
    # JSON: uuid, name, hosts and metadata; NULL: it was deleted.
    sa.Column(
        "aggregate",
        sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb"),
        nullable=True,
    ),
)

#: Maximum rows of one statement; old SQLite takes at most 999 parameters.
_CHUNK: Final = 150
#: Maximum invalid rows that are logged one by one.
_MAX_LOGGED: Final = 20
#: Maximum attempts to write rows that another scheduler inserts at the same time.
_MAX_ATTEMPTS: Final = 3
#: Seconds by which `seen_at` of one report may differ between processes that share a
#: store.
_SEEN_AT_TOLERANCE_S: Final = 5.0

_OPTION: Final = "[moorage] store_connection"
_SCHEMA: Final = StoreSchema(
    migrations=Path(__file__).parent / "migrations",
    version_table="moorage_version",
    first_table=HOSTS.name,
    lock="moorage_hosts_schema",
    lock_number=0x6D6F6F72,
)


class HostStore:
    """Read and write the hosts in one database; no transaction spans several calls.

    Parameters
    ----------
    url : str
        An SQLAlchemy URL of SQLite, MariaDB or PostgreSQL.
    columns : mapping, optional
        The declarations of all columns of hosts by name.

    Raises
    ------
    ConfigurationError
        The URL is invalid, or its driver is not installed.
    """

    def __init__(self, url: str, columns: Columns = COLUMNS) -> None:
        self._database = StoreDatabase(url, option=_OPTION, schema=_SCHEMA)
        self._engine = self._database.engine
        self._columns = columns
        #: When each invalid aggregate was received, by id: it is logged only once.
        self._invalid_aggregates: dict[int, float] = {}
        #: The URL of the database without the password.
        self.name = self._database.name

    def close(self) -> None:
        """Close all connections; a later call opens new ones."""
        self._database.close()

    def upgrade(self) -> None:
        """Create or upgrade the tables; see `StoreDatabase.upgrade`."""
        self._database.upgrade()

    def check(self) -> bool:
        """Return whether the tables need no upgrade; see `StoreDatabase.check`."""
        return self._database.check()

    def load(self) -> list[tuple[ReportedNode, HostRecord]]:
        """Return all hosts; invalid rows are logged and omitted.

        Each record's `last_seen_up` is the stored `seen_at`.

        Raises
        ------
        StoreUnavailable
        """
        with self._database.translated_errors(), self._engine.connect() as connection:
            rows = connection.execute(sa.select(HOSTS)).all()
        hosts, invalid = [], []
        for row in rows:
            try:
                hosts.append(_read_host(self._columns, *row))
            except (ValueError, RecursionError) as e:
                invalid.append(f"row '{row.node_uuid}': {e}")
        for message in invalid[:_MAX_LOGGED]:
            LOG.warning("The store %s has an invalid host, %s", self.name, message)
        if len(invalid) > _MAX_LOGGED:
            LOG.warning(
                "The store %s has %d more invalid hosts",
                self.name,
                len(invalid) - _MAX_LOGGED,
            )
        return hosts

    def disabled_hosts(self) -> dict[str, str]:
        """Return the service hosts that an operator has disabled, with the reasons.

        Raises
        ------
        StoreUnavailable
        """
        with self._database.translated_errors(), self._engine.connect() as connection:
            rows = connection.execute(sa.select(DISABLED.c.host, DISABLED.c.reason))
            return dict(map(tuple, rows))

    def disable(self, host: str, reason: str, now: float) -> None:
        """Disable a service host, from now (seconds since the epoch) on.

        Raises
        ------
        StoreUnavailable
        """
        row = {"host": host, "reason": reason, "disabled_at": now}
        with self._database.translated_errors(), self._engine.begin() as connection:
            connection.execute(sa.delete(DISABLED).where(DISABLED.c.host == host))
            connection.execute(sa.insert(DISABLED), row)

    def enable(self, host: str) -> bool:
        """Enable a service host again; return whether it was disabled.

        Raises
        ------
        StoreUnavailable
        """
        statement = sa.delete(DISABLED).where(DISABLED.c.host == host)
        with self._database.translated_errors(), self._engine.begin() as connection:
            return connection.execute(statement).rowcount > 0

    def load_aggregates(
        self, known: Mapping[int, float]
    ) -> dict[int, ReceivedAggregate]:
        """Return by id the aggregates that the caller does not know yet.

        Invalid aggregates are logged and omitted.

        Parameters
        ----------
        known : mapping
            When each aggregate that the caller knows was received, by id. Those that
            were received at another time are returned; if empty, all aggregates.

        Raises
        ------
        StoreUnavailable
        """
        times = sa.select(AGGREGATES.c.id, AGGREGATES.c.received_at)
        rows: list[sa.Row[Any]] = []
        with self._database.reading() as connection:
            known = {**self._invalid_aggregates, **known}
            changed = [
                id_ for id_, at in connection.execute(times) if known.get(id_) != at
            ]
            for chunk in _chunks(sorted(changed)):
                query = sa.select(AGGREGATES).where(AGGREGATES.c.id.in_(chunk))
                rows += connection.execute(query)
        aggregates = {}
        for row in rows:
            try:
                aggregates[row.id] = _read_aggregate(
                    row.id, row.received_at, row.aggregate
                )
            except (ValueError, RecursionError) as e:
                self._invalid_aggregates[row.id] = row.received_at
                LOG.warning(
                    "The store %s has an invalid aggregate, %d: %s",
                    self.name,
                    row.id,
                    e,
                )
        return aggregates

    def write_aggregates(self, aggregates: Mapping[int, ReceivedAggregate]) -> None:
        """Write aggregates by id, unless the stored one was received later.

        Raises
        ------
        StoreUnavailable
        """
        for chunk in _chunks(sorted(aggregates)):
            chunked = {id_: aggregates[id_] for id_ in chunk}
            write = functools.partial(_write_aggregates, aggregates=chunked)
            with self._database.translated_errors():
                self._write_with_retries(write)

    def write(self, hosts: Mapping[str, ReportedNode]) -> None:
        """Write the states of hosts that are newer than the stored ones.

        A state is newer if it has a higher revision of the same incarnation, or a later
        incarnation. If the order of incarnations is unknown, the state seen later is
        newer. Equal states are not written: many processes may share a store,
        and all receive the same reports. If a call fails, it may have written some of
        the hosts.

        Raises
        ------
        StoreUnavailable
        """
        # Sorted: writers that lock rows in one order cannot deadlock.
        for chunk in _chunks(sorted(hosts)):
            chunked = {uuid: hosts[uuid] for uuid in chunk}
            write = functools.partial(_write_hosts, hosts=chunked)
            with self._database.translated_errors():
                self._write_with_retries(write)

    def _write_with_retries(self, write: Callable[[Connection], None]) -> None:
        """Write in a transaction; retry if another scheduler has inserted a row."""
        for n_remaining in reversed(range(_MAX_ATTEMPTS)):
            try:
                with self._engine.begin() as connection:
                    write(connection)
                return
            except sa.exc.IntegrityError:
                if not n_remaining:
                    raise

    def delete(self, node_uuids: Iterable[str], seen_before: float) -> None:
        """Delete hosts, unless another scheduler has seen them since `seen_before`.

        Raises
        ------
        StoreUnavailable
        """
        for chunk in _chunks(node_uuids):
            with self._database.translated_errors(), self._engine.begin() as connection:
                connection.execute(
                    sa.delete(HOSTS).where(
                        HOSTS.c.node_uuid.in_(chunk), HOSTS.c.seen_at < seen_before
                    )
                )


def _chunks(items: Iterable[_T]) -> Iterator[list[_T]]:
    remaining = iter(items)
    while chunk := list(itertools.islice(remaining, _CHUNK)):
        yield chunk


def _write_hosts(connection: Connection, hosts: dict[str, ReportedNode]) -> None:
    query = sa.select(
        HOSTS.c.node_uuid, HOSTS.c.incarnation, HOSTS.c.revision, HOSTS.c.seen_at
    ).where(HOSTS.c.node_uuid.in_(hosts))
    query = query.order_by(HOSTS.c.node_uuid).with_for_update()
    known = {row.node_uuid: row for row in connection.execute(query)}
    new = [_host_row(uuid, node) for uuid, node in hosts.items() if uuid not in known]
    newer = [
        {**_host_row(uuid, node), "b_node_uuid": uuid}
        for uuid, node in hosts.items()
        if uuid in known and _is_newer(node, *known[uuid][1:])
    ]
    if newer:
        connection.execute(_UPDATE, newer)
    if new:
        connection.execute(sa.insert(HOSTS), new)


#: Not DELETE and INSERT: a writer that waits for a row's lock must find the row.
_UPDATE = (
    sa.update(HOSTS)
    .where(HOSTS.c.node_uuid == sa.bindparam("b_node_uuid"))
    .values({c.name: sa.bindparam(c.name) for c in HOSTS.c if c.name != "node_uuid"})
)


def _write_aggregates(
    connection: Connection, aggregates: dict[int, ReceivedAggregate]
) -> None:
    query = sa.select(AGGREGATES.c.id, AGGREGATES.c.received_at)
    query = query.where(AGGREGATES.c.id.in_(aggregates)).order_by(AGGREGATES.c.id)
    known = dict(map(tuple, connection.execute(query.with_for_update())))
    for id_, (aggregate, received_at) in aggregates.items():
        row = {
            "id": id_,
            "received_at": received_at,
            "aggregate": None if aggregate is None else _aggregate_text(aggregate),
        }
        if id_ not in known:
            connection.execute(sa.insert(AGGREGATES), row)
        elif received_at > known[id_]:
            update = sa.update(AGGREGATES).where(AGGREGATES.c.id == id_)
            connection.execute(update.values(row))


def _aggregate_text(aggregate: HostAggregate) -> str:
    values = {
        "uuid": aggregate.uuid,
        "name": aggregate.name,
        "hosts": sorted(aggregate.hosts),
        "metadata": dict(aggregate.metadata),
    }
    return json.dumps(values, separators=(",", ":"))


def _read_aggregate(
    id_: int, received_at: float, text: str | None
) -> ReceivedAggregate:
    """Read a row; raise ValueError if it is invalid."""
    if text is None:
        return ReceivedAggregate(None, received_at)
    match json.loads(text):
        case {
            "uuid": str(uuid),
            "name": str(name),
            "hosts": [*hosts],
            "metadata": {**items},
        } if all(isinstance(value, str) for value in (*hosts, *items.values())):
            metadata = {str(key): str(value) for key, value in items.items()}
            aggregate = HostAggregate(id_, uuid, name, frozenset(hosts), metadata)
            return ReceivedAggregate(aggregate, received_at)
    raise ValueError("uuid, name, hosts and metadata are needed")


def _is_newer(
    node: ReportedNode, incarnation: str, revision: int, seen_at: float
) -> bool:
    """Return whether a node's state is newer than a stored one; see `HostStore.write`.

    The other arguments are those of the stored state.
    """
    if node.incarnation != incarnation:
        return incarnation in node.earlier or node.seen_at >= seen_at
    if node.revision != revision:
        return node.revision > revision
    return node.seen_at > seen_at + _SEEN_AT_TOLERANCE_S


def _host_row(uuid: str, node: ReportedNode) -> dict[str, Any]:
    report = {**node.data, "instances": sorted(node.instances)}
    if node.image_properties:
        report[IMAGE_PROPERTIES] = write_image_properties(node.image_properties)
    return {
        "node_uuid": uuid,
        "incarnation": node.incarnation,
        "revision": node.revision,
        "seen_at": node.seen_at,
        "report": json.dumps(report, separators=(",", ":")),
    }


def _read_host(
    columns: Columns,
    node_uuid: str,
    incarnation: str,
    revision: int,
    seen_at: float,
    report: str,
) -> tuple[ReportedNode, HostRecord]:
    """Read a row; raise ValueError if it is invalid."""
    if type(seen_at) is not float or not math.isfinite(seen_at):
        raise ValueError(f"seen_at: {seen_at!r} where a number is needed")
    data = json.loads(report)
    if type(data) is not dict:
        raise ValueError(f"its report is {type(data).__name__}, not an object")
    record = read_record(data, seen_at, columns)
    if record.uuid != node_uuid:
        raise RefusedReport(record.host, f"uuid: {record.uuid} is of another row")
    instances = set(read_field(data, "instances", read_uuids, record.host))
    node = ReportedNode(
        incarnation=read_uuid(incarnation),
        revision=read_count(revision),
        data=serializable(data, columns),
        instances=instances,
        seen_at=seen_at,
        stored_at=seen_at,
        image_properties=read_image_properties(data.get(IMAGE_PROPERTIES, [])),
    )
    return node, record
