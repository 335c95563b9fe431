# SPDX-License-Identifier: Apache-2.0
"""Check whether the message broker can be used."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable
from typing import Final

import oslo_messaging
from oslo_config import cfg

from ...objects import Serializer
from ..failures import Failure
from ..periodic import Outage, Periodic
from .peers import NAMESPACE, PEERS_TOPIC

LOG = logging.getLogger(__name__)

_OPTION: Final = "[DEFAULT] transport_url"
_REMEDY: Final = "Check this option and [oslo_messaging_rabbit]"
#: Back-off: seconds between two attempts to use the broker; the last one is repeated.
_PAUSES_S: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
_CHECK_EVERY_S: Final = 5.0
#: Seconds after which a check without an outcome counts as failed.
_MAX_CHECK_S: Final = 15.0
_STOP_S: Final = 1.0


def broker_failure(conf: cfg.ConfigOpts, error: BaseException) -> Failure:
    """Return why the broker of ``[DEFAULT] transport_url`` cannot be used."""
    url = conf.transport_url
    if url == "rabbit://":
        url = "rabbit:// (the default: guest at localhost:5672)"
    return Failure.of(_OPTION, url, error, _REMEDY)


def retry_until_done(attempt: Callable[[], bool], stopping: threading.Event) -> None:
    """Repeat an attempt with back-off until it returns true, or until `stopping`."""
    pauses_s = itertools.chain(_PAUSES_S, itertools.repeat(_PAUSES_S[-1]))
    while not stopping.is_set() and not attempt():
        stopping.wait(next(pauses_s))


class BrokerWatch:
    """Checks every few seconds that the broker accepts a message.

    The message is empty, and goes to this host's own queue.

    Parameters
    ----------
    transport : oslo_messaging.Transport
    """

    def __init__(self, transport: oslo_messaging.Transport) -> None:
        self._conf = transport.conf
        target = oslo_messaging.Target(
            topic=PEERS_TOPIC,
            server=self._conf.host,
            namespace=NAMESPACE,
            version="1.0",
        )
        self._client = oslo_messaging.get_rpc_client(
            transport, target, serializer=Serializer(), retry=1
        )
        self._checks = Periodic(
            self.check,
            _CHECK_EVERY_S,
            log=LOG,
            what="Checking the broker",
            name="broker-watch",
        )
        self._checking_since: float | None = None
        self._outage = Outage(LOG, logs_causes=True)
        self._outage.cause = "The broker is not connected yet."

    @property
    def problem(self) -> str:
        """Why the broker cannot be used; empty: it can."""
        since = self._checking_since
        if since is not None and time.monotonic() - since > _MAX_CHECK_S:
            text = f"Timed out: it has accepted no message for {_MAX_CHECK_S:.0f} s"
            return f"{broker_failure(self._conf, TimeoutError(text))}"
        return self._outage.cause

    def check(self) -> bool:
        """Send a message; return whether the broker accepted it, and log a change."""
        problem = self.try_broker()
        self.record(problem)
        return not problem

    def try_broker(self) -> str:
        """Send a message; return why the broker did not accept it, or an empty text."""
        self._checking_since = time.monotonic()
        problem = ""
        try:
            self._client.cast({}, "instances_claimed", origin="", claims=[])
        except Exception as e:  # a driver's library raises errors of its own, too
            problem = f"{broker_failure(self._conf, e)}"
        self._checking_since = None
        return problem

    def record(self, problem: str) -> None:
        """Record why the broker cannot be used, or, with an empty text, that it can."""
        # Not logged inside `except`: oslo.log would append the error once more.
        if problem:
            text = problem.rstrip(".")
            self._outage.fail(problem, "%s; retrying", text, level=logging.ERROR)
        else:
            self._outage.end("The broker accepts messages")

    def start(self) -> None:
        """Start checking, in a thread."""
        self._checks.start()

    def stop(self) -> None:
        """Stop; wait at most a second for a running check."""
        self._checks.stop(_STOP_S)
