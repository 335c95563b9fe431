# SPDX-License-Identifier: Apache-2.0
"""The hosts that report themselves: what is held of each, and written to the table."""

from __future__ import annotations

import logging
import math
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from ....objects import HostReport, MalformedObject, report_data
from ...hosts import HostRecord, HostTable, UnreportedClaim
from . import columns
from .asking import Asker
from .columns import RefusedReport, columns_of, count, kept, record_of, uuids_of
from .revisions import Held, Verdict, judge_delta, judge_report

LOG = logging.getLogger(__name__)

#: Hosts whose refusal is remembered, to be logged once; more are only counted.
_MOST_REFUSED: Final = 10_000
#: Seconds for which the refusal of a message that names no known host is told.
_UNKNOWN_S: Final = 60.0
#: Seconds after which a mere sign of life is written to the store, too.
_STORED_WITHIN_S: Final = 20.0


@dataclass(slots=True)
class Counts:
    """How many messages came to what, since the start."""

    whole: int = 0
    deltas: int = 0
    alive: int = 0
    old: int = 0
    gaps: int = 0
    refused: int = 0


@dataclass(slots=True)
class _Refusal:
    """When a host's reports were refused first, and last."""

    since: float
    newest: float


@dataclass(slots=True)
class _Batch:
    """What some reports come to, before it is written to the table at once."""

    now: float
    records: dict[str, HostRecord] = field(default_factory=dict)
    changes: dict[str, dict[str, Any]] = field(default_factory=dict)
    #: Hosts whose instances changed, and which instances came, by node.
    hosts: set[str] = field(default_factory=set)
    added: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    #: Nodes that the store is to be told of.
    stale: set[str] = field(default_factory=set)


class ReportedHosts:
    """Take reports; thread-safe.

    Parameters
    ----------
    table : HostTable
    asker : Asker
        What asks for whole reports.
    clock : callable
        Returns now, seconds since the epoch.
    changed : callable
        Told of the nodes whose state is to be stored.
    kept_for_s : float
        Seconds of silence after which a host is forgotten; 0: never.
    """

    def __init__(
        self,
        table: HostTable,
        asker: Asker,
        clock: Callable[[], float],
        changed: Callable[[Iterable[str]], object],
        kept_for_s: float = 0.0,
    ) -> None:
        self._table = table
        self._asker = asker
        self._clock = clock
        self._changed = changed
        self._kept_for_s = kept_for_s
        self._lock = threading.RLock()
        self._held: dict[str, Held] = {}
        self._nodes_of: defaultdict[str, set[str]] = defaultdict(set)
        self._refused: dict[str, _Refusal] = {}
        #: Claims of instances that their hosts have reported, at the last look.
        self._doubled: set[UnreportedClaim] = set()
        self._looked_at = 0.0
        self.counts = Counts()
        #: When the newest message of any host came; None: none ever did.
        self.heard_at: float | None = None

    def __len__(self) -> int:
        return len(self._held)

    def now(self) -> float:
        """Return now, seconds since the epoch."""
        return self._clock()

    def lost_before(self) -> float:
        """Return the time before which a host that was heard last is forgotten."""
        return self._clock() - self._kept_for_s

    @property
    def n_refused(self) -> int:
        """How many hosts' newest reports cannot be used."""
        return len(self._refused)

    @property
    def refused_since(self) -> float | None:
        """When the first of these was refused."""
        with self._lock:
            return min((r.since for r in self._refused.values()), default=None)

    # -- reports -------------------------------------------------------------------

    def take(self, reports: Iterable[object]) -> None:
        """Take reports and deltas in their wire form, in their order.

        One that cannot be used is refused whole, logged and counted; the others are
        taken.
        """
        with self._lock:
            batch = _Batch(self._clock())
            try:
                for primitive in reports:
                    self._take(primitive, batch)
            finally:
                # Whatever ends it: what is held of a node is on the table.
                self._write(batch)

    def _take(self, primitive: object, batch: _Batch) -> None:
        try:
            cls, data = report_data(primitive)
            take = self._report if cls is HostReport else self._delta
            take(data, batch)
        except (RefusedReport, MalformedObject, RecursionError) as e:
            self._refuse(e, batch.now)

    def _report(self, data: dict[str, Any], batch: _Batch) -> None:
        name = columns.told_name(data)
        uuid, incarnation, revision = _numbered(data, name)
        held = self._held.get(uuid)
        verdict = judge_report(held, incarnation, revision)
        if verdict is Verdict.OLD:
            self.counts.old += 1
            return
        if verdict is Verdict.ALIVE:
            self._live(uuid, batch)
        else:
            record = record_of(data, batch.now)
            instances = set(columns.field(data, "instances", uuids_of, name))
            if held is not None:
                batch.hosts.add(held.host)  # it may have another name now
            values = {**kept(data), "uuid": uuid}
            self._hold(
                record, Held(incarnation, revision, values, instances, batch.now)
            )
            self._put(record, batch)
            self.counts.whole += 1
        self._asker.has_come(uuid)
        self._mend(uuid, name)

    def _hold(self, record: HostRecord, held: Held) -> None:
        before = self._held.get(record.uuid)
        if before is not None:
            held.succeed(before)
            self._nodes_of[before.host].discard(record.uuid)
        self._held[record.uuid] = held
        self._nodes_of[record.host].add(record.uuid)

    def _put(self, record: HostRecord, batch: _Batch) -> None:
        batch.changes.pop(record.uuid, None)
        batch.added.pop(record.uuid, None)
        batch.records[record.uuid] = record
        batch.hosts.add(record.host)
        batch.stale.add(record.uuid)
        self.heard_at = batch.now

    def _delta(self, data: dict[str, Any], batch: _Batch) -> None:
        uuid: Any = data.get("uuid")
        held = self._held.get(uuid) if type(uuid) is str else None
        if held is None:
            name = columns.told_name(data)
            uuid, incarnation, revision = _numbered(data, name)
            held = self._held.get(uuid)
        else:  # the fast way: what is equal to what is held needs no check
            name = held.host
            incarnation = str(data.get("incarnation")).lower()
            revision = columns.field(data, "revision", count, name)
        since = columns.field(data, "since", count, name)
        verdict = judge_delta(held, incarnation, since, revision)
        if verdict is Verdict.NEWS:
            assert held is not None
            self._change(uuid, held, data, batch)
            held.revision = revision
            self.counts.deltas += 1
        elif verdict is Verdict.GAP:
            self._miss(uuid, data)
        elif verdict is Verdict.OLD:
            self.counts.old += 1
            return
        if held is not None:
            self._live(uuid, batch)
            if verdict is not Verdict.GAP and self._refused:
                self._mend(uuid, name)

    def _change(
        self, uuid: str, held: Held, data: Mapping[str, Any], batch: _Batch
    ) -> None:
        """Apply a delta; everything is read before anything is changed."""
        host = held.host
        told: Any = data.get("changes") or {}
        if type(told) is not dict:
            raise RefusedReport(host, "changes: values by column are needed")
        values, news = columns_of(told, host, columns.IDENTITY), kept(told)
        added: Sequence[str] = ()
        removed: Sequence[str] = ()
        if data.get("instances_added"):
            added = columns.field(data, "instances_added", uuids_of, host)
        if data.get("instances_removed"):
            removed = columns.field(data, "instances_removed", uuids_of, host)
        if uuid in batch.records:
            self._write(batch)
        held.data.update(news)
        if added or removed:
            held.instances.difference_update(removed)
            held.instances.update(added)
            batch.hosts.add(host)
            batch.added[uuid].update(added)
        changes = batch.changes.get(uuid)
        if changes is None:
            batch.changes[uuid] = values
        else:
            changes.update(values)
        batch.stale.add(uuid)

    def _live(self, uuid: str, batch: _Batch) -> None:
        held = self._held[uuid]
        held.seen_at = self.heard_at = batch.now
        if uuid not in batch.records:
            changes = batch.changes.get(uuid)
            if changes is None:
                changes = batch.changes[uuid] = {}
            changes["last_seen_up"] = batch.now
        if held.seen_at - held.stored_at > _STORED_WITHIN_S:
            batch.stale.add(uuid)

    def _miss(self, uuid: str, data: Mapping[str, Any]) -> None:
        self.counts.gaps += 1
        topic, server = data.get("reply_topic"), data.get("reply_server")
        if type(topic) is str and type(server) is str:
            self._asker.want(uuid, topic, server)

    def _write(self, batch: _Batch) -> None:
        """Write what came to the table, and begin anew."""
        if batch.records:
            hosts = {record.host for record in batch.records.values()}
            instances = {host: self._instances(host) for host in hosts}
            self._table.put_many(batch.records.values(), instances)
            batch.hosts -= hosts
        if batch.changes:
            self._table.change_many(batch.changes)
        if batch.hosts:
            self._table.set_instances_of({h: self._instances(h) for h in batch.hosts})
        for uuid, added in batch.added.items():
            self._table.mark_reported(uuid, added)
        if batch.stale:
            self._changed(batch.stale)
        for gathered in (
            batch.records,
            batch.changes,
            batch.hosts,
            batch.added,
            batch.stale,
        ):
            gathered.clear()

    def _instances(self, host: str) -> set[str]:
        """Return the instances of all nodes of a service host."""
        nodes = self._nodes_of[host]
        return set().union(*(self._held[node].instances for node in nodes))

    # -- what cannot be used -------------------------------------------------------

    def _refuse(self, error: Exception, now: float) -> None:
        self.counts.refused += 1
        host = error.host if isinstance(error, RefusedReport) else "?"
        if host in self._refused:
            self._refused[host].newest = now
            return
        if len(self._refused) >= _MOST_REFUSED:
            return
        self._refused[host] = _Refusal(now, now)
        LOG.warning("A report is refused, and the host stays as it was: %s", error)

    def _mend(self, uuid: str, name: str) -> None:
        if self._refused:
            for told in (name, uuid):
                if self._refused.pop(told, None) is not None:
                    LOG.info("Host '%s' reports what can be used again", name)

    def _forget_refusals(self, now: float) -> None:
        for name, refusal in list(self._refused.items()):
            is_known = name in self._held or bool(self._nodes_of.get(name))
            kept_for_s = self._kept_for_s or math.inf
            if abs(now - refusal.newest) > (kept_for_s if is_known else _UNKNOWN_S):
                del self._refused[name]

    # -- what is kept --------------------------------------------------------------

    def restore(self, stored: Sequence[tuple[Held, HostRecord]]) -> int:
        """Put hosts that the store kept into the table, as far as they are unknown.

        A host is taken as silent for as long as it was when the newest of them was
        heard: while nobody listened, no silence can be told. One that was silent for
        longer than hosts are kept is left out.

        Returns
        -------
        int
            How many were put there.
        """
        now = self._clock()
        for held, _ in stored:
            # Who stored it may have a clock that is ahead: it is not silent for less.
            held.seen_at = min(held.seen_at, now)
        heard_at = max((held.seen_at for held, _ in stored), default=now)
        records = []
        with self._lock:
            shift = now - heard_at
            for held, record in stored:
                if record.uuid in self._held or self._is_lost(held, heard_at):
                    continue
                held.seen_at += shift
                self._hold(record, held)
                records.append(replace(record, last_seen_up=held.seen_at))
            hosts = {record.host for record in records}
            self._table.put_many(records, {h: self._instances(h) for h in hosts})
        return len(records)

    def _is_lost(self, held: Held, now: float) -> bool:
        return bool(self._kept_for_s) and held.seen_at < now - self._kept_for_s

    def host_with(self, instance_uuid: str) -> str | None:
        """Return the host that reported an instance last; None: none has it."""
        with self._lock:
            held = self._held.values()
            return next((h.host for h in held if instance_uuid in h.instances), None)

    def forget_lost(self) -> list[str]:
        """Drop the nodes of which nothing came for too long; return their UUIDs.

        What was refused that long ago is forgotten, too; sooner if it is of no host
        that is known, as no later report shows that it is set right.
        """
        now = self._clock()
        with self._lock:
            self._forget_refusals(now)
            gone = {u: h.host for u, h in self._held.items() if self._is_lost(h, now)}
            for uuid, host in gone.items():
                del self._held[uuid]
                self._nodes_of[host].discard(uuid)
                self._asker.has_come(uuid)
            if gone:
                self._table.drop_many(gone)
                hosts = set(gone.values())
                self._table.set_instances_of({h: self._instances(h) for h in hosts})
                for host in hosts:
                    if not self._nodes_of[host]:
                        del self._nodes_of[host]
        for uuid, host in gone.items():
            LOG.warning(
                "Host '%s' (%s) is forgotten: nothing came of it for %.0f s",
                host,
                uuid,
                self._kept_for_s,
            )
        return list(gone)

    def settle_reported(self) -> None:
        """Give back what claims took of a host whose reports have the instance anyway.

        Another scheduler's claim may be heard of only after the host has told of the
        instance. A look is one of many: what the last one found, too, and the host has
        been heard of since, was no claim for an instance that stays where it is, whose
        host has yet to take note of it.
        """
        now = self._clock()
        with self._lock:
            found: set[UnreportedClaim] = set()
            for claim in self._table.claims():
                held = self._held.get(claim.node_uuid)
                if held is None or claim.instance_uuid not in held.instances:
                    continue
                if claim in self._doubled and held.seen_at > self._looked_at:
                    self._table.mark_reported(claim.node_uuid, [claim.instance_uuid])
                else:
                    found.add(claim)
            self._doubled, self._looked_at = found, now

    def snapshot(self, node_uuids: Iterable[str]) -> dict[str, Held]:
        """Return copies of what is held of these nodes; their values are shared."""
        with self._lock:
            found = {uuid: self._held.get(uuid) for uuid in node_uuids}
            return {
                uuid: replace(held, data=dict(held.data), instances=set(held.instances))
                for uuid, held in found.items()
                if held is not None
            }

    def are_stored(self, stored: Mapping[str, Held]) -> None:
        """Take note of what the store has now."""
        with self._lock:
            for uuid, copy in stored.items():
                held = self._held.get(uuid)
                if held is not None:
                    held.stored_at = copy.seen_at


def _numbered(data: Mapping[str, Any], name: str) -> tuple[str, str, int]:
    return (
        columns.field(data, "uuid", columns.uuid_of, name),
        columns.field(data, "incarnation", columns.uuid_of, name),
        columns.field(data, "revision", count, name),
    )
