# SPDX-License-Identifier: Apache-2.0
"""An agent's side of the message bus: casts to all schedulers, and their questions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

import oslo_messaging

from ..objects import Serializer
from ..scheduler.rpc import PEERS_TOPIC
from .reporter import Reply

#: What agents listen to, each as a server of its own.
TOPIC: Final = "moorage-agent"

_CONTEXT: Final[dict[str, Any]] = {}
#: Tries of a cast while the broker is away, before it is given up for now.
_RETRIES: Final = 1


class BusAway(Exception):
    """Reports could not be cast: the broker is away, or refuses them."""


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
        self._is_serving = threading.Event()
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
            raise BusAway(f"{type(e).__name__}: {e}") from e

    def serve(self, tell_whole: Callable[[str], object]) -> None:
        """Begin to listen, as soon as the broker answers.

        Parameters
        ----------
        tell_whole : callable
            `Reporter.tell_whole`.
        """
        self._server = oslo_messaging.get_rpc_server(
            self._transport,
            oslo_messaging.Target(topic=self.reply.topic, server=self.reply.server),
            [_Questions(tell_whole)],
            serializer=Serializer(),
            access_policy=oslo_messaging.DefaultRPCAccessPolicy,
        )
        # It waits for the broker, for good, and no signal ends that.
        threading.Thread(target=self._start, name="agent-serve", daemon=True).start()

    def _start(self) -> None:
        if self._server is not None:
            self._server.start()
            self._is_serving.set()

    def stop(self) -> None:
        """Listen no more."""
        if self._server is not None and self._is_serving.is_set():
            self._server.stop()
            self._server.wait()


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
        self._tell_whole(node_uuid)
