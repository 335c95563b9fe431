# SPDX-License-Identifier: Apache-2.0
"""An agent's side of Kafka: whole reports and heartbeats, acknowledged by brokers."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Final

from oslo_config import cfg

from ..objects import ReportKind, report_data
from ..scheduler.errors import ConfigurationError
from ..scheduler.kafka_client import (
    LastError,
    TopicNames,
    allow_command,
    client_settings,
    is_denied,
    kafka_library,
    partitions_of,
    topic_settings,
)
from .bus import BusUnavailable, Work

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

#: Most KiB of messages that wait for brokers; a cast that exceeds them fails.
_MAX_BUFFER_KB: Final = 65_536
#: Seconds after the time limit of a message within which its failure is known.
_MARGIN_S: Final = 5.0


class KafkaBus:
    """Sends the reports of a `Reporter` that sends no deltas.

    A cast returns when the brokers have stored the reports in all replicas in sync, or
    fails. Of a failed cast nothing is kept: the reporter sends the newest state next.

    Parameters
    ----------
    conf : oslo_config.cfg.ConfigOpts
        With [kafka].

    Raises
    ------
    ConfigurationError
        [kafka] is invalid, or confluent-kafka is not installed.
    """

    #: There are no requests for whole reports over Kafka.
    reply: Final = None
    takes_deltas: Final = False

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        library = kafka_library()
        self._conf = conf
        self._kafka_errors = (BufferError, library.KafkaException)
        self._is_checked = False
        self._error, self._producer = self._open()

    def _open(self) -> tuple[LastError, Producer]:
        conf = self._conf
        error = LastError(conf)
        timeout_ms = int(conf.kafka.timeout * 1000)
        producer = kafka_library().Producer(
            {
                **client_settings(conf),
                "client.id": "moorage-agent",
                "enable.idempotence": True,
                "acks": "all",
                "delivery.timeout.ms": timeout_ms,
                "queue.buffering.max.kbytes": _MAX_BUFFER_KB,
                "compression.type": "lz4",
                # The partitioner of Kafka's own tools, so that tombstones written with
                # them reach the partition of their key.
                "partitioner": "murmur2_random",
                "error_cb": error.note,
            }
        )
        return error, producer

    def cast(self, reports: list[dict[str, Any]]) -> None:
        """Send whole reports and heartbeats, and wait until they are stored.

        Raises
        ------
        BusUnavailable
            The brokers did not store all of them, or a topic does not exist.
        ValueError
            A report is a delta with changes.
        """
        names = TopicNames.of(self._conf)
        messages: list[tuple[str, str, bytes | None]] = []
        for report in reports:
            kind, data = report_data(report)
            if kind is ReportKind.DELTA and data["since"] != data["revision"]:
                raise ValueError("Kafka takes whole reports only, and no HostDelta")
            is_whole = kind is ReportKind.WHOLE
            topic = names.hosts if is_whole else names.heartbeats
            value = json.dumps(report, separators=(",", ":")).encode()
            messages.append((topic, data["uuid"], value))
        self._send(messages)

    def remove(self, node_uuid: str) -> None:
        """Remove a node from the topic: schedulers drop the node.

        Call `Reporter.forget` before; a later report adds the node again.

        Raises
        ------
        BusUnavailable
            The brokers did not store the removal.
        """
        self._send([(TopicNames.of(self._conf).hosts, node_uuid.lower(), None)])

    def _send(self, messages: list[tuple[str, str, bytes | None]]) -> None:
        try:
            self._check_topics()
            self._store(messages)
        finally:
            # After a fatal error, such as a missing right, the producer is unusable.
            # The right may be given before the next cast.
            if self._error.is_fatal:
                self._error, self._producer = self._open()

    def _store(self, messages: list[tuple[str, str, bytes | None]]) -> None:
        self._error.is_denied = False
        failures: list[str] = []
        denied_topics: set[str] = set()

        def note(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failures.append(error.str())
                if is_denied(error):
                    denied_topics.add(message.topic() or "")

        try:
            for topic, key, value in messages:
                self._producer.produce(topic, key=key, value=value, on_delivery=note)
        except self._kafka_errors as e:
            failures.append(self._text_of(e))
        n_waiting = 0
        try:
            n_waiting = self._producer.flush(self._conf.kafka.timeout + _MARGIN_S)
        except self._kafka_errors as e:
            failures.append(self._text_of(e))
        except SystemError:
            # confluent-kafka 2.16 clears the exception of a fatal error when it calls
            # `note` before `flush` returns (seen on a busy machine, a right missing).
            self._error.is_fatal = True
            failures.append(self._error.text or "a fatal error of the producer")
        if failures or n_waiting:
            if self._error.is_denied:
                denied_topics.update(topic for topic, _, _ in messages)
            raise BusUnavailable(self._failure(failures, denied_topics))

    def _text_of(self, error: Exception) -> str:
        if not isinstance(error, BufferError):
            self._error.note(error.args[0])  # a fatal error does not reach error_cb
            return self._error.text
        return f"{error}"

    def _check_topics(self) -> None:
        """Check once that the topics exist: sending to a missing one may create it."""
        if self._is_checked:
            return
        topics = topic_settings(self._conf)
        topics.pop(TopicNames.of(self._conf).aggregates)
        try:
            partitions_of(self._conf, self._producer, topics, self._error)
        except ConfigurationError as e:
            raise BusUnavailable(f"{e}") from e
        except self._kafka_errors as e:
            denied = topics if self._text_of(e) and self._error.is_denied else ()
            raise BusUnavailable(self._failure([], denied)) from e
        self._is_checked = True

    def _failure(self, failures: list[str], denied: Collection[str]) -> str:
        servers = ",".join(self._conf.kafka.bootstrap_servers)
        causes = dict.fromkeys([*failures[:1], self._error.text])
        why = "; ".join(cause for cause in causes if cause) or "no acknowledgement"
        commands = [
            f". Allow it: {allow_command(self._conf, topic, 'Write', 'Describe')}"
            for topic in sorted(denied)
        ]
        return f"Kafka at {servers} did not store a report: {why}{''.join(commands)}"

    def serve(
        self,
        send_whole_report: Callable[[str], object],
        attempt: Callable[[Work], bool] | None = None,
    ) -> None:
        """Do nothing: there are no requests over Kafka."""

    def stop(self) -> None:
        """Do nothing: each cast has waited for its messages."""
