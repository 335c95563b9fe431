# SPDX-License-Identifier: Apache-2.0
"""Exchange claims between schedulers through a topic of Kafka, instead of over RPC.

A claim that is lost, late or read twice does no harm: the report of its host includes
the instance a little later, and a claim that is known is not added again.
"""

from __future__ import annotations

import json
import logging
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from oslo_config import cfg

from ..objects import Serializer
from .claim_publisher import ClaimPublisher
from .drivers.claims.peer_claims import PeerClaim, PublishClaims
from .kafka_client import (
    LastError,
    claims_topic_settings,
    client_settings,
    kafka_library,
)
from .periodic import Outage
from .waiting import Spawner, Task, ThreadSpawner

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Producer

    from .sources.kafka.messages import TopicMessage
    from .sources.kafka.reader import TopicReader

LOG = logging.getLogger(__name__)

_VERSION: Final = "1.0"
_POLL_S: Final = 0.2
_WAIT_MS: Final = 500
#: Seconds until the next attempt to read, after an unexpected error.
_RETRY_S: Final = 1.0
#: Seconds that `stop` waits for queued announcements, and for the thread.
_STOP_S: Final = 5.0

#: Applies the claims of another scheduler, in the form of `PeerClaim.to_wire`.
ApplyClaims = Callable[[Sequence[dict[str, Any]]], None]


class KafkaPeers:
    """Announces claims in ``[kafka] claims_topic``, and applies others' claims.

    Parameters
    ----------
    clock : callable
        Returns the current time, seconds since the epoch.
    max_age_s : callable
        Returns the age from which an announcement is not applied, because reports of
        hosts should include the claim by then; None: no announcement is too old.

    Attributes
    ----------
    counts : dict
        The number of announcements, by result.
    """

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        apply: ApplyClaims,
        clock: Callable[[], float],
        max_age_s: Callable[[], float | None],
        *,
        spawner: Spawner | None = None,
    ) -> None:
        kafka_library()
        self._spawner = spawner or ThreadSpawner()
        self._conf = conf
        self._topic: str = conf.kafka.claims_topic
        self._apply = apply
        self._clock = clock
        self._max_age_s = max_age_s
        self._serializer = Serializer()
        self._partitions: list[int] = []
        self._lock = threading.Lock()
        self.counts = dict.fromkeys(
            ("sent", "failed", "received", "outdated", "unreadable"), 0
        )
        self._sending_outage = Outage(LOG)
        self._reading_outage = Outage(LOG, logs_causes=True)
        self._sending: _Sending | None = None
        self._reader: TopicReader | None = None
        self._stopping = self._spawner.event()
        self._thread: Task | None = None

    def check(self) -> None:
        """Check that the topic exists; leave no thread running.

        Raises
        ------
        ConfigurationError
            No broker answers, or the topic does not exist.
        """
        reader = self._open()
        try:
            partitions = reader.partitions(claims_topic_settings(self._conf))
        finally:
            reader.close()
        self._partitions = partitions[self._topic]

    def start(self) -> PublishClaims:
        """Follow the topic from its end on; return the function that announces claims.

        This does not wait for a broker. Call `check` before.
        """
        origin = f"{uuid.uuid4()}".encode()
        sending = _Sending(self._conf, origin, self._note_result, self._spawner)
        self._sending = sending
        reader = self._reader = self._open()
        reader.follow_from_end(
            (self._topic, partition) for partition in self._partitions
        )
        self._thread = self._spawner.spawn(
            lambda: self._follow(reader, sending, origin), name="moorage-kafka-claims"
        )
        return sending.publisher.publish

    @property
    def is_following(self) -> bool:
        """Whether the end of the topic was found: later announcements are read."""
        return self._reader is not None and self._reader.knows_its_positions

    def _open(self) -> TopicReader:
        from .sources.kafka.reader import TopicReader  # its import needs the library

        return TopicReader(self._conf, fetch_wait_ms=_WAIT_MS)

    def stop(self) -> None:
        """Send queued claims, if a broker takes them in time; close all connections."""
        if self._sending is not None:
            self._sending.stop()
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(_STOP_S)

    def result_counts(self) -> Mapping[str, int]:
        """Return `counts`, with the claims that were dropped from the full queue."""
        sending = self._sending
        n_dropped = 0 if sending is None else sending.publisher.n_dropped
        return {**self.counts, "dropped": n_dropped}

    # -- announcing ----------------------------------------------------------------

    def _note_result(self, failure: str) -> None:
        """Count an announcement; log the first failure, and the first success after.

        Parameters
        ----------
        failure : str
            Why the announcement failed; empty: a broker has received it.
        """
        outage = self._sending_outage
        with self._lock:
            self.counts["failed" if failure else "sent"] += 1
        if failure:
            outage.fail(
                failure,
                "Claims cannot be announced in the Kafka topic %r: %s; other "
                "schedulers learn of them from the reports of hosts, until a broker "
                "takes them again",
                self._topic, failure,
            )  # fmt: skip
        else:
            outage.end("Claims are announced again; %d were not", outage.n_failures)

    # -- following -----------------------------------------------------------------

    def _follow(self, reader: TopicReader, sending: _Sending, origin: bytes) -> None:
        try:
            while not self._stopping.is_set():
                self._follow_once(reader, sending, origin)
        finally:
            reader.close()

    def _follow_once(
        self, reader: TopicReader, sending: _Sending, origin: bytes
    ) -> None:
        try:
            for message in reader.read(_POLL_S):
                if message.key != origin:
                    self._receive(message)
            sending.poll()
            problem = " ".join(reader.failures.values())
        except Exception as e:  # claims of later messages must be read
            problem = f"{e!r}"
            self._stopping.wait(_RETRY_S)
        if problem:
            text = "Following the claims of other schedulers failed: %s"
            self._reading_outage.fail(problem, text, problem)
        else:
            self._reading_outage.end()

    def _receive(self, message: TopicMessage) -> None:
        limit_s = self._max_age_s()
        if limit_s is not None and self._clock() - message.received_at > limit_s:
            self.counts["outdated"] += 1
            return
        try:
            content: Any = json.loads(message.value or b"")
            version, claim = content["version"], content["claim"]
            if version.partition(".")[0] != _VERSION.partition(".")[0]:
                raise ValueError(f"version {version}, not {_VERSION}")
            self._apply([self._serializer.deserialize_entity({}, claim)])
            self.counts["received"] += 1
        except Exception as e:  # a plugin may fail on a claim of its newer version
            self.counts["unreadable"] += 1
            if self.counts["unreadable"] == 1:
                LOG.warning(
                    "Skipping claims of other schedulers that cannot be read, the "
                    "first at %s: %r",
                    message.origin,
                    e,
                )


class _Sending:
    """The producer of announcements, and the queue before it."""

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        origin: bytes,
        note: Callable[[str], None],
        spawner: Spawner,
    ) -> None:
        library = kafka_library()
        self._topic: str = conf.kafka.claims_topic
        self._origin = origin
        self._note = note
        self._errors = (BufferError, library.KafkaException)
        self._error = LastError(conf)
        self._serializer = Serializer()
        self._producer: Producer = library.Producer(
            {
                **client_settings(conf),
                "client.id": "moorage-claims",
                # An announcement that is lost with a broker does no harm.
                "acks": 1,
                "delivery.timeout.ms": int(conf.kafka.timeout * 1000),
                "queue.buffering.max.messages": 10_000,
                "compression.type": "lz4",
                "error_cb": self._error.note,
            }
        )
        self.publisher = ClaimPublisher(self._send, spawner=spawner)

    def poll(self) -> None:
        """Note the results of announcements."""
        self._producer.poll(0)

    def stop(self) -> None:
        self.publisher.stop(_STOP_S)
        self._producer.flush(_STOP_S)

    def _send(self, claims: Sequence[PeerClaim]) -> None:
        for claim in claims:
            content = {"version": _VERSION, "claim": claim.to_wire()}
            primitive = self._serializer.serialize_entity({}, content)
            value = json.dumps(primitive, separators=(",", ":"))
            try:
                self._producer.produce(
                    self._topic,
                    key=self._origin,
                    value=value,
                    on_delivery=self._note_delivery,
                )
            except self._errors as e:
                self._note(f"{e}")

    def _note_delivery(self, error: KafkaError | None, _message: object) -> None:
        if error is None:
            self._note("")
            return
        causes = (error.str(), self._error.text)
        self._note("; ".join(cause for cause in causes if cause))
