# SPDX-License-Identifier: Apache-2.0
"""Create the table of the views on which decisions were made."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "002"
down_revision = "001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "decision_views",
        sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("piece", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column(
            "data",
            sa.LargeBinary().with_variant(mysql.MEDIUMBLOB(), "mysql", "mariadb"),
            nullable=False,
        ),
    )


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("decision_views")
