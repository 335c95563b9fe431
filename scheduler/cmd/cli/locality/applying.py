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

from ....errors import ConfigurationError, SchedulerError
from .aggregate_places import AggregatePlaces
from .changes import ChangeKind, PlaceChange, PlaceService, carry_out, plan
from .compute_places import ComputePlaces, make_compute_adapter
from .host_file import WantedPlaces, read_wanted

#: Unknown hosts that an error names.
_SHOWN: Final = 5


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
            self._changes = _plan(self._wanted, self._service)
        except (SchedulerError, ValueError) as e:
            raise click.ClickException(f"{e}") from e
        self._made: list[PlaceChange] = []

    def carry_out(self) -> None:
        """Make the changes; those before an error stay made.

        Raises
        ------
        click.ClickException
            A change failed.
        """
        try:
            for change in track(
                carry_out(self._changes, self._service),
                "Changing places",
                total=len(self._changes),
                console=Console(stderr=True),
                transient=True,
                disable=not sys.stderr.isatty(),
            ):
                self._made.append(change)
        except (SchedulerError, ValueError, OSError) as e:
            why = f"{e}".rstrip(".")
            raise click.ClickException(f"{why}. Run it again for what is left") from e

    def answer(self, *, is_dry: bool) -> dict[str, Any]:
        """Return the changes that were made, or would be, for JSON."""
        shown: Sequence[PlaceChange] = self._changes if is_dry else self._made
        return {
            "dry_run": is_dry,
            "n_hosts": len(self._wanted.of_host),
            "n_left": len(self._changes) - len(shown),
            "changes": [change.as_dict() for change in shown],
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


def _plan(wanted: WantedPlaces, service: PlaceService) -> list[PlaceChange]:
    """Return the changes; raise an error if nothing must be changed."""
    if unknown := service.unknown(wanted.of_host):
        more = f" and {len(unknown) - _SHOWN} more" if len(unknown) > _SHOWN else ""
        raise ValueError(
            f"{wanted.where(unknown[0])}: {service.name} does not know the host(s) "
            f"{', '.join(unknown[:_SHOWN])}{more}"
        )
    changes = plan(wanted, service.members())
    created = [each.place for each in changes if each.kind is ChangeKind.CREATE]
    service.refuse_taken(created)
    return changes
