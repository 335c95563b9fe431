# SPDX-License-Identifier: Apache-2.0
"""Which instances are on which service hosts."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Iterable


class InstanceMap:
    """Instance UUIDs by service host, as nova keys them, and hosts by instance.

    All nodes of one service host share its instances, as with Ironic. An instance that
    is being moved is on two hosts.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of_host: dict[str, set[str]] = {}
        self._hosts_of: dict[str, tuple[str, ...]] = {}

    def __len__(self) -> int:
        return len(self._hosts_of)

    def set_host(self, host: str, uuids: Collection[str]) -> None:
        """Replace all instances of a host."""
        with self._lock:
            before = self._of_host.get(host, set())
            for uuid in before.difference(uuids):
                self._remove(host, uuid)
            for uuid in set(uuids).difference(before):
                self._add(host, uuid)

    def add(self, host: str, uuid: str) -> None:
        """Put an instance on a host; where else it may be is left alone."""
        with self._lock:
            self._add(host, uuid)

    def remove(self, host: str, uuid: str) -> None:
        """Take an instance off a host; one that is not there is no error."""
        with self._lock:
            self._remove(host, uuid)

    def _add(self, host: str, uuid: str) -> None:
        hosts = self._hosts_of.get(uuid, ())
        if host not in hosts:
            self._hosts_of[uuid] = (*hosts, host)
            self._of_host.setdefault(host, set()).add(uuid)

    def _remove(self, host: str, uuid: str) -> None:
        hosts = self._hosts_of.get(uuid, ())
        if host not in hosts:
            return
        self._of_host[host].discard(uuid)
        left = tuple(other for other in hosts if other != host)
        if left:
            self._hosts_of[uuid] = left
        else:
            del self._hosts_of[uuid]

    def of_host(self, host: str) -> frozenset[str]:
        """Return the UUIDs of a host's instances."""
        with self._lock:
            return frozenset(self._of_host.get(host, ()))

    def hosts_of(self, uuid: str) -> tuple[str, ...]:
        """Return the hosts that an instance is on."""
        with self._lock:
            return self._hosts_of.get(uuid, ())

    def count(self, uuids: Iterable[str]) -> Counter[str]:
        """Return how many of these instances each host has; unknown ones are left out.

        One consistent answer: the map does not change while they are looked up.
        """
        with self._lock:
            return Counter(
                host for uuid in set(uuids) for host in self._hosts_of.get(uuid, ())
            )
