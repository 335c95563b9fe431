# SPDX-License-Identifier: Apache-2.0
"""Create the table of host aggregates."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "003"
down_revision = "002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "host_aggregates",
        sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("received_at", sa.Double, nullable=False),
        sa.Column(
            "aggregate",
            sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb"),
            nullable=True,
        ),
        mysql_charset="utf8mb4",
        mariadb_charset="utf8mb4",
    )


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("host_aggregates")
