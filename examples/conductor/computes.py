# SPDX-License-Identifier: Apache-2.0
"""Compute hosts that only pretend: they keep a list of their guests, or fail."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Set

#: Given an instance's UUID and a host, tell whether it can be built there.
Builds = Callable[[str, str], bool]


class Computes:
    """All compute hosts of a cloud; yours would send RPC to nova-compute instead."""

    def __init__(self, builds: Builds = lambda _instance_uuid, _host: True) -> None:
        self._builds = builds
        self._guests: defaultdict[str, set[str]] = defaultdict(set)

    def guests(self, host: str) -> Set[str]:
        """Return the UUIDs of the instances on a host."""
        return frozenset(self._guests[host])

    def build(self, instance_uuid: str, host: str) -> bool:
        """Build an instance, or take in one that moves; return whether it runs."""
        if not self._builds(instance_uuid, host):
            return False
        self._guests[host].add(instance_uuid)
        return True

    def destroy(self, instance_uuid: str, host: str) -> None:
        """End an instance on a host; one that is not there is no error."""
        self._guests[host].discard(instance_uuid)
