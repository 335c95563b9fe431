# SPDX-License-Identifier: Apache-2.0
"""One pool of like PCI devices of a host."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...request.pci import Items


@dataclass(frozen=True, slots=True)
class PoolKind:
    """All that the devices of a pool have in common, except their resource provider.

    Attributes
    ----------
    items : tuple of (str, value)
        nova's flat form of a pool without ``count`` and ``rp_uuid``, by ascending key.
    """

    items: Items
    _hash: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        # Computed once: it is long, and many pools are of the same kind.
        object.__setattr__(self, "_hash", hash(self.items))

    def __hash__(self) -> int:
        return self._hash

    @property
    def numa_node(self) -> int | None:
        """The NUMA node that the devices are at; None: they are at none, or unknown."""
        node = dict(self.items).get("numa_node")
        return node if isinstance(node, int) else None

    def describe(self) -> str:
        """Return the properties that are set, for users."""
        return ", ".join(f"{k} {v}" for k, v in self.items if v is not None)


@dataclass(frozen=True, slots=True)
class Pool:
    """Some free devices of one kind.

    Attributes
    ----------
    rp_uuid : str or None
        The resource provider that stands for the devices in Placement; None: none does.
    place : int
        Its index in the sorted report: a pool that was used up and is given back
        returns there.
    """

    kind: PoolKind
    count: int
    rp_uuid: str | None = None
    place: int = 0

    @property
    def n_keys(self) -> int:
        """How many keys nova's flat form has: pools with fewer come first."""
        return n_keys(self.kind, self.rp_uuid)

    @property
    def order(self) -> tuple[int, int]:
        """What pools of a host are sorted by."""
        return self.n_keys, self.place

    def to_dict(self) -> dict[str, Any]:
        """Return nova's flat form."""
        provider = {} if self.rp_uuid is None else {"rp_uuid": self.rp_uuid}
        kind = {k: list(v) if isinstance(v, tuple) else v for k, v in self.kind.items}
        return {**kind, "count": self.count, **provider}

    def describe(self) -> str:
        """Return count, kind and provider, for users."""
        provider = f", provider {self.rp_uuid}" if self.rp_uuid else ""
        return f"{self.count} of {self.kind.describe()}{provider}"


def n_keys(kind: PoolKind, rp_uuid: str | None) -> int:
    """Return how many keys nova's flat form of a pool has."""
    return len(kind.items) + (1 if rp_uuid is None else 2)
