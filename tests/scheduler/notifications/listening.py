# SPDX-License-Identifier: Apache-2.0
"""A notifier that keeps what it is told, as it would cross the wire."""

from __future__ import annotations

import dataclasses
import json
import threading
from typing import Any

from moorage.objects import Serializer


@dataclasses.dataclass(frozen=True)
class Heard:
    """One notification."""

    publisher_id: str | None
    event_type: str
    payload: dict[str, Any]
    context: Any


class Listener:
    """Has what is used of oslo.messaging's Notifier.

    Attributes
    ----------
    told : list of Heard
        In their order, of all publishers.
    """

    def __init__(self) -> None:
        self.told: list[Heard] = []
        self.publisher_id: str | None = None

    def prepare(self, *, publisher_id: str) -> Listener:
        """Return the same for a publisher; it keeps what it is told here."""
        prepared = type(self)()
        prepared.__dict__.update(self.__dict__, publisher_id=publisher_id)
        return prepared

    def info(self, ctxt: Any, event_type: str, payload: dict[str, Any]) -> None:
        """Keep what is told."""
        wire = json.loads(json.dumps(Serializer().serialize_entity(ctxt, payload)))
        context = ctxt.redacted_copy().to_dict()
        self.told.append(Heard(self.publisher_id, event_type, wire, context))


class Deaf(Listener):
    """Hears nothing, for the bus is away, until it `is_back`."""

    def __init__(self) -> None:
        super().__init__()
        self.is_back = threading.Event()

    def info(self, ctxt: Any, event_type: str, payload: dict[str, Any]) -> None:
        """Wait for the bus."""
        assert self.is_back.wait(60)
        super().info(ctxt, event_type, payload)


class Broken(Listener):
    """Fails as long as it `is_broken`."""

    def __init__(self) -> None:
        super().__init__()
        self.state = {"is_broken": True}

    def info(self, ctxt: Any, event_type: str, payload: dict[str, Any]) -> None:
        """Fail, or keep what is told."""
        if self.state["is_broken"]:
            raise RuntimeError("the notifier is broken")
        super().info(ctxt, event_type, payload)
