# SPDX-License-Identifier: Apache-2.0
"""The telemetry of a process: HTTP port, report on SIGUSR2, tracing.

Several workers serve one port: the process that forks them binds it, each of them
accepts some of the connections, and any of them can render the sum of all. So there is
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
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Self

from oslo_config import cfg

from .. import tracing
from ..status import SchedulerStatus
from . import report
from .http import MonitoringServer, listen

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

# `metrics` is imported late: prometheus_client decides at import whether it stores
# values in memory or in the folder of several processes.

LOG = logging.getLogger(__name__)

#: Passes the folder of several processes to prometheus_client.
VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"
#: Seconds for which the metrics of a worker that is not scraped may be stale.
_REFRESH_EVERY_S: Final = 5.0
#: Of each answer: no versions are published, and no proxy keeps it.
_HEADERS: Final = (("Server", "moorage"), ("Cache-Control", "no-store"))


class Telemetry:
    """Prepare telemetry in the parent process; its workers then serve it.

    Created in the main thread before plugins are loaded: one of them may import
    prometheus_client, which must know by then whether there are several processes.

    Parameters
    ----------
    conf : oslo_config.cfg.ConfigOpts

    Attributes
    ----------
    port : int or None
        The port that is listened on; None: none.

    Raises
    ------
    ConfigurationError
        The port cannot be bound, or the tracing library is not installed.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        options = conf.telemetry
        self._is_traced: bool = options.tracing
        self.port: int | None = None
        with contextlib.ExitStack() as stack:
            # The signal's default would end a process that is not ready to report.
            before = signal.signal(report.SIGNAL, signal.SIG_IGN)
            stack.callback(signal.signal, report.SIGNAL, before or signal.SIG_DFL)
            if self._is_traced:
                tracing.check()
            self._listening = None
            if options.http_port is not None:
                self._listening = listen(options.http_address, options.http_port)
                stack.callback(self._listening.close)
                self.port = self._listening.getsockname()[1]
                LOG.info(
                    "Serving /metrics, /healthz and /readyz on port %d of %s",
                    self.port, options.http_address,
                )  # fmt: skip
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
        served = ProcessTelemetry(status)
        try:
            if self._is_traced:
                served.on_stop(tracing.set_up())
            served.on_stop(report.write_on_signal(status))
            if self._listening is not None:
                served.serve_http(self._listening)
        except BaseException:
            served.stop()
            raise
        return served


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

    def serve_http(self, listening: socket.socket) -> None:
        """Count decisions, and serve metrics and probes on a port."""
        from .metrics import Metrics

        metrics = Metrics(self._status, os.environ.get(VARIABLE))
        self.on_stop(metrics.stop)
        pages: dict[str, WSGIApplication] = {
            "/metrics": metrics.wsgi_app,
            "/healthz": lambda _, respond: _text(respond, HTTPStatus.OK, "Alive."),
            "/readyz": self._readiness,
        }
        server = MonitoringServer(
            listening, _application(pages), metrics.refresh, _REFRESH_EVERY_S
        )
        self.on_stop(server.stop)

    def _readiness(
        self, _environ: WSGIEnvironment, respond: StartResponse
    ) -> list[bytes]:
        if self.is_stopping:
            return _text(respond, HTTPStatus.SERVICE_UNAVAILABLE, "Stopping.")
        is_ready, note = self._status.is_ready, self._status.readiness_note
        status = HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE
        return _text(respond, status, note or "Ready.")

    def stop(self) -> None:
        """Stop serving, and flush the spans that are not sent yet."""
        self._stack.close()


def _application(pages: Mapping[str, WSGIApplication]) -> WSGIApplication:
    """Return an application that answers GET and HEAD with the page of a path."""

    def app(environ: WSGIEnvironment, respond: StartResponse) -> Iterable[bytes]:
        heads: list[tuple[str, list[tuple[str, str]]]] = []

        def record(
            status: str, headers: list[tuple[str, str]], _error: object = None
        ) -> Callable[[bytes], object]:
            heads.append((status, headers))
            return lambda _data: None  # no page uses WSGI's old way of writing

        try:
            # prometheus_client's application does not know HEAD.
            page = _page(pages, environ)
            content = list(page({**environ, "REQUEST_METHOD": "GET"}, record))
        except Exception:
            LOG.exception("GET %s failed", environ["PATH_INFO"])
            failed = "Internal error; see the log."
            content = _text(record, HTTPStatus.INTERNAL_SERVER_ERROR, failed)
        status, headers = heads[-1]
        length = ("Content-Length", str(sum(map(len, content))))
        respond(status, [*headers, length, *_HEADERS])
        return [] if environ["REQUEST_METHOD"] == "HEAD" else content

    return app


def _page(
    pages: Mapping[str, WSGIApplication], environ: WSGIEnvironment
) -> WSGIApplication:
    if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
        status, text = HTTPStatus.NOT_IMPLEMENTED, "Only GET and HEAD."
        return lambda _, respond: _text(respond, status, text)
    if environ["PATH_INFO"] not in pages:
        known = f"Not found; available: {', '.join(pages)}."
        return lambda _, respond: _text(respond, HTTPStatus.NOT_FOUND, known)
    return pages[environ["PATH_INFO"]]


def _text(respond: StartResponse, status: HTTPStatus, text: str) -> list[bytes]:
    headers = [("Content-Type", "text/plain; charset=utf-8")]
    respond(f"{status.value} {status.phrase}", headers)
    return [f"{text}\n".encode()]


def _share_folder() -> Callable[[], None]:
    """Store the metrics of this process and of those that it forks in one folder.

    Called before anything imports prometheus_client, which then reads the variable. A
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
    owner = os.getpid()

    def remove() -> None:
        if os.getpid() == owner:
            os.environ.pop(VARIABLE, None)
            shutil.rmtree(folder, ignore_errors=True)

    return remove
