# SPDX-License-Identifier: Apache-2.0
"""Views in the database: bytes in pieces, of which the newest are kept."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from .schema import VIEWS

#: Bytes of a piece: MariaDB's max_allowed_packet is 16 MiB, and PyMySQL escapes them.
_PIECE: Final = 1 << 19


def insert_view(connection: Connection, id_: int, data: bytes) -> None:
    """Write a view; again, if the answer to an earlier write was lost."""
    connection.execute(sa.delete(VIEWS).where(VIEWS.c.id == id_))
    for piece, first in enumerate(range(0, len(data), _PIECE)):
        row = {"id": id_, "piece": piece, "data": data[first : first + _PIECE]}
        connection.execute(sa.insert(VIEWS), row)


def remove_views(connection: Connection, n_kept: int) -> None:
    """Remove all views but the newest ones."""
    ids = sa.select(VIEWS.c.id).where(VIEWS.c.piece == 0).order_by(VIEWS.c.id.desc())
    if excess := connection.scalars(ids.offset(n_kept).limit(100)).all():
        connection.execute(sa.delete(VIEWS).where(VIEWS.c.id.in_(excess)))


def remove_views_before(connection: Connection, bound: int) -> None:
    """Remove the views whose ids are lower."""
    connection.execute(sa.delete(VIEWS).where(VIEWS.c.id < bound))


def read_view(connection: Connection, id_: int) -> bytes | None:
    """Return a view; None: it was removed."""
    pieces = sa.select(VIEWS.c.data).where(VIEWS.c.id == id_).order_by(VIEWS.c.piece)
    data = b"".join(map(bytes, connection.scalars(pieces)))
    return data or None
