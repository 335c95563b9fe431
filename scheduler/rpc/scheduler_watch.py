# SPDX-License-Identifier: Apache-2.0
"""Check whether any scheduler serves requests on the message bus."""

from __future__ import annotations

import logging
import time
from typing import Final

import oslo_messaging

from ..periodic import Periodic
from .endpoints import TOPIC, BaseAPIEndpoint

LOG = logging.getLogger(__name__)

_CHECK_EVERY_S: Final = 10.0
_TIMEOUT_S: Final = 5.0
_STOP_S: Final = 1.0


class SchedulerWatch:
    """Pings the topic of schedulers every few seconds, of which any one answers.

    Parameters
    ----------
    transport : oslo_messaging.Transport
    timeout_s : float
        Maximum wait for an answer; the broker drops the message after it.
    """

    def __init__(
        self, transport: oslo_messaging.Transport, *, timeout_s: float = _TIMEOUT_S
    ) -> None:
        target = oslo_messaging.Target(
            topic=TOPIC,
            namespace=BaseAPIEndpoint.target.namespace,
            version=BaseAPIEndpoint.target.version,
        )
        self._client = oslo_messaging.get_rpc_client(
            transport, target, timeout=timeout_s
        )
        self._timeout_s = timeout_s
        self._answered_at: float | None = None
        self.problem = "No scheduler has been asked yet."
        self._checks = Periodic(
            self.check,
            _CHECK_EVERY_S,
            log=LOG,
            what="Checking for schedulers",
            name="scheduler-watch",
            is_immediate=True,
        )

    def check(self) -> None:
        """Ask the schedulers; an unanswered question is a state, not an error."""
        try:
            self._client.call({}, "ping", arg="")
        except Exception as e:  # a driver's library raises errors of its own, too
            since_s = self._answered_at
            ago = (
                "" if since_s is None
                else f"; the last answer was {time.monotonic() - since_s:.0f} s ago"
            )  # fmt: skip
            why = (
                f"answered within {self._timeout_s:g} s"
                if isinstance(e, oslo_messaging.MessagingTimeout)
                else f"could be asked: {type(e).__name__}"
            )
            self.problem = f"No scheduler {why}{ago}."
        else:
            self._answered_at = time.monotonic()
            self.problem = ""

    def start(self) -> None:
        """Start checking, in a thread."""
        self._checks.start()

    def stop(self) -> None:
        """Stop; wait at most a second for a running check."""
        self._checks.stop(_STOP_S)
