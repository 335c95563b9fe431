# SPDX-License-Identifier: Apache-2.0
"""Create the table of hosts."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "hosts",
        sa.Column("node_uuid", sa.String(36), primary_key=True),
        sa.Column("incarnation", sa.String(36), nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("seen_at", sa.Double, nullable=False),
        sa.Column(
            "report",
            sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb"),
            nullable=False,
        ),
        mysql_charset="utf8mb4",
        mariadb_charset="utf8mb4",
    )


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("hosts")
