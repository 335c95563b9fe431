# SPDX-License-Identifier: Apache-2.0
"""Write messages in transactions that only the newest leader can commit."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer, TopicCollection
from confluent_kafka.admin import AclOperation, AdminClient
from oslo_config import cfg

from ..errors import ConfigurationError, SchedulerError
from ..kafka_client import (
    LastError,
    TopicNames,
    allow_command,
    client_settings,
    is_denied,
)

LOG = logging.getLogger(__name__)

#: Kafka aborts a transaction that is open for this long. Until a transaction ends,
#: readers receive none of the messages after it.
_TRANSACTION_MS: Final = 10_000
_ABORT_S: Final = 2.0
#: A transaction timeout above transaction.max.timeout.ms, by default 15 minutes.
#: Brokers check the right on the transactional id first, then refuse the timeout, and
#: fence no leader.
_REFUSED_MS: Final = 2_000_000_000
_FENCED: Final = frozenset(
    {
        KafkaError._FENCED,  # noqa: SLF001 - its public name
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.PRODUCER_FENCED,
    }
)


class WriteFailed(SchedulerError):
    """Raised when a transaction was not committed; none of its messages is visible."""


class LeaderFenced(WriteFailed):
    """Raised when another relay has become the leader."""


class MissingRight(ConfigurationError):
    """Raised when the user may not write."""


class OutgoingMessage(NamedTuple):
    """A message to be written.

    Attributes
    ----------
    kind : str
        The name under which the message is counted.
    """

    kind: str
    topic: str
    key: str
    value: bytes | None


class TransactionalWriter:
    """A producer with the transactional id that all relays of one name share.

    Its creation fences earlier producers: their open transactions are aborted, and they
    can commit no other.

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
                **_settings(conf, self._error),
                "transaction.timeout.ms": _TRANSACTION_MS,
                "linger.ms": 5,
                "compression.type": "lz4",
                # The partitioner of agents: all messages of a key are in one partition.
                "partitioner": "murmur2_random",
            }
        )
        try:
            self._producer.init_transactions(conf.kafka.timeout)
        except KafkaException as e:
            raise _failure(conf, e, self._error) from e

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
            raise _failure(self._conf, e, self._error) from e


def check_rights(conf: cfg.ConfigOpts) -> None:
    """Check that the user may write as the leader does; write nothing, fence no leader.

    Raises
    ------
    ConfigurationError
        [kafka] is invalid.
    MissingRight
    WriteFailed
        No broker answers in time.
    """
    error = LastError(conf)
    producer = Producer(
        {
            **_settings(conf, error),
            "transaction.timeout.ms": _REFUSED_MS,
            # Without a logger the library writes to stderr that the refusal is fatal.
            "logger": LOG,
        }
    )
    try:
        producer.init_transactions(conf.kafka.timeout)
    except KafkaException as e:
        if e.args[0].code() != KafkaError.INVALID_TRANSACTION_TIMEOUT:
            raise _failure(conf, e, error) from e
    settings: dict[str, Any] = {**client_settings(conf), "error_cb": error.note}
    admin = AdminClient(settings)  # its requests last only as long as this reference
    futures = admin.describe_topics(
        TopicCollection([*TopicNames.of(conf)]),
        include_authorized_operations=True,
        request_timeout=conf.kafka.timeout,
    )
    try:
        operations = {t: a.result().authorized_operations for t, a in futures.items()}
    except KafkaException as e:
        raise _failure(conf, e, error) from e
    denied_topics = [
        t for t, may in operations.items() if AclOperation.WRITE not in may
    ]
    if denied_topics:
        why = f"no right Write on {', '.join(denied_topics)}"
        raise _denied(conf, why, " --topic ".join(denied_topics))


def _settings(conf: cfg.ConfigOpts, error: LastError) -> dict[str, Any]:
    return {
        **client_settings(conf),
        "client.id": "moorage-relay",
        "transactional.id": conf.relay.name,
        "error_cb": error.note,
    }


def _failure(conf: cfg.ConfigOpts, error: Exception, last: LastError) -> SchedulerError:
    cause: Any = error.args[0] if error.args else error
    if not isinstance(cause, KafkaError):
        return WriteFailed(f"Writing to Kafka failed: {error}")
    if cause.code() in _FENCED:
        return LeaderFenced(f"Another relay has become the leader: {cause.str()}")
    if cause.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        return _denied(conf, cause.str(), conf.relay.name, "transactional-id")
    if is_denied(cause):
        return _denied(conf, cause.str(), " --topic ".join(TopicNames.of(conf)))
    why = "; ".join(dict.fromkeys(filter(None, (cause.str(), last.text))))
    return WriteFailed(f"Writing to Kafka failed: {why}")


def _denied(
    conf: cfg.ConfigOpts, why: str, name: str, resource: str = "topic"
) -> MissingRight:
    command = allow_command(conf, name, "Write", "Describe", resource=resource)
    return MissingRight(f"The relay may not write: {why}. Allow it: {command}")
