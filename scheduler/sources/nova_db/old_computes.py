# SPDX-License-Identifier: Apache-2.0
"""Computes that are too old for the nova whose scheduler this replaces."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

import sqlalchemy as sa

from .schema import services

#: nova 34's OLDEST_SUPPORTED_SERVICE_VERSION (nova/objects/service.py), Gazpacho's.
OLDEST_SUPPORTED: Final = 72

#: What to do about it.
ADVICE: Final = (
    "Upgrade them, or set [workarounds] disable_compute_service_check_for_ffu while a "
    "fast-forward upgrade is going on"
)

_MAX_TOLD: Final = 5


@dataclasses.dataclass(frozen=True, slots=True)
class OldCompute:
    """A nova-compute that nova 34 does not work with."""

    host: str
    version: int


def read_old_computes(connection: sa.Connection) -> tuple[OldCompute, ...]:
    """Return the computes of a cell that are too old, the oldest ones first.

    Those that are forced down do not count, and a cell with one of version 0 counts as
    one without computes (nova's ``get_minimum_version_all_cells``).
    """
    c = services.c
    query = sa.select(c.host, c.version).where(
        c.binary == "nova-compute",
        c.deleted == 0,
        c.forced_down == sa.false(),
        c.version < OLDEST_SUPPORTED,
    )
    rows = connection.execute(query.order_by(c.version, c.host)).all()
    if any(row.version == 0 for row in rows):
        return ()
    return tuple(OldCompute(row.host or "", row.version) for row in rows)


def described(computes: Sequence[OldCompute]) -> str:
    """Return which computes are too old, for people."""
    named = [f"{each.host} ({each.version})" for each in computes[:_MAX_TOLD]]
    if len(computes) > _MAX_TOLD:
        named.append(f"and {len(computes) - _MAX_TOLD} more")
    return (
        f"nova 34 supports nova-compute from service version {OLDEST_SUPPORTED} "
        "(Gazpacho) on, and there are older ones: "
        f"{', '.join(named)}"
    )
