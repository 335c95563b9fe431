# SPDX-License-Identifier: Apache-2.0
"""The work of a leader: read the topics and the source, then write the changes."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from oslo_config import cfg

from ..hosts import HostTable
from ..rpc import (
    PEERS_TOPIC,
    SchedulerRPCServer,
    connect_agents,
    get_server,
    get_transport,
    start_all,
)
from ..rpc.broker import broker_failure, retry_until_done
from ..sources.base import BaseHostSource
from ..sources.report_columns import load_columns
from .reports import TableReporter
from .status import RelayStatus
from .topics import TopicFollower
from .writer import OutgoingMessage, TransactionalWriter


class AgentListener:
    """Serves a source's endpoints on the message bus until `stop`.

    Raises
    ------
    ConfigurationError
        The options of the message bus are invalid.
    """

    def __init__(self, conf: cfg.ConfigOpts, endpoints: Sequence[object]) -> None:
        self._conf = conf
        self._endpoints = endpoints
        self._transport = get_transport(conf)
        connect_agents(self._transport, endpoints)
        self._stopping = threading.Event()
        self._server: SchedulerRPCServer | None = None
        #: Why no reports are received; "": they are.
        self.trouble = "The message bus of the agents is not connected yet."

    def start(self) -> None:
        """Start listening in the background, once the broker is reachable."""
        threading.Thread(
            target=retry_until_done,
            args=(self._begin, self._stopping),
            name="starting",
            daemon=True,
        ).start()

    def _begin(self) -> bool:
        server = get_server(
            self._conf, self._transport, list(self._endpoints), PEERS_TOPIC
        )
        if (error := start_all([server])) is not None:
            self.trouble = f"{broker_failure(self._conf, error)}"
            LOG.warning("Listening to agents failed, retrying: %s", self.trouble)
            return False
        self._server, self.trouble = server, ""
        return True

    def stop(self) -> None:
        """Stop listening, and close the connections."""
        self._stopping.set()
        if self._server is not None:
            self._server.stop()
            self._server.wait()
        # The broker's library may raise anything.
        with contextlib.suppress(Exception):
            self._transport.cleanup()


LOG = logging.getLogger(__name__)

#: Most messages and bytes of a transaction: schedulers receive no message after a
#: transaction before it ends.
_MAX_MESSAGES: Final = 1_000
_MAX_BYTES: Final = 8 * 1024**2


class Leader:
    """Writes the hosts of a source, from `start` until `stop`.

    Parameters
    ----------
    source : BaseHostSource
        A new source, not started yet; `stop` stops it.
    topics : TopicFollower
        The reader of the topics; what it has read so far is not read again.
    status : RelayStatus
        The status to update.
    may_go_on : callable
        Returns whether this relay still leads; called between transactions.
    """

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        source: BaseHostSource,
        topics: TopicFollower,
        status: RelayStatus,
        *,
        clock: Callable[[], float],
        may_go_on: Callable[[], bool],
    ) -> None:
        self._conf = conf
        self._source = source
        self._topics = topics
        self._status = status
        self._clock = clock
        self._may_go_on = may_go_on
        self._closing = contextlib.ExitStack()
        self._table = HostTable(clock, load_columns())
        self._writer: TransactionalWriter | None = None
        self._reporter: TableReporter | None = None
        self._agents: AgentListener | None = None

    def start(self) -> None:
        """Fence the previous leader, and read the topics and the source.

        Raises
        ------
        SchedulerError
            Kafka cannot be used, or the source cannot be read.
        """
        began = time.monotonic()
        # Before reading, so that no other relay commits anything that is not read.
        self._writer = TransactionalWriter(self._conf)
        n_before = self._topics.n_read
        state = self._topics.read_to_end()
        n_read, read_s = self._topics.n_read - n_before, time.monotonic() - began
        self._closing.callback(self._source.stop)
        self._source.start(self._table)
        self._source.check()
        self._source.start_polling(self._table)
        if self._source.endpoints:
            self._agents = AgentListener(self._conf, self._source.endpoints)
            self._closing.callback(self._agents.stop)
            self._agents.start()
        self._reporter = TableReporter(self._table, self._source, state, self._clock)
        LOG.info(
            "Leading: the topics have %d hosts, of which %d messages were not read "
            "yet, in %.1f s; the source has %d, read in %.1f s",
            len(state.nodes), n_read, read_s,
            len(self._table), time.monotonic() - began - read_s,
        )  # fmt: skip

    def write_changes(self) -> bool:
        """Write what has changed since the last call.

        Returns
        -------
        bool
            False: this relay is not to lead any more, and the rest is not written. The
            leader must be stopped, as it takes the rest for written.

        Raises
        ------
        SchedulerError
            The changes cannot be written; the leader must be stopped.
        """
        if self._writer is None or self._reporter is None:
            raise RuntimeError("Leader.write_changes: call start first")
        self._source.refresh_if_stale(self._table)
        for messages in _transactions(self._reporter.messages()):
            if not self._may_go_on():
                return False
            self._writer.write(messages)
            self._status.n_written.update(message.kind for message in messages)
            self._status.last_write_at = self._clock()
        self._status.n_hosts = len(self._table)
        troubles = [*self._source.troubles()]
        if self._agents is not None:
            troubles.append(self._agents.trouble)
        self._status.trouble = " ".join(filter(None, troubles))
        self._status.notes = (*self._source.notes(), *self._reporter.notes[:5])
        return True

    def refresh(self) -> None:
        """Read the source again, as on SIGHUP.

        Raises
        ------
        ConfigurationError
            The source cannot be read; the hosts stay as they were.
        """
        self._source.refresh(self._table)

    def stop(self) -> None:
        """Stop the source."""
        self._closing.close()


def _transactions(
    messages: Iterable[OutgoingMessage],
) -> Iterator[list[OutgoingMessage]]:
    chunk: list[OutgoingMessage] = []
    n_bytes = 0
    for message in messages:
        chunk.append(message)
        n_bytes += len(message.value or b"")
        if len(chunk) >= _MAX_MESSAGES or n_bytes >= _MAX_BYTES:
            yield chunk
            chunk, n_bytes = [], 0
    if chunk:
        yield chunk
