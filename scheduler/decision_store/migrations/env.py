# SPDX-License-Identifier: Apache-2.0
"""Run the migrations on the store's connection, in its transaction."""

from alembic import context

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=None,
    version_table="moorage_decisions_version",
)
with context.begin_transaction():
    context.run_migrations()
