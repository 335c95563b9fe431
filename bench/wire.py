# SPDX-License-Identifier: Apache-2.0
"""What a request costs on its way from JSON to objects, and back."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from moorage.objects import Serializer

from .asked import CONTEXT, recorded
from .nova import Nova
from .timing import Plan, elapsed_ms, median, repeated

_NUMBER = 20  # calls a run: one alone is too short for the clock


@dataclass(frozen=True, slots=True)
class WireTime:
    """Medians of reading and writing one text, milliseconds; nova's if it is there."""

    what: str
    n_bytes: int
    ours: dict[str, float]
    novas: dict[str, float]


def wire_times(nova: Nova | None, plan: Plan) -> list[WireTime]:
    """Return the times of a recorded request and of its recorded answer."""
    exchange = recorded("plain-boot")
    texts = {
        "request (plain-boot.json)": exchange["message"]["args"]["spec_obj"],
        "its answer, 1 alternate": exchange["reply"],
    }
    return [_measured(what, json.dumps(e), nova, plan) for what, e in texts.items()]


def _measured(what: str, text: str, nova: Nova | None, plan: Plan) -> WireTime:
    serializer = Serializer()

    def read() -> Any:
        return serializer.deserialize_entity(CONTEXT, json.loads(text))

    found = read()

    def write() -> str:
        return json.dumps(serializer.serialize_entity(CONTEXT, found))

    ours = {"read": _each(read, plan), "write": _each(write, plan)}
    novas = nova.wire(text, _NUMBER, plan) if nova else {}
    return WireTime(what, len(text), ours, novas)


def _each(block: Callable[[], object], plan: Plan) -> float:
    def several() -> None:
        for _ in range(_NUMBER):
            block()

    return median(repeated(plan, lambda: elapsed_ms(several))) / _NUMBER
