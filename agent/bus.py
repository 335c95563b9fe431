# SPDX-License-Identifier: Apache-2.0
"""An agent's side of the message bus: casts to all schedulers, and their questions."""

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

#: What agents listen to, each as a server of its own.
TOPIC: Final = "moorage-agent"

_CONTEXT: Final[dict[str, Any]] = {}
#: Tries of a cast while the broker is away, before it is given up for now.
_RETRIES: Final = 1


#: Something to do that may raise BusAway.
Work = Callable[[], object]


class BusAway(Exception):
    """The broker is away or refuses us; the message is for an operator."""


class Bus:
    """Cast reports, and serve `report_wanted`.

    Parameters
    ----------
    transport : oslo_messaging.Transport
    server : str
        The name of this agent, unique among agents.
    """

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
        BusAway
            The broker does not take them.
        """
        try:
            self._client.cast(_CONTEXT, "host_reports", reports=reports)
        except Exception as e:  # a driver's library raises errors of its own, too
            raise self._away(e) from e

    def serve(
        self,
        tell_whole: Callable[[str], object],
        attempt: Callable[[Work], bool] | None = None,
    ) -> None:
        """Begin to listen, as soon as the broker lets us.

        Parameters
        ----------
        tell_whole : callable
            `Reporter.tell_whole`.
        attempt : callable, optional
            Does what it is given, and returns whether that did not raise BusAway; it
            is called again and again until it does not. By default the log has why.
        """
        try_it = attempt or _logged
        # It waits for the broker, for good, and no signal ends that.
        threading.Thread(
            target=retry_until_done,
            args=(lambda: try_it(lambda: self._start(tell_whole)), self._stopping),
            name="agent-serve",
            daemon=True,
        ).start()

    def _start(self, tell_whole: Callable[[str], object]) -> None:
        # A server that could not be started cannot be started again.
        server = oslo_messaging.get_rpc_server(
            self._transport,
            oslo_messaging.Target(topic=self.reply.topic, server=self.reply.server),
            [_Questions(tell_whole)],
            serializer=Serializer(),
            access_policy=oslo_messaging.DefaultRPCAccessPolicy,
        )
        try:
            server.start()
        except Exception as e:  # as above
            raise self._away(e) from e
        self._server = server

    def _away(self, error: Exception) -> BusAway:
        return BusAway(f"{broker_failure(self._transport.conf, error)}")

    def stop(self) -> None:
        """Listen no more."""
        self._stopping.set()
        if self._server is not None:
            self._server.stop()
            self._server.wait()


def _logged(work: Work) -> bool:
    try:
        work()
    except BusAway as e:
        LOG.warning("Listening failed, and is repeated: %s", e)
        return False
    return True


class _Questions:
    """What schedulers may ask of an agent."""

    target = oslo_messaging.Target(namespace="moorage", version="1.0")

    def __init__(self, tell_whole: Callable[[str], object]) -> None:
        self._tell_whole = tell_whole

    def report_wanted(
        self,
        context: object,  # noqa: ARG002 - oslo.messaging passes it
        node_uuid: str,
    ) -> None:
        """Cast all of a node; one that is not known here is left out."""
        LOG.debug("A scheduler asks for a whole report of %s", node_uuid)
        self._tell_whole(node_uuid)
