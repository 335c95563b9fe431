# SPDX-License-Identifier: Apache-2.0
"""The private API of oslo.messaging that Moorage uses, and the effects without it.

``setup.cfg`` names the tested versions; other versions may lack some of this API. There
is no public API for these purposes. Requests are answered without it, too.
"""

from __future__ import annotations

import dataclasses
import dis
import functools
import importlib
import importlib.metadata
import inspect
import logging
from collections.abc import Sequence
from types import FunctionType
from typing import Final

LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class PrivateApi:
    """Methods and attributes of one class, and the effect if they are missing."""

    module: str
    cls: str
    names: tuple[str, ...]
    lost: str


_WAITING: Final = (
    "messages that wait for a free thread are held by this process instead of the "
    "broker, and are lost with it"
)
_STOPPING: Final = (
    "at shutdown, requests that have not begun are finished here or lost, and do not "
    "return to the broker at once"
)
_REPLIES: Final = (
    "a claim whose reply was not delivered counts as answered, and is not released"
)

SERVER: Final = PrivateApi(
    "oslo_messaging.rpc.server",
    "RPCServer",
    ("_create_listener", "_executor_cls", "_on_incoming", "_process_incoming",
     "_work_executor"),
    _WAITING,
)  # fmt: skip
PRIVATE_API: Final[Sequence[PrivateApi]] = (
    SERVER,
    PrivateApi(
        "oslo_messaging._drivers.base",
        "PollStyleListenerAdapter",
        ("_poll_style_listener",),
        _STOPPING,
    ),
    PrivateApi(
        "oslo_messaging._drivers.amqpdriver",
        "AMQPListener",
        ("_shutdown", "conn"),
        _STOPPING,
    ),
    PrivateApi(
        "oslo_messaging._drivers.amqpdriver",
        "AMQPIncomingMessage",
        ("_send_reply",),
        _REPLIES,
    ),
    PrivateApi(
        "oslo_messaging._drivers.impl_rabbit",
        "Connection",
        ("_connection_lock", "channel", "direct_send", "ensure"),
        _REPLIES,
    ),
    PrivateApi(
        "oslo_messaging._drivers.impl_rabbit",
        "Connection",
        ("_consumers",),
        _STOPPING,
    ),
    PrivateApi(
        "oslo_messaging._drivers.impl_rabbit", "Consumer", ("callback",), _STOPPING
    ),
)


@functools.cache
def warn_of_missing_api() -> None:
    """Log which private API this oslo.messaging lacks, once a process."""
    for api in PRIVATE_API:
        if missing := missing_of(api):
            LOG.warning(
                "oslo.messaging %s has no %s in %s.%s: %s. Install a version that the "
                "requirements of moorage name",
                importlib.metadata.version("oslo.messaging"),
                ", ".join(missing), api.module, api.cls, api.lost,
            )  # fmt: skip


def missing_of(api: PrivateApi) -> Sequence[str]:
    """Return the names that neither a class nor its instances have."""
    try:
        cls = getattr(importlib.import_module(api.module), api.cls)
    except (AttributeError, ImportError):
        return api.names
    attributes = set(dir(cls))
    for base in inspect.getmro(cls):
        for method in filter(callable, vars(base).values()):
            # An instance's attributes are found in the methods that assign them.
            if isinstance(function := inspect.unwrap(method), FunctionType):
                instructions = dis.get_instructions(function)
                attributes.update(
                    instruction.argval
                    for instruction in instructions
                    if instruction.opname == "STORE_ATTR"
                )
    return [name for name in api.names if name not in attributes]
