# SPDX-License-Identifier: Apache-2.0
"""The store's schema migrations, one module each; run by alembic."""
