# SPDX-License-Identifier: Apache-2.0
"""The RPC server of a scheduler."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

import oslo_messaging
from oslo_config import cfg
from oslo_messaging.rpc.server import RPCServer

from ...objects import Serializer
from .dispatcher import Dispatcher, MethodsOnly
from .endpoints import TOPIC
from .late_replies import LateReplies, LateReply
from .private_parts import SERVER, missing_of, warn_of_missing_parts
from .replies import Answers, Watched

#: Seconds after which one message more is taken although no thread is free: the broker
#: closes a connection without signs of life, after 60 s unless told.
_LIFE_EVERY_S: Final = 20.0
#: Seconds after which it is seen that a server whose threads are all busy has to stop.
_LOOK_EVERY_S: Final = 0.05


def get_server(
    conf: cfg.ConfigOpts,
    transport: oslo_messaging.Transport,
    endpoints: Sequence[object],
    topic: str = TOPIC,
    *,
    answers: Answers | None = None,
) -> Server:
    """Return a server for a topic and for this host's own queue of it.

    It dispatches in threads, ``executor_thread_pool_size`` of them, and sends the
    heartbeats that a call monitor waits for. The caller starts, stops and waits.

    Parameters
    ----------
    answers : Answers, optional
        Is told what becomes of replies; for a scheduler, its journal.
    """
    warn_of_missing_parts()
    dispatcher = Dispatcher(list(endpoints), Serializer(), MethodsOnly)
    target = oslo_messaging.Target(topic=topic, server=conf.host)
    server = Server(transport, target, dispatcher)
    server.answers = answers
    return server


class Server(RPCServer):  # type: ignore[misc]
    """Take a message from the broker only when a thread is free to serve it.

    oslo.messaging's own server acknowledges each message at once, however many it has
    to serve already: they wait here while others are idle, and are lost with the
    process. It also keeps its connection until the last message is served: until then
    the broker goes on to send it messages that nobody looks at.
    """

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        # Idle threads of futurist's, the default, look up only once a second whether
        # they are to end: each stop would take that long.
        self._executor_cls = ThreadPoolExecutor
        self._changed = threading.Condition()
        self._n_under_way = 0
        self._late = LateReplies()
        self._is_whole = not missing_of(SERVER)
        self.answers: Answers | None = None

    @property
    def n_under_way(self) -> int:
        """How many messages are being served, or wait for their caller's queue."""
        return self._n_under_way + len(self._late)

    def _create_listener(self) -> _Listener:
        return _Listener(super()._create_listener(), self._late)

    def _on_incoming(self, incoming: Sequence[Any]) -> None:
        if not self._is_whole:
            super()._on_incoming(incoming)
            return
        # Called by the one thread that takes messages: it takes the next one after.
        with self._changed:
            self._n_under_way += 1
        future = self._work_executor.submit(self._process_incoming, incoming)
        future.add_done_callback(self._served)
        until = time.monotonic() + _LIFE_EVERY_S
        with self._changed:
            while self._is_full() and time.monotonic() < until:
                self._changed.wait(_LOOK_EVERY_S)

    def _process_incoming(self, incoming: Sequence[Any]) -> None:
        # Called in a thread of its own, from the dispatch to the end of the reply.
        if self.answers is None:
            super()._process_incoming(incoming)
            return
        with contextlib.ExitStack() as tracking:
            answer = tracking.enter_context(self.answers.track_answer())
            messages = [Watched(message, answer) for message in incoming]
            super()._process_incoming(messages)
            for message in messages:
                if message.is_late:
                    self._add_late(message, tracking.pop_all())

    def _add_late(self, message: Watched, tracking: contextlib.ExitStack) -> None:
        """Have a reply retried elsewhere; the answer is tracked until that ends."""
        options = self.conf.oslo_messaging_rabbit
        limit_s = min(options.kombu_missing_consumer_retry_timeout, message.timeout_s)
        reply = LateReply(message.queue, limit_s, message.send, tracking.close)
        self._late.add(reply)

    def _is_full(self) -> bool:
        size: int = self.conf.executor_thread_pool_size
        return self._n_under_way >= size and self.listener.is_taking

    def _served(self, _future: Future[None]) -> None:
        with self._changed:
            self._n_under_way -= 1
            self._changed.notify_all()


class _Listener:
    """A listener that closes its connection when it stops: answers go by others.

    The broker then has back at once what was not begun. It is oslo.messaging's own one;
    what has no public name in it is looked at with care, for other drivers lack it.
    """

    def __init__(self, listener: Any, late: LateReplies) -> None:
        self._listener = listener
        self._late = late
        self._poll = getattr(listener, "_poll_style_listener", None)

    @property
    def is_taking(self) -> bool:
        """Whether it takes messages; one that does not say so does."""
        shutdown = getattr(self._poll, "_shutdown", None)
        return shutdown is None or not shutdown.is_set()

    def start(self, on_incoming: Callable[[Sequence[Any]], None]) -> None:
        self._listener.start(on_incoming)

    def stop(self) -> None:
        self._listener.stop()
        # While it closes, what the broker has sent meanwhile would be acknowledged, and
        # looked at by nobody.
        connection = getattr(self._poll, "conn", None)
        for consumer in getattr(connection, "_consumers", ()):
            consumer.callback = _leave_it
        self._listener.cleanup()

    def cleanup(self) -> None:
        """Wait for late replies; called once all messages are served."""
        self._late.wait()


def _leave_it(message: object) -> None:
    """Do not acknowledge a message: the broker gives it to somebody else."""
