# SPDX-License-Identifier: Apache-2.0
"""Reading cells and aggregates from nova's API database."""

from __future__ import annotations

import dataclasses
import logging
import sys
from collections import defaultdict
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

import sqlalchemy as sa

from ...hosts import HostAggregate
from . import schema

LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class CellMappingRow:
    """An enabled cell, and the URL of its database."""

    id: int
    uuid: str
    name: str
    connection: str = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Directory:
    """The cells and aggregates that one poll read."""

    began_at: float
    cells: tuple[CellMappingRow, ...]
    aggregates: tuple[HostAggregate, ...]


_MAPPINGS, _HOSTS = schema.cell_mappings.c, schema.aggregate_hosts.c
_AGGREGATES, _METADATA = schema.aggregates.c, schema.aggregate_metadata.c

_CELLS: Final = sa.select(
    *(_MAPPINGS.id, _MAPPINGS.uuid, _MAPPINGS.name),
    *(_MAPPINGS.database_connection, _MAPPINGS.disabled),
).order_by(_MAPPINGS.id)
_NAMES: Final = sa.select(_AGGREGATES.id, _AGGREGATES.uuid, _AGGREGATES.name).order_by(
    _AGGREGATES.id
)
_PROPERTIES: Final = sa.select(_METADATA.aggregate_id, _METADATA.key, _METADATA.value)
_MEMBERS: Final = sa.select(_HOSTS.aggregate_id, _HOSTS.host).where(
    _HOSTS.host.is_not(None)
)
#: Rows are inserted and deleted, but never updated: a new row has a higher id than any
#: row before. Only SQLite may reuse the id of a deleted row.
_MEMBERS_TOTAL: Final = sa.select(sa.func.count(), sa.func.sum(_HOSTS.id))


class DirectoryReader:
    """Read the API database; read the hosts of aggregates only if some changed.

    The reader must be replaced after a failure.
    """

    def __init__(self, local_connection: str | None) -> None:
        self._local = local_connection
        self._hosts: dict[int, frozenset[str]] = {}
        #: The number of rows of hosts that were read, and the sum of their ids.
        self._hosts_total: tuple[object, ...] | None = None

    def read(
        self, connection: sa.Connection, began_at: float, *, in_full: bool = False
    ) -> Directory:
        """Return the current cells and aggregates.

        Parameters
        ----------
        began_at : float
            Now, seconds since the epoch.
        in_full : bool
            Read the hosts of aggregates even if their number and ids are unchanged.
        """
        cells = tuple(self._cells(connection))
        total = tuple(connection.execute(_MEMBERS_TOTAL).one())
        if in_full or total != self._hosts_total:
            self._hosts, self._hosts_total = _hosts_by_aggregate(connection), total
        return Directory(
            began_at=began_at,
            cells=cells,
            aggregates=tuple(self._aggregates(connection)),
        )

    def _cells(self, connection: sa.Connection) -> Iterable[CellMappingRow]:
        for cell_id, uuid, name, url, is_disabled in connection.execute(_CELLS):
            if uuid != schema.CELL0 and not is_disabled:
                url = fill_template(url or "", self._local)
                yield CellMappingRow(cell_id, uuid, name or "", url)

    def _aggregates(self, connection: sa.Connection) -> Iterable[HostAggregate]:
        metadata: defaultdict[int, dict[str, str]] = defaultdict(dict)
        for aggregate_id, key, value in connection.execute(_PROPERTIES):
            metadata[aggregate_id][key] = value
        for aggregate_id, uuid, name in connection.execute(_NAMES):
            yield HostAggregate(
                id=aggregate_id,
                uuid=uuid or "",
                name=name or "",
                hosts=self._hosts.get(aggregate_id, frozenset()),
                metadata=metadata[aggregate_id],
            )


def _hosts_by_aggregate(connection: sa.Connection) -> dict[int, frozenset[str]]:
    hosts_of: defaultdict[int, set[str]] = defaultdict(set)
    for aggregate_id, host in connection.execute(_MEMBERS):
        hosts_of[aggregate_id].add(sys.intern(host))
    return {aggregate_id: frozenset(hosts) for aggregate_id, hosts in hosts_of.items()}


# -- templates of database URLs -------------------------------------------------------


def fill_template(connection: str, local: str | None) -> str:
    """Return a cell's ``database_connection`` with its fields filled.

    Parameters
    ----------
    connection : str
        A URL, a template such as ``{scheme}://{username}@{hostname}/nova_cell2?{query}``
        or any other text; without fields in braces it is returned unchanged.
    local : str or None
        ``[database] connection``, from which the fields are taken
        (nova's ``CellMapping.format_db_url``).

    Returns
    -------
    str
        The URL; the template itself if it cannot be filled: the reason is logged, and
        connecting fails.
    """
    if "{" not in connection:
        return connection
    if not local:
        LOG.error(
            "The database_connection of a cell mapping is a template, but [database] "
            "connection is not set"
        )
        return connection
    try:
        return connection.format(**_fields(local))
    except (KeyError, IndexError, ValueError) as e:
        LOG.error(
            "The database_connection of a cell mapping is a template that "
            "[database] connection cannot fill: %r",
            e,
        )
        return connection


def _fields(url: str) -> dict[str, str | int | None]:
    parts = urlsplit(url)
    fields: dict[str, str | int | None] = {
        "path": parts.path.lstrip("/"),
        "scheme": parts.scheme,
        "query": parts.query,
        "fragment": parts.fragment,
    }
    if "," not in parts.netloc:
        fields.update(_server("", parts.netloc))
        return fields
    for number, netloc in enumerate(parts.netloc.split(","), start=1):
        fields.update(_server(str(number), netloc))
    return fields


def _server(number: str, netloc: str) -> dict[str, str | int | None]:
    """Return user, password, host and port, with the server's number in the names."""
    parts = urlsplit(f"//{netloc}")
    return {
        f"username{number}": parts.username,
        f"password{number}": parts.password,
        f"hostname{number}": parts.hostname,
        f"port{number}": parts.port,
    }
