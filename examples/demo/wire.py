# SPDX-License-Identifier: Apache-2.0
"""Messages recorded between a stock nova and its scheduler, sent once more."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moorage.objects import Serializer
from moorage.scheduler.errors import NoValidHost
from moorage.scheduler.rpc import SchedulerAPI

from ..conductor import Conductor, Server


@dataclass(frozen=True, slots=True)
class Message:
    """One recorded message, its objects restored."""

    name: str
    context: dict[str, Any]
    method: str
    args: dict[str, Any]

    @property
    def is_request(self) -> bool:
        """Tell whether it asks for hosts; all others only tell something."""
        return self.method == "select_destinations"


@dataclass(frozen=True, slots=True)
class MessageOutcome:
    """What came of a message: servers, or none and a reason."""

    message: Message
    servers: tuple[Server, ...] = ()
    reason: str = ""


def read_messages(folder: Path) -> list[Message]:
    """Return all messages of a folder by name."""
    return [_message(path) for path in sorted(folder.glob("*.json"))]


def _message(path: Path) -> Message:
    exchange = json.loads(path.read_text("utf-8"))
    context, message = exchange["context"], exchange["message"]
    restore = Serializer().deserialize_entity
    args = {name: restore(context, value) for name, value in message["args"].items()}
    return Message(path.stem, context, message["method"], args)


def replay(
    messages: list[Message], conductor: Conductor, api: SchedulerAPI
) -> Iterator[MessageOutcome]:
    """Send messages one after the other, and build what is selected."""
    for message in messages:
        if message.is_request:
            yield _request(message, conductor)
        else:
            getattr(api, message.method)(message.context, **message.args)
            yield MessageOutcome(message, reason="told all schedulers")


def _request(message: Message, conductor: Conductor) -> MessageOutcome:
    context, args = message.context, message.args
    # They come from many clouds: an instance that appears again is another one.
    for uuid in set(args["instance_uuids"]) & conductor.servers.keys():
        conductor.delete(context, uuid)
    try:
        servers = conductor.create(context, args["spec_obj"], args["instance_uuids"])
    except NoValidHost as e:
        return MessageOutcome(message, reason=str(e).strip())
    return MessageOutcome(message, tuple(servers))
