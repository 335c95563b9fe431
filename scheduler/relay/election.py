# SPDX-License-Identifier: Apache-2.0
"""The election of a leader: who has the last partition of the topic of hosts.

All relays of one name are members of a consumer group, which reads nothing. Kafka
assigns each partition to one member, and to another one once a member leaves, or has
sent no heartbeat for the session's timeout. A member that joins is given the first
partitions of the others, so that it does not take over from a leader that runs.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from confluent_kafka import OFFSET_END, Consumer, KafkaError, Message, TopicPartition
from oslo_config import cfg

from ..errors import ConfigurationError
from ..kafka_client import (
    LastError,
    TopicNames,
    allow_command,
    client_settings,
    partitions_of,
    topic_settings,
)

LOG = logging.getLogger(__name__)

#: The shortest that brokers accept by default.
_SESSION_MS: Final = 6_000
#: With each heartbeat a member learns that the group changes.
_HEARTBEAT_MS: Final = 500
#: A leader whose thread hangs this long is replaced.
_MAX_POLL_MS: Final = 60_000


class Election:
    """A member of the group; not thread-safe.

    Attributes
    ----------
    error : LastError
        The last error of the connection.

    Raises
    ------
    ConfigurationError
        [kafka] is invalid.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._conf = conf
        self._topic: str = TopicNames.of(conf).hosts
        self.error = LastError(conf)
        self._is_won = False
        self._partition = 0
        self._consumer = Consumer(
            {
                **client_settings(conf),
                "client.id": "moorage-relay",
                "group.id": conf.relay.name,
                "session.timeout.ms": _SESSION_MS,
                "heartbeat.interval.ms": _HEARTBEAT_MS,
                "max.poll.interval.ms": _MAX_POLL_MS,
                "enable.auto.commit": False,
                "partition.assignment.strategy": "cooperative-sticky",
                "error_cb": self.error.note,
            }
        )

    def check(self) -> int:
        """Check that a broker answers and the topics exist.

        Returns
        -------
        int
            The partition of the leader.

        Raises
        ------
        ConfigurationError
            They do not; the message has the command that creates a missing topic.
        """
        topics = topic_settings(self._conf)
        found = partitions_of(self._conf, self._consumer, topics, self.error)
        return found[self._topic][-1]

    def join(self, partition: int) -> None:
        """Join the group; `poll` returns the result later.

        Parameters
        ----------
        partition : int
            From `check`.
        """
        self._partition = partition
        self._consumer.subscribe(
            [self._topic],
            on_assign=self._assigned,
            on_revoke=self._revoked,
            on_lost=self._revoked,
        )

    @property
    def has_joined(self) -> bool:
        """Whether this relay is a member of the group."""
        return bool(self._consumer.memberid())

    def poll(self) -> bool:
        """Return at once whether this relay leads.

        Raises
        ------
        ConfigurationError
            The user lacks a right.
        """
        message = self._consumer.poll(0)
        if message is not None:
            self._check(message)
        return self._is_won

    def _check(self, message: Message) -> None:
        error = message.error()
        if error is None:
            return
        if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            raise ConfigurationError(
                f"The user may not read the Kafka group {self._conf.relay.name!r} "
                f"([relay] name): {error.str()}. Allow it: "
                + allow_command(
                    self._conf, self._conf.relay.name, "Read", resource="group"
                )
            )
        if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise ConfigurationError(
                f"The user may not read the Kafka topic {self._topic!r}: it needs the "
                f"rights Read, Write and Describe: {error.str()}"
            )

    def _assigned(self, consumer: Consumer, new: Sequence[TopicPartition]) -> None:
        partitions = [TopicPartition(p.topic, p.partition, OFFSET_END) for p in new]
        consumer.incremental_assign(partitions)
        consumer.pause(partitions)  # their messages are of no interest
        if any(p.partition == self._partition for p in new):
            self._is_won = True

    def _revoked(self, consumer: Consumer, lost: Sequence[TopicPartition]) -> None:
        consumer.incremental_unassign(list(lost))
        if any(p.partition == self._partition for p in lost):
            self._is_won = False

    def leave(self) -> None:
        """Leave the group at once; the object cannot be used again."""
        self._is_won = False
        self._consumer.close()
