# SPDX-License-Identifier: Apache-2.0
"""Detection of computes that are too old for nova 34, whose scheduler this replaces."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

import sqlalchemy as sa

from .schema import services

#: nova 34's OLDEST_SUPPORTED_SERVICE_VERSION (nova/objects/service.py), Gazpacho's.
OLDEST_SUPPORTED: Final = 72

#: The remedy, for messages.
ADVICE: Final = (
    "Upgrade them, or set [workarounds] disable_compute_service_check_for_ffu during a "
    "fast-forward upgrade"
)

_MAX_LISTED: Final = 5


@dataclasses.dataclass(frozen=True, slots=True)
class OldCompute:
    """A nova-compute that nova 34 does not support."""

    host: str
    version: int


def read_old_computes(connection: sa.Connection) -> tuple[OldCompute, ...]:
    """Return the computes of a cell that are too old, oldest first.

    Computes that are forced down do not count. If a compute has version 0, the cell
    counts as having no computes (nova's ``get_minimum_version_all_cells``).
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


def describe_old_computes(computes: Sequence[OldCompute]) -> str:
    """Return a message that names the computes."""
    named = [
        f"{compute.host} ({compute.version})" for compute in computes[:_MAX_LISTED]
    ]
    if len(computes) > _MAX_LISTED:
        named.append(f"and {len(computes) - _MAX_LISTED} more")
    return (
        f"nova 34 supports nova-compute from service version {OLDEST_SUPPORTED} "
        f"(Gazpacho) on; these are older: {', '.join(named)}"
    )
