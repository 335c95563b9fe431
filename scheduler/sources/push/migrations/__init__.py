# SPDX-License-Identifier: Apache-2.0
"""How the store's tables came about, a step a module; run by alembic."""
