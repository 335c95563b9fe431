# SPDX-License-Identifier: Apache-2.0
"""The source "kafka": reads the topics of reports from the beginning, then follows."""

from __future__ import annotations

import dataclasses
import enum
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from oslo_config import cfg

from ...clock import now_s, utc_text
from ...hosts import HostTable
from ...kafka_client import TopicNames, kafka_library, topic_settings
from ..reported.hosts import ReportedHosts
from ..reported.revisions import Route
from ..reported.source import (
    CHECK_CLAIMS_EVERY_S,
    FORGET_EVERY_S,
    STOP_S,
    Interval,
    ReportedSource,
)
from .messages import (
    MessageApplier,
    MessageCounts,
    Partition,
    TopicMessage,
    list_partitions,
)
from .silence import BEHIND_S, MissingHosts, RelayAbsence, UncountedTime

if TYPE_CHECKING:
    from .reader import TopicReader

LOG = logging.getLogger(__name__)

#: Seconds to wait for messages at a time.
_POLL_S: Final = 0.2
#: How long a broker holds a request for messages that do not exist yet.
_START_WAIT_MS: Final = 10
_FOLLOWING_WAIT_MS: Final = 500
#: Seconds to wait after an unexpected error.
_RETRY_S: Final = 1.0
_CHECK_SILENCE_EVERY_S: Final = 1.0
#: Most aggregates that a text for operators names.
_MAX_NAMED: Final = 5


class _Outage(enum.Enum):
    """Why messages are not read."""

    #: No broker answers.
    ALL = "all"
    #: No broker answers for some partitions.
    SOME = "some"
    #: Brokers answer for all partitions; messages arrive faster than they are read.
    BEHIND = "behind"

    @classmethod
    def of(cls, reader: TopicReader) -> _Outage:
        if not reader.is_connected:
            return cls.ALL
        return cls.SOME if reader.unanswered else cls.BEHIND


class KafkaSource(ReportedSource):
    """Apply the whole reports, heartbeats and aggregates of three topics.

    It stores nothing: a restarted scheduler reads the topics again. While no broker is
    connected, it keeps all hosts in their last state, and up if they were up. While no
    broker answers for some partitions, it does the same for their hosts.

    Parameters
    ----------
    conf : oslo_config.cfg.ConfigOpts, optional
        With [kafka] and ``[moorage] forget_hosts_after``.
    clock : callable, optional
        Returns now, seconds since the epoch.

    Raises
    ------
    ConfigurationError
        confluent-kafka is not installed.
    """

    def __init__(
        self,
        conf: cfg.ConfigOpts | None = None,
        *,
        clock: Callable[[], float] = now_s,
    ) -> None:
        super().__init__(conf, clock=clock)
        kafka_library()
        self._missing = MissingHosts(time.monotonic)
        self._relay: RelayAbsence | None = None
        self._applier: MessageApplier | None = None
        self._offsets: dict[Partition, int] = {}
        self._reader: TopicReader | None = None
        #: When reading fell behind: until then, all messages had been read. `_outage`
        #: is the outage that was logged. Both are None while reading is not behind.
        self._behind_since: float | None = None
        self._outage: _Outage | None = None
        self._uncounted = UncountedTime()
        self._failure = ""
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    # -- the start -----------------------------------------------------------------

    def start(self, table: HostTable) -> None:
        """Read the topics to their present ends.

        Raises
        ------
        ConfigurationError
            No broker answers, or a topic does not exist or cannot be read.
        """
        self._hosts = ReportedHosts(
            table,
            self._missing,
            self._clock,
            _store_nothing,
            self.conf.moorage.forget_hosts_after,
        )
        topics = TopicNames.of(self.conf)
        self._applier = MessageApplier(topics, self._hosts, table)
        began = time.monotonic()
        reader = self._open(fetch_wait_ms=_START_WAIT_MS)
        try:
            self._offsets = self._read_all(reader, topics, self._applier)
        finally:
            reader.close()
        self._hosts.forget_lost(self._hosts.last_report_at)
        # The relays, which write the hosts of another source to Kafka, may have stopped
        # before this process started.
        self._hosts.last_relayed_at = self._hosts.newest_relayed() or None
        self._relay = RelayAbsence(
            self.conf.service_down_time / 2, self.conf.kafka.relay_grace
        )
        self._check_silence(self._hosts, {})
        LOG.info(
            "%d hosts read from Kafka in %.1f s",
            len(self._hosts),
            time.monotonic() - began,
        )
        for text in self.unknowns():
            LOG.warning("%s", text)

    def _open(self, fetch_wait_ms: int) -> TopicReader:
        from .reader import TopicReader  # its import needs the library

        return TopicReader(self.conf, fetch_wait_ms=fetch_wait_ms, clock=self._clock)

    def _read_all(
        self, reader: TopicReader, topics: TopicNames, applier: MessageApplier
    ) -> dict[Partition, int]:
        numbers = reader.partitions(topic_settings(self.conf))
        state_partitions = [
            (t, n) for t in (topics.hosts, topics.aggregates) for n in numbers[t]
        ]
        offsets = reader.read_to_end(state_partitions, applier.apply)
        # Heartbeats are read after the reports that they belong to. Older heartbeats
        # would only show that a host is down.
        since = self._clock() - self.conf.service_down_time
        heartbeat_partitions = [
            (topics.heartbeats, n) for n in numbers[topics.heartbeats]
        ]
        return offsets | reader.read_to_end(heartbeat_partitions, applier.apply, since)

    def start_polling(self, table: HostTable) -> None:  # noqa: ARG002 - the base class's
        """Start following the topics."""
        if self._hosts is None or self._applier is None:
            raise RuntimeError("KafkaSource.start_polling: call start first")
        applier, hosts = self._applier, self._hosts
        reader = self._reader = self._open(fetch_wait_ms=_FOLLOWING_WAIT_MS)
        reader.follow(self._offsets)
        self._thread = threading.Thread(
            target=self._follow,
            args=(reader, applier, hosts),
            name="moorage-kafka",
            daemon=True,
        )
        self._thread.start()

    def stop(self) -> None:
        """Stop following the topics."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(STOP_S)

    # -- following -----------------------------------------------------------------

    def _follow(
        self, reader: TopicReader, applier: MessageApplier, hosts: ReportedHosts
    ) -> None:
        steps: tuple[Callable[[], object], ...] = (
            lambda: _apply(applier, reader.read(_POLL_S)),
            lambda: self._check_progress(reader),
            Interval(
                _CHECK_SILENCE_EVERY_S,
                lambda: self._check_silence(hosts, reader.read_until_by_partition()),
            ).run_if_due,
            Interval(FORGET_EVERY_S, lambda: self._forget_lost(hosts)).run_if_due,
            Interval(CHECK_CLAIMS_EVERY_S, hosts.end_reported_claims).run_if_due,
        )
        try:
            while not self._stopping.is_set():
                failures = [f for step in steps if (f := self._failure_of(step))]
                self._failure = " ".join(failures)
                if failures:
                    self._stopping.wait(_RETRY_S)
        finally:
            reader.close()

    def _failure_of(self, step: Callable[[], object]) -> str:
        """Run a step; return why it failed, or ""."""
        try:
            step()
        except Exception as e:  # the thread must go on; /readyz names the error
            failure = f"Following Kafka fails, and is retried: {e!r}"
            if failure not in self._failure:
                LOG.exception("Following Kafka failed; retrying in %.0f s", _RETRY_S)
            return failure
        return ""

    def _forget_lost(self, hosts: ReportedHosts) -> None:
        """Drop silent hosts, unless reading is behind and may still find reports."""
        if self._behind_since is None:
            hosts.forget_lost(hosts.last_report_at)

    def _check_progress(self, reader: TopicReader) -> None:
        """Record since when messages have not been read, and log it."""
        now, read_until = self._clock(), reader.read_until
        if now - read_until <= BEHIND_S:
            if self._behind_since is not None:
                self._end_outage(now)
            return
        if self._behind_since is None:
            self._behind_since = read_until
        if now - self._behind_since > self.conf.kafka.timeout:
            self._note_outage(reader, now)

    def _check_silence(
        self, hosts: ReportedHosts, read_until: Mapping[Partition, float]
    ) -> None:
        """Subtract time without reading, or without a relay, from the hosts' silence.

        Parameters
        ----------
        read_until : mapping
            The time until which each partition has been read, seconds since the epoch.
        """
        if self._relay is None:
            return
        now = self._clock()
        if hosts.last_relayed_at is not None:
            self._relay.check(hosts.last_relayed_at, now)
        is_behind = self._behind_since is not None
        if not (is_behind or self._relay.since or self._uncounted.unread):
            return
        topics = TopicNames.of(self.conf)
        routes = {
            route: _read_until(route, topics, read_until, now)
            for route in hosts.routes()
        }
        if seconds := self._uncounted.find(routes, self._relay, now):
            hosts.shorten_silence(seconds)
        relayed = {route for route in routes if route.is_relayed}
        if relayed and relayed <= self._uncounted.unread and self._relay.since is None:
            # No relay's messages are read: relays may write, so they are not absent.
            hosts.last_relayed_at = now

    def _note_outage(self, reader: TopicReader, now: float) -> None:
        outage = _Outage.of(reader)
        if outage is self._outage:
            return
        self._outage = outage
        if outage is _Outage.ALL:
            LOG.warning(
                "No broker of Kafka answers: %s; deciding on the last state of hosts "
                "until one does",
                reader.error.text or "the connection is open",
            )
        elif outage is _Outage.SOME:
            LOG.warning(
                "No broker of Kafka answers for the partitions %s: they have no "
                "leader, or it is frozen; their hosts keep their last state",
                list_partitions(reader.unanswered),
            )
        else:
            LOG.warning(
                "Reading Kafka is behind by %.0f s, with %d messages to read; no host "
                "counts as silent for that",
                now - reader.read_until,
                reader.n_unread,
            )

    def _end_outage(self, now: float) -> None:
        if self._outage is not None:
            LOG.info(
                "Kafka is read to its end again, after %.0f s",
                now - (self._behind_since or now),
            )
        self._behind_since, self._outage = None, None

    def refresh(self, table: HostTable) -> None:
        """Do nothing: messages are followed at all times."""

    # -- status --------------------------------------------------------------------

    def troubles(self) -> Sequence[str]:
        """Return why topics or partitions cannot be read."""
        reader = self._reader
        if reader is None:
            return ()
        troubles = [*reader.failures.copy().values()]
        if self._failure:
            troubles.append(self._failure)
        if self._outage is _Outage.SOME:
            troubles.append(
                "no broker of Kafka answers for the partitions "
                f"{list_partitions(reader.unanswered)}, since {self._behind_text}; "
                "their hosts keep their last state"
            )
        return troubles

    @property
    def _behind_text(self) -> str:
        return utc_text(self._behind_since or self._clock())

    def notes(self) -> Sequence[str]:
        """Return texts on `troubles`, outages, unusable reports and `unknowns`."""
        notes = [*self.troubles()]
        if self._outage is _Outage.ALL:
            notes.append(
                f"no broker of Kafka answers since {self._behind_text}; decisions use "
                "the last state of hosts"
            )
        elif self._outage is _Outage.BEHIND:
            notes.append(
                f"Kafka is not read to its end since {self._behind_text}: "
                f"{self.n_unread()} messages are left"
            )
        if self._relay is not None and self._relay.since is not None:
            notes.append(
                f"no relay has written to Kafka since {utc_text(self._relay.since)}; "
                "the hosts behind it count as silent from "
                f"{utc_text(self._relay.ends_at)} on"
            )
        if self._hosts is not None:
            notes += self._hosts.refusals.notes()
        notes += self.unknowns()
        if missing := self._missing.note(TopicNames.of(self.conf).hosts):
            notes.append(missing)
        return notes

    def unknowns(self) -> Sequence[str]:
        """Return a text if aggregates are unknown, or differ from their topic."""
        if self._applier is None or self._hosts is None:
            return ()
        topic = TopicNames.of(self.conf).aggregates
        if ids := self._applier.aggregates_not_in_topic():
            named = ", ".join(map(str, ids[:_MAX_NAMED]))
            return (
                f"{len(ids)} aggregates, such as {named}, differ from those of the "
                f"topic {topic!r}: casts changed them, which moorage-api and "
                "schedulers that start later do not receive.",
            )
        # A relay reports the set of all aggregates, even if it is empty.
        if not self._applier.n_aggregates and self._hosts.last_relayed_at is None:
            return (
                f"No host aggregate is known, as the topic {topic!r} has none: all "
                "hosts are in the default availability zone, and no isolation by "
                "aggregates applies.",
            )
        return ()

    def n_unread(self) -> int:
        """Return the number of messages that the brokers have and that are not read."""
        return 0 if self._reader is None else self._reader.n_unread

    def report_counts(self) -> Mapping[str, int]:
        """Return the numbers of reports, and of other messages, by outcome."""
        messages = MessageCounts() if self._applier is None else self._applier.counts
        return dataclasses.asdict(self.counts) | dataclasses.asdict(messages)


def _apply(applier: MessageApplier, messages: Sequence[TopicMessage]) -> None:
    if not messages:
        return
    try:
        applier.apply(messages)
    except Exception:  # the thread must go on with the messages after these
        LOG.exception(
            "Applying messages failed; some between %s and %s are skipped",
            messages[0].origin,
            messages[-1].origin,
        )


def _read_until(
    route: Route,
    topics: TopicNames,
    read_until: Mapping[Partition, float],
    now: float,
) -> float:
    """Return the time until which all reports and heartbeats of a route are read.

    If a topic has had no message of the route yet, messages of the route's hosts may be
    in any partition of that topic.
    """
    unknown_topics = {topics.hosts, topics.heartbeats}
    unknown_topics -= {topic for topic, _ in route.partitions}
    return min(
        (
            until
            for partition, until in read_until.items()
            if partition in route.partitions or partition[0] in unknown_topics
        ),
        default=now,
    )


def _store_nothing(_node_uuids: object) -> None:
    return
