# SPDX-License-Identifier: Apache-2.0
"""Create the tables of decisions and of the keys that find them."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "decisions",
        sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("outcome", sa.SmallInteger, nullable=False),
        sa.Column(
            "record",
            sa.LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb"),
            nullable=False,
        ),
    )
    op.create_index("decisions_by_outcome", "decisions", ["outcome", "id"])
    op.create_table(
        "decision_keys",
        sa.Column("key", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("decision_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sqlite_with_rowid=False,
    )
    op.create_index("decision_keys_by_id", "decision_keys", ["decision_id"])


def downgrade() -> None:
    """Drop the tables."""
    op.drop_table("decision_keys")
    op.drop_table("decisions")
