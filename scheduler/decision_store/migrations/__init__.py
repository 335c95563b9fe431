# SPDX-License-Identifier: Apache-2.0
"""alembic's scripts for the store of decisions."""
