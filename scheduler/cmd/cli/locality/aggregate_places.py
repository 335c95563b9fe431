# SPDX-License-Identifier: Apache-2.0
"""Places as aggregates of Placement that are none of nova's, and the file of them."""

from __future__ import annotations

import itertools
import uuid
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from oslo_config import cfg

from ....errors import ConfigurationError, PlacementRejected, PlacementUnauthorized
from ....hosts import PlacementPlace
from ....locality.following import places_of_conf
from ....locality.places_file import format_places, read_places
from ....placement.adapter import make_adapter
from ....placement.client import PlacementClient
from ....placement.members import change_aggregates, root_providers
from ..replacing import replace_file
from .changes import HostRefused, Members
from .host_file import Place


class AggregatePlaces:
    """The places of the file ``[locality] places``, and who is in their aggregates.

    All other aggregates of a provider stay. A host is its root resource provider, whose
    name is that of the hypervisor. The file is written before a host enters a new
    place, and the UUID of a new aggregate is that of its place's name, unless a renamed
    place has that one: if the file is lost, the next run writes it again.

    Raises
    ------
    ConfigurationError
        An option is missing, or the file is invalid.
    """

    name = "Placement"

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        options = conf.placement
        if not (options.auth_type or options.auth_section or options.endpoint_override):
            raise ConfigurationError(
                "[placement] has none of auth_type, auth_section and endpoint_override"
            )
        if not conf.locality.places:
            raise ConfigurationError(
                "[locality] places is not set: it names the file of the aggregates "
                "that are places, which is written"
            )
        self._conf = conf
        self._path = Path(conf.locality.places)
        self._levels: Sequence[str] = conf.locality.levels
        self._client = PlacementClient(make_adapter(conf))
        self._uuid_of: Mapping[str, str] = {}
        self._aggregates = self._read()
        self.notes: list[str] = []

    def _read(self) -> defaultdict[Place, list[str]]:
        found: defaultdict[Place, list[str]] = defaultdict(list)
        for each in places_of_conf(self._conf) if self._path.exists() else ():
            found[each.place].append(each.aggregate)
        return found

    def unknown(self, hosts: Collection[str]) -> Sequence[str]:
        """Return which hosts are no root resource providers."""
        roots = root_providers(self._client)
        self._uuid_of = {name: provider for provider, name in roots.items()}
        return [host for host in hosts if host not in self._uuid_of]

    def members(self) -> Members:
        """Return all places of the file, and the members of their aggregates."""
        return {
            place: frozenset(
                name
                for aggregate in aggregates
                for name in root_providers(self._client, aggregate).values()
            )
            for place, aggregates in self._aggregates.items()
        }

    def refuse_taken(self, places: Collection[Place]) -> None:
        """Do nothing: an aggregate exists as soon as a provider is in it."""

    def create(self, places: Collection[Place]) -> None:
        """Add aggregates for places to the file, which may have changed meanwhile."""
        self._aggregates = self._read()
        taken = set(itertools.chain.from_iterable(self._aggregates.values()))
        for place in places:
            if not self._aggregates[place]:
                made = next(each for each in _uuids(place) if each not in taken)
                taken.add(made)
                self._aggregates[place].append(made)
        text = format_places(
            PlacementPlace(aggregate, *place)
            for place, aggregates in self._aggregates.items()
            for aggregate in aggregates
        )
        replace_file(self._path, text, lambda made: read_places(made, self._levels))
        self.notes.append(
            f"{self._path} was written: reload moorage-scheduler and moorage-api "
            "(SIGHUP) wherever they have it"
        )

    def move(self, host: str, leave: Sequence[Place], enter: Sequence[Place]) -> None:
        """Remove a host from aggregates of places, and add it to others, at once."""
        try:
            change_aggregates(
                self._client,
                self._uuid_of[host],
                leave=[each for place in leave for each in self._aggregates[place]],
                enter=[self._aggregates[place][0] for place in enter],
            )
        except (PlacementRejected, PlacementUnauthorized) as e:
            raise HostRefused(f"{e}") from e


def _uuids(place: Place) -> Iterator[str]:
    """Yield the UUIDs that the aggregate of a place may have, the first one first."""
    name = "/".join(("moorage", *place))
    yield str(uuid.uuid5(uuid.NAMESPACE_URL, name))
    for number in itertools.count(2):
        yield str(uuid.uuid5(uuid.NAMESPACE_URL, f"{name}/{number}"))
