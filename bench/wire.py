# SPDX-License-Identifier: Apache-2.0
"""What a request costs on its way from JSON to objects, and back."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from moorage.objects import Serializer

from .nova import Nova
from .requests import CONTEXT, recorded
from .timing import Percentiles, Plan, elapsed_ms, repeated

#: Calls of which a run is the mean: one alone is too short for the clock.
NUMBER = 20


@dataclass(frozen=True, slots=True)
class WireTime:
    """What reading and writing one text take, milliseconds; nova's if it is there."""

    what: str
    n_bytes: int
    ours: dict[str, Percentiles]
    novas: dict[str, Percentiles]


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

    def read() -> object:
        return serializer.deserialize_entity(CONTEXT, json.loads(text))

    found = read()

    def write() -> str:
        return json.dumps(serializer.serialize_entity(CONTEXT, found))

    ours = {"read": _each(read, plan), "write": _each(write, plan)}
    novas = nova.wire(text, NUMBER, plan) if nova else {}
    return WireTime(what, len(text), ours, novas)


def _each(block: Callable[[], object], plan: Plan) -> Percentiles:
    def several() -> None:
        for _ in range(NUMBER):
            block()

    return Percentiles.of(repeated(plan, lambda: elapsed_ms(several) / NUMBER))
