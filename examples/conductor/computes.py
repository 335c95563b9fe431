# SPDX-License-Identifier: Apache-2.0
"""Simulated compute hosts: they have a list of their guests, or fail to build."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Set

#: Returns whether the instance with this UUID can be built on this host.
Builds = Callable[[str, str], bool]


class Computes:
    """All compute hosts of a cloud; a real conductor calls nova-compute instead."""

    def __init__(self, builds: Builds = lambda _instance_uuid, _host: True) -> None:
        self._builds = builds
        self._guests: defaultdict[str, set[str]] = defaultdict(set)

    def guests(self, host: str) -> Set[str]:
        """Return the UUIDs of the instances on a host."""
        return frozenset(self._guests[host])

    def build(self, instance_uuid: str, host: str) -> bool:
        """Build an instance, or accept one that moves; return whether it runs."""
        if not self._builds(instance_uuid, host):
            return False
        self._guests[host].add(instance_uuid)
        return True

    def destroy(self, instance_uuid: str, host: str) -> None:
        """Delete an instance on a host, if it is there."""
        self._guests[host].discard(instance_uuid)
