# SPDX-License-Identifier: Apache-2.0
"""What a process starts so that it can be seen.

Several workers serve one port: the process that forks them takes it, each of them
answers what it gets of it, and any of them can tell the sum of all. So there is one
address to scrape and to probe, whatever the number of workers.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import socket
from collections.abc import Callable
from http import HTTPStatus
from typing import Final, Self

from oslo_config import cfg

from .. import tracing
from . import report
from .http import TEXT, Answered, Probes, listen
from .seen import Seen
from .shared import share

# `metrics` is imported late: prometheus_client decides at import for whom it counts.

LOG = logging.getLogger(__name__)

#: Seconds for which the figures of a worker that is not asked may be out of date.
_LOOK_EVERY_S: Final = 5.0


class Telemetry:
    """Prepare, in the one process that may be forked, what workers then serve.

    Made in the main thread before plugins are loaded: one of them may import
    prometheus_client, which has to know by then for how many processes it counts.

    Parameters
    ----------
    conf : oslo_config.cfg.ConfigOpts

    Attributes
    ----------
    port : int or None
        What is listened on; None: nothing.

    Raises
    ------
    ConfigurationError
        The port cannot be taken, or what traces is not installed.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        options = conf.telemetry
        self._is_traced: bool = options.tracing
        self.port: int | None = None
        with contextlib.ExitStack() as stack:
            # By default the signal ends a process; this one is only not ready for it.
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
                    "/metrics, /healthz and /readyz are on port %d of %s",
                    self.port, options.http_address,
                )  # fmt: skip
                if conf.scheduler.workers != 1:
                    stack.callback(share())
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the port and of what processes shared."""
        self._stack.close()

    def serve(self, scheduler: Seen) -> Served:
        """Let a scheduler be seen; called once in each process that decides.

        It is called in the main thread.

        Raises
        ------
        ConfigurationError
            The figures of several workers cannot be summed.
        """
        served = Served(scheduler)
        try:
            if self._is_traced:
                served.at_end(tracing.set_up())
            served.at_end(report.write_on_signal(scheduler))
            if self._listening is not None:
                served.answer(self._listening)
        except BaseException:
            served.stop()
            raise
        return served


class Served:
    """What was started in one process.

    Attributes
    ----------
    is_stopping : bool
        Set it when no more requests are taken: it is not ready any more.
    """

    def __init__(self, scheduler: Seen) -> None:
        self._scheduler = scheduler
        self._stack = contextlib.ExitStack()
        self.is_stopping = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def at_end(self, end: Callable[[], object]) -> None:
        """Call something when this is stopped, the last first."""
        self._stack.callback(end)

    def answer(self, listening: socket.socket) -> None:
        """Answer on a port, and count."""
        from .metrics import Metrics

        metrics = Metrics(self._scheduler)
        self.at_end(metrics.stop)
        pages = {
            "/metrics": lambda accept: (HTTPStatus.OK, *metrics.render(accept)),
            "/healthz": lambda _accept: (HTTPStatus.OK, TEXT, b"Alive.\n"),
            "/readyz": lambda _accept: self._ready(),
        }
        probes = Probes(listening, pages, metrics.look, _LOOK_EVERY_S)
        self.at_end(probes.stop)

    def _ready(self) -> Answered:
        if self.is_stopping:
            return HTTPStatus.SERVICE_UNAVAILABLE, TEXT, b"Stopping.\n"
        is_ready, note = self._scheduler.is_ready, self._scheduler.readiness_note
        status = HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE
        return status, TEXT, f"{note or 'Ready.'}\n".encode()

    def stop(self) -> None:
        """Answer no more, and send the spans that are not sent yet."""
        self._stack.close()
