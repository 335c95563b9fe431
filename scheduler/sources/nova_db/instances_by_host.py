# SPDX-License-Identifier: Apache-2.0
"""The known instances of each service host, with checksums to compare them by."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from typing import Final

#: The number of a host's instances, the sum of their ids, and of the ids' squares.
HostSums = tuple[int, int, int]
_NOTHING: Final[HostSums] = (0, 0, 0)
_NO_UUIDS: Final[frozenset[str]] = frozenset()


class InstancesByHost:
    """Instances by row id, and by host."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[str, str]] = {}
        self._of_host: dict[str, frozenset[str]] = {}
        self._sums: dict[str, HostSums] = {}

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, row_id: int) -> bool:
        return row_id in self._known

    @property
    def ids(self) -> Collection[int]:
        """The ids of the known rows."""
        return self._known.keys()

    @property
    def hosts(self) -> Mapping[str, frozenset[str]]:
        """The UUIDs of each host's instances; hosts without any are left out."""
        return self._of_host

    def of_hosts(self, hosts: Iterable[str]) -> dict[str, frozenset[str]]:
        """Return the UUIDs of these hosts' instances."""
        return {host: self._of_host.get(host, _NO_UUIDS) for host in hosts}

    def ids_on(self, hosts: Collection[str]) -> list[int]:
        """Return the ids of these hosts' instances."""
        return [i for i, (_, host) in self._known.items() if host in hosts]

    def matches(self, host: str, sums: tuple[int, ...] | None) -> bool:
        """Return whether a host has these sums; None: no instances.

        They may be a prefix of `HostSums`.
        """
        known = self._sums.get(host, _NOTHING)
        return sums == known[: len(sums)] if sums else known == _NOTHING

    def put(self, rows: Mapping[int, tuple[str, str]]) -> set[str]:
        """Set the UUIDs and hosts of instances; return the hosts that changed."""
        moves = _Moves()
        known = self._known
        for row_id, now in rows.items():
            before = known.get(row_id)
            if before == now:
                continue
            if before is not None:
                moves.leave(row_id, *before)
            moves.enter(row_id, *now)
        known.update(rows)
        return self._apply_moves(moves)

    def drop(self, ids: Iterable[int]) -> set[str]:
        """Remove instances; return the hosts that changed."""
        moves = _Moves()
        for row_id in ids:
            before = self._known.pop(row_id, None)
            if before is not None:
                moves.leave(row_id, *before)
        return self._apply_moves(moves)

    def _apply_moves(self, moves: _Moves) -> set[str]:
        for host, gone, arrived, sums in moves:
            left = self._of_host.get(host, _NO_UUIDS) - gone | arrived
            if left:
                self._of_host[host] = left
                self._sums[host] = _plus(self._sums.get(host, _NOTHING), sums)
            else:
                self._of_host.pop(host, None)
                self._sums.pop(host, None)
        return moves.hosts


class _Moves:
    """Instances that leave and enter hosts, with the change of the hosts' sums."""

    def __init__(self) -> None:
        self._gone: defaultdict[str, set[str]] = defaultdict(set)
        self._arrived: defaultdict[str, set[str]] = defaultdict(set)
        self._sums: dict[str, list[int]] = {}

    def leave(self, row_id: int, uuid: str, host: str) -> None:
        self._gone[host].add(uuid)
        self._count(host, row_id, -1)

    def enter(self, row_id: int, uuid: str, host: str) -> None:
        self._arrived[host].add(uuid)
        self._count(host, row_id, 1)

    def _count(self, host: str, row_id: int, sign: int) -> None:
        sums = self._sums.get(host)
        if sums is None:
            sums = self._sums[host] = [0, 0, 0]
        sums[0] += sign
        sums[1] += sign * row_id
        sums[2] += sign * row_id * row_id

    @property
    def hosts(self) -> set[str]:
        return set(self._sums)

    def __iter__(self) -> Iterator[tuple[str, Set[str], Set[str], list[int]]]:
        for host, sums in self._sums.items():
            gone = self._gone.get(host, _NO_UUIDS)
            yield host, gone, self._arrived.get(host, _NO_UUIDS), sums


def _plus(sums: HostSums, change: Iterable[int]) -> HostSums:
    n, total, squares = (a + b for a, b in zip(sums, change, strict=True))
    return n, total, squares
