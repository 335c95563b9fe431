# SPDX-License-Identifier: Apache-2.0
"""Placement's resource providers in memory, and candidates computed from them.

    ProviderTable ── view() ─▶ ProviderView ── match(ProviderQuery) ─▶ Matches
                                                                         │
                      ProviderCandidates ◀── expand(trees to be judged) ─┘

A query is answered as Placement 16 answers GET /allocation_candidates at microversions
1.36 and 1.39, with these exceptions, in which Placement's own answer depends on the
order of rows in its database:

- A resource class is requested both in the group "" and in another group, and
  group_policy is not ``none``: Placement may add a group's amount to one provider more
  than once (``copy_arr_if_needed``). Here each amount is allocated once.
- Sharing providers alone can serve the group "", and there are other groups: Placement
  considers only one of the trees that they share with. Here each tree is considered.
- A sharing provider that is not a root: Placement may answer 500.
- The group "" forbids traits, and Placement's database is PostgreSQL: Placement may
  answer 500, as it compares IDs of traits with names.
- ``in_tree`` names a provider whose UUID the database has in upper case: MariaDB finds
  it by the UUID in lower case, too.
"""

from .interned import INVENTORY
from .matches import Matches, ProviderCandidates
from .query import ProviderGroup, ProviderQuery, QueryNotCovered
from .records import InventoryRecord, InventoryRows, ProviderColumns, ProviderRecord
from .table import ProviderTable
from .view import ProviderView

__all__ = [
    "INVENTORY",
    "InventoryRecord",
    "InventoryRows",
    "Matches",
    "ProviderCandidates",
    "ProviderColumns",
    "ProviderGroup",
    "ProviderQuery",
    "ProviderRecord",
    "ProviderTable",
    "ProviderView",
    "QueryNotCovered",
]
