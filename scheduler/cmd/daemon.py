# SPDX-License-Identifier: Apache-2.0
"""The scheduler as a service on the message bus: start, signals, stop."""

from __future__ import annotations

import gc
import logging
import signal
import sys
import threading
from collections.abc import Sequence

import oslo_messaging
from oslo_config import cfg
from oslo_log import log as oslo_logging

from ..conf import load
from ..errors import SchedulerError
from ..rpc import PEERS_TOPIC, AgentAPI, Peers, PeersEndpoint, get_server, get_transport
from ..service import Scheduler, build
from ..sources.push import ReportEndpoint

LOG = logging.getLogger(__name__)

#: New containers before the youngest are searched for cycles, and how many searches
#: go before one of the next older ones.
_GC_THRESHOLDS = (50_000, 20, 100)

#: What an operator can mend: told in one line, without a traceback.
_STOPS_THE_START = (
    cfg.Error,
    SchedulerError,
    oslo_messaging.DriverLoadFailure,
    oslo_messaging.InvalidTransportURL,
)


def run(argv: Sequence[str]) -> int:
    """Run until SIGTERM or SIGINT; return the exit status.

    SIGHUP looks at the hosts' source again.
    """
    conf = cfg.ConfigOpts()
    oslo_logging.register_options(conf)
    try:
        load(argv, conf=conf)
        _configure_oslo(conf)
        oslo_logging.setup(conf, "moorage")
        wakes = _Signals()
        scheduler = build(conf)
        try:
            scheduler.start()
            _spare_the_collector()
            _serve(conf, scheduler, wakes)
        finally:
            scheduler.stop()
    except _STOPS_THE_START as e:
        print(f"moorage-scheduler: {e}", file=sys.stderr)
        return 1
    return 0


def _configure_oslo(conf: cfg.ConfigOpts) -> None:
    """Let oslo's libraries read our files, too.

    Some of their options are read of the process-wide object only. Ours are not
    registered there: a plugin that imports nova registers nova's of the same names.
    """
    files = [f"--config-file={path}" for path in conf.config_file]
    cfg.CONF(files, project="moorage")


def _spare_the_collector() -> None:
    """Let the cyclic collector look at what is new, and less often.

    Decoding Placement's answer for 10,000 hosts makes 100,000 containers, none of
    them in a cycle: with Python's own thresholds each answer has all hosts searched
    for garbage, several times, which takes longer than the decoding.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)


def _serve(conf: cfg.ConfigOpts, scheduler: Scheduler, wakes: _Signals) -> None:
    """Serve until a signal says to stop; requests under way are finished."""
    transport = get_transport(conf)
    peers = Peers(transport)
    for endpoint in scheduler.source_endpoints:
        if isinstance(endpoint, ReportEndpoint):
            endpoint.connect(AgentAPI(transport).report_wanted)
    own = [PeersEndpoint(scheduler, peers.origin), *scheduler.source_endpoints]
    servers = [
        get_server(conf, transport, scheduler.endpoints),
        get_server(conf, transport, own, PEERS_TOPIC),
    ]
    for server in servers:
        server.start()
    scheduler.announce_to(peers.announce)
    try:
        LOG.info("Serving %d hosts as %s", len(scheduler.table), conf.host)
        while wakes.wait_for_reload():
            _reload(scheduler)
        LOG.info("Stopping; requests under way are finished first")
    finally:
        for server in servers:
            server.stop()
        for server in servers:
            server.wait()
        peers.stop()
        transport.cleanup()


def _reload(scheduler: Scheduler) -> None:
    try:
        scheduler.reset()
    except SchedulerError as e:
        LOG.error("The hosts stay as they were: %s", e)


class _Signals:
    """Turn signals into something that the main thread waits for."""

    def __init__(self) -> None:
        self._wake = threading.Event()
        self._is_stopping = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGHUP, self._reload)

    def _stop(self, number: int, frame: object) -> None:
        self._is_stopping = True
        self._wake.set()

    def _reload(self, number: int, frame: object) -> None:
        self._wake.set()

    def wait_for_reload(self) -> bool:
        """Wait for a signal; return whether it asks for a reload, not for the end."""
        self._wake.wait()
        self._wake.clear()
        return not self._is_stopping
