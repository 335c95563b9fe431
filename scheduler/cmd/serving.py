# SPDX-License-Identifier: Apache-2.0
"""The main loop of a process: serve requests until a signal, and stop gracefully."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final

from oslo_config import cfg

from ..errors import SchedulerError
from ..failures import one_line
from ..rpc import (
    PEERS_TOPIC,
    DeletionEndpoint,
    IgnoredReports,
    Peers,
    PeersEndpoint,
    SchedulerRPCServer,
    connect_agents,
    get_server,
    get_transport,
    start_all,
)
from ..rpc.broker import BrokerWatch, broker_failure, retry_until_done
from ..rpc.scheduler_watch import SchedulerWatch
from ..service import Scheduler
from ..telemetry.serving import ProcessTelemetry
from .options import Options
from .signals import RELOADING, STOPPING, Signals
from .systemd import SystemdState

LOG = logging.getLogger(__name__)

#: Seconds to wait for an unreachable broker at shutdown while nothing is in progress.
_BROKER_S: Final = 10.0
_POLL_S: Final = 0.1


class Serving:
    """A scheduler on the message bus, with all connections of a process.

    Created after a fork: processes must not share connections.

    Parameters
    ----------
    is_deciding : bool
        Whether this process takes requests of conductors; otherwise it receives only
        what other schedulers and agents publish.
    """

    def __init__(
        self, conf: cfg.ConfigOpts, scheduler: Scheduler, *, is_deciding: bool = True
    ) -> None:
        self._is_deciding = is_deciding
        self._conf = conf
        self._scheduler = scheduler
        self._transport = get_transport(conf)
        self._stopping = threading.Event()
        self._watch = BrokerWatch(self._transport)
        scheduler.status.add_check("broker", lambda: self._watch.problem)
        self._scheduler_watch = None if is_deciding else SchedulerWatch(self._transport)
        if (watch := self._scheduler_watch) is not None:
            scheduler.status.add_check(
                "schedulers", lambda: watch.problem, is_required=False
            )
        self._peers = Peers(self._transport)
        connect_agents(self._transport, scheduler.source_endpoints)
        self._servers: list[SchedulerRPCServer] = []

    @property
    def n_under_way(self) -> int:
        """The number of requests and casts in progress."""
        return sum(server.n_under_way for server in self._servers)

    def start(self) -> Future[None]:
        """Start serving in the background, once the broker is reachable.

        Returns
        -------
        Future
            Done when requests are served.
        """
        # Over RPC only claims of schedulers without the topic are received then. It is
        # set before there are requests: a decision in progress does not see it.
        if not self._conf.kafka.claims_topic:
            self._scheduler.publish_claims = self._peers.publish
        started: Future[None] = Future()
        threading.Thread(
            target=self._start, args=(started,), name="starting", daemon=True
        ).start()
        return started

    def _start(self, started: Future[None]) -> None:
        try:
            retry_until_done(self._begin, self._stopping)
            self._watch.start()
            if self._scheduler_watch is not None:
                self._scheduler_watch.start()
        except BaseException as e:
            started.set_exception(e)
        else:
            started.set_result(None)

    def _begin(self) -> bool:
        """Start the servers; return whether the broker accepts them."""
        if not self._watch.check():
            return False
        self._servers = self._make_servers()
        if (error := start_all(self._servers)) is not None:
            self._watch.record(f"{broker_failure(self._conf, error)}")
            return False
        n_hosts = len(self._scheduler.table)
        if self._is_deciding:
            LOG.info("Serving %d hosts as %s", n_hosts, self._conf.host)
        else:
            LOG.info("Following the schedulers of %d hosts", n_hosts)
        return True

    def _make_servers(self) -> list[SchedulerRPCServer]:
        claims = PeersEndpoint(self._scheduler, self._peers.origin)
        deletions = DeletionEndpoint(self._scheduler.parts.source)
        endpoints = [
            claims,
            deletions,
            *self._scheduler.source_endpoints,
            IgnoredReports(),
        ]
        peers = get_server(self._conf, self._transport, endpoints, PEERS_TOPIC)
        if not self._is_deciding:
            return [peers]
        requests = get_server(
            self._conf,
            self._transport,
            self._scheduler.endpoints,
            answers=self._scheduler.journal,
        )
        return [requests, peers]

    def stop(self) -> bool:
        """Stop serving; finish the requests in progress, within a time limit.

        The limit is `manager_shutdown_timeout`.

        Returns
        -------
        bool
            Whether all requests were finished; otherwise some still run in threads.
        """
        began_at = time.monotonic()
        LOG.info("Stopping; finishing the requests in progress first")
        self._stopping.set()
        # Closing may wait for an unreachable broker without a time limit.
        closing = threading.Thread(target=self._close, name="closing", daemon=True)
        closing.start()
        limit_s = self._conf.manager_shutdown_timeout
        while closing.is_alive():
            closing.join(_POLL_S)
            elapsed_s = time.monotonic() - began_at
            if elapsed_s > limit_s or (elapsed_s > _BROKER_S and not self.n_under_way):
                break
        if n_unfinished := self.n_under_way:
            LOG.error(
                "%d requests are not finished within manager_shutdown_timeout, %d s: "
                "their answers are lost, and their claims may have to be released",
                n_unfinished, limit_s,
            )  # fmt: skip
        return not n_unfinished

    def _close(self) -> None:
        # In parallel: each server takes up to a second to stop.
        threads = [
            threading.Thread(target=self._try, args=(server.stop,), daemon=True)
            for server in self._servers
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for server in self._servers:
            self._try(server.wait)
        self._try(self._watch.stop)
        if self._scheduler_watch is not None:
            self._try(self._scheduler_watch.stop)
        self._try(self._peers.stop)
        self._try(self._transport.cleanup)

    def _try(self, close: Callable[[], None]) -> None:
        try:
            close()
        except Exception as e:  # the broker's library may raise anything
            LOG.warning("Closing a connection to the broker failed: %r", e)


def serve(
    serving: Serving,
    scheduler: Scheduler,
    options: Options,
    signals: Signals,
    report_state: Callable[[SystemdState], None],
    *,
    telemetry: ProcessTelemetry,
    lifeline: int | None = None,
) -> bool:
    """Serve until a signal to stop; SIGHUP reloads options and hosts.

    Parameters
    ----------
    report_state : callable
        Called with each new state of the process.
    telemetry : ProcessTelemetry
        Its readiness probe fails while the process stops.
    lifeline : int, optional
        A file descriptor that becomes readable when the parent process has ended, which
        stops this process, too.

    Returns
    -------
    bool
        Whether all requests were finished; see `Serving.stop`.
    """
    scheduler.status.show_reloads(options.result)
    started, is_ready = serving.start(), False
    lifelines = () if lifeline is None else (lifeline,)
    while True:
        received, closed = signals.wait(None if is_ready else _POLL_S, also=lifelines)
        if closed:
            LOG.error("The parent process has ended; stopping")
        if closed or received & STOPPING:
            telemetry.is_stopping = True
            report_state(SystemdState.STOPPING)
            # Serving may have begun since the last check.
            has_begun = started.done() or serving.n_under_way
            return serving.stop() if has_begun else True
        if not is_ready and started.done():
            started.result()  # raises the error, if any
            is_ready = True
            report_state(SystemdState.READY)
        if RELOADING in received:
            report_state(SystemdState.RELOADING)
            reload(scheduler, options)
            if is_ready:
                report_state(SystemdState.READY)


def reload(scheduler: Scheduler, options: Options) -> None:
    """Reload options, plugins and hosts; on an error they remain unchanged."""
    plugins = options.reload(scheduler.lifecycle.load_plugins)
    if plugins is None:
        return
    try:
        scheduler.reset(plugins)
    except SchedulerError as e:
        options.result.record(f"the hosts cannot be read: {one_line(e)}")
        LOG.error("Reloading the hosts failed; they remain unchanged: %s", e)
