# SPDX-License-Identifier: Apache-2.0
"""A file of hosts and their places, applied: read, compared, changed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click
from oslo_config import cfg
from rich.console import Console
from rich.progress import track

from ....display import listed
from ....errors import ConfigurationError, SchedulerError
from .aggregate_places import AggregatePlaces
from .changes import (
    ChangeKind,
    HostRefused,
    PlaceChange,
    PlaceService,
    carry_out,
    plan,
)
from .compute_places import ComputePlaces, make_compute_adapter
from .host_file import WantedPlaces, read_wanted

#: Unknown hosts that an error names.
_SHOWN: Final = 5
#: Hosts refused one after the other before the rest is left: it is not about hosts.
_MAX_REFUSED: Final = 20


class Application:
    """The changes that make hosts be where a file has them.

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
        self._made: list[PlaceChange] = []
        self._refused = {
            host: f"{self._wanted.where(host)}: {self._service.name} does not know it"
            for host in unknown
        }
        self._n_in_a_row = 0

    def carry_out(self) -> None:
        """Make the changes; those before an error stay made.

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
                self._made.append(change)
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

    def _note_refused(self, host: str, e: HostRefused) -> None:
        self._refused[host] = f"{e}"
        self._n_in_a_row += 1
        if self._n_in_a_row == _MAX_REFUSED:
            raise e

    def answer(self, *, is_dry: bool) -> dict[str, Any]:
        """Return the changes that were made, or would be, for JSON."""
        shown: Sequence[PlaceChange] = self._changes if is_dry else self._made
        return {
            "dry_run": is_dry,
            "n_hosts": len(self._wanted.of_host),
            "n_left": len(self._changes) - len(shown),
            "changes": [change.as_dict() for change in shown],
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
        raise ConfigurationError("[locality] levels is empty: it names the levels")
    return levels


def _plan(
    wanted: WantedPlaces, service: PlaceService, unknown: Sequence[str]
) -> list[PlaceChange]:
    """Return the changes; raise an error if nothing must be changed."""
    if len(unknown) == len(wanted.of_host) > 0:
        raise ValueError(
            f"{wanted.where(unknown[0])}: {service.name} does not know the host(s) "
            f"{listed(unknown, _SHOWN)}"
        )
    changes = plan(wanted, service.members(), unknown)
    created = [each.place for each in changes if each.kind is ChangeKind.CREATE]
    service.refuse_taken(created)
    return changes
