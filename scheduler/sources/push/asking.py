# SPDX-License-Identifier: Apache-2.0
"""Ask agents for whole reports: spread over time, repeated until they come."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

LOG = logging.getLogger(__name__)

#: Ask the agent at (topic, server) for a whole report of (node UUID); False: nobody
#: can be asked now.
Ask = Callable[[str, str, str], bool]

#: Seconds within which the first question is asked; another scheduler may be faster,
#: and its answer comes here, too.
_FIRST_WITHIN_S: Final = 0.5
_NEXT_AFTER_S: Final = 1.0
_MOST_S: Final = 60.0
#: Questions a second to all agents together.
_RATE: Final = 500.0
#: A node that sends nothing for so long is asked no more until it does.
_SILENT_S: Final = 300.0
#: Nodes that are asked at a time; what is above comes with its next message.
_MOST_WANTED: Final = 100_000


@dataclass(slots=True)
class _Wanted:
    topic: str
    server: str
    due_at: float
    heard_at: float
    since: float
    wait_s: float = _NEXT_AFTER_S


class Asker:
    """What whole reports are wanted, and when each is asked for next.

    Parameters
    ----------
    rng : random.Random, optional
        Spreads the questions.
    clock : callable, optional
        Seconds that only grow.
    """

    def __init__(
        self,
        *,
        rng: random.Random | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        # Not a generator with a state: forked workers would all ask at the same time.
        self._rng = rng or random.SystemRandom()
        self._clock = clock
        self._lock = threading.Lock()
        self._wanted: dict[str, _Wanted] = {}
        self._ask: Ask | None = None
        self._allowance = 0.0
        self._allowed_at = clock()
        self.n_asked = 0

    def __len__(self) -> int:
        return len(self._wanted)

    def connect(self, ask: Ask) -> None:
        """Take the way to an agent."""
        self._ask = ask

    def want(self, node_uuid: str, topic: str | None, server: str | None) -> None:
        """Want a whole report of a node, whose agent is there."""
        if topic is None or server is None:
            return  # it cannot be asked; its next whole report comes by itself or not
        now = self._clock()
        with self._lock:
            wanted = self._wanted.get(node_uuid)
            if wanted is not None:
                wanted.topic, wanted.server, wanted.heard_at = topic, server, now
            elif len(self._wanted) < _MOST_WANTED:
                due_at = now + self._rng.uniform(0, _FIRST_WITHIN_S)
                self._wanted[node_uuid] = _Wanted(topic, server, due_at, now, now)

    def has_come(self, node_uuid: str) -> None:
        """Take note that a whole report of a node came, or that it is gone."""
        with self._lock:
            self._wanted.pop(node_uuid, None)

    def longest_s(self) -> float:
        """Return for how long the report that is awaited longest is, in seconds."""
        with self._lock:
            first = min((w.since for w in self._wanted.values()), default=None)
        return 0.0 if first is None else self._clock() - first

    def ask_due(self) -> None:
        """Ask those whose time has come, as many as the rate allows."""
        if self._ask is None or not self._wanted:
            return
        for node_uuid, topic, server in self._due():
            if not self._ask(topic, server, node_uuid):
                return  # the others are asked when their time comes again
            self.n_asked += 1

    def _due(self) -> list[tuple[str, str, str]]:
        now = self._clock()
        found = []
        with self._lock:
            earned = (now - self._allowed_at) * _RATE
            self._allowance, self._allowed_at = (
                min(_RATE, self._allowance + earned),
                now,
            )
            for node_uuid, wanted in list(self._wanted.items()):
                if now - wanted.heard_at > _SILENT_S:
                    del self._wanted[node_uuid]
                elif wanted.due_at <= now and self._allowance >= 1:
                    self._allowance -= 1
                    wanted.due_at = now + wanted.wait_s * self._rng.uniform(1, 1.5)
                    wanted.wait_s = min(2 * wanted.wait_s, _MOST_S)
                    found.append((node_uuid, wanted.topic, wanted.server))
        return found
