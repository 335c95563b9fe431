# SPDX-License-Identifier: Apache-2.0
"""Create the table of hosts that an operator has disabled."""

import sqlalchemy as sa
from alembic import op

revision = "002"
down_revision = "001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "disabled_hosts",
        sa.Column("host", sa.String(255), primary_key=True),
        sa.Column("reason", sa.String(1000), nullable=False),
        sa.Column("disabled_at", sa.Double, nullable=False),
        mysql_charset="utf8mb4",
        mariadb_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",
        mariadb_collate="utf8mb4_bin",
    )


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("disabled_hosts")
