# SPDX-License-Identifier: Apache-2.0
"""What instances consume, and claims that no report of their host includes yet."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Mapping, Set
from types import MappingProxyType

from .fitting import Need, NumaPciUsage
from .image_properties import NO_PROPERTIES, ImageProperties
from .numa import HostTopology
from .pci import HostPools


@dataclasses.dataclass(frozen=True, slots=True)
class Consumption:
    """The amounts of a host's columns that one instance consumes once it is claimed.

    The rule is nova's ``HostState.consume_from_request``: swap and the root disk of a
    volume-backed instance are counted as nova counts them.

    Attributes
    ----------
    io_ops : int
        1 while the instance is built, 0 once its host reports it.
    image_properties : frozenset of (property, text)
        Not an amount: the properties by which a host's instances are counted.
    need : Need or None
        What it needs of NUMA cells and PCI devices; None: nothing.
    """

    memory_mb: int
    disk_mb: int
    vcpus: int
    io_ops: int = 1
    image_properties: ImageProperties = NO_PROPERTIES
    need: Need | None = None

    def take(
        self, topology: HostTopology | None, pools: HostPools
    ) -> NumaPciUsage | None:
        """Return its usage of a host's cells and devices; None: nothing."""
        return None if self.need is None else self.need.take(topology, pools)

    def deltas(self) -> tuple[tuple[str, int], ...]:
        """Return (column, change) pairs."""
        return (
            ("free_ram_mb", -self.memory_mb),
            ("free_disk_mb", -self.disk_mb),
            ("vcpus_used", self.vcpus),
            ("num_instances", 1),
            ("num_io_ops", self.io_ops),
        )


@dataclasses.dataclass(slots=True)
class PendingClaim:
    """What an instance was granted, and which of the host's devices it uses.

    Attributes
    ----------
    claimed_at : float
        Seconds since the epoch.
    """

    consumption: Consumption
    claimed_at: float
    taken: NumaPciUsage | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class UnreportedClaim:
    """A claim that no report of its compute node includes yet.

    Attributes
    ----------
    host : str
        The service host.
    claimed_at : float
        Seconds since the epoch.
    """

    node_uuid: str
    host: str
    instance_uuid: str
    claimed_at: float


_NONE: Mapping[str, PendingClaim] = MappingProxyType({})


class PendingClaims:
    """Claims by compute node and instance; nodes without claims have no entry."""

    def __init__(self) -> None:
        self._of_node: dict[str, dict[str, PendingClaim]] = {}

    def __iter__(self) -> Iterator[tuple[str, str, PendingClaim]]:
        """Yield (node, instance, claim)."""
        for node_uuid, claims in self._of_node.items():
            for instance_uuid, claim in claims.items():
                yield node_uuid, instance_uuid, claim

    def __bool__(self) -> bool:
        return bool(self._of_node)

    @property
    def nodes(self) -> Set[str]:
        """The nodes that have claims."""
        return self._of_node.keys()

    def of_node(self, node_uuid: str) -> Mapping[str, PendingClaim]:
        """Return the claims on a node by instance, the oldest first."""
        return self._of_node.get(node_uuid, _NONE)

    def put(self, node_uuid: str, instance_uuid: str, claim: PendingClaim) -> None:
        """Add a claim."""
        self._of_node.setdefault(node_uuid, {})[instance_uuid] = claim

    def pop(self, node_uuid: str, instance_uuid: str) -> PendingClaim | None:
        """Remove and return a claim; None: there is none."""
        claims = self._of_node.get(node_uuid)
        if claims is None:
            return None
        claim = claims.pop(instance_uuid, None)
        if not claims:
            del self._of_node[node_uuid]
        return claim

    def forget(self, node_uuid: str) -> None:
        """Remove all claims on a node."""
        self._of_node.pop(node_uuid, None)

    def by_host(self, host_of: Mapping[str, str]) -> Mapping[str, set[str]]:
        """Return the instances with claims by service host.

        Parameters
        ----------
        host_of : mapping
            The service host of each node in `nodes`.
        """
        found: defaultdict[str, set[str]] = defaultdict(set)
        for node_uuid, claims in self._of_node.items():
            found[host_of[node_uuid]] |= claims.keys()
        return found
