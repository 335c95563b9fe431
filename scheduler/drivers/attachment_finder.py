# SPDX-License-Identifier: Apache-2.0
"""Find where volumes and ports of a request are; derive rules about places from that.

hints, boot volume, requested ports
    ─▶ Cinder, Neutron ─▶ backend, segment, physical network, host
    ─▶ places, by the metadata of aggregates
    ─▶ rules and preferences of the request
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol, Self, TypeVar

from oslo_config import cfg
from oslo_utils import uuidutils

from ..attachments import (
    BACKEND_KEY,
    HOST_CLUE,
    LOOKUP_MAX_AGE_S,
    PHYSICAL_NETWORK_KEY,
    SEGMENT_KEY,
    Attachment,
    Lookup,
    LookupFailed,
    Lookups,
    make_port_reader,
    make_volume_reader,
)
from ..conf.locality import BOOT_VOLUME, PORTS
from ..errors import InvalidRequest
from ..hosts import HostAggregate, HostTable
from ..locality import Places, place_of
from ..locality.hints import AttachmentHint, AttachmentKind, attachment_hints
from ..placement.allocations.limits import MAX_LOOKUPS
from ..prefilters import no_valid_host
from ..request import Request
from ..request.locality import HOST, InPlaces, Rule, SoftRule, Target
from ..waiting import Spawner, SystemWaiter, Waiter
from .record import AttachmentRecord

_KEYS: Final = {
    AttachmentKind.VOLUME: (BACKEND_KEY,),
    AttachmentKind.PORT: (SEGMENT_KEY, PHYSICAL_NETWORK_KEY),
}
#: The maximum number of places of a volume or port to which a request prefers to be
#: near: weighing takes time for each of them.
_MAX_PLACES: Final = 100

_NOT_CONFIGURED: Final = {
    AttachmentKind.VOLUME: "Cinder is not configured: set auth_type in [cinder]",
    AttachmentKind.PORT: "Neutron is not configured: set auth_type in [neutron]",
}
#: For end users; the text does not reveal whether the volume or port belongs to another
#: project or does not exist.
_UNKNOWN: Final = "is not known in the project"
_UNAVAILABLE: Final = "cannot be looked up now"
NO_PLACE: Final = "is in no known place"

_Found = TypeVar("_Found")


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class AttachmentFinder:
    """Looks up volumes in Cinder and ports in Neutron.

    Attributes
    ----------
    services : mapping
        Lookups in Cinder and Neutron by kind of attachment; the lookups of a service
        that is not configured are missing.
    boot_volumes : Lookups or None
        Lookups of the volumes that instances boot from, by instance UUID; None: the
        volumes are not known.
    """

    services: Mapping[AttachmentKind, Lookups[Attachment]] = dataclasses.field(
        default_factory=dict
    )
    boot_volumes: Lookups[Sequence[str]] | None = None
    waiter: Waiter = dataclasses.field(default_factory=SystemWaiter)

    @classmethod
    def of(
        cls,
        conf: cfg.ConfigOpts,
        boot_volumes: Callable[[str], Sequence[str]],
        waiter: Waiter,
        spawner: Spawner,
    ) -> Self:
        """Return a finder configured by ``[cinder]`` and ``[neutron]``.

        Raises
        ------
        ConfigurationError
            An option is invalid.
        """

        def lookups(service: str, read: Callable[[str], _Found]) -> Lookups[_Found]:
            return Lookups(
                service,
                read,
                max_age_s=LOOKUP_MAX_AGE_S,
                waiter=waiter,
                spawner=spawner,
            )

        services = {}
        if (volumes := make_volume_reader(conf)) is not None:
            services[AttachmentKind.VOLUME] = lookups("Cinder", volumes)
        if (ports := make_port_reader(conf, waiter, spawner)) is not None:
            services[AttachmentKind.PORT] = lookups("Neutron", ports)
        database = lookups("the source of hosts", boot_volumes)
        return cls(services, database, waiter)

    def find(
        self,
        request: Request,
        levels: Sequence[str],
        table: HostTable,
        conf: cfg.ConfigOpts,
    ) -> Sequence[AttachmentRecord]:
        """Look up the volumes and ports of hints, and those that count automatically.

        Returns and raises as `FindsAttachments.find`.
        """
        hints = attachment_hints(request, levels)
        has_volume = request.is_bfv and self._may_find(
            BOOT_VOLUME, AttachmentKind.VOLUME, table, conf
        )
        has_ports = bool(request.requested_networks) and self._may_find(
            PORTS, AttachmentKind.PORT, table, conf
        )
        if not (hints or has_volume or has_ports):
            return ()
        mapped = MappedPlaces(table.aggregates, levels)
        search = _Search(self, request, table, conf, mapped)
        search.begin(hints)
        if has_ports:
            search.begin_ports()
        if has_volume:
            search.begin_boot_volume()
        return search.results()

    def _may_find(
        self, what: str, kind: AttachmentKind, table: HostTable, conf: cfg.ConfigOpts
    ) -> bool:
        """Return whether to look up attachments that no hint names.

        They are looked up if option and service are set, and if an aggregate maps
        attachments of their kind to a place.

        Parameters
        ----------
        what : str
            `BOOT_VOLUME` or `PORTS`, a value of ``[locality] automatic``.
        """
        if what not in conf.locality.automatic or kind not in self.services:
            return False
        return any(
            key in aggregate.metadata
            for aggregate in table.aggregates
            for key in _KEYS[kind]
        )


class MappedPlaces:
    """The places that operators have mapped backends, segments and networks to."""

    def __init__(
        self, aggregates: Iterable[HostAggregate], levels: Sequence[str]
    ) -> None:
        self._places: defaultdict[tuple[str, str], set[Target]] = defaultdict(set)
        for aggregate in aggregates:
            place = place_of(aggregate)
            if place is None or place[0] not in levels:
                continue
            for key in itertools.chain(*_KEYS.values()):
                for value in aggregate.metadata.get(key, "").split(","):
                    if value.strip():
                        self._places[key, value.strip()].add(place)

    def of(self, key: str, values: Iterable[str]) -> set[Target]:
        """Return the places that are mapped to any of some values of a metadata key."""
        return {
            place for value in values for place in self._places.get((key, value), ())
        }


class _Search:
    """Looks up the volumes and ports of one request, all at the same time."""

    def __init__(
        self,
        finder: AttachmentFinder,
        request: Request,
        table: HostTable,
        conf: cfg.ConfigOpts,
        mapped: MappedPlaces,
    ) -> None:
        self._finder = finder
        self._request = request
        self._table = table
        self._mapped = mapped
        self._timeout_s = conf.locality.lookup_timeout
        self._deadline = finder.waiter.monotonic() + self._timeout_s
        self._begun: dict[
            AttachmentHint, tuple[Lookups[Attachment], Lookup[Attachment]] | None
        ] = {}
        self._failed: list[AttachmentRecord] = []

    def begin(self, hints: Iterable[AttachmentHint]) -> None:
        """Start to look up the volumes and ports that hints name.

        Raises
        ------
        InvalidRequest
            The hints name more than `MAX_LOOKUPS` volumes and ports.
        """
        hints = list(hints)
        if len({(hint.kind, hint.uuid) for hint in hints}) > MAX_LOOKUPS:
            raise InvalidRequest(
                f"scheduler_hints: the hints about volumes and ports name more than "
                f"{MAX_LOOKUPS}, the last of them {hints[-1].hint}"
            )
        for hint in hints:
            self._begin(hint)

    def _begin(self, hint: AttachmentHint) -> None:
        lookups = self._finder.services.get(hint.kind)
        started_lookup = (
            None if lookups is None else (lookups, lookups.begin(hint.uuid))
        )
        self._begun[hint] = started_lookup

    def begin_ports(self) -> None:
        """Start to look up the requested ports, `MAX_LOOKUPS` lookups at most."""
        networks = self._request.requested_networks
        port_uuids = [
            str(n.port_id) for n in networks if uuidutils.is_uuid_like(n.port_id)
        ]
        for uuid in port_uuids[: max(0, MAX_LOOKUPS - len(self._begun))]:
            self._begin(AttachmentHint(PORTS, AttachmentKind.PORT, uuid))

    def begin_boot_volume(self) -> None:
        """Wait until the source names the boot volume, and start to look it up."""
        boot_volumes = self._finder.boot_volumes
        instance = self._request.instance_uuid or ""
        if boot_volumes is None or not uuidutils.is_uuid_like(instance):
            return
        lookup = boot_volumes.begin(instance)
        volumes = boot_volumes.wait(lookup, self._deadline, self._timeout_s)
        if isinstance(volumes, LookupFailed):
            failed = AttachmentRecord(
                BOOT_VOLUME, instance, "", (), _UNAVAILABLE, str(volumes)
            )
            self._failed.append(failed)
            return
        for uuid in volumes:
            self._begin(AttachmentHint(BOOT_VOLUME, AttachmentKind.VOLUME, uuid))

    # -- results -----------------------------------------------------------------------

    def results(self) -> list[AttachmentRecord]:
        """Wait for all answers; return a record of each lookup."""
        return [*map(self._result, self._begun), *self._failed]

    def _result(self, hint: AttachmentHint) -> AttachmentRecord:
        started_lookup = self._begun[hint]
        if started_lookup is None:
            return _failed(hint, _UNAVAILABLE, _NOT_CONFIGURED[hint.kind])
        lookups, lookup = started_lookup
        attachment = lookups.wait(lookup, self._deadline, self._timeout_s)
        if isinstance(attachment, LookupFailed):
            problem = _UNKNOWN if attachment.is_unknown else _UNAVAILABLE
            return _failed(hint, problem, str(attachment))
        owner = attachment.project_id
        if owner != self._request.project_id:
            return _failed(hint, _UNKNOWN, f"{hint.kind} of project {owner}")
        places = self._places(attachment, is_bound=hint.hint != PORTS)
        if not places:
            missing = " or ".join(
                f"{clue.key} {', '.join(sorted(clue.values))}"
                for clue in attachment.clues
            )
            detail = f"no place is mapped to {missing}" if missing else "it has no host"
            return _failed(hint, NO_PLACE, detail)
        if len(places) > _MAX_PLACES and not hint.level:
            detail = f"it has {len(places)} places, more than {_MAX_PLACES}"
            return _failed(hint, NO_PLACE, detail)
        return AttachmentRecord(hint.hint, hint.uuid, hint.level, tuple(places))

    def _places(self, attachment: Attachment, *, is_bound: bool) -> list[Target]:
        """Return the places of the first clue that is mapped to any.

        Parameters
        ----------
        is_bound : bool
            Whether the host of a port counts. It does not count for the instance's own
            ports, which are on the current host of the instance.
        """
        for clue in attachment.clues:
            if clue.key != HOST_CLUE:
                places = self._mapped.of(clue.key, clue.values)
            elif is_bound:
                hosts = filter(self._table.nodes_of, clue.values)
                places = {(HOST, name) for name in hosts}
            else:
                continue
            if places:
                return sorted(places)
        return []


def _failed(hint: AttachmentHint, problem: str, detail: str) -> AttachmentRecord:
    return AttachmentRecord(hint.hint, hint.uuid, hint.level, (), problem, detail)


class FindsAttachments(Protocol):
    """Finds where the volumes and ports of a request are."""

    def find(
        self,
        request: Request,
        levels: Sequence[str],
        table: HostTable,
        conf: cfg.ConfigOpts,
    ) -> Sequence[AttachmentRecord]:
        """Return a record of the places of each volume and port that is looked up.

        Raises
        ------
        InvalidRequest
            A hint is malformed, or hints name too many volumes and ports.
        """
        ...


def apply_attachments(
    finder: FindsAttachments,
    request: Request,
    table: HostTable,
    conf: cfg.ConfigOpts,
) -> Sequence[AttachmentRecord]:
    """Set a request's rules that follow from its volumes and ports; return the records.

    Raises
    ------
    InvalidRequest
        A hint is malformed, or hints name too many volumes and ports.
    """
    levels = tuple(dict.fromkeys(conf.locality.levels))
    records = finder.find(request, levels, table, conf)
    if not records:
        return ()
    required = _Required(Places(table.batch(), levels))
    records = [required.add(record) if record.level else record for record in records]
    request.set_attachment_rules(
        list(required.rules()),
        [
            SoftRule(True, "", targets=frozenset(record.places))
            for record in records
            if not (record.level or record.problem)
        ],
    )
    return records


def check_required(records: Iterable[AttachmentRecord]) -> None:
    """Raise if a place that is required could not be found.

    Raises
    ------
    NoValidHost
        The reason names the hint and the volume or port.
    """
    for record in records:
        if record.level and record.problem:
            kind = record.hint.rpartition("_")[2]
            raise no_valid_host(f"{record.hint}: {kind} {record.uuid} {record.problem}")


class _Required:
    """Collects the places that hints require, and derives a rule for each hint.

    A host conforms to the rule if it is in one of the places of the hint.
    """

    def __init__(self, places: Places) -> None:
        self._places = places
        self._named: defaultdict[tuple[str, str], set[str]] = defaultdict(set)

    def add(self, record: AttachmentRecord) -> AttachmentRecord:
        """Add the places of a volume or port; return its record.

        The record has a problem if no known place of the required level contains them.
        """
        if record.problem:
            return record
        names = self._places.names_around(record.level, record.places)
        self._named[record.hint, record.level] |= names
        if names:
            return record
        places_text = ", ".join(" ".join(place) for place in record.places)
        detail = f"{places_text} is in no {record.level} that is known"
        return dataclasses.replace(record, problem=NO_PLACE, detail=detail)

    def rules(self) -> Iterator[Rule]:
        """Yield a rule for each hint."""
        for (hint, level), names in self._named.items():
            yield InPlaces(hint, level, frozenset(names), is_allowing=True)


@dataclasses.dataclass(frozen=True, slots=True)
class RecordedAttachments:
    """Returns the volumes and ports that an earlier decision found, for its replay."""

    attachments: Sequence[AttachmentRecord] = ()

    def find(
        self,
        request: Request,  # noqa: ARG002 - that of the earlier decision
        levels: Sequence[str],  # noqa: ARG002 - those of the earlier decision
        table: HostTable,  # noqa: ARG002 - that of the earlier decision
        conf: cfg.ConfigOpts,  # noqa: ARG002 - that of the earlier decision
    ) -> Sequence[AttachmentRecord]:
        """Return the records of the earlier decision."""
        return self.attachments
