# SPDX-License-Identifier: Apache-2.0
"""Replies that are retried: when they expire, and who closes them."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator

import pytest

from moorage.scheduler.rpc.late_replies import LateReplies, LateReply

from ...fixtures.waiting import wait_until

#: Largest number of replies that are stored.
MAX_KEPT = 1000


class _Caller:
    """A caller's queue: it notes what is done about one reply, in order."""

    def __init__(self, *, is_there: bool = False) -> None:
        self.is_there = is_there
        self.seen: list[str] = []
        self.may_send = threading.Event()
        self.may_send.set()

    def send(self) -> bool:
        self.seen.append("send")
        self.may_send.wait()
        self.seen.append("sent" if self.is_there else "missing")
        return self.is_there

    def close(self) -> None:
        self.seen.append("closed")

    def reply(self, limit_s: float = 3600.0) -> LateReply:
        return LateReply(f"reply_{id(self)}", limit_s, self.send, self.close)


class _Unreleasable(_Caller):
    """Its claims cannot be released."""

    def close(self) -> None:
        super().close()
        raise RuntimeError("can't start new thread")


@pytest.fixture
def callers() -> Iterator[list[_Caller]]:
    """Callers whose queues exist in the end, so that no reply remains."""
    made: list[_Caller] = []
    yield made
    for caller in made:
        caller.is_there = True
        caller.may_send.set()


def test_reply_that_is_being_sent_is_not_closed(callers: list[_Caller]) -> None:
    callers += [_Caller(is_there=True), *[_Caller() for _ in range(MAX_KEPT)]]
    oldest, *others = callers
    oldest.may_send.clear()
    replies = LateReplies()
    replies.add(oldest.reply())
    wait_until(functools.partial(oldest.seen.__contains__, "send"))
    for other in others:
        replies.add(other.reply())
    assert oldest.seen == ["send"]
    oldest.may_send.set()
    wait_until(lambda: len(replies) == MAX_KEPT)
    wait_until(lambda: "closed" in oldest.seen)
    assert oldest.seen == ["send", "sent", "closed"]


def test_oldest_reply_is_given_up_for_the_next(callers: list[_Caller]) -> None:
    callers += [_Caller() for _ in range(MAX_KEPT + 1)]
    replies = LateReplies()
    for caller in callers:
        replies.add(caller.reply())
    wait_until(lambda: len(replies) == MAX_KEPT)
    wait_until(lambda: "closed" in callers[0].seen)
    assert "closed" not in callers[1].seen


def test_expired_reply_is_not_sent(callers: list[_Caller]) -> None:
    callers += [_Caller(is_there=True)]
    replies = LateReplies()
    replies.add(callers[0].reply(limit_s=0.0))
    replies.wait()
    assert callers[0].seen == ["closed"]


def test_reply_that_cannot_be_closed_delays_no_other(
    callers: list[_Caller], caplog: pytest.LogCaptureFixture
) -> None:
    callers += [_Unreleasable(), _Caller(is_there=True)]
    replies = LateReplies()
    replies.add(callers[0].reply(limit_s=0.0))
    replies.add(callers[1].reply())
    wait_until(lambda: "closed" in callers[1].seen)
    assert "can't start new thread" in caplog.text
