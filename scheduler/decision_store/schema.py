# SPDX-License-Identifier: Apache-2.0
"""The tables of decisions: ids that order by time, and hashed keys.

A request, instance, project, host or flavor is found by a hash of 8 bytes. Names of any
length and any character need the same space, and compare the same in all databases. A
query compares the names in the decoded record, too.
"""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from ...objects import RequestSpec
from ..database import StoreSchema
from ..drivers.record import DecisionRecord, Outcome
from ..request import get_field

METADATA = sa.MetaData()
DECISIONS = sa.Table(
    "decisions",
    METADATA,
    sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
    # The index in `OUTCOMES`.
    sa.Column("outcome", sa.SmallInteger, nullable=False),
    # The record and its request, as `codec` encodes them.
    sa.Column(
        "record",
        sa.LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb"),
        nullable=False,
    ),
    sa.Index("decisions_by_outcome", "outcome", "id"),
)
KEYS = sa.Table(
    "decision_keys",
    METADATA,
    sa.Column("key", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("decision_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Index("decision_keys_by_id", "decision_id"),
    sqlite_with_rowid=False,
)

#: Views, in pieces because servers bound the size of a statement.
VIEWS = sa.Table(
    "decision_views",
    METADATA,
    sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("piece", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column(
        "data",
        sa.LargeBinary().with_variant(mysql.MEDIUMBLOB(), "mysql", "mariadb"),
        nullable=False,
    ),
)

OPTION: Final = "[moorage] decision_store_connection"
SCHEMA: Final = StoreSchema(
    migrations=Path(__file__).parent / "migrations",
    version_table="moorage_decisions_version",
    first_table=DECISIONS.name,
    lock="moorage_decisions_schema",
    lock_number=0x6D6F6F73,
)

#: The indices of outcomes are stored: append new outcomes at the end.
OUTCOMES: Final = (Outcome.SELECTED, Outcome.NO_VALID_HOST, Outcome.FAILED)

MAX_ID: Final = (1 << 63) - 1
_LOW_BITS: Final = 20
_MAX_MS: Final = (1 << 63 - _LOW_BITS) - 1


def first_id_at(seconds: float) -> int:
    """Return the lowest id of decisions at that time, seconds since the epoch."""
    return min(max(0, int(seconds * 1000)), _MAX_MS) << _LOW_BITS


class Ids:
    """Ids that order by time: milliseconds, then a count from a random start.

    Because of the random start, ids of several processes differ. Because ids order by
    time, pages of decisions need no other index.
    """

    def __init__(self) -> None:
        start = random.SystemRandom().getrandbits(_LOW_BITS)
        self._counter = itertools.count(start)

    def next(self, seconds: float) -> int:
        """Return an id of a decision at that time."""
        return first_id_at(seconds) | next(self._counter) % (1 << _LOW_BITS)


def key_of(kind: str, value: str) -> int:
    """Return the key of a value, a signed integer of 64 bits."""
    text = f"{kind}:{value}".encode("utf-8", "replace")
    digest = hashlib.blake2b(text, digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def keys_of(record: DecisionRecord) -> set[int]:
    """Return the keys that find a decision."""
    return {key_of(kind, value) for kind, value in _values(record) if value}


def _values(record: DecisionRecord) -> Iterator[tuple[str, str | None]]:
    yield "request", record.request_id
    yield "project", record.project_id
    yield from (("instance", uuid) for uuid in instances_of(record))
    yield from (("host", host) for host in hosts_of(record))
    if isinstance(record.request, RequestSpec):
        yield "flavor", get_field(get_field(record.request, "flavor"), "name")


def instances_of(record: DecisionRecord) -> tuple[str, ...]:
    """Return the instances of a request, also if the request did not name them."""
    recorded_uuids = (instance.instance_uuid for instance in record.instances)
    uuids = (*record.instance_uuids, *(uuid for uuid in recorded_uuids if uuid))
    return tuple(dict.fromkeys(uuids))


def hosts_of(record: DecisionRecord) -> tuple[str, ...]:
    """Return the selected hosts, and the hosts on which a claim was tried."""
    selected = (instance.host for instance in record.instances)
    tried = (host for claim in record.claims for host in claim.hosts)
    return tuple(dict.fromkeys((*selected, *tried)))
