# SPDX-License-Identifier: Apache-2.0
"""How a decision ends, in its record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..errors import MAX_MESSAGE, NoValidHost, as_nova, as_ours, shortened
from .record import DecisionRecord, Outcome


@contextmanager
def concluding(
    record: DecisionRecord, user_reason: Callable[[NoValidHost], str] | None = None
) -> Iterator[None]:
    """Record the outcome, the reason and the time of a decision, the block.

    An unexpected error is raised as a SchedulerError, of which it is the cause.

    Parameters
    ----------
    user_reason : callable, optional
        Returns the reason that an end user gets instead of the exception's.
    """
    try:
        with record.timed("total"):
            yield
        record.outcome = Outcome.SELECTED
    except NoValidHost as e:
        record.outcome, record.reason = Outcome.NO_VALID_HOST, e.reason
        error = e if user_reason is None else NoValidHost(user_reason(e))
        record.user_message, error.is_logged = str(error), True
        raise error from e.__cause__ if error is e else e
    except BaseException as e:
        record.outcome = Outcome.FAILED
        record.reason = shortened(f"{type(e).__name__}: {e}", MAX_MESSAGE)
        if not isinstance(e, Exception):
            raise  # it ends the thread
        record.user_message = str(as_nova(e))
        failure = as_ours(e)
        failure.is_logged = True
        raise failure from (e.__cause__ if failure is e else e)
