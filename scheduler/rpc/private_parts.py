# SPDX-License-Identifier: Apache-2.0
"""What is used of oslo.messaging that has no public name, and what is lost without it.

``setup.cfg`` names the versions that this was tested with; another one may lack a part.
All of it serves what oslo.messaging has no other way for, and none of it is needed to
answer a request.
"""

from __future__ import annotations

import dataclasses
import dis
import functools
import importlib
import importlib.metadata
import inspect
import logging
from collections.abc import Iterator, Sequence
from types import FunctionType
from typing import Final

LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """Methods and attributes of one class, and what is lost without them."""

    module: str
    cls: str
    names: tuple[str, ...]
    lost: str


_WAITING: Final = (
    "messages that wait for a free thread are held by this process, not by the broker, "
    "and are lost with it"
)
_STOPPING: Final = (
    "at the end, requests that were not begun are finished here or lost, and do not go "
    "back to the broker at once"
)
_REPLIES: Final = (
    "a claim whose reply reached nobody counts as answered, and is not released"
)

SERVER: Final = Part(
    "oslo_messaging.rpc.server",
    "RPCServer",
    ("_create_listener", "_executor_cls", "_on_incoming", "_process_incoming",
     "_work_executor"),
    _WAITING,
)  # fmt: skip
PARTS: Final[Sequence[Part]] = (
    SERVER,
    Part(
        "oslo_messaging._drivers.base",
        "PollStyleListenerAdapter",
        ("_poll_style_listener",),
        _STOPPING,
    ),
    Part(
        "oslo_messaging._drivers.amqpdriver",
        "AMQPListener",
        ("_shutdown", "conn"),
        _STOPPING,
    ),
    Part(
        "oslo_messaging._drivers.amqpdriver",
        "AMQPIncomingMessage",
        ("_send_reply",),
        _REPLIES,
    ),
    Part(
        "oslo_messaging._drivers.impl_rabbit",
        "Connection",
        ("_connection_lock", "channel", "direct_send", "ensure"),
        _REPLIES,
    ),
    Part(
        "oslo_messaging._drivers.impl_rabbit",
        "Connection",
        ("_consumers",),
        _STOPPING,
    ),
    Part("oslo_messaging._drivers.impl_rabbit", "Consumer", ("callback",), _STOPPING),
)


@functools.cache
def warn_of_missing_parts() -> None:
    """Log what this oslo.messaging lacks, once a process."""
    for part in PARTS:
        if missing := missing_of(part):
            LOG.warning(
                "oslo.messaging %s has no %s in %s.%s: %s. Versions that have it are "
                "those that the requirements of moorage name",
                importlib.metadata.version("oslo.messaging"),
                ", ".join(missing), part.module, part.cls, part.lost,
            )  # fmt: skip


def missing_of(part: Part) -> Sequence[str]:
    """Return the names that a class, or an object of it, does not have."""
    try:
        cls = getattr(importlib.import_module(part.module), part.cls)
    except (AttributeError, ImportError):
        return part.names
    known = {*dir(cls), *_attributes(cls)}
    return [name for name in part.names if name not in known]


def _attributes(cls: type) -> Iterator[str]:
    """Yield the attributes that methods of a class assign."""
    for base in inspect.getmro(cls):
        for method in vars(base).values():
            function = inspect.unwrap(method) if callable(method) else None
            if isinstance(function, FunctionType):
                for step in dis.get_instructions(function):
                    if step.opname == "STORE_ATTR":
                        yield step.argval
