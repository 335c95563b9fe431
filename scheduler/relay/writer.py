# SPDX-License-Identifier: Apache-2.0
"""Write messages in transactions that only the newest leader can commit."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer
from oslo_config import cfg

from ..errors import ConfigurationError, SchedulerError
from ..kafka_client import (
    LastError,
    TopicNames,
    allow_command,
    client_settings,
    is_denied,
)

#: Kafka aborts a transaction that is open this long; until then readers see no
#: message after it.
_TRANSACTION_MS: Final = 10_000
_ABORT_S: Final = 2.0
_FENCED: Final = frozenset(
    {
        KafkaError._FENCED,  # noqa: SLF001 - its public name
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.PRODUCER_FENCED,
    }
)


class WriteFailed(SchedulerError):
    """Raised when a transaction was not committed; nothing of it is visible."""


class LeaderFenced(WriteFailed):
    """Raised when another relay has become the leader."""


class MissingRight(ConfigurationError):
    """Raised when the user may not write."""


class OutgoingMessage(NamedTuple):
    """A message to be written.

    Attributes
    ----------
    kind : str
        What it is counted as.
    """

    kind: str
    topic: str
    key: str
    value: bytes | None


class TransactionalWriter:
    """A producer with the transactional id that all relays of one name share.

    Its creation fences the earlier ones: an open transaction of theirs is aborted, and
    they can commit no other.

    Raises
    ------
    ConfigurationError
        [kafka] is invalid.
    MissingRight
    WriteFailed
        No broker answers in time.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._conf = conf
        self._error = LastError(conf)
        self._producer = Producer(
            {
                **client_settings(conf),
                "client.id": "moorage-relay",
                "transactional.id": conf.relay.name,
                "transaction.timeout.ms": _TRANSACTION_MS,
                "linger.ms": 5,
                "compression.type": "lz4",
                # As agents: all messages of a key are in one partition.
                "partitioner": "murmur2_random",
                "error_cb": self._error.note,
            }
        )
        try:
            self._producer.init_transactions(conf.kafka.timeout)
        except KafkaException as e:
            raise self._failure(e) from e

    def write(self, messages: Sequence[OutgoingMessage]) -> None:
        """Write messages in one transaction.

        Raises
        ------
        LeaderFenced, WriteFailed
            Nothing is written, or, if the answer of the broker was lost, all may be.
        MissingRight
        """
        producer = self._producer
        try:
            producer.begin_transaction()
            for _, topic, key, value in messages:
                producer.produce(topic, key=key, value=value)
            producer.commit_transaction(self._conf.kafka.timeout)
        except (KafkaException, BufferError) as e:
            with contextlib.suppress(KafkaException):
                producer.abort_transaction(_ABORT_S)
            raise self._failure(e) from e

    def _failure(self, error: Exception) -> SchedulerError:
        cause: Any = error.args[0] if error.args else error
        if not isinstance(cause, KafkaError):
            return WriteFailed(f"Writing to Kafka failed: {error}")
        if cause.code() in _FENCED:
            return LeaderFenced(f"Another relay has become the leader: {cause.str()}")
        if cause.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            return self._denied(cause, self._conf.relay.name, "transactional-id")
        if is_denied(cause):
            names = TopicNames.of(self._conf)
            return self._denied(cause, " --topic ".join(names), "topic")
        why = "; ".join(dict.fromkeys(filter(None, (cause.str(), self._error.text))))
        return WriteFailed(f"Writing to Kafka failed: {why}")

    def _denied(self, error: KafkaError, name: str, resource: str) -> MissingRight:
        command = allow_command(
            self._conf, name, "Write", "Describe", resource=resource
        )
        return MissingRight(
            f"The relay may not write: {error.str()}. Allow it: {command}"
        )
