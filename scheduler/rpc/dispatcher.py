# SPDX-License-Identifier: Apache-2.0
"""From a message to an endpoint's method, also where the message cannot be read."""

from __future__ import annotations

from typing import Any, Final

from oslo_messaging.rpc.dispatcher import RPCDispatcher

from ...objects import MalformedObject
from ..errors import InvalidRequest, as_nova

#: Characters that are told of what is wrong with a message.
_MAX_TOLD: Final = 500


class Dispatcher(RPCDispatcher):  # type: ignore[misc]
    """Read a message's arguments and hand them to the endpoint that has its method.

    oslo.messaging's own one, but that a message that cannot be read, which no endpoint
    ever sees, fails as one whose arguments an endpoint refuses.
    """

    def dispatch(self, incoming: Any) -> Any:
        """Return the answer in its wire form.

        Raises
        ------
        InvalidRequest
            An argument is malformed, of another major version, or beyond the bounds.
            What is wrong is told, in some hundred characters, and no more of it.
        NoValidHost
            The same of a request for destinations; see `as_nova`.
        """
        try:
            return super().dispatch(incoming)
        except MalformedObject as e:
            wrong = InvalidRequest(_told(e))
            is_decision = incoming.message.get("method") == "select_destinations"
            raise as_nova(wrong) if is_decision else wrong from None


def _told(error: MalformedObject) -> str:
    # The path to what is wrong may have texts that are as long as the bounds let them.
    text = str(error)
    return text if len(text) <= _MAX_TOLD else f"{text[:_MAX_TOLD]}…"
