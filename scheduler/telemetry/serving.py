# SPDX-License-Identifier: Apache-2.0
"""The telemetry of a process: HTTP port, report on SIGUSR2, tracing.

Several workers serve one port: the process that forks them binds the port, each worker
accepts some of the connections, and any worker can render the sum of all. So there is
one address to scrape and to probe, whatever the number of workers.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, Self

from oslo_config import cfg

from .. import tracing
from ..http_server import WebServer
from ..periodic import Periodic
from ..status import SchedulerStatus
from . import report
from .port import listen_for_telemetry

if TYPE_CHECKING:
    from flask import Blueprint
    from prometheus_client.registry import Collector

# `metrics` is imported late: prometheus_client decides at import whether it stores
# values in memory or in the folder of several processes. Flask is needed only with it.

LOG = logging.getLogger(__name__)

#: The environment variable with the folder in which processes store their metrics.
VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"
#: Seconds for which the metrics of a worker that is not scraped may be stale.
_REFRESH_EVERY_S: Final = 5.0
#: Threads that serve pages.
_THREADS: Final = 4


class Telemetry:
    """Prepares telemetry in the parent process; its workers then serve it.

    Created in the main thread before plugins are loaded: one of them may import
    prometheus_client, which must know by then whether there are several processes.

    Parameters
    ----------
    conf : oslo_config.cfg.ConfigOpts

    Attributes
    ----------
    port : int or None
        The port of metrics and probes; None: the option is not set.

    Raises
    ------
    ConfigurationError
        The port cannot be bound, or the tracing library is not installed.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._is_traced: bool = conf.telemetry.tracing
        self.port: int | None = None
        with contextlib.ExitStack() as stack:
            # The signal's default would end a process that is not ready to report.
            previous = signal.signal(report.SIGNAL, signal.SIG_IGN)
            stack.callback(signal.signal, report.SIGNAL, previous or signal.SIG_DFL)
            if self._is_traced:
                tracing.check()
            self._listening = listen_for_telemetry(conf)
            if self._listening is not None:
                stack.callback(self._listening.close)
                self.port = self._listening.getsockname()[1]
                if conf.scheduler.workers != 1:
                    stack.callback(_share_folder())
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the port and remove the folder of shared metrics."""
        self._stack.close()

    def serve(self, status: SchedulerStatus) -> ProcessTelemetry:
        """Start the telemetry of a scheduler.

        Called once in each process that decides, in the main thread.

        Raises
        ------
        ConfigurationError
            The metrics of several workers cannot be summed.
        """
        telemetry = ProcessTelemetry(status)
        try:
            if self._is_traced:
                telemetry.on_stop(tracing.set_up())
            telemetry.on_stop(report.write_on_signal(status))
            if self._listening is not None:
                telemetry.serve_http(self._listening)
        except BaseException:
            telemetry.stop()
            raise
        return telemetry


class ProcessTelemetry:
    """The telemetry that runs in one process.

    Attributes
    ----------
    is_stopping : bool
        Set it when no more requests are accepted: `/readyz` then answers 503.
    """

    def __init__(self, status: SchedulerStatus) -> None:
        self._status = status
        self._stack = contextlib.ExitStack()
        self.is_stopping = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def on_stop(self, callback: Callable[[], object]) -> None:
        """Register a callback for `stop`; the last registered is called first."""
        self._stack.callback(callback)

    def pages(
        self, *, has_reasons: bool = True, collectors: Iterable[Collector] = ()
    ) -> Blueprint:
        """Count decisions; return the pages with metrics and probes.

        Parameters
        ----------
        has_reasons : bool
            Whether /readyz says why requests cannot be served.
        collectors : iterable of Collector
            Further metrics of this process.
        """
        from .metrics import Metrics
        from .pages import make_pages

        metrics = Metrics(self._status, os.environ.get(VARIABLE), collectors)
        self.on_stop(metrics.stop)
        refreshing = Periodic(
            metrics.refresh,
            _REFRESH_EVERY_S,
            log=LOG,
            what="Refreshing this process's metrics",
            name="refreshing metrics",
        )
        refreshing.start()
        self.on_stop(refreshing.stop)

        def readiness() -> tuple[bool, str]:
            is_ready, text = self._readiness()
            brief = "Ready." if is_ready else "Not ready."
            return is_ready, text if has_reasons else brief

        return make_pages(metrics.wsgi_app, readiness)

    def serve_http(self, listening: socket.socket) -> None:
        """Count decisions, and serve metrics and probes on a port."""
        from .pages import make_app

        app = make_app(self.pages())
        server = WebServer(listening, app, threads=_THREADS, name="telemetry")
        server.start()
        self.on_stop(server.stop)

    def _readiness(self) -> tuple[bool, str]:
        if self.is_stopping:
            return False, "Stopping."
        return self._status.is_ready, self._status.readiness_note or "Ready."

    def stop(self) -> None:
        """Stop serving, and flush the spans that are not sent yet."""
        self._stack.close()


def _share_folder() -> Callable[[], None]:
    """Store the metrics of this process and of those that it forks in one folder.

    Called before anything imports prometheus_client, which then reads `VARIABLE`. A
    folder that the environment names already is used, and is not removed.

    Returns
    -------
    callable
        Removes the folder; does nothing in a forked process.
    """
    if os.environ.get(VARIABLE):
        return lambda: None  # its creator removes it
    folder = tempfile.mkdtemp(prefix="moorage-metrics-")
    os.environ[VARIABLE] = folder
    owner_pid = os.getpid()

    def remove() -> None:
        if os.getpid() == owner_pid:
            os.environ.pop(VARIABLE, None)
            shutil.rmtree(folder, ignore_errors=True)

    return remove
