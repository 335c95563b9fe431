# SPDX-License-Identifier: Apache-2.0
"""The destination that a request names: a host, a cell, aggregates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from .flavor_and_image import set_field

if TYPE_CHECKING:
    from ...objects import Destination


@dataclass(frozen=True, slots=True)
class RequestedDestination:
    """Where a request wants its instances; what is unset restricts nothing.

    Attributes
    ----------
    host, node : str or None
        The service host, and the compute node by its hypervisor hostname.
    cell : str or None
        UUID of the only cell allowed.
    preferred_cell : str or None
        UUID of the cell that is preferred; the instances may leave it.
    aggregates : tuple of frozenset of str
        A host must be in one aggregate of each set, by UUID.
    forbidden_aggregates : frozenset of str
    """

    host: str | None = None
    node: str | None = None
    cell: str | None = None
    preferred_cell: str | None = None
    aggregates: tuple[frozenset[str], ...] = ()
    forbidden_aggregates: frozenset[str] = frozenset()

    @classmethod
    def read(cls, destination: Destination | None) -> Self:
        """Read the object in a request."""
        cell = set_field(destination, "cell")
        cell_uuid = cell.uuid if cell else None
        may_leave = bool(set_field(destination, "allow_cross_cell_move"))
        ored = set_field(destination, "aggregates") or ()
        return cls(
            host=set_field(destination, "host") or None,
            node=set_field(destination, "node") or None,
            cell=None if may_leave else cell_uuid,
            preferred_cell=cell_uuid if may_leave else None,
            aggregates=tuple(frozenset(uuids.split(",")) for uuids in ored),
            forbidden_aggregates=frozenset(
                set_field(destination, "forbidden_aggregates") or ()
            ),
        )
