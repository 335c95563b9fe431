# SPDX-License-Identifier: Apache-2.0
"""Rules about places from the volumes and ports of a request.

places of volumes and ports ─▶ rules and preferences of the request
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol

from oslo_config import cfg

from ..hosts import HostTable
from ..locality import Places
from ..prefilters import no_valid_host
from ..request import Request
from ..request.locality import InPlaces, Rule, SoftRule
from .record import AttachmentRecord

#: For end users.
NO_PLACE: Final = "is in no known place"


class FindsAttachments(Protocol):
    """Finds where the volumes and ports of a request are."""

    def find(
        self,
        request: Request,
        levels: Sequence[str],
        table: HostTable,
        conf: cfg.ConfigOpts,
    ) -> Sequence[AttachmentRecord]:
        """Return the places of each volume and port that counts for a request.

        Raises
        ------
        InvalidRequest
            A hint is malformed, or there are too many.
        """
        ...


def apply_attachments(
    finder: FindsAttachments,
    request: Request,
    table: HostTable,
    conf: cfg.ConfigOpts,
) -> Sequence[AttachmentRecord]:
    """Set the rules that follow from a request's volumes and ports; return these.

    Nothing is looked up for forced hosts, to which no rule applies.

    Raises
    ------
    InvalidRequest
        A hint is malformed, or there are too many.
    """
    levels = tuple(dict.fromkeys(conf.locality.levels))
    if not levels or request.skips_filters:
        return ()
    found = finder.find(request, levels, table, conf)
    if not found:
        return ()
    required = _Required(Places(table.batch(), levels))
    found = [required.add(each) if each.level else each for each in found]
    preferred = [each for each in found if not (each.level or each.problem)]
    request.set_attachment_rules(
        list(required.rules()),
        [SoftRule(True, "", targets=frozenset(each.places)) for each in preferred],
    )
    return found


def check_required(found: Iterable[AttachmentRecord]) -> None:
    """Raise if a place that is required could not be found.

    Raises
    ------
    NoValidHost
        The reason names the hint and the volume or port.
    """
    for each in found:
        if each.level and each.problem:
            kind = each.hint.rpartition("_")[2]
            raise no_valid_host(f"{each.hint}: {kind} {each.uuid} {each.problem}")


class _Required:
    """The rules of hints that require a place; one of a hint's places is enough."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._named: defaultdict[tuple[str, str], set[str]] = defaultdict(set)

    def add(self, found: AttachmentRecord) -> AttachmentRecord:
        """Add the place of a volume or port; return what is recorded of it."""
        if found.problem:
            return found
        names = self._places.names_around(found.level, found.places)
        self._named[found.hint, found.level] |= names
        if names:
            return found
        inside = ", ".join(" ".join(place) for place in found.places)
        detail = f"{inside} is in no {found.level} that is known"
        return dataclasses.replace(found, problem=NO_PLACE, detail=detail)

    def rules(self) -> Iterator[Rule]:
        """Yield a rule for each hint."""
        for (hint, level), names in self._named.items():
            yield InPlaces(hint, level, frozenset(names), is_allowing=True)


@dataclasses.dataclass(frozen=True, slots=True)
class RecordedAttachments:
    """What an earlier decision found, for its replay."""

    attachments: Sequence[AttachmentRecord] = ()

    def find(
        self,
        request: Request,  # noqa: ARG002 - it is the same one
        levels: Sequence[str],  # noqa: ARG002 - the same
        table: HostTable,  # noqa: ARG002 - the same
        conf: cfg.ConfigOpts,  # noqa: ARG002 - the same
    ) -> Sequence[AttachmentRecord]:
        """Return what was found then."""
        return self.attachments
