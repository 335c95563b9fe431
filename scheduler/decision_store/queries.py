# SPDX-License-Identifier: Apache-2.0
"""Find stored decisions: a query, its SQL statement, and the decisions found."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Final, Self

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from ...objects import MalformedObject, RequestSpec
from ..drivers.record import DecisionRecord, Outcome
from ..errors import InvalidRequest
from .codec import UnreadableRecord, decode, read_request
from .schema import (
    DECISIONS,
    KEYS,
    MAX_ID,
    OUTCOMES,
    first_id_at,
    hosts_of,
    instances_of,
    key_of,
)

LOG = logging.getLogger(__name__)

MAX_LIMIT: Final = 1000
_MAX_KEYS: Final = 500


@dataclasses.dataclass(frozen=True, slots=True)
class DecisionQuery:
    """A query of decisions; all arguments that are given must match.

    Attributes
    ----------
    host : str, optional
        A selected host, or one on which a claim was tried.
    since_s : float, optional
        The earliest start of the decision, seconds since the epoch.
    until_s : float, optional
        The decision began before this time, seconds since the epoch.
    flavor : str, optional
        The name of the requested flavor. A decision that is stored without its request
        is not found.
    failed : bool, optional
        Whether the decision selected no host.
    outcome : Outcome, optional
    after : int, optional
        The id of a decision: only older decisions are found, for the next page.
    newer_than : int, optional
        The id of a decision: only newer decisions are found, the oldest of them first.
    limit : int
        The maximum number of decisions, at most `MAX_LIMIT`.
    """

    request_id: str | None = None
    instance_uuid: str | None = None
    project_id: str | None = None
    host: str | None = None
    flavor: str | None = None
    since_s: float | None = None
    until_s: float | None = None
    failed: bool | None = None
    outcome: Outcome | None = None
    after: int | None = None
    newer_than: int | None = None
    limit: int = 100

    def keys(self) -> list[int]:
        """Return the keys that a decision must have to be found."""
        values = {
            "request": self.request_id,
            "instance": self.instance_uuid,
            "project": self.project_id,
            "host": self.host,
            "flavor": self.flavor,
        }
        return [key_of(kind, value) for kind, value in values.items() if value]

    def matches(self, decision: StoredDecision) -> bool:
        """Return whether a decision has the query's names, and not only their keys."""
        names = (
            (self.request_id, (decision.request_id,)),
            (self.project_id, (decision.project_id,)),
            (self.instance_uuid, decision.instance_uuids),
            (self.host, decision.hosts),
            (self.flavor, (decision.flavor_name,)),
        )
        return all(name in stored_names for name, stored_names in names if name)


@dataclasses.dataclass(frozen=True, slots=True)
class StoredDecision:
    """A decision as it was stored.

    Attributes
    ----------
    id : int
        Ids increase with time. They are too large for a number of JavaScript.
    primitive : dict or None
        The request in wire form; None: it was too large, or could not be written.
    data : bytes
        The record and its request, encoded as they are stored.
    """

    id: int
    record: DecisionRecord
    primitive: dict[str, Any] | None = dataclasses.field(repr=False)
    data: bytes = dataclasses.field(repr=False)

    @classmethod
    def read(cls, id_: int, data: bytes) -> Self:
        """Read a decision from its bytes.

        Raises
        ------
        UnreadableRecord
            The bytes are damaged, too large, or of another version.
        """
        return cls(id_, *decode(data), data)

    @property
    def request_id(self) -> str | None:
        """nova's id of the API request."""
        return self.record.request_id

    @property
    def project_id(self) -> str | None:
        """The project that sent the request."""
        return self.record.project_id

    @property
    def decided_at(self) -> float:
        """When the decision began, seconds since the epoch."""
        return self.record.started_at

    @property
    def outcome(self) -> Outcome:
        """The outcome; `Outcome.FAILED` if the record has none."""
        return self.record.outcome or Outcome.FAILED

    @property
    def instance_uuids(self) -> tuple[str, ...]:
        """The instances of the request."""
        return instances_of(self.record)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The selected hosts, and the hosts on which a claim was tried."""
        return hosts_of(self.record)

    @property
    def flavor_name(self) -> str | None:
        """The name of the requested flavor; None: it is not set, or not stored."""
        node: Any = self.primitive
        for key in ("nova_object.data", "flavor", "nova_object.data", "name"):
            node = node.get(key) if isinstance(node, dict) else None
        return node if isinstance(node, str) else None

    @property
    def request(self) -> RequestSpec | None:
        """A new copy of the request, for a repeated decision; None: it is not stored.

        Raises
        ------
        InvalidRequest
            The stored request cannot be read.
        """
        try:
            return None if self.primitive is None else read_request(self.primitive)
        except MalformedObject as e:
            raise InvalidRequest(f"The stored request cannot be read: {e}") from e


@dataclasses.dataclass(frozen=True, slots=True)
class DecisionPage:
    """One page of the decisions that a query finds, in the order of the query.

    Attributes
    ----------
    next_id : int or None
        The id of a decision: the next page begins after it. None: there is no next
        page. A page may have fewer decisions than the query's limit, or none, and a
        next page nevertheless.
    """

    decisions: list[StoredDecision]
    next_id: int | None


def find_page(connection: Connection, query: DecisionQuery) -> DecisionPage:
    """Return the decisions of a query; unreadable ones are logged and omitted."""
    rows = connection.execute(_statement(query)).all()
    is_full = len(rows) == _limit(query) > 0
    return DecisionPage(
        [decision for decision in _read(rows) if query.matches(decision)],
        rows[-1].id if is_full else None,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Demand:
    """How many stored requests there were for a flavor, and how many got no host."""

    n_requests: int = 0
    n_refused: int = 0


def count_demand(
    connection: Connection, query: DecisionQuery, flavors: Collection[str]
) -> dict[str, Demand]:
    """Return the demand for flavors by name, from keys alone: no record is read.

    Parameters
    ----------
    query : DecisionQuery
        Without a flavor; its order and limit do not count.
    """
    # In pieces: servers bound the number of a statement's values.
    names = {key_of("flavor", name): name for name in flavors}
    demand = dict.fromkeys(flavors, Demand())
    keys = list(names)
    for start in range(0, len(keys), _MAX_KEYS):
        statement = _demand_statement(query, keys[start : start + _MAX_KEYS])
        for key, n_requests, n_selected in connection.execute(statement):
            demand[names[key]] = Demand(n_requests, n_requests - int(n_selected))
    return demand


def _demand_statement(query: DecisionQuery, keys: Sequence[int]) -> sa.Select[Any]:
    flavor_keys = KEYS.alias("flavor_keys")
    id_ = flavor_keys.c.decision_id
    tables: Any = flavor_keys.join(DECISIONS, DECISIONS.c.id == id_)
    conditions = [flavor_keys.c.key.in_(keys), *_bounds(query, id_)]
    for index, key in enumerate(query.keys()):
        alias = KEYS.alias(f"k{index}")
        tables = tables.join(alias, alias.c.decision_id == id_)
        conditions.append(alias.c.key == key)
    selected = DECISIONS.c.outcome == OUTCOMES.index(Outcome.SELECTED)
    return (
        sa.select(
            flavor_keys.c.key,
            sa.func.count(),
            sa.func.sum(sa.case((selected, 1), else_=0)),
        )
        .select_from(tables)
        .where(*conditions)
        .group_by(flavor_keys.c.key)
    )


def _read(rows: Iterable[sa.Row[Any]]) -> Iterator[StoredDecision]:
    unreadable: list[tuple[int, UnreadableRecord]] = []
    for row in rows:
        try:
            yield StoredDecision.read(row.id, bytes(row.record))
        except UnreadableRecord as e:
            unreadable.append((row.id, e))
    if unreadable:
        LOG.warning(
            "%d stored decision(s) cannot be read and are left out, such as %d: %s",
            len(unreadable), *unreadable[0],
        )  # fmt: skip


def _statement(query: DecisionQuery) -> sa.Select[Any]:
    keyed = [KEYS.alias(f"k{index}") for index in range(len(query.keys()))]
    # The ids of the first key determine the order: the index of the keys has it.
    id_ = keyed[0].c.decision_id if keyed else DECISIONS.c.id
    tables: Any = DECISIONS
    for alias in keyed:
        tables = tables.join(alias, alias.c.decision_id == DECISIONS.c.id)
    order = id_.asc() if query.newer_than is not None else id_.desc()
    statement = sa.select(DECISIONS.c.id, DECISIONS.c.record).select_from(tables)
    conditions = [
        *(alias.c.key == key for alias, key in zip(keyed, query.keys(), strict=True)),
        *_bounds(query, id_),
    ]
    return statement.where(*conditions).order_by(order).limit(_limit(query))


def _limit(query: DecisionQuery) -> int:
    return max(0, min(query.limit, MAX_LIMIT))


def _bounds(
    query: DecisionQuery, id_: sa.ColumnElement[int]
) -> Iterator[sa.ColumnElement[bool]]:
    if query.since_s is not None:
        yield id_ >= first_id_at(query.since_s)
    if query.until_s is not None:
        yield id_ < first_id_at(query.until_s)
    if query.outcome is not None:
        yield DECISIONS.c.outcome == OUTCOMES.index(query.outcome)
    if query.after is not None:
        yield id_ < min(query.after, MAX_ID)
    if query.newer_than is not None:
        yield id_ > min(query.newer_than, MAX_ID)
    if query.failed is not None:
        selected = DECISIONS.c.outcome == OUTCOMES.index(Outcome.SELECTED)
        yield sa.not_(selected) if query.failed else selected
