# SPDX-License-Identifier: Apache-2.0
"""Host aggregates, and the aggregates of each host."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from ...objects import Aggregate


@dataclasses.dataclass(frozen=True, slots=True)
class HostAggregate:
    """A named group of service hosts with metadata, as in nova's API database."""

    id: int
    uuid: str
    name: str
    hosts: frozenset[str]
    metadata: Mapping[str, str]

    @classmethod
    def of(cls, aggregate: Aggregate) -> HostAggregate:
        """Return an aggregate that was received as nova's object."""
        return cls(
            id=aggregate.id,
            uuid=aggregate.uuid,
            name=aggregate.name,
            hosts=frozenset(aggregate.hosts or ()),
            metadata=dict(aggregate.metadata or {}),
        )

    @property
    def availability_zone(self) -> str | None:
        """The availability zone that its hosts are in, if it defines one."""
        return self.metadata.get("availability_zone")

    def __hash__(self) -> int:
        return hash(self.id)


class PlacementPlace(NamedTuple):
    """A place that an aggregate of Placement gives to the compute nodes in it.

    Attributes
    ----------
    aggregate : str
        The aggregate's UUID.
    level, name : str
    """

    aggregate: str
    level: str
    name: str

    @property
    def place(self) -> tuple[str, str]:
        """The level and the name."""
        return self.level, self.name


def metadata_values(aggregates: Iterable[HostAggregate], key: str) -> frozenset[str]:
    """Return the values of `key` in these aggregates, each split at its commas."""
    return frozenset(
        value.strip()
        for aggregate in aggregates
        if key in aggregate.metadata
        for value in aggregate.metadata[key].split(",")
    )


class AggregateMap:
    """All aggregates by id, and the aggregates of each host."""

    def __init__(self) -> None:
        self._by_id: dict[int, HostAggregate] = {}
        self._ids_of_host: dict[str, frozenset[int]] = {}
        #: Equal sets of ids share one object: most hosts are in the same aggregates.
        self._sets: dict[frozenset[int], frozenset[int]] = {}

    def __iter__(self) -> Iterator[HostAggregate]:
        return iter(tuple(self._by_id.values()))

    def of_host(self, host: str) -> tuple[HostAggregate, ...]:
        """Return the aggregates of a service host, by ascending id."""
        return self.of_hosts([host])[0]

    def of_hosts(self, hosts: Iterable[str]) -> list[tuple[HostAggregate, ...]]:
        """Return the aggregates of each service host, by ascending id."""
        by_ids: dict[frozenset[int], tuple[HostAggregate, ...]] = {}
        ids_of_hosts = [self._ids(host) for host in hosts]
        for ids in set(ids_of_hosts):
            by_ids[ids] = tuple(self._by_id[id_] for id_ in sorted(ids))
        return [by_ids[ids] for ids in ids_of_hosts]

    def put(self, aggregate: HostAggregate) -> frozenset[str]:
        """Add or replace an aggregate; return the hosts that are affected."""
        old_hosts = self._leave(aggregate.id)
        # A new dict: concurrent readers see the old or the new state, never a gap.
        self._by_id = {**self._by_id, aggregate.id: aggregate}
        for host in aggregate.hosts:
            self._put_host(host, self._ids(host) | {aggregate.id})
        return old_hosts | aggregate.hosts

    def drop(self, aggregate_id: int) -> frozenset[str]:
        """Remove an aggregate, known or not; return the hosts that were in it."""
        hosts = self._leave(aggregate_id)
        self._by_id = {
            id_: aggregate
            for id_, aggregate in self._by_id.items()
            if id_ != aggregate_id
        }
        return hosts

    def _leave(self, aggregate_id: int) -> frozenset[str]:
        """Remove all hosts from an aggregate; return the hosts that were in it."""
        aggregate = self._by_id.get(aggregate_id)
        if aggregate is None:
            return frozenset()
        for host in aggregate.hosts:
            self._put_host(host, self._ids(host) - {aggregate_id})
        return aggregate.hosts

    def _ids(self, host: str) -> frozenset[int]:
        return self._ids_of_host.get(host, frozenset())

    def _put_host(self, host: str, ids: frozenset[int]) -> None:
        if ids:
            self._ids_of_host[host] = self._sets.setdefault(ids, ids)
        else:
            self._ids_of_host.pop(host, None)

    def uuids_with_metadata(self, key: str, value: str) -> frozenset[str]:
        """Return the UUIDs of the aggregates whose `key` is exactly `value`."""
        return frozenset(
            aggregate.uuid for aggregate in self if aggregate.metadata.get(key) == value
        )
