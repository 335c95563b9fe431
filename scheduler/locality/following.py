# SPDX-License-Identifier: Apache-2.0
"""Follow which compute nodes are in the aggregates of ``[locality] places``.

    providers in memory ─┐
                         ├─▶ aggregates of nodes ─┐
    Placement's API ─────┘                        ├─▶ column of the host table
    the file ─────────────────────────────────────┘

A thread reads the aggregates; decisions use those that were read last.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from oslo_config import cfg

from ..errors import ConfigurationError, PlacementError
from ..hosts import HostTable, PlacementPlace
from ..periodic import Outage, Periodic
from ..placement.client import PlacementClient
from ..placement.members import root_providers
from ..placement.providers import ProviderView
from ..waiting import Spawner, Waiter
from .places_file import read_places

LOG = logging.getLogger(__name__)

#: Seconds between two readings of the providers in memory, and of Placement, which gets
#: a GET for each aggregate; the pause is at least `_API_PAUSE` times as long as these.
_MEMORY_INTERVAL_S: Final = 5.0
_API_INTERVAL_S: Final = 60.0
_API_PAUSE: Final = 10.0
#: Seconds that a start waits for the first reading, and a stop for the running one.
_FIRST_S: Final = 5.0
_STOP_S: Final = 3.0

#: The aggregates of each compute node; equal sets may be shared.
AggregatesOf = Mapping[str, frozenset[str]]


def places_of_conf(conf: cfg.ConfigOpts) -> Sequence[PlacementPlace]:
    """Return the places of the file ``[locality] places``, if there is one.

    Raises
    ------
    ConfigurationError
        The file cannot be read, or a line is invalid.
    """
    options = conf.locality
    if not options.places:
        return ()
    try:
        return read_places(Path(options.places), options.levels)
    except ValueError as e:
        raise ConfigurationError(f"[locality] places: {e}") from e


def aggregates_of_members(members: Mapping[str, Iterable[str]]) -> AggregatesOf:
    """Return the aggregates of each member, from the members of each aggregate."""
    aggregates_of: defaultdict[str, set[str]] = defaultdict(set)
    for aggregate, uuids in members.items():
        for member in uuids:
            aggregates_of[member].add(aggregate)
    return {
        member: frozenset(aggregates) for member, aggregates in aggregates_of.items()
    }


def places_by_node(
    places: Iterable[PlacementPlace], aggregates_of: AggregatesOf
) -> dict[str, tuple[PlacementPlace, ...]]:
    """Return the places of each node that has any."""
    place_of_aggregate = {place.aggregate: place for place in places}
    places_of_set = {
        aggregates: tuple(
            place_of_aggregate[uuid]
            for uuid in sorted(aggregates & place_of_aggregate.keys())
        )
        for aggregates in set(aggregates_of.values())
    }
    return {
        node: places_of_set[aggregates]
        for node, aggregates in aggregates_of.items()
        if places_of_set[aggregates]
    }


class PlaceFollower:
    """Write the places of Placement's aggregates into a host table.

    Parameters
    ----------
    provider_view : callable
        Returns the providers in memory; None: there are none.

    Raises
    ------
    ConfigurationError
        The file is invalid.
    """

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        table: HostTable,
        placement: PlacementClient,
        provider_view: Callable[[], ProviderView | None],
        *,
        waiter: Waiter,
        spawner: Spawner,
    ) -> None:
        self._conf = conf
        self._table = table
        self._placement = placement
        self._provider_view = provider_view
        self._clock = waiter.monotonic
        self._places = places_of_conf(conf)
        self._aggregates_of: AggregatesOf = {}
        #: The trees in memory, and the places, that were read last.
        self._last_read: tuple[object, object] = (None, None)
        self._outage = Outage(LOG)
        self._first = spawner.event()
        self._pause_s = _API_INTERVAL_S
        self._reading = Periodic(
            self.refresh,
            lambda: self._pause_s,
            log=LOG,
            what="Reading the hosts of [locality] places",
            name="moorage places",
            spawner=spawner,
            is_immediate=True,
        )

    @property
    def is_waiting(self) -> bool:
        """Whether there are aggregates whose members were never read."""
        return bool(self._places) and not self._first.is_set()

    def load(self) -> None:
        """Read the providers in memory, if there are any; start no thread."""
        if self._places and (view := self._provider_view()) is not None:
            self._read_view(view)

    def start(self) -> None:
        """Follow the members in the background; wait a little for the first reading."""
        if self._places and not self._reading.is_started:
            self._reading.start()
            self._first.wait(_FIRST_S)

    def reload(self) -> None:
        """Read the file again; the members of new aggregates are read soon.

        Raises
        ------
        ConfigurationError
            The file is invalid; the places remain unchanged.
        """
        self._places = places_of_conf(self._conf)
        self._write()
        self._reading.wake()
        self.start()

    def stop(self) -> None:
        """Stop; wait for a call to Placement in progress, but at most 3 s."""
        self._reading.stop(_STOP_S)

    def refresh(self) -> None:
        """Read the members once; if reading fails, the known places are kept."""
        if (view := self._provider_view()) is not None:
            self._read_view(view)
            self._pause_s = _MEMORY_INTERVAL_S
            return
        began = self._clock()
        try:
            self._read_api()
        except PlacementError as e:
            self._outage.fail(
                e,
                "Reading the hosts of [locality] places from Placement failed: %s; "
                "the known ones are kept, and reading is retried every %d s",
                e, _API_INTERVAL_S,
            )  # fmt: skip
        self._pause_s = max(_API_INTERVAL_S, _API_PAUSE * (self._clock() - began))

    def _read_view(self, view: ProviderView) -> None:
        trees, places = view.state.trees, self._places
        if self._last_read[0] is trees and self._last_read[1] is places:
            return
        members = trees.in_aggregate(place.aggregate for place in places)
        rows = np.flatnonzero(members & (trees.parents < 0))
        sets = (trees.aggregates[i] for i in trees.aggregate_sets[rows].tolist())
        self._last_read = trees, places
        self._put(dict(zip(trees.uuids[rows].tolist(), sets, strict=True)))

    def _read_api(self) -> None:
        members: dict[str, Collection[str]] = {}
        for place in self._places:
            if self._reading.is_stopping:
                return
            members[place.aggregate] = root_providers(self._placement, place.aggregate)
        self._outage.end("Placement answers again: the places of hosts were read")
        self._put(aggregates_of_members(members))

    def _put(self, aggregates_of: AggregatesOf) -> None:
        self._aggregates_of = aggregates_of
        self._write()
        self._first.set()

    def _write(self) -> None:
        places = places_by_node(self._places, self._aggregates_of)
        self._table.put_placement_places(places)
