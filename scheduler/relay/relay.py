# SPDX-License-Identifier: Apache-2.0
"""A relay: a follower until it is elected, then the leader until it fails or stops."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Sequence
from typing import Final

from confluent_kafka import OFFSET_END, Consumer, KafkaError, Message, TopicPartition
from oslo_config import cfg

from ..clock import now_s
from ..errors import ConfigurationError, SchedulerError
from ..failures import one_line
from ..kafka_client import (
    LastError,
    TopicNames,
    allow_command,
    client_settings,
    partitions_of,
    topic_settings,
)
from ..sources.base import BaseHostSource
from .leader import Leader
from .status import RelayRole, RelayStatus
from .topics import TopicFollower
from .writer import LeaderFenced, MissingRight, check_rights

#: The shortest session timeout that brokers accept by default.
_SESSION_MS: Final = 6_000
#: Time between heartbeats, by which a member learns that the group changes.
_HEARTBEAT_MS: Final = 500
#: Longest time between polls of a member; a leader that hangs longer is replaced.
_MAX_POLL_MS: Final = 60_000


class Election:
    """The election of a leader: the relay with the last partition of the hosts topic.

    All relays of one name are members of a consumer group, which reads nothing. Kafka
    assigns each partition to one member, and assigns it to another member once the
    first one leaves, or has sent no heartbeat for the session timeout. A member that
    joins is assigned the first partitions of other members, so that it does not replace
    a running leader. Not thread-safe.

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
            The partition whose assignment makes a relay the leader.

        Raises
        ------
        ConfigurationError
            No broker answers, or a topic does not exist; the message has the command
            that creates it.
        """
        topics = topic_settings(self._conf)
        partitions = partitions_of(self._conf, self._consumer, topics, self.error)
        return partitions[self._topic][-1]

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
        consumer.pause(partitions)  # the election needs no messages
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


LOG = logging.getLogger(__name__)

#: Seconds after a failure in which this relay does not take part in the election, so
#: that another relay may lead; they grow with each failure in a row.
_MIN_BACKOFF_S: Final = 1.0
_MAX_BACKOFF_S: Final = 30.0
#: Seconds of leading after which the next failure has the shortest backoff again.
_STABLE_S: Final = 60.0
#: Seconds between checks of a waiting relay whether a right that it lacked was given.
_CHECK_RIGHTS_EVERY_S: Final = 5.0


class Relay:
    """Takes part in the election, and leads if it is elected; not thread-safe.

    Parameters
    ----------
    conf : oslo_config.cfg.ConfigOpts
        With [kafka] and [relay].
    make_source : callable
        Returns a new source of hosts, each time this relay becomes the leader.
    clock : callable, optional
        Returns now, seconds since the epoch.

    Attributes
    ----------
    status : RelayStatus

    Raises
    ------
    ConfigurationError
        An option is invalid, no broker answers, or a topic does not exist.
    """

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        make_source: Callable[[], BaseHostSource],
        *,
        clock: Callable[[], float] = now_s,
    ) -> None:
        self._conf = conf
        self._make_source = make_source
        self._clock = clock
        self.status = RelayStatus()
        self._topics = TopicFollower(conf, clock)
        self._leader: Leader | None = None
        self._leading_since = 0.0
        self._backoff_s = _MIN_BACKOFF_S
        self._join_at = 0.0
        #: The right that this relay lacked when it led, or at the newest check since;
        #: "": no right is missing.
        self._missing_right = ""
        self._check_rights_at = 0.0
        election = Election(conf)
        try:
            self._partition = election.check()
        except BaseException:
            election.leave()
            raise
        self._election: Election | None = election
        election.join(self._partition)

    def step(self) -> None:
        """Do what is due now; called several times a second.

        Raises
        ------
        ConfigurationError
            The user lacks a right at the brokers.
        """
        if self._election is None:
            if time.monotonic() < self._join_at:
                return
            self._election = Election(self._conf)
            self._election.join(self._partition)
        is_leading = self._election.poll()
        if is_leading and self._leader is None:
            self._attempt(self._begin)
        elif is_leading:
            self._attempt(self._go_on)
        elif self._leader is not None:
            LOG.warning("Another relay is to lead; following")
            self._stop_leading()
        elif self._election.has_joined:
            self._set_role(RelayRole.FOLLOWER)
            self._topics.read_some()
            is_due = time.monotonic() >= self._check_rights_at
            if self._missing_right and is_due and not self._topics.trouble:
                self._check_rights()
            self.status.trouble = self._missing_right or self._topics.trouble

    def _check_rights(self) -> None:
        """Check whether the missing right was given; record which right is missing."""
        try:
            check_rights(self._conf)
            LOG.info("The right to write to Kafka, which this relay lacked, was given")
            self._missing_right = ""
        except MissingRight as e:
            self._missing_right = one_line(e)
        except SchedulerError as e:
            LOG.warning("The rights at Kafka cannot be checked, retrying: %s", e)
        self._check_rights_at = time.monotonic() + _CHECK_RIGHTS_EVERY_S

    def refresh(self) -> None:
        """Read the source again, if this relay leads."""
        if (leader := self._leader) is not None:
            try:
                leader.refresh()
            except SchedulerError as e:
                LOG.error("Reloading the hosts failed; they remain unchanged: %s", e)

    def stop(self) -> None:
        """Stop, and leave the group, so that another relay leads at once."""
        self._stop_leading()
        self._topics.close()
        if self._election is not None:
            self._election.leave()
            self._election = None

    # -- leading -------------------------------------------------------------------

    def _begin(self) -> None:
        self._set_role(RelayRole.STARTING)
        self._leader = Leader(
            self._conf,
            self._make_source(),
            self._topics,
            self.status,
            clock=self._clock,
            may_go_on=self._is_elected,
        )
        self._leader.start()
        self._leading_since = time.monotonic()
        self._go_on()
        self._missing_right = ""
        if self._leader is not None:
            self._set_role(RelayRole.LEADER)

    def _go_on(self) -> None:
        leader = self._leader
        if leader is not None and self._is_elected() and not leader.write_changes():
            self._stop_leading()
        if time.monotonic() - self._leading_since > _STABLE_S:
            self._backoff_s = _MIN_BACKOFF_S

    def _is_elected(self) -> bool:
        return self._election is not None and self._election.poll()

    def _attempt(self, work: Callable[[], None]) -> None:
        """Call `work`; if it fails, leave the group for a while."""
        try:
            work()
        except SchedulerError as e:
            if isinstance(e, LeaderFenced):
                LOG.warning("%s; following", e)
            else:
                LOG.error(
                    "Leading failed, retrying in %.0f s: %s",
                    self._backoff_s, one_line(e),
                )  # fmt: skip
            if isinstance(e, MissingRight):
                self._missing_right = one_line(e)
            self._resign(one_line(e))

    def _resign(self, why: str) -> None:
        self.status.trouble = why
        self.stop()
        self._set_role(RelayRole.JOINING)
        self._join_at = time.monotonic() + self._backoff_s * random.uniform(0.5, 1.0)
        self._backoff_s = min(2 * self._backoff_s, _MAX_BACKOFF_S)

    def _stop_leading(self) -> None:
        if self._leader is not None:
            self._leader.stop()
            self._leader = None
        self.status.notes = ()
        self._set_role(RelayRole.JOINING)

    def _set_role(self, role: RelayRole) -> None:
        if role is not self.status.role:
            self.status.role = role
            LOG.info("This relay is now: %s", role.value)
