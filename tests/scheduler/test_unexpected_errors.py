# SPDX-License-Identifier: Apache-2.0
"""An error that nobody foresaw reaches a caller as one of the scheduler's own."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from typing import Any

import oslo_messaging
import pytest
from werkzeug.test import Client

from moorage.scheduler.conf import load
from moorage.scheduler.errors import SchedulerError
from moorage.scheduler.hosts import HostTable
from moorage.scheduler.service import Scheduler, build
from moorage.scheduler.sources.base import BaseHostSource
from moorage.scheduler.web import Answers, make_app
from moorage.testing.builders import host

from ..fixtures.clouds import CONTEXT, new_uuids, request
from ..fixtures.placement_servers import EmbeddedPlacementFixture

#: Arguments of those that need some.
_ARGUMENTS: dict[type[Exception], tuple[Any, ...]] = {
    UnicodeDecodeError: ("utf-8", b"x", 0, 1, "x"),
    UnicodeEncodeError: ("utf-8", "x", 0, 1, "x"),
    UnicodeTranslateError: ("x", 0, 1, "x"),
    ExceptionGroup: ("x", [ValueError("x")]),
}

#: Each exception class of Python's own that does not end the process.
_KINDS = sorted(
    {
        each
        for each in vars(builtins).values()
        if isinstance(each, type) and issubclass(each, Exception)
    },
    key=lambda kind: kind.__name__,
)


class _FailingSource(BaseHostSource):
    """One host, until a decision needs it to be fresh."""

    error: Exception

    def start(self, table: HostTable) -> None:
        """Fill the table."""
        table.put(host())

    def refresh_if_stale(self, *_args: object) -> None:
        """Fail."""
        raise self.error


@pytest.fixture(scope="module")
def scheduler() -> Iterator[Scheduler]:
    conf = load([], config_files=[])
    with EmbeddedPlacementFixture() as placement:
        made = build(conf, placement=placement.adapter, source=_FailingSource())
        made.start()
        yield made
        made.stop()


def _select(scheduler: Scheduler) -> None:
    scheduler.select_destinations(CONTEXT, request(), new_uuids())


def _call(scheduler: Scheduler) -> None:
    endpoint: Any = scheduler.endpoints[0]
    endpoint.select_destinations(
        CONTEXT, spec_obj=request(), instance_uuids=new_uuids()
    )


def _dry_run(scheduler: Scheduler) -> None:
    scheduler.explainer.dry_run(CONTEXT, request(), 1)


@pytest.mark.parametrize("kind", _KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("ask", [_select, _call, _dry_run])
def test_no_exception_of_pythons_own_reaches_a_caller(
    scheduler: Scheduler, ask: Callable[[Scheduler], None], kind: type[Exception]
) -> None:
    error = kind(*_ARGUMENTS.get(kind, ("secret",)))
    scheduler.parts.source.error = error  # type: ignore[attr-defined]  # ours
    with pytest.raises(SchedulerError) as raised:
        ask(scheduler)
    assert not isinstance(raised.value, oslo_messaging.ExpectedException)
    assert raised.value.is_unexpected, "its traceback is logged"
    cause: BaseException | None = raised.value
    while cause is not None and cause is not error:
        cause = cause.__cause__
    assert cause is error
    if ask is _call:
        assert type(raised.value).__module__ == "nova.exception"
        assert "secret" not in str(raised.value)


def test_unexpected_error_is_in_the_log_and_not_in_the_answer_of_the_api(
    scheduler: Scheduler, caplog: pytest.LogCaptureFixture
) -> None:
    source: Any = scheduler.parts.source
    source.error = StopIteration("secret")
    body = {"request": {"flavor": {"vcpus": 1, "memory_mb": 1}}}
    answer = Client(make_app(Answers(scheduler.explainer, None))).post(
        "/v1/dry-run", json=body
    )
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert "StopIteration" not in answer.text
    assert any(record.exc_info for record in caplog.records)


def test_record_names_the_error(scheduler: Scheduler) -> None:
    source: Any = scheduler.parts.source
    source.error = StopIteration("x")
    with pytest.raises(SchedulerError, match="An unexpected error: StopIteration: x"):
        _select(scheduler)
    assert scheduler.decisions.newest()[0].reason == "StopIteration: x"
