# SPDX-License-Identifier: Apache-2.0
"""The queries for all providers, for some of them, and for a range of ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from ...polling.polled_table import TableQueries
from ...polling.times import microseconds
from .schema import (
    allocations,
    inventories,
    resource_provider_aggregates,
    resource_provider_traits,
    resource_providers,
)

#: Sums of usage are weighted by id, so that changes of several providers do not cancel
#: each other out.
N_WEIGHTS: Final = 1009

_P: Final = resource_providers.c
_I: Final = inventories.c
_A: Final = allocations.c
_COLUMNS: Final = (_P.uuid, _P.generation, _P.parent_provider_id, _P.root_provider_id)

#: Reparenting changes ``updated_at`` and no generation. SQLite reuses ids.
PROVIDERS: Final = TableQueries.of(
    resource_providers,
    number=sa.func.coalesce(microseconds(_P.updated_at), microseconds(_P.created_at), 0)
    + sa.cast(sa.func.coalesce(_P.generation, 0), sa.BigInteger) * 1_000_003
    + sa.func.coalesce(_P.parent_provider_id, 0),
    columns=_COLUMNS,
    live=sa.true(),
)


@dataclass(frozen=True, slots=True)
class ProviderQueries:
    """Queries for what providers have.

    Attributes
    ----------
    inventories
        (provider id, class id, values of `INVENTORY`).
    usages
        (provider id, class id, used).
    traits, aggregates
        (provider id, ids as text).
    """

    inventories: sa.Select[Any]
    usages: sa.Select[Any]
    traits: sa.Select[Any]
    aggregates: sa.Select[Any]

    def where(self, limit: str) -> ProviderQueries:
        """Return the queries for given "ids", or for a "range" from first to last."""

        def limited(query: sa.Select[Any]) -> sa.Select[Any]:
            provider_id = query.selected_columns[0]
            if limit == "ids":
                ids: sa.BindParameter[Any] = sa.bindparam("ids", expanding=True)
                return query.where(provider_id.in_(ids))
            first: sa.BindParameter[Any] = sa.bindparam("first")
            last: sa.BindParameter[Any] = sa.bindparam("last")
            return query.where(provider_id.between(first, last))

        return ProviderQueries(
            limited(self.inventories),
            limited(self.usages),
            limited(self.traits),
            limited(self.aggregates),
        )


def _grouped(provider: sa.Column[int], member: sa.Column[int]) -> sa.Select[Any]:
    """Return the query for each provider's member ids, as text."""
    ids = sa.func.aggregate_strings(sa.cast(member, sa.String), ",")
    columns: list[sa.ColumnElement[Any]] = [provider, ids]
    return sa.select(*columns).group_by(provider)


_EVERY: Final = ProviderQueries(
    inventories=sa.select(
        _I.resource_provider_id,
        _I.resource_class_id,
        _I.total,
        _I.reserved,
        _I.min_unit,
        _I.max_unit,
        _I.step_size,
        # MariaDB returns a FLOAT rounded, as 0.9, while Placement's SQL computes with
        # the stored 0.89999998. A DOUBLE is returned without rounding.
        (_I.allocation_ratio * sa.literal_column("1e0")).label("allocation_ratio"),
    ),
    usages=sa.select(
        _A.resource_provider_id,
        _A.resource_class_id,
        sa.cast(sa.func.sum(_A.used), sa.BigInteger),
    ).group_by(_A.resource_provider_id, _A.resource_class_id),
    traits=_grouped(
        resource_provider_traits.c.resource_provider_id,
        resource_provider_traits.c.trait_id,
    ),
    aggregates=_grouped(
        resource_provider_aggregates.c.resource_provider_id,
        resource_provider_aggregates.c.aggregate_id,
    ),
)
OF_IDS: Final = _EVERY.where("ids")
OF_RANGE: Final = _EVERY.where("range")

#: The weighted sum of all usages of a range of providers.
USAGE_SUM: Final = sa.select(
    sa.cast(
        sa.func.coalesce(
            sa.func.sum(_A.used * (_A.resource_provider_id % N_WEIGHTS + 1)), 0
        ),
        sa.BigInteger,
    )
).where(_A.resource_provider_id.between(sa.bindparam("first"), sa.bindparam("last")))

#: Providers by UUID, with the columns of `PROVIDERS`.
BY_UUID: Final = sa.select(_P.id, *_COLUMNS).where(
    _P.uuid.in_(sa.bindparam("uuids", expanding=True))
)
