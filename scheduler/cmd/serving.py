# SPDX-License-Identifier: Apache-2.0
"""What one process does: serve requests until a signal, and end in good order."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final

from oslo_config import cfg

from ..errors import SchedulerError
from ..rpc import (
    PEERS_TOPIC,
    Peers,
    PeersEndpoint,
    Server,
    UnusedReports,
    connect_agents,
    get_server,
    get_transport,
)
from ..rpc.broker import BrokerWatch, broker_failure, retry_until_done
from ..service import Scheduler
from .options import Options
from .signals import RELOADING, STOPPING, Signals
from .systemd import State

LOG = logging.getLogger(__name__)

#: Seconds for which a broker that is away is waited for when nothing is under way.
_BROKER_S: Final = 10.0
_LOOK_EVERY_S: Final = 0.1


class Serving:
    """A scheduler on the message bus: all connections of a process.

    Made after a fork: nothing of it is shared between processes.
    """

    def __init__(self, conf: cfg.ConfigOpts, scheduler: Scheduler) -> None:
        self._conf = conf
        self._scheduler = scheduler
        self._transport = get_transport(conf)
        self._stopping = threading.Event()
        self._watch = BrokerWatch(self._transport)
        scheduler.add_readiness_check(lambda: self._watch.trouble)
        self._peers = Peers(self._transport)
        connect_agents(self._transport, scheduler.source_endpoints)
        self._servers: list[Server] = []

    @property
    def n_under_way(self) -> int:
        """How many requests and casts are being served."""
        return sum(server.n_under_way for server in self._servers)

    def start(self) -> Future[None]:
        """Begin to take requests, once the broker is there; it is waited for elsewhere.

        Returns
        -------
        Future
            Done when requests are taken.
        """
        started: Future[None] = Future()
        threading.Thread(
            target=self._start, args=(started,), name="starting", daemon=True
        ).start()
        return started

    def _start(self, started: Future[None]) -> None:
        try:
            retry_until_done(self._begin, self._stopping)
            self._scheduler.publish_claims_to(self._peers.announce)
            self._watch.start()
        except BaseException as e:
            started.set_exception(e)
        else:
            started.set_result(None)

    def _begin(self) -> bool:
        """Take requests; return whether the broker lets us."""
        if not self._watch.check():
            return False
        # A server that could not be started cannot be started again.
        self._servers = self._made_servers()
        error: Exception | None = None
        try:
            for server in self._servers:
                server.start()
        except Exception as e:  # a driver's library raises errors of its own, too
            error = e
        if error is not None:
            self._watch.note(f"{broker_failure(self._conf, error)}")
            return False
        LOG.info("Serving %d hosts as %s", len(self._scheduler.table), self._conf.host)
        return True

    def _made_servers(self) -> list[Server]:
        heard = PeersEndpoint(self._scheduler, self._peers.origin)
        own = [heard, *self._scheduler.source_endpoints, UnusedReports()]
        return [
            get_server(
                self._conf,
                self._transport,
                self._scheduler.endpoints,
                answers=self._scheduler.journal,
            ),
            get_server(self._conf, self._transport, own, PEERS_TOPIC),
        ]

    def stop(self) -> bool:
        """Take no more requests, and finish those under way, as far as time allows.

        Returns
        -------
        bool
            Whether all were finished; else some of them go on in their threads.
        """
        began = time.monotonic()
        LOG.info("Stopping; requests under way are finished first")
        self._stopping.set()
        # It may wait for a broker that is away, without a bound of its own.
        closing = threading.Thread(target=self._close, name="closing", daemon=True)
        closing.start()
        limit_s = self._conf.manager_shutdown_timeout
        while closing.is_alive():
            closing.join(_LOOK_EVERY_S)
            passed_s = time.monotonic() - began
            if passed_s > limit_s or (passed_s > _BROKER_S and not self.n_under_way):
                break
        if n_left := self.n_under_way:
            LOG.error(
                "%d requests are not finished within manager_shutdown_timeout, %d s: "
                "their answers are lost, and what they claim may have to be released",
                n_left, limit_s,
            )  # fmt: skip
        return not n_left

    def _close(self) -> None:
        # All at once: each looks up to a second later whether it is to stop.
        stops = [
            threading.Thread(target=self._try, args=(server.stop,), daemon=True)
            for server in self._servers
        ]
        for stop in stops:
            stop.start()
        for stop in stops:
            stop.join()
        for server in self._servers:
            self._try(server.wait)
        self._try(self._watch.stop)
        self._try(self._peers.stop)
        self._try(self._transport.cleanup)

    def _try(self, close: Callable[[], None]) -> None:
        try:
            close()
        except Exception as e:  # whatever the broker's library raises: the rest goes on
            LOG.warning("A connection to the broker is not closed well: %r", e)


def serve(
    serving: Serving,
    scheduler: Scheduler,
    options: Options,
    signals: Signals,
    tell: Callable[[State], None],
    *,
    lifeline: int | None = None,
) -> bool:
    """Serve until a signal asks for the end; SIGHUP reads options and hosts again.

    Parameters
    ----------
    tell : callable
        Is told what the process is about to do.
    lifeline : int, optional
        A file that asks for the end, too, once it can be read.

    Returns
    -------
    bool
        As of `Serving.stop`.
    """
    started, is_ready = serving.start(), False
    also = () if lifeline is None else (lifeline,)
    while True:
        came, gone = signals.wait(None if is_ready else _LOOK_EVERY_S, also=also)
        if gone:
            LOG.error("The process that started this one is gone")
        if gone or came & STOPPING:
            tell(State.STOPPING)
            # It may have begun since the last look.
            has_begun = started.done() or serving.n_under_way
            return serving.stop() if has_begun else True
        if not is_ready and started.done():
            started.result()  # raises what went wrong
            is_ready = True
            tell(State.READY)
        if RELOADING in came:
            tell(State.RELOADING)
            reload(scheduler, options)
            if is_ready:
                tell(State.READY)


def reload(scheduler: Scheduler, options: Options) -> None:
    """Read options, plugins and hosts again; what cannot be used changes nothing."""
    plugins = options.reload(scheduler.load_plugins)
    if plugins is None:
        return
    try:
        scheduler.reset(plugins)
    except SchedulerError as e:
        LOG.error("Reading the hosts again failed, they remain unchanged: %s", e)
