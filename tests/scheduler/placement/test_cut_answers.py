# SPDX-License-Identifier: Apache-2.0
"""An answer that the limit cut is noticed, and asked for whole where it was no use."""

from __future__ import annotations

import pytest

from .watched import HOSTS, Cloud, open_hosts, question


def test_cut_answer_is_warned_of_once_a_question(
    cloud: Cloud, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        assert cloud.kept.ask(question(limit=2)).is_cut
        cloud.clock.now += 6
    cloud.kept.ask(question(2, limit=2))
    assert caplog.text.count("cut at 2 candidates") == 2
    assert cloud.kept.stats().cut == 3


def test_question_goes_without_limit_after_a_cut_answer_was_of_no_use(
    cloud: Cloud,
) -> None:
    few = cloud.kept.ask(question(limit=2))
    assert cloud.kept.exhausted(few)
    assert cloud.kept.stats().requests == 0
    every = cloud.kept.ask(question(limit=2))
    assert open_hosts(every) == set(HOSTS)
    assert every.is_news_to(few)
    assert "limit" not in cloud.watched.asked[-1]
    assert cloud.kept.ask(question(limit=1)).candidates is every.candidates
    assert len(open_hosts(cloud.kept.ask(question(2, limit=2)))) == 2
    cloud.clock.now += 61
    assert cloud.kept.ask(question(limit=2)).candidates.n_requests == 2


def test_whole_answer_that_was_of_no_use_is_not_asked_again(cloud: Cloud) -> None:
    assert not cloud.kept.exhausted(cloud.kept.ask(question(limit=4)))
    cloud.kept.ask(question(limit=4))
    assert cloud.n_gets == 1
