# SPDX-License-Identifier: Apache-2.0
"""Read a file of hosts and places, and change the places of a service accordingly.

Places are aggregates of nova, or aggregates of Placement that nova does not know.
"""

from __future__ import annotations

import itertools
import sys
import uuid
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click
from oslo_config import cfg
from rich.console import Console
from rich.progress import track

from ....conf.keystoneauth import has_endpoint
from ....display import listed
from ....errors import (
    ConfigurationError,
    PlacementRejected,
    PlacementUnauthorized,
    SchedulerError,
)
from ....hosts import PlacementPlace
from ....locality.following import places_of_conf
from ....locality.places_file import format_places, read_places
from ....placement.adapter import make_adapter
from ....placement.client import PlacementClient
from ....placement.members import change_aggregates, root_providers
from ..replacing import replace_file
from .changes import (
    ChangeKind,
    HostRefused,
    Members,
    PlaceChange,
    PlaceService,
    carry_out,
    plan,
)
from .compute_places import ComputePlaces, make_compute_adapter
from .host_file import Place, WantedPlaces, read_wanted

#: Unknown hosts that an error names.
_SHOWN: Final = 5
#: Consecutive hosts that a service refuses before the command ends.
_MAX_REFUSED: Final = 20


class AggregatePlaces:
    """The places of the file ``[locality] places``, and the hosts in their aggregates.

    A provider stays in all other aggregates. A host is its root resource provider,
    which has the name of the hypervisor. The file is written before a host enters a new
    place. The UUID of a new aggregate is computed from the place's name, unless a
    renamed place has that UUID: if the file is lost, the next run writes it again.

    Raises
    ------
    ConfigurationError
        An option is missing, or the file is invalid.
    """

    name = "Placement"

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        if not has_endpoint(conf, "placement"):
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
        aggregates: defaultdict[Place, list[str]] = defaultdict(list)
        for place in places_of_conf(self._conf) if self._path.exists() else ():
            aggregates[place.place].append(place.aggregate)
        return aggregates

    def unknown(self, hosts: Collection[str]) -> Sequence[str]:
        """Return the hosts without a root resource provider of their name."""
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

    def check_creatable(self, places: Collection[Place]) -> None:
        """Do nothing: an aggregate exists as soon as a provider is in it."""

    def create(self, places: Collection[Place]) -> None:
        """Add aggregates for places to the file, which may have changed meanwhile."""
        self._aggregates = self._read()
        taken_uuids = set(itertools.chain.from_iterable(self._aggregates.values()))
        for place in places:
            if not self._aggregates[place]:
                new_uuid = next(
                    uuid_ for uuid_ in _uuids(place) if uuid_ not in taken_uuids
                )
                taken_uuids.add(new_uuid)
                self._aggregates[place].append(new_uuid)
        text = format_places(
            PlacementPlace(aggregate, *place)
            for place, aggregates in self._aggregates.items()
            for aggregate in aggregates
        )
        replace_file(self._path, text, lambda path: read_places(path, self._levels))
        self.notes.append(
            f"{self._path} was written: reload moorage-scheduler and moorage-api "
            "(SIGHUP) wherever they have it"
        )

    def move(self, host: str, old: Sequence[Place], new: Sequence[Place]) -> None:
        """Remove a host from places and add it to others, in one write to Placement."""
        try:
            change_aggregates(
                self._client,
                self._uuid_of[host],
                leave=[
                    aggregate for place in old for aggregate in self._aggregates[place]
                ],
                enter=[self._aggregates[place][0] for place in new],
            )
        except (PlacementRejected, PlacementUnauthorized) as e:
            raise HostRefused(f"{e}") from e


def _uuids(place: Place) -> Iterator[str]:
    """Yield the UUIDs that the aggregate of a place may have, the first one first."""
    name = "/".join(("moorage", *place))
    yield str(uuid.uuid5(uuid.NAMESPACE_URL, name))
    for number in itertools.count(2):
        yield str(uuid.uuid5(uuid.NAMESPACE_URL, f"{name}/{number}"))


class Application:
    """The changes that put hosts into the places that a file names.

    Parameters
    ----------
    in_placement : bool
        Whether places are aggregates of Placement, and not host aggregates of nova.

    Raises
    ------
    click.ClickException
        The file or an option is invalid, or a service does not answer.
    """

    def __init__(self, conf: cfg.ConfigOpts, file: Path, *, in_placement: bool) -> None:
        try:
            self._wanted = read_wanted(file, _levels(conf))
            self._service = _service(conf, in_placement=in_placement)
            unknown = self._service.unknown(self._wanted.of_host)
            self._changes = _plan(self._wanted, self._service, unknown)
        except (SchedulerError, ValueError) as e:
            raise click.ClickException(f"{e}") from e
        self._finished: list[PlaceChange] = []
        self._refused = {
            host: f"{self._wanted.where(host)}: {self._service.name} does not know it"
            for host in unknown
        }
        self._n_in_a_row = 0

    def carry_out(self) -> None:
        """Make the changes; an error does not undo the changes before it.

        A host that is refused stays where it is, and the others are moved.

        Raises
        ------
        click.ClickException
            A change failed.
        """
        try:
            for change in track(
                carry_out(self._changes, self._service, self._note_refused),
                "Changing places",
                total=len(self._changes),
                console=Console(stderr=True),
                transient=True,
                disable=not sys.stderr.isatty(),
            ):
                self._finished.append(change)
                self._n_in_a_row = 0
        except (SchedulerError, ValueError, OSError) as e:
            why = f"{e}".rstrip(".")
            raise click.ClickException(f"{why}. Run it again for what is left") from e

    def raise_if_refused(self) -> None:
        """Raise ClickException if a host is unknown, or was refused."""
        if self._refused:
            raise click.ClickException(
                f"{len(self._refused):,} host(s) were refused: "
                f"{listed(list(self._refused), _SHOWN)}. Run it again for what is left"
            )

    def _note_refused(self, host: str, error: HostRefused) -> None:
        self._refused[host] = f"{error}"
        self._n_in_a_row += 1
        if self._n_in_a_row == _MAX_REFUSED:
            raise error

    def answer(self, *, is_dry: bool) -> dict[str, Any]:
        """Return the changes that were made, or would be, for JSON."""
        changes: Sequence[PlaceChange] = self._changes if is_dry else self._finished
        return {
            "dry_run": is_dry,
            "n_hosts": len(self._wanted.of_host),
            "n_left": len(self._changes) - len(changes),
            "changes": [change.as_dict() for change in changes],
            "refused": [
                {"host": host, "why": why} for host, why in self._refused.items()
            ],
            "notes": list(self._service.notes),
        }


def _service(conf: cfg.ConfigOpts, *, in_placement: bool) -> PlaceService:
    if in_placement:
        return AggregatePlaces(conf)
    return ComputePlaces(make_compute_adapter(conf))


def _levels(conf: cfg.ConfigOpts) -> Sequence[str]:
    levels: Sequence[str] = tuple(dict.fromkeys(conf.locality.levels))
    if not levels:
        raise ConfigurationError(
            "[locality] levels is empty: name the levels of places, the smallest "
            "first, such as rack, row, room"
        )
    return levels


def _plan(
    wanted: WantedPlaces, service: PlaceService, unknown: Sequence[str]
) -> list[PlaceChange]:
    """Return the changes; raise an error if none may be made.

    That is so if all hosts are unknown, or a place cannot be created.
    """
    if len(unknown) == len(wanted.of_host) > 0:
        raise ValueError(
            f"{wanted.where(unknown[0])}: {service.name} does not know the host(s) "
            f"{listed(unknown, _SHOWN)}"
        )
    changes = plan(wanted, service.members(), unknown)
    created = [change.place for change in changes if change.kind is ChangeKind.CREATE]
    service.check_creatable(created)
    return changes
