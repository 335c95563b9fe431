# SPDX-License-Identifier: Apache-2.0
"""An agent's side of the message bus: casts to schedulers, and requests from them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, Final

import oslo_messaging

from ..objects import Serializer
from ..scheduler.rpc import PEERS_TOPIC
from ..scheduler.rpc.broker import broker_failure, retry_until_done
from .reporter import Reply

LOG = logging.getLogger(__name__)

#: The topic on which agents listen, each as its own server.
TOPIC: Final = "moorage-agent"

_CONTEXT: Final[dict[str, Any]] = {}
#: Retries of a cast while the broker is unreachable, before it fails.
_RETRIES: Final = 1


#: A callable that may raise BusUnavailable.
Work = Callable[[], object]


class BusUnavailable(Exception):
    """Raised when a broker cannot be reached or refuses; the message names it."""


class Bus:
    """Casts reports, and serves `report_wanted`, the request for a whole report.

    Parameters
    ----------
    transport : oslo_messaging.Transport
    server : str
        The name of this agent, unique among agents.
    """

    #: Whether `cast` takes changes, and not only whole reports and heartbeats.
    takes_deltas: Final = True

    def __init__(self, transport: oslo_messaging.Transport, server: str) -> None:
        self.reply = Reply(TOPIC, server)
        self._transport = transport
        self._server: oslo_messaging.MessageHandlingServer | None = None
        self._stopping = threading.Event()
        target = oslo_messaging.Target(
            topic=PEERS_TOPIC, namespace="moorage", version="1.0", fanout=True
        )
        self._client = oslo_messaging.get_rpc_client(
            transport, target, serializer=Serializer(), retry=_RETRIES
        )

    def cast(self, reports: list[dict[str, Any]]) -> None:
        """Cast reports in their wire form to all schedulers.

        Raises
        ------
        BusUnavailable
            The broker does not accept the reports.
        """
        try:
            self._client.cast(_CONTEXT, "host_reports", reports=reports)
        except Exception as e:  # a driver's library raises errors of its own, too
            raise self._unavailable(e) from e

    def serve(
        self,
        send_whole_report: Callable[[str], object],
        attempt: Callable[[Work], bool] | None = None,
    ) -> None:
        """Start listening in the background, once the broker is reachable.

        Parameters
        ----------
        send_whole_report : callable
            `Reporter.send_whole_report`.
        attempt : callable, optional
            Calls its argument, and returns whether the call succeeded. If it returns
            False, as after BusUnavailable, listening is retried. By default the error
            is logged.
        """
        run_attempt = attempt or _logged
        # Starting may wait for the broker forever, and no signal interrupts that.
        threading.Thread(
            target=retry_until_done,
            args=(
                lambda: run_attempt(lambda: self._start(send_whole_report)),
                self._stopping,
            ),
            name="agent-serve",
            daemon=True,
        ).start()

    def _start(self, send_whole_report: Callable[[str], object]) -> None:
        # A server that failed to start cannot be started again.
        server = oslo_messaging.get_rpc_server(
            self._transport,
            oslo_messaging.Target(topic=self.reply.topic, server=self.reply.server),
            [_AgentEndpoint(send_whole_report)],
            serializer=Serializer(),
            access_policy=oslo_messaging.DefaultRPCAccessPolicy,
        )
        try:
            server.start()
        except Exception as e:  # a driver's library raises errors of its own, too
            raise self._unavailable(e) from e
        self._server = server

    def _unavailable(self, error: Exception) -> BusUnavailable:
        return BusUnavailable(f"{broker_failure(self._transport.conf, error)}")

    def stop(self) -> None:
        """Stop listening."""
        self._stopping.set()
        if self._server is not None:
            self._server.stop()
            self._server.wait()


def _logged(work: Work) -> bool:
    try:
        work()
    except BusUnavailable as e:
        LOG.warning("Listening failed, retrying: %s", e)
        return False
    return True


class _AgentEndpoint:
    """The RPC methods of an agent for schedulers."""

    target = oslo_messaging.Target(namespace="moorage", version="1.0")

    def __init__(self, send_whole_report: Callable[[str], object]) -> None:
        self._send_whole_report = send_whole_report

    def report_wanted(
        self,
        context: object,  # noqa: ARG002 - oslo.messaging passes it
        node_uuid: str,
    ) -> None:
        """Cast a whole report of a node; ignore an unknown node."""
        LOG.debug("A scheduler requests a whole report of %s", node_uuid)
        self._send_whole_report(node_uuid)
