# SPDX-License-Identifier: Apache-2.0
"""The tables of Placement 16 that are read, with the columns needed.

Columns and types are those of ``placement/db/sqlalchemy/models.py``.
"""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

from ...errors import ConfigurationError
from ...polling.times import UtcMicroseconds

PLACEMENT = sa.MetaData()

#: Versions of the schema whose tables have these columns with these meanings: "drop
#: redundant indexes" (Placement 9 to 16), and "add consumer types table" (2 to 8).
KNOWN_VERSIONS: Final = ("a082b8bb98d0", "422ece571366")

alembic_version = sa.Table(
    "alembic_version", PLACEMENT, sa.Column("version_num", sa.String(32))
)

resource_providers = sa.Table(
    "resource_providers",
    PLACEMENT,
    sa.Column("created_at", UtcMicroseconds),
    sa.Column("updated_at", UtcMicroseconds),
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("uuid", sa.String(36), nullable=False),
    sa.Column("name", sa.String(200)),
    sa.Column("generation", sa.Integer),
    sa.Column("root_provider_id", sa.Integer),
    sa.Column("parent_provider_id", sa.Integer),
)

inventories = sa.Table(
    "inventories",
    PLACEMENT,
    sa.Column("created_at", UtcMicroseconds),
    sa.Column("updated_at", UtcMicroseconds),
    sa.Column("resource_provider_id", sa.Integer, nullable=False),
    sa.Column("resource_class_id", sa.Integer, nullable=False),
    sa.Column("total", sa.Integer, nullable=False),
    sa.Column("reserved", sa.Integer, nullable=False),
    sa.Column("min_unit", sa.Integer, nullable=False),
    sa.Column("max_unit", sa.Integer, nullable=False),
    sa.Column("step_size", sa.Integer, nullable=False),
    sa.Column("allocation_ratio", sa.Float, nullable=False),
)

allocations = sa.Table(
    "allocations",
    PLACEMENT,
    sa.Column("created_at", UtcMicroseconds),
    sa.Column("updated_at", UtcMicroseconds),
    sa.Column("resource_provider_id", sa.Integer, nullable=False),
    sa.Column("consumer_id", sa.String(36), nullable=False),
    sa.Column("resource_class_id", sa.Integer, nullable=False),
    sa.Column("used", sa.Integer, nullable=False),
)

consumers = sa.Table(
    "consumers",
    PLACEMENT,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("uuid", sa.String(36), nullable=False),
    sa.Column("generation", sa.Integer, nullable=False),
    sa.Column("consumer_type_id", sa.Integer),
)

resource_provider_traits = sa.Table(
    "resource_provider_traits",
    PLACEMENT,
    sa.Column("trait_id", sa.Integer, primary_key=True),
    sa.Column("resource_provider_id", sa.Integer, primary_key=True),
)

resource_provider_aggregates = sa.Table(
    "resource_provider_aggregates",
    PLACEMENT,
    sa.Column("resource_provider_id", sa.Integer, primary_key=True),
    sa.Column("aggregate_id", sa.Integer, primary_key=True),
)


def _names(table: str, name: str) -> sa.Table:
    return sa.Table(
        table,
        PLACEMENT,
        sa.Column("created_at", UtcMicroseconds),
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column(name, sa.String(255)),
    )


traits = _names("traits", "name")
resource_classes = _names("resource_classes", "name")
placement_aggregates = _names("placement_aggregates", "uuid")
consumer_types = _names("consumer_types", "name")


def check_version(connection: sa.Connection) -> None:
    """Raise ConfigurationError if the schema is not a known one."""
    versions = (
        connection.execute(sa.select(alembic_version.c.version_num)).scalars().all()
    )
    if len(versions) != 1 or versions[0] not in KNOWN_VERSIONS:
        raise ConfigurationError(
            f"[placement_database] connection: the schema of Placement's database is "
            f"{', '.join(versions) or 'without a version'}; known are "
            f"{' and '.join(KNOWN_VERSIONS)} (Placement 2 to 16). Unset the option, so "
            f"that candidates are queried from Placement, or use a release of Moorage "
            f"that knows this schema."
        )
