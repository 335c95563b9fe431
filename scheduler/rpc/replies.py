# SPDX-License-Identifier: Apache-2.0
"""Track replies: whether one was sent, may have been sent, or was not sent.

One thread retries all replies whose callers' queues are missing. A queue is missing
briefly while a broker fails over, and permanently after its caller has ended.
oslo.messaging waits for a queue in the thread that served the call: the restart of a
conductor with many outstanding calls would block all threads.
"""

from __future__ import annotations

import logging
import math
import select
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Protocol

import oslo_messaging

LOG = logging.getLogger(__name__)

#: Seconds between two attempts to send the waiting replies.
_EVERY_S: Final = 0.5
#: Maximum number of waiting replies; the oldest one is dropped for a new one.
_MAX_WAITING: Final = 1000


@dataclass(frozen=True, slots=True)
class LateReply:
    """A reply that could not be sent yet.

    Attributes
    ----------
    queue : str
        The caller's queue.
    limit_s : float
        Seconds for which the reply is retried; its caller waits no longer.
    send : callable
        Sends the reply and returns True, or False if the queue is missing. A reply is
        not retried after an error.
    close : callable
        Called once, when the reply has been sent or dropped.
    """

    queue: str
    limit_s: float
    send: Callable[[], bool]
    close: Callable[[], None]


class LateReplies:
    """Retries replies until they are sent or their callers have timed out."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        #: The deadline of each reply.
        self._waiting: dict[LateReply, float] = {}
        self._thread: threading.Thread | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, reply: LateReply) -> None:
        """Add a reply to retry."""
        with self._changed:
            # The oldest replies expire at once. The thread may be sending one of them:
            # only the thread drops replies.
            n_dropped = max(0, len(self._waiting) + 1 - _MAX_WAITING)
            self._waiting.update(
                dict.fromkeys(list(self._waiting)[:n_dropped], -math.inf)
            )
            self._waiting[reply] = time.monotonic() + reply.limit_s
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="moorage late replies", daemon=True
                )
                self._thread.start()
        if n_dropped:
            LOG.warning(
                "%d replies wait for missing queues; dropping the oldest", _MAX_WAITING
            )

    def wait(self) -> None:
        """Wait until all replies are sent or dropped."""
        with self._changed:
            while self._waiting:
                self._changed.wait()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait(_EVERY_S)
                if not self._waiting:
                    self._thread = None
                    return
                waiting = list(self._waiting)
            self._try(waiting)

    def _try(self, replies: Iterable[LateReply]) -> None:
        """Try to send replies, once for each missing queue; drop expired replies."""
        missing: set[str] = set()
        for reply in replies:
            # The deadline comes first: a caller that has timed out uses no claim.
            if time.monotonic() >= self._waiting.get(reply, 0.0):
                self._drop(reply)
            elif reply.queue not in missing and self._is_done(reply):
                self._end(reply)
            else:
                missing.add(reply.queue)

    def _is_done(self, reply: LateReply) -> bool:
        """Send a reply; return False if its queue is still missing."""
        try:
            return reply.send()
        except Exception:  # the broker's library may raise anything
            LOG.exception("Sending a reply to %s failed", reply.queue)
            return True

    def _drop(self, reply: LateReply) -> None:
        if self._end(reply):
            LOG.error(
                "A reply was not sent within %.0f s: the caller's queue %s is missing",
                reply.limit_s,
                reply.queue,
            )

    def _end(self, reply: LateReply) -> bool:
        """Remove a reply; return whether this call removed it."""
        with self._changed:
            is_removed = self._waiting.pop(reply, None) is not None
        if is_removed:
            try:
                reply.close()
            except Exception:  # the other replies are still to be sent
                LOG.exception("Claims of an expired reply cannot be released")
            with self._changed:
                self._changed.notify_all()
        return is_removed


#: The poll events of a socket whose peer has closed the connection.
_GONE: Final = select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0)


#: A failure as `sys.exc_info` returns it.
_Failure = tuple[type[BaseException], BaseException, TracebackType] | None


class TrackedAnswer(Protocol):
    """The claims made for one message; they are released unless the reply was sent."""

    def mark_sending(self) -> None:
        """Record that the reply may arrive from now on."""

    def mark_not_sent(self) -> None:
        """Record that the reply did not arrive and cannot arrive later."""


class AnswerTracker(Protocol):
    """The receiver of the progress of replies: the scheduler's journal of claims."""

    def track_answer(self) -> AbstractContextManager[TrackedAnswer]:
        """Assign all claims of this thread to one answer."""
        ...


class _QueueMissingError(Exception):
    """Raised when the broker does not have the queue of a reply."""


class TrackedMessage:
    """Wraps a message of oslo.messaging, and tracks its reply.

    With the rabbit driver, each attempt is tracked: the driver retries forever while
    the broker is away, and for 60 s while a queue is missing, then drops the reply
    silently. With this class it stops at the first attempt without a queue, and `send`
    may be called again.
    Private names are accessed defensively; with other drivers a reply counts as sent
    once sending begins. A failure is not tracked: no claim depends on it.

    Attributes
    ----------
    is_late : bool
        Whether the reply's queue was missing.
    """

    def __init__(self, message: Any, answer: TrackedAnswer) -> None:
        self._message = message
        self._answer = answer
        self._content: tuple[object, _Failure] = (None, None)
        self.is_late = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._message, name)

    @property
    def queue(self) -> str:
        """The queue of the reply."""
        return str(getattr(self._message, "reply_q", ""))

    @property
    def timeout_s(self) -> float:
        """Seconds for which the caller waits without a heartbeat; inf: unknown."""
        timeout_s = getattr(self._message, "client_timeout", None)
        return math.inf if timeout_s is None else float(timeout_s)

    def reply(self, reply: object = None, failure: _Failure = None) -> None:
        """Send the answer, or the failure."""
        self._content = reply, failure
        self._track(None if failure else _SendAttempts(self._answer))
        self.is_late = not self.send()
        if self.is_late and failure is not None:
            _clear(failure[1])

    def send(self) -> bool:
        """Try to send the reply; return False if its queue is missing."""
        try:
            self._message.reply(*self._content)
        except _QueueMissingError:
            return False
        return True

    def _track(self, attempts: _SendAttempts | None) -> None:
        """Wrap the driver's method that sends the reply; None: a failure is sent."""
        send = getattr(self._message, "_send_reply", None)
        if send is None:
            if attempts is not None:
                self._answer.mark_sending()
            return

        def tracked(connection: Any, *args: object, **kwargs: object) -> None:
            wrapped = (
                connection if attempts is None else _Connection(connection, attempts)
            )
            try:
                send(wrapped, *args, **kwargs)
            except oslo_messaging.MessageUndeliverable as e:
                raise _QueueMissingError from e

        self._message._send_reply = tracked  # noqa: SLF001 - no public name, see TrackedMessage


def _clear(error: BaseException | None) -> None:
    """Release what the frames of a traceback refer to, such as a whole decision."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


class _SendAttempts:
    """The outcome of the attempts to send one reply."""

    def __init__(self, answer: TrackedAnswer) -> None:
        self._answer = answer
        self._may_have_arrived = False

    def send(self, connection: Any, queue: str, body: object) -> None:
        """Send the reply, and mark the answer by what is known of its arrival."""
        _reconnect_if_closed(connection)
        link = _link(connection)
        self._answer.mark_sending()
        try:
            connection.direct_send(queue, body)
        except oslo_messaging.MessageUndeliverable:
            # The broker has no such queue. An earlier attempt may have arrived if the
            # connection broke in between.
            self._may_have_arrived |= link is None or _link(connection) is not link
            if not self._may_have_arrived:
                self._answer.mark_not_sent()
            raise
        except BaseException:
            self._may_have_arrived = True
            raise


class _Connection:
    """Wraps a connection, and tracks the replies that it sends."""

    def __init__(self, connection: Any, attempts: _SendAttempts) -> None:
        self._connection = connection
        self._attempts = attempts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def direct_send(self, queue: str, body: object) -> None:
        self._attempts.send(self._connection, queue, body)


def _reconnect_if_closed(connection: Any) -> None:
    """Reconnect before sending, if the broker has closed the connection.

    The driver would notice only when sending; the reply's arrival is then unknown.
    """
    if not _is_gone(_link(connection)):
        return

    def check() -> None:
        if _is_gone(_link(connection)):
            raise ConnectionResetError("the broker has closed the connection")

    ensure = getattr(connection, "ensure", None)
    lock = getattr(connection, "_connection_lock", None)
    if ensure is not None and lock is not None:
        with lock:
            ensure(check)


def _link(connection: Any) -> Any:
    """Return the current AMQP connection, or None."""
    return getattr(getattr(connection, "channel", None), "connection", None)


def _is_gone(link: Any) -> bool:
    """Return whether an AMQP connection is closed, or there is none."""
    sock = getattr(link, "sock", None)
    if sock is None or sock.fileno() < 0:
        return True
    poll = select.poll()
    poll.register(sock, _GONE)
    return bool(poll.poll(0))
