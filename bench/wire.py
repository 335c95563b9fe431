# SPDX-License-Identifier: Apache-2.0
"""Measure the conversion of messages from JSON to objects, and back."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from moorage.objects import Serializer

from .nova import Nova
from .requests import CONTEXT, recorded
from .timing import Percentiles, Plan, elapsed_ms, repeated

#: Calls in a run, which is their mean: one call is too short for the clock.
NUMBER = 20


@dataclass(frozen=True, slots=True)
class WireTime:
    """The times of reading and writing one text, milliseconds."""

    what: str
    n_bytes: int
    moorage: dict[str, Percentiles]
    nova_times: dict[str, Percentiles]


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

    moorage = {"read": _each(read, plan), "write": _each(write, plan)}
    nova_times = nova.wire(text, NUMBER, plan) if nova else {}
    return WireTime(what, len(text), moorage, nova_times)


def _each(block: Callable[[], object], plan: Plan) -> Percentiles:
    def several() -> None:
        for _ in range(NUMBER):
            block()

    return Percentiles.of(repeated(plan, lambda: elapsed_ms(several) / NUMBER))
