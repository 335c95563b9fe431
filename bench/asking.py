# SPDX-License-Identifier: Apache-2.0
"""Clients of the HTTP API that each ask once an interval, until standard input ends.

Run in a process of its own with the URL, the number of clients and the interval; it
prints an empty line once a question was answered, and at the end a line of JSON: the
milliseconds of each answer, and the number that failed.
"""

from __future__ import annotations

import functools
import itertools
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import requests

from .timing import elapsed_ms

Question = Callable[[], requests.Response]

_TIMEOUT_S = 60


@dataclass(slots=True)
class ClientAnswers:
    """The milliseconds of answers, and how many questions failed."""

    answers_ms: list[float] = field(default_factory=list)
    n_failed: int = 0


def main(url: str, n_clients: int, interval_s: float) -> None:
    """Ask until standard input ends, and print what was answered."""
    answered, ended, found = threading.Event(), threading.Event(), ClientAnswers()

    def ask(number: int) -> None:
        # Clients neither ask at the same time nor the same question.
        at = time.monotonic() + interval_s * number / n_clients
        for question in itertools.islice(_questions(url), number, None):
            if ended.wait(max(0.0, at - time.monotonic())):
                return
            at += interval_s
            try:
                found.answers_ms.append(elapsed_ms(question))
            except requests.RequestException:
                found.n_failed += 1
            answered.set()

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(n_clients)]
    for thread in threads:
        thread.start()
    answered.wait(_TIMEOUT_S)
    print(flush=True)
    sys.stdin.read()
    ended.set()
    for thread in threads:
        thread.join()
    print(json.dumps({"answers_ms": found.answers_ms, "n_failed": found.n_failed}))


def _questions(url: str) -> Iterator[Question]:
    """Yield a call for each command of an operator on the newest decision, in turn."""
    session = requests.Session()
    session.trust_env = False

    def get(path: str) -> requests.Response:
        return _checked(session.get(f"{url}/v1/{path}", timeout=_TIMEOUT_S))

    def post(path: str, body: dict[str, object]) -> requests.Response:
        return _checked(session.post(f"{url}/v1/{path}", json=body, timeout=_TIMEOUT_S))

    [newest] = get("decisions?limit=1").json()["decisions"]
    instance, [host] = newest["instance_uuids"][0], newest["hosts"]
    while True:
        yield functools.partial(get, "decisions?limit=20")
        yield functools.partial(get, f"decisions/{instance}")
        yield functools.partial(post, "why-not", {"host": host, "stored": instance})
        yield functools.partial(post, "dry-run", {"stored": instance, "count": 1})
        yield functools.partial(get, "hosts?limit=40")


def _checked(response: requests.Response) -> requests.Response:
    response.raise_for_status()
    return response


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
