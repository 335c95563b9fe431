# SPDX-License-Identifier: Apache-2.0
"""Questions for whole reports: spread, repeated ever less often, and ended."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter

import pytest

from moorage.scheduler.sources.push.source import ReportRequester


class AgentRequests:
    """A requester with a clock that is set, and its report requests."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.requester = ReportRequester(rng=random.Random(1), clock=lambda: self.now)
        self.sent: list[tuple[str, ...]] = []
        self.is_away = False
        self.requester.connect(self._send)

    def _send(self, *request: str) -> bool:
        self.sent.append(request)
        return not self.is_away

    def run(self, seconds: float, tick_s: float = 0.1) -> int:
        """Let time pass; return the number of reports requested."""
        before = len(self.sent)
        for _ in range(round(seconds / tick_s)):
            self.now += tick_s
            self.requester.send_due()
        return len(self.sent) - before


@pytest.fixture
def agent_requests() -> AgentRequests:
    return AgentRequests()


def test_report_is_requested_within_a_second(agent_requests: AgentRequests) -> None:
    agent_requests.requester.request("n1", "topic", "server")
    assert agent_requests.run(1) == 1
    assert agent_requests.sent == [("topic", "server", "n1")]


def test_consecutive_gaps_are_one_report_request(agent_requests: AgentRequests) -> None:
    for _ in range(100):
        agent_requests.requester.request("n1", "topic", "server")
    assert agent_requests.run(1) == 1


def test_report_request_is_repeated_less_and_less_often(
    agent_requests: AgentRequests,
) -> None:
    agent_requests.requester.request("n1", "topic", "server")
    per_minute = []
    for _ in range(4):
        agent_requests.requester.request("n1", "topic", "server")
        per_minute.append(agent_requests.run(60))
    assert per_minute[0] > per_minute[3] > 0


def test_arrived_report_ends_the_requests(agent_requests: AgentRequests) -> None:
    agent_requests.requester.request("n1", "topic", "server")
    agent_requests.requester.discard("n1")
    assert agent_requests.run(60) == 0
    assert len(agent_requests.requester) == 0


def test_silent_node_is_queried_no_more(agent_requests: AgentRequests) -> None:
    agent_requests.requester.request("n1", "topic", "server")
    agent_requests.run(600)
    assert len(agent_requests.requester) == 0
    assert agent_requests.run(600) == 0


def test_unreachable_agent_is_not_queried(agent_requests: AgentRequests) -> None:
    agent_requests.requester.request("n1", None, None)
    assert agent_requests.run(60) == 0


@pytest.mark.deep
def test_many_requests_are_spread_over_time(agent_requests: AgentRequests) -> None:
    """After a start without a store, every host has a gap at once."""
    for i in range(10_000):
        agent_requests.requester.request(str(i), "topic", "server")
    assert agent_requests.run(1) <= 1100
    assert agent_requests.run(20) <= 10_500


def test_every_one_of_many_reports_is_requested(agent_requests: AgentRequests) -> None:
    for i in range(5_000):
        agent_requests.requester.request(str(i), "topic", "server")
    agent_requests.run(0)
    for _ in range(300):
        first = len(agent_requests.sent)
        agent_requests.run(0.1)
        for _, _, node in agent_requests.sent[first:]:
            agent_requests.requester.discard(node)
    assert Counter(node for _, _, node in agent_requests.sent) == Counter(
        {str(i): 1 for i in range(5_000)}
    )


def test_broker_that_is_away_is_tried_once_a_tick(
    agent_requests: AgentRequests,
) -> None:
    for i in range(100):
        agent_requests.requester.request(str(i), "topic", "server")
    agent_requests.is_away = True
    assert agent_requests.run(2) <= 20
    agent_requests.is_away = False
    agent_requests.run(20)
    assert {node for _, _, node in agent_requests.sent} == {str(i) for i in range(100)}


def test_no_agent_is_queried_before_the_transport_is_set() -> None:
    requester = ReportRequester()
    requester.request("n1", "topic", "server")
    requester.send_due()
    assert requester.n_sent == 0


#: Three forked processes that request the same reports; prints when each is due.
FORKED = """
import os
from moorage.scheduler.sources.push.source import ReportRequester

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


@pytest.mark.deep
def test_forked_schedulers_request_at_different_times() -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORKED]
    process = subprocess.run(command, capture_output=True, text=True, timeout=60)
    lines = process.stdout.splitlines()
    assert (len(lines), len(set(lines))) == (3, 3), process.stderr
