"""moorage-scheduler: the scheduler as a service on the message bus."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Sequence

from oslo_config import cfg
from oslo_log import log as oslo_logging
from oslo_service import backend

from ..conf import load
from ..errors import ConfigurationError
from ..rpc import get_server, get_transport
from ..service import Scheduler, build

LOG = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT; return the exit status.

    SIGHUP looks at the hosts' source again.
    """
    backend.init_backend(backend.BackendType.THREADING)
    # oslo.messaging reads some options of the process-wide object only.
    conf = cfg.CONF
    oslo_logging.register_options(conf)
    try:
        load(sys.argv[1:] if argv is None else argv, conf=conf)
        oslo_logging.setup(conf, "moorage")
        scheduler = build(conf)
    except (cfg.Error, ConfigurationError) as e:
        print(f"moorage-scheduler: {e}", file=sys.stderr)
        return 1
    try:
        scheduler.start()
        _serve(conf, scheduler)
    except ConfigurationError as e:
        print(f"moorage-scheduler: {e}", file=sys.stderr)
        return 1
    finally:
        scheduler.stop()
    return 0


def _serve(conf: cfg.ConfigOpts, scheduler: Scheduler) -> None:
    """Serve until a signal says to stop; requests under way are finished."""
    wakes = _Signals()
    transport = get_transport(conf)
    server = get_server(conf, transport, scheduler.endpoints)
    server.start()
    LOG.info("Serving %d hosts as %s", len(scheduler.table), conf.host)
    while wakes.wait_for_reload():
        _reload(scheduler)
    LOG.info("Stopping; requests under way are finished first")
    server.stop()
    server.wait()
    transport.cleanup()


def _reload(scheduler: Scheduler) -> None:
    try:
        scheduler.reset()
    except ConfigurationError as e:
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


if __name__ == "__main__":
    sys.exit(main())
