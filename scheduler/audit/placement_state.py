# SPDX-License-Identifier: Apache-2.0
"""What Placement has: providers with inventories, and what each consumer holds.

It is read from Placement's database in a few statements, where options name it, or with
two GETs a provider.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, Protocol, TypeVar

import sqlalchemy as sa

from ..candidates import MICROVERSION
from ..errors import ConfigurationError, DatabaseUnavailable, PlacementRejected
from ..failures import Failure
from ..placement.answers import as_tuple, read_consumer
from ..placement.client import PlacementClient
from ..placement.database import schema
from ..placement.database.engines import OPTION
from ..placement.members import read_as
from ..polling.polled_table import pages
from ..polling.times import microseconds, seconds
from ..waiting import Waiter

#: Providers whose rows one statement reads.
_RANGE: Final = 500
#: The microversion from which a GET of a consumer has its type.
_TYPED: Final = "1.38"
#: GETs for each provider: inventories and allocations.
GETS: Final = 2

_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True, slots=True)
class AuditedProvider:
    """A resource provider.

    Attributes
    ----------
    totals : mapping
        The totals of its inventories by resource class.
    aggregates : frozenset of str
        UUIDs; read over the API, only those of nova's host aggregates.
    changed_at : float or None
        When its inventory was last written, seconds since the epoch; None: unknown.
    """

    uuid: str
    name: str
    parent_uuid: str | None
    root_uuid: str
    totals: Mapping[str, int]
    aggregates: frozenset[str]
    changed_at: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class HeldAllocations:
    """What one consumer holds.

    Attributes
    ----------
    resources : mapping
        Amounts by resource class, by provider.
    written_at : float or None
        When it was last written, seconds since the epoch; None: unknown.
    """

    resources: Mapping[str, Mapping[str, int]]
    generation: int | None = None
    consumer_type: str | None = None
    written_at: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class PlacementState:
    """All providers and consumers, by UUID."""

    providers: Mapping[str, AuditedProvider]
    consumers: Mapping[str, HeldAllocations]

    def trees(self) -> Mapping[str, list[AuditedProvider]]:
        """Return the providers of each tree by its root's UUID."""
        trees: defaultdict[str, list[AuditedProvider]] = defaultdict(list)
        for provider in self.providers.values():
            trees[provider.root_uuid].append(provider)
        return trees


class PlacementReader(Protocol):
    """Reads Placement."""

    def read(self, aggregates: Collection[str]) -> PlacementState:
        """Return all that Placement has.

        Parameters
        ----------
        aggregates
            The UUIDs of nova's host aggregates.

        Raises
        ------
        SchedulerError
            Placement, or its database, cannot be read.
        """

    def reread(
        self,
        before: PlacementState,
        uuids: Collection[str],
        aggregates: Collection[str],
    ) -> PlacementState:
        """Return a state in which these providers and consumers are read again."""


# -- from the database -----------------------------------------------------------------

_P, _I = schema.resource_providers.c, schema.inventories.c
_A, _C = schema.allocations.c, schema.consumers.c
_G, _M = schema.placement_aggregates.c, schema.resource_provider_aggregates.c

_PROVIDERS: Final = sa.select(
    _P.id, _P.uuid, _P.name, _P.parent_provider_id, _P.root_provider_id
)
_CLASSES: Final = sa.select(
    schema.resource_classes.c.id, schema.resource_classes.c.name
)
_FIRST: Final[sa.BindParameter[Any]] = sa.bindparam("first")
_LAST: Final[sa.BindParameter[Any]] = sa.bindparam("last")
_TOTALS: Final = sa.select(
    *(_I.resource_provider_id, _I.resource_class_id, _I.total),
    microseconds(sa.func.coalesce(_I.updated_at, _I.created_at)),
).where(_I.resource_provider_id.between(_FIRST, _LAST))
_HELD: Final = sa.select(
    *(_A.resource_provider_id, _A.consumer_id, _A.resource_class_id, _A.used),
    microseconds(sa.func.coalesce(_A.updated_at, _A.created_at)),
).where(_A.resource_provider_id.between(_FIRST, _LAST))
_MEMBERS: Final = sa.select(_M.resource_provider_id, _G.uuid).where(
    _M.aggregate_id == _G.id
)
_CONSUMERS: Final = sa.select(
    _C.id, _C.uuid, _C.generation, schema.consumer_types.c.name
).select_from(
    schema.consumers.outerjoin(
        schema.consumer_types, _C.consumer_type_id == schema.consumer_types.c.id
    )
)


class DatabaseReader:
    """Reads Placement's database.

    Parameters
    ----------
    run : callable
        Runs a function in the thread that may use the engine.
    """

    def __init__(
        self,
        engine: sa.Engine,
        run: Callable[[Callable[[], object]], object] = lambda work: work(),
    ) -> None:
        self._engine = engine
        self._run = run

    def read(self, aggregates: Collection[str]) -> PlacementState:  # noqa: ARG002 - all are read
        """Read all tables."""
        states: list[PlacementState] = []

        def work() -> None:
            with self._engine.connect() as connection:
                schema.check_version(connection)
                states.append(_read(connection))

        try:
            self._run(work)
        except ConfigurationError:
            raise
        except Exception as e:  # oslo.db has exceptions of its own
            url = self._engine.url.set(query={})
            advice = "It has to be that of Placement's database"
            raise DatabaseUnavailable(f"{Failure.of(OPTION, url, e, advice)}") from e
        return states[0]

    def reread(
        self,
        before: PlacementState,  # noqa: ARG002 - all is read
        uuids: Collection[str],  # noqa: ARG002
        aggregates: Collection[str],
    ) -> PlacementState:
        """Read all tables again: it takes seconds."""
        return self.read(aggregates)


def _read(connection: sa.Connection) -> PlacementState:
    classes = {row.id: row.name for row in connection.execute(_CLASSES)}
    rows = {row.id: row for row in connection.execute(_PROVIDERS)}
    totals: defaultdict[int, dict[str, int]] = defaultdict(dict)
    held: defaultdict[str, defaultdict[str, dict[str, int]]]
    held = defaultdict(lambda: defaultdict(dict))
    written_us: dict[str, int] = {}
    changed_us: dict[int, int] = {}
    ids = sorted(rows)
    for start in range(0, len(ids), _RANGE):
        some = ids[start : start + _RANGE]
        limits = {"first": some[0], "last": some[-1]}
        for provider_id, class_id, total, at_us in connection.execute(_TOTALS, limits):
            totals[provider_id][classes[class_id]] = total
            changed_us[provider_id] = max(changed_us.get(provider_id, 0), at_us or 0)
        for provider_id, consumer, class_id, used, at_us in connection.execute(
            _HELD, limits
        ):
            if provider_id in rows:
                held[consumer][rows[provider_id].uuid][classes[class_id]] = used
                written_us[consumer] = max(written_us.get(consumer, 0), at_us or 0)
    members: defaultdict[int, set[str]] = defaultdict(set)
    for provider_id, aggregate in connection.execute(_MEMBERS):
        members[provider_id].add(aggregate)
    details: dict[str, tuple[int, str | None]] = {}
    for row in pages(connection, _CONSUMERS, _C.id):
        details[row.uuid] = row.generation, row.name
    providers = {}
    for row_id, row in rows.items():
        parent, root = rows.get(row.parent_provider_id), rows.get(row.root_provider_id)
        providers[row.uuid] = AuditedProvider(
            row.uuid,
            row.name or "",
            None if parent is None else parent.uuid,
            row.uuid if root is None else root.uuid,
            totals.get(row_id, {}),
            frozenset(members.get(row_id, ())),
            seconds(changed_us.get(row_id)),
        )
    consumers = {}
    for uuid, resources in held.items():
        generation, consumer_type = details.get(uuid, (None, None))
        consumers[uuid] = HeldAllocations(
            resources, generation, consumer_type, seconds(written_us[uuid])
        )
    return PlacementState(providers, consumers)


# -- over the API ----------------------------------------------------------------------


class ApiReader:
    """Reads Placement's API, at most `rate` GETs a second.

    Parameters
    ----------
    note : callable
        Gets the expected time as text, before the first GET of a provider.
    """

    def __init__(
        self,
        client: PlacementClient,
        waiter: Waiter,
        *,
        rate: float,
        note: Callable[[str], object],
    ) -> None:
        self._client = client
        self._waiter = waiter
        self._pause_s = 1 / rate
        self._note = note
        self._next_at = waiter.monotonic()
        self._microversion: str | None = None

    def read(self, aggregates: Collection[str]) -> PlacementState:
        """Read the inventories and allocations of each provider."""
        listed = self._list()
        n_gets = len(listed) * GETS + len(aggregates)
        expected_s = n_gets * self._pause_s
        self._note(
            f"Reading {len(listed):,} resource providers over Placement's API: "
            f"{n_gets:,} GETs, at {1 / self._pause_s:g} a second "
            f"{_duration(expected_s)} or more. With [placement_database] connection "
            "the database is read, in less than a minute."
        )
        members = self._members(aggregates)
        providers: dict[str, AuditedProvider] = {}
        held: defaultdict[str, dict[str, Mapping[str, int]]] = defaultdict(dict)
        generations: dict[str, int | None] = {}
        for uuid, listed_provider in listed.items():
            url = f"/resource_providers/{uuid}"
            try:
                totals = self._get(f"{url}/inventories", _totals)
                allocations = self._get(
                    f"{url}/allocations", lambda body: dict(body["allocations"])
                )
            except PlacementRejected:  # it was deleted since the list was read
                continue
            providers[uuid] = _provider(listed_provider, totals, members)
            for consumer, part in allocations.items():
                held[consumer][uuid] = part["resources"]
                generations[consumer] = part.get("consumer_generation")
        consumers = {
            uuid: HeldAllocations(resources, generations[uuid])
            for uuid, resources in held.items()
        }
        return PlacementState(providers, consumers)

    def reread(
        self,
        before: PlacementState,
        uuids: Collection[str],
        aggregates: Collection[str],
    ) -> PlacementState:
        """List the providers again, and read the given ones and consumers."""
        listed = self._list()
        members = self._members(aggregates)
        roots = {
            before.providers[uuid].root_uuid
            for uuid in uuids
            if uuid in before.providers
        }
        providers: dict[str, AuditedProvider] = {}
        for uuid, listed_provider in listed.items():
            known = before.providers.get(uuid)
            if known is None or known.root_uuid in roots:
                url = f"/resource_providers/{uuid}/inventories"
                try:
                    totals = self._get(url, _totals)
                except PlacementRejected:
                    continue
            else:
                totals = known.totals
            providers[uuid] = _provider(listed_provider, totals, members)
        consumers = dict(before.consumers)
        for uuid in uuids:
            if uuid in providers:
                continue
            self._wait()
            url = f"/allocations/{uuid}"
            body: Any = self._client.read(url, microversion=self._typed())
            allocations = read_consumer(url, body)
            consumers.pop(uuid, None)
            if allocations.resources:
                consumers[uuid] = HeldAllocations(
                    allocations.resources,
                    allocations.consumer_generation,
                    body.get("consumer_type"),
                )
        return PlacementState(providers, consumers)

    def _typed(self) -> str:
        """Return the microversion with types of consumers, if Placement has it.

        An older Placement has consumers of nova only, or does not tell them apart.
        """
        if self._microversion is None:
            _, highest = self._client.version_range()
            is_new = as_tuple(highest) >= as_tuple(_TYPED)
            self._microversion = _TYPED if is_new else MICROVERSION
        return self._microversion

    def _list(self) -> Mapping[str, Mapping[str, Any]]:
        return self._get(
            "/resource_providers",
            lambda body: {
                provider["uuid"]: provider for provider in body["resource_providers"]
            },
        )

    def _members(self, aggregates: Iterable[str]) -> Mapping[str, set[str]]:
        """Return the aggregates of each provider."""
        members: defaultdict[str, set[str]] = defaultdict(set)
        for aggregate in aggregates:
            for uuid in self._get(
                f"/resource_providers?member_of={aggregate}",
                lambda body: [
                    provider["uuid"] for provider in body["resource_providers"]
                ],
            ):
                members[uuid].add(aggregate)
        return members

    def _get(self, url: str, read: Callable[[Any], _T]) -> _T:
        self._wait()
        return read_as(self._client, url, read)

    def _wait(self) -> None:
        """Wait until the next GET may be sent."""
        now = self._waiter.monotonic()
        if self._next_at > now:
            self._waiter.sleep(self._next_at - now)
        self._next_at = max(self._next_at, now) + self._pause_s


def _totals(body: Any) -> Mapping[str, int]:  # noqa: ANN401 - JSON
    return {name: inventory["total"] for name, inventory in body["inventories"].items()}


def _provider(
    listed: Mapping[str, Any],
    totals: Mapping[str, int],
    members: Mapping[str, Collection[str]],
) -> AuditedProvider:
    uuid = listed["uuid"]
    return AuditedProvider(
        uuid,
        listed["name"],
        listed["parent_provider_uuid"],
        listed["root_provider_uuid"],
        totals,
        frozenset(members.get(uuid, ())),
    )


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} minutes" if seconds >= 120 else f"{seconds:.0f} s"
