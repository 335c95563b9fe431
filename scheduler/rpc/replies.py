# SPDX-License-Identifier: Apache-2.0
"""What becomes of a reply: whether it was sent, may have been, or certainly was not."""

from __future__ import annotations

import select
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

import oslo_messaging

#: What says of a socket that the other end is gone.
_GONE: Final = select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0)


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


class Watched:
    """A message whose reply is watched on its way; all else is oslo.messaging's.

    Of its rabbit driver, each attempt is seen: it waits without end for a broker that
    is away, and for 60 s for a queue that is gone, then goes on as if nothing was. What
    it has no public name for is looked at with care; of other drivers a reply counts as
    sent as soon as it is begun. A failure is no answer: it tells of nothing claimed.
    """

    def __init__(self, message: Any, answer: Answer) -> None:
        self._message = message
        self._answer = answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._message, name)

    def reply(self, reply: object = None, failure: object = None) -> None:
        """Send the answer, or the failure."""
        if failure is None:
            self._watch()
        self._message.reply(reply, failure)

    def _watch(self) -> None:
        send = getattr(self._message, "_send_reply", None)
        if send is None:
            self._answer.mark_sending()
            return
        attempts = _Attempts(self._answer)

        def watched(connection: Any, *args: object, **kwargs: object) -> None:
            send(_Connection(connection, attempts), *args, **kwargs)

        self._message._send_reply = watched  # noqa: SLF001 - no public name, see Watched


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
