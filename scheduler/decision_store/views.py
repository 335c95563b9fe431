# SPDX-License-Identifier: Apache-2.0
"""Store views in the database, in pieces, and keep only the newest views."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from .schema import VIEWS

#: Bytes of a piece, far below MariaDB's max_allowed_packet of 16 MiB, because PyMySQL
#: escapes them.
_PIECE: Final = 1 << 19


def insert_view(connection: Connection, id_: int, data: bytes) -> None:
    """Write a view; replace it if it was written before and the answer was lost."""
    connection.execute(sa.delete(VIEWS).where(VIEWS.c.id == id_))
    for piece, start in enumerate(range(0, len(data), _PIECE)):
        row = {"id": id_, "piece": piece, "data": data[start : start + _PIECE]}
        connection.execute(sa.insert(VIEWS), row)


def remove_views(connection: Connection, n_kept: int) -> None:
    """Remove older views than the `n_kept` newest ones, at most 100 of them."""
    ids = sa.select(VIEWS.c.id).where(VIEWS.c.piece == 0).order_by(VIEWS.c.id.desc())
    if excess := connection.scalars(ids.offset(n_kept).limit(100)).all():
        connection.execute(sa.delete(VIEWS).where(VIEWS.c.id.in_(excess)))


def remove_views_before(connection: Connection, bound: int) -> None:
    """Remove the views whose ids are lower than `bound`."""
    connection.execute(sa.delete(VIEWS).where(VIEWS.c.id < bound))


def read_view(connection: Connection, id_: int) -> bytes | None:
    """Return a view; None: it was removed."""
    pieces = sa.select(VIEWS.c.data).where(VIEWS.c.id == id_).order_by(VIEWS.c.piece)
    data = b"".join(map(bytes, connection.scalars(pieces)))
    return data or None
