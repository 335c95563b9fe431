# SPDX-License-Identifier: Apache-2.0
"""Questions for whole reports: spread, repeated ever less often, and ended."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter

import pytest

from moorage.scheduler.sources.push.report_requests import ReportRequester


class Asked:
    """An requester with a clock that is set, and what it asked."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.requester = ReportRequester(rng=random.Random(1), clock=lambda: self.now)
        self.questions: list[tuple[str, ...]] = []
        self.is_away = False
        self.requester.connect(self._ask)

    def _ask(self, *question: str) -> bool:
        self.questions.append(question)
        return not self.is_away

    def run(self, seconds: float, tick_s: float = 0.1) -> int:
        """Let time go by; return how many questions were asked."""
        before = len(self.questions)
        for _ in range(round(seconds / tick_s)):
            self.now += tick_s
            self.requester.send_due()
        return len(self.questions) - before


@pytest.fixture
def asked() -> Asked:
    return Asked()


def test_report_is_requested_within_a_second(asked: Asked) -> None:
    asked.requester.request("n1", "topic", "server")
    assert asked.run(1) == 1
    assert asked.questions == [("topic", "server", "n1")]


def test_consecutive_gaps_are_one_report_request(asked: Asked) -> None:
    for _ in range(100):
        asked.requester.request("n1", "topic", "server")
    assert asked.run(1) == 1


def test_report_request_is_repeated_less_and_less_often(asked: Asked) -> None:
    asked.requester.request("n1", "topic", "server")
    per_minute = []
    for _ in range(4):
        asked.requester.request("n1", "topic", "server")
        per_minute.append(asked.run(60))
    assert per_minute[0] > per_minute[3] > 0


def test_arrived_report_ends_the_requests(asked: Asked) -> None:
    asked.requester.request("n1", "topic", "server")
    asked.requester.discard("n1")
    assert asked.run(60) == 0
    assert len(asked.requester) == 0


def test_silent_node_is_queried_no_more(asked: Asked) -> None:
    asked.requester.request("n1", "topic", "server")
    asked.run(600)
    assert len(asked.requester) == 0
    assert asked.run(600) == 0


def test_unreachable_agent_is_not_queried(asked: Asked) -> None:
    asked.requester.request("n1", None, None)
    assert asked.run(60) == 0


def test_many_requests_are_spread_over_time(asked: Asked) -> None:
    """After a start without a store, every host has a gap at once."""
    for i in range(10_000):
        asked.requester.request(str(i), "topic", "server")
    assert asked.run(1) <= 1100
    assert asked.run(20) <= 10_500


def test_every_one_of_many_reports_is_requested(asked: Asked) -> None:
    for i in range(5_000):
        asked.requester.request(str(i), "topic", "server")
    asked.run(0)
    for _ in range(300):
        first = len(asked.questions)
        asked.run(0.1)
        for _, _, node in asked.questions[first:]:
            asked.requester.discard(node)
    assert Counter(node for _, _, node in asked.questions) == Counter(
        {str(i): 1 for i in range(5_000)}
    )


def test_broker_that_is_away_is_tried_once_a_tick(asked: Asked) -> None:
    for i in range(100):
        asked.requester.request(str(i), "topic", "server")
    asked.is_away = True
    assert asked.run(2) <= 20
    asked.is_away = False
    asked.run(20)
    assert {node for _, _, node in asked.questions} == {str(i) for i in range(100)}


def test_no_agent_is_queried_before_the_transport_is_set() -> None:
    requester = ReportRequester()
    requester.request("n1", "topic", "server")
    requester.send_due()
    assert requester.n_sent == 0


#: Three forked processes that request the same reports; prints when each is due.
FORKED = """
import os
from moorage.scheduler.sources.push.report_requests import ReportRequester

requester = ReportRequester(clock=lambda: 0.0)
for _ in range(3):
    pid = os.fork()
    if not pid:
        for number in range(8):
            requester.request(f"n{number}", "topic", "server")
        print(*(each.due_at for each in requester._pending.values()), flush=True)
        os._exit(0)
    os.waitpid(pid, 0)
"""


def test_forked_schedulers_request_at_different_times() -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORKED]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60)
    lines = told.stdout.splitlines()
    assert (len(lines), len(set(lines))) == (3, 3), told.stderr
