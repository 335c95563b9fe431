# SPDX-License-Identifier: Apache-2.0
"""What becomes of a reply: whether it was sent, may have been, or certainly was not."""

from __future__ import annotations

import math
import select
import traceback
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Final, Protocol

import oslo_messaging

#: What says of a socket that the other end is gone.
_GONE: Final = select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0)


#: What `sys.exc_info` tells of a failure.
_Failure = tuple[type[BaseException], BaseException, TracebackType] | None


class Answer(Protocol):
    """What was claimed for one message; it is released unless the reply was sent."""

    def mark_sending(self) -> None:
        """Note that from now on the reply may arrive."""

    def mark_not_sent(self) -> None:
        """Note that it did not arrive, and cannot any more."""


class Answers(Protocol):
    """Who wants to know: the scheduler's journal of claims."""

    def track_answer(self) -> AbstractContextManager[Answer]:
        """Have what this thread claims belong to one answer."""
        ...


class _QueueMissing(Exception):
    """Raised where the broker does not have the queue that a reply goes to."""


class Watched:
    """A message whose reply is watched on its way; all else is oslo.messaging's.

    Of its rabbit driver, each attempt is seen: it waits without end for a broker that
    is away, and for 60 s for a queue that is missing, then goes on as if nothing was.
    Here the first attempt that finds no queue is the last: `send` makes the next one.
    What has no public name is looked at with care; of other drivers a reply counts as
    sent as soon as it is begun. A failure is no answer: it tells of nothing claimed.

    Attributes
    ----------
    is_late : bool
        Whether the reply's queue was missing.
    """

    def __init__(self, message: Any, answer: Answer) -> None:
        self._message = message
        self._answer = answer
        self._content: tuple[object, _Failure] = (None, None)
        self.is_late = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._message, name)

    @property
    def queue(self) -> str:
        """The queue that the reply goes to."""
        return str(getattr(self._message, "reply_q", ""))

    @property
    def timeout_s(self) -> float:
        """Seconds for which the caller waits without a sign of life; or inf."""
        told = getattr(self._message, "client_timeout", None)
        return math.inf if told is None else float(told)

    def reply(self, reply: object = None, failure: _Failure = None) -> None:
        """Send the answer, or the failure."""
        self._content = reply, failure
        self._watch(None if failure else _Attempts(self._answer))
        self.is_late = not self.send()
        if self.is_late and failure is not None:
            _clear(failure[1])

    def send(self) -> bool:
        """Try to send the reply; return False where its queue is missing."""
        try:
            self._message.reply(*self._content)
        except _QueueMissing:
            return False
        return True

    def _watch(self, attempts: _Attempts | None) -> None:
        send = getattr(self._message, "_send_reply", None)
        if send is None:
            if attempts is not None:
                self._answer.mark_sending()
            return

        def watched(connection: Any, *args: object, **kwargs: object) -> None:
            link = connection if attempts is None else _Connection(connection, attempts)
            try:
                send(link, *args, **kwargs)
            except oslo_messaging.MessageUndeliverable as e:
                raise _QueueMissing from e

        self._message._send_reply = watched  # noqa: SLF001 - no public name, see Watched


def _clear(error: BaseException | None) -> None:
    """Let go of what the frames of a traceback hold, such as a whole decision."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


class _Attempts:
    """What became of the attempts to send one reply."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._may_have_arrived = False

    def send(self, connection: Any, queue: str, body: object) -> None:
        _wait_for_broker(connection)
        link = _link(connection)
        self._answer.mark_sending()
        try:
            connection.direct_send(queue, body)
        except oslo_messaging.MessageUndeliverable:
            # The broker has no such queue. It was sent before, perhaps, if a link broke
            # meanwhile.
            self._may_have_arrived |= link is None or _link(connection) is not link
            if not self._may_have_arrived:
                self._answer.mark_not_sent()
            raise
        except BaseException:
            self._may_have_arrived = True
            raise


class _Connection:
    """A connection that tells when it sends a reply."""

    def __init__(self, connection: Any, attempts: _Attempts) -> None:
        self._connection = connection
        self._attempts = attempts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def direct_send(self, queue: str, body: object) -> None:
        self._attempts.send(self._connection, queue, body)


def _wait_for_broker(connection: Any) -> None:
    """Have a connection made anew whose broker is gone, before anything is sent.

    The driver would find out by sending, and nobody knows then whether that arrived.
    """

    if not _is_gone(_link(connection)):
        return

    def look() -> None:
        if _is_gone(_link(connection)):
            raise ConnectionResetError("the broker has closed the connection")

    ensure = getattr(connection, "ensure", None)
    lock = getattr(connection, "_connection_lock", None)
    if ensure is not None and lock is not None:
        with lock:
            ensure(look)


def _link(connection: Any) -> Any:
    """Return the AMQP connection that stands at present, or None."""
    return getattr(getattr(connection, "channel", None), "connection", None)


def _is_gone(link: Any) -> bool:
    sock = getattr(link, "sock", None)
    if sock is None or sock.fileno() < 0:
        return True
    poll = select.poll()
    poll.register(sock, _GONE)
    return bool(poll.poll(0))
