# SPDX-License-Identifier: Apache-2.0
"""Answers are kept, and an outage costs one timeout, not one for each request."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from moorage.scheduler.attachments import LookupFailed, Lookups
from moorage.scheduler.attachments.lookups import MAX_RUNNING, RETRY_S, SLOW_S
from moorage.scheduler.errors import SchedulerError
from moorage.scheduler.waiting import ThreadSpawner

from ...fixtures.hand_time import HandTime
from ...fixtures.waiting import wait_until

PATIENT_S = 30.0
SHORT_S = 0.05


class HeldService:
    """A service whose answers a test holds back, or that fails."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.failure: Exception | None = None
        self.answering = threading.Event()
        self.answering.set()

    def __call__(self, uuid: str) -> str:
        self.asked.append(uuid)
        assert self.answering.wait(PATIENT_S)
        if self.failure is not None:
            raise self.failure
        return f"answer of {uuid}"


class Asking:
    """Lookups, and a decision that asks with them."""

    def __init__(self) -> None:
        self.service = HeldService()
        self.time = HandTime()
        self.lookups = Lookups(
            "Cinder",
            self.service,
            max_age_s=60.0,
            waiter=self.time,
            spawner=ThreadSpawner(),
        )

    def ask(self, uuid: str, timeout_s: float = PATIENT_S) -> str | LookupFailed:
        deadline = self.time.monotonic() + timeout_s
        return self.lookups.wait(self.lookups.begin(uuid), deadline, timeout_s)

    def fails(self, uuid: str, timeout_s: float = PATIENT_S) -> str:
        outcome = self.ask(uuid, timeout_s)
        assert isinstance(outcome, LookupFailed)
        return str(outcome)


@pytest.fixture
def asking() -> Iterator[Asking]:
    made = Asking()
    yield made
    made.service.answering.set()


def test_answer_is_kept_for_a_while(asking: Asking) -> None:
    assert asking.ask("a") == "answer of a"
    asking.time.pass_by(59)
    assert asking.ask("a") == "answer of a"
    assert asking.service.asked == ["a"]
    asking.time.pass_by(2)
    asking.ask("a")
    assert asking.service.asked == ["a", "a"]


def test_failure_about_one_object_is_kept_briefly(asking: Asking) -> None:
    asking.service.failure = LookupFailed("none", is_unknown=True)
    assert asking.fails("a") == asking.fails("a") == "none"
    assert asking.service.asked == ["a"]
    asking.service.failure = None
    assert asking.ask("b") == "answer of b"
    asking.time.pass_by(RETRY_S)
    assert asking.ask("a") == "answer of a"


def test_requests_for_the_same_object_share_a_question(asking: Asking) -> None:
    asking.service.answering.clear()
    lookups = [asking.lookups.begin("a") for _ in range(5)]
    asking.service.answering.set()
    deadline = asking.time.monotonic() + PATIENT_S
    answers = [asking.lookups.wait(each, deadline, PATIENT_S) for each in lookups]
    assert answers == ["answer of a"] * 5
    assert asking.service.asked == ["a"]


def test_outage_costs_one_timeout(
    asking: Asking, caplog: pytest.LogCaptureFixture
) -> None:
    asking.service.answering.clear()
    assert asking.fails("a", SHORT_S) == "Cinder did not answer within 0.05 s"
    for uuid in ("a", "b", "c"):
        # A wait of that length would exceed the time of the test.
        assert "did not answer" in asking.fails(uuid, 1e6)
    assert asking.service.asked == ["a"]
    assert len(caplog.records) == 1


def test_question_that_began_late_shows_no_outage(asking: Asking) -> None:
    asking.service.answering.clear()
    timeout_s = 10 * SHORT_S
    asking.time.pass_by(timeout_s - SHORT_S)  # another service has used that
    lookup = asking.lookups.begin("a")
    deadline = asking.time.monotonic() + SHORT_S
    failure = asking.lookups.wait(lookup, deadline, timeout_s)
    assert isinstance(failure, LookupFailed)
    assert "within the 0.05 s that were left of 0.5 s" in str(failure)
    asking.service.answering.set()
    assert asking.ask("b") == "answer of b"


def test_one_request_finds_out_whether_the_outage_is_over(asking: Asking) -> None:
    asking.service.answering.clear()
    asking.fails("a", SHORT_S)
    asking.time.pass_by(RETRY_S)
    probe = asking.lookups.begin("b")
    assert "did not answer" in asking.fails("c", 1e6)
    asking.service.answering.set()
    deadline = asking.time.monotonic() + PATIENT_S
    assert asking.lookups.wait(probe, deadline, PATIENT_S) == "answer of b"
    assert asking.ask("c") == "answer of c"


def test_late_answer_is_kept_and_ends_no_outage(asking: Asking) -> None:
    asking.service.answering.clear()
    asking.fails("a", SHORT_S)
    asking.service.answering.set()
    wait_until(lambda: asking.ask("a", SHORT_S) == "answer of a")
    assert "did not answer" in asking.fails("b")


@pytest.mark.parametrize(
    "failure",
    [LookupFailed("refused", is_outage=True), SchedulerError("refused")],
    ids=["service", "database"],
)
def test_refused_connection_is_an_outage_at_once(
    asking: Asking, failure: Exception
) -> None:
    asking.service.failure = failure
    assert asking.fails("a") == asking.fails("b") == "refused"
    assert asking.service.asked == ["a"]


def test_error_of_a_library_is_a_failure(asking: Asking) -> None:
    asking.service.failure = KeyError("x")
    assert asking.fails("a") == "Asking Cinder failed: KeyError('x')"


def test_questions_at_a_time_are_limited_and_others_queued(asking: Asking) -> None:
    asking.service.answering.clear()
    lookups = [asking.lookups.begin(str(i)) for i in range(2 * MAX_RUNNING)]
    wait_until(lambda: len(asking.service.asked) == MAX_RUNNING)
    asking.service.answering.set()
    deadline = asking.time.monotonic() + PATIENT_S
    answers = [asking.lookups.wait(each, deadline, PATIENT_S) for each in lookups]
    assert answers == [f"answer of {i}" for i in range(2 * MAX_RUNNING)]


def test_no_decision_queues_for_a_slow_service(asking: Asking) -> None:
    asking.service.answering.clear()
    for number in range(MAX_RUNNING):
        asking.lookups.begin(str(number))
    asking.time.pass_by(2 * SLOW_S)
    assert asking.fails("one more", 1e6).startswith(f"{MAX_RUNNING} questions to ")
    asking.service.answering.set()
    wait_until(lambda: asking.ask("another") == "answer of another")


def test_queued_question_that_nobody_awaits_is_not_asked(asking: Asking) -> None:
    asking.service.answering.clear()
    for number in range(MAX_RUNNING):
        asking.lookups.begin(str(number))
    asking.fails("late", SHORT_S)
    asking.service.answering.set()
    wait_until(lambda: len(asking.service.asked) == MAX_RUNNING)
    wait_until(lambda: asking.lookups.begin("0").outcome == "answer of 0")
    assert "late" not in asking.service.asked


def test_queued_question_is_asked_if_another_decision_awaits_it(asking: Asking) -> None:
    asking.service.answering.clear()
    for number in range(MAX_RUNNING):
        asking.lookups.begin(str(number))
    asking.fails("a", SHORT_S)
    asking.time.pass_by(RETRY_S)
    again = asking.lookups.begin("a")
    asking.service.answering.set()
    deadline = asking.time.monotonic() + PATIENT_S
    assert asking.lookups.wait(again, deadline, PATIENT_S) == "answer of a"
    assert asking.ask("b") == "answer of b"
