# SPDX-License-Identifier: Apache-2.0
"""Reading flavors from nova's API database."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Final

import sqlalchemy as sa

from ....objects import Flavor
from ...errors import InvalidRequest
from . import schema

#: Flavors that are read at once.
MAX_FLAVORS: Final = 1000

_FLAVORS, _SPECS = schema.flavors.c, schema.flavor_extra_specs.c
_SIZES: Final = (
    sa.select(
        *(_FLAVORS.id, _FLAVORS.name, _FLAVORS.flavorid, _FLAVORS.vcpus),
        *(_FLAVORS.memory_mb, _FLAVORS.root_gb, _FLAVORS.ephemeral_gb, _FLAVORS.swap),
    )
    .where(_FLAVORS.disabled.is_not(sa.true()))
    .order_by(_FLAVORS.id)
    .limit(MAX_FLAVORS + 1)
)
_SPECS_OF: Final = sa.select(_SPECS.flavor_id, _SPECS.key, _SPECS.value).where(
    _SPECS.flavor_id.in_(sa.bindparam("ids", expanding=True))
)


def read_flavors(
    connection: sa.Connection, names: Collection[str] | None = None
) -> list[Flavor]:
    """Return the flavors that are not disabled, or those of these names.

    Raises
    ------
    InvalidRequest
        There are more than `MAX_FLAVORS`.
    """
    wanted = _SIZES
    if names is not None:
        wanted = wanted.where(_FLAVORS.name.in_(list(names)))
    rows = connection.execute(wanted).all()
    if len(rows) > MAX_FLAVORS:
        raise InvalidRequest(
            f"nova has more than {MAX_FLAVORS} flavors, too many to be read at once: "
            "name one of them"
        )
    specs = _specs_of(connection, [row.id for row in rows])
    return [
        Flavor(
            id=row.id,
            name=row.name,
            flavorid=row.flavorid,
            vcpus=row.vcpus,
            memory_mb=row.memory_mb,
            root_gb=row.root_gb or 0,
            ephemeral_gb=row.ephemeral_gb or 0,
            swap=row.swap,
            extra_specs=specs[row.id],
        )
        for row in rows
        # MariaDB compares names without regard to case.
        if names is None or row.name in names
    ]


def _specs_of(
    connection: sa.Connection, ids: Iterable[int]
) -> defaultdict[int, dict[str, str]]:
    found: defaultdict[int, dict[str, str]] = defaultdict(dict)
    for flavor_id, key, value in connection.execute(_SPECS_OF, {"ids": list(ids)}):
        found[flavor_id][key] = value or ""
    return found
