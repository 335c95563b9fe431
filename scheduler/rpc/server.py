# SPDX-License-Identifier: Apache-2.0
"""The RPC server of a scheduler."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

import oslo_messaging
from oslo_config import cfg
from oslo_messaging.rpc.server import RPCServer

from ...objects import Serializer
from .dispatcher import Dispatcher, MethodsOnly
from .endpoints import TOPIC
from .late_replies import LateReplies, LateReply
from .private_api import SERVER, missing_of, warn_of_missing_api
from .replies import AnswerTracker, TrackedMessage

#: Seconds after which another message is fetched although no thread is free: the broker
#: closes a connection without heartbeats, by default after 60 s.
_MAX_WAIT_S: Final = 20.0
#: Seconds between two checks whether a server whose threads are all busy must stop.
_STOP_CHECK_S: Final = 0.05


def get_server(
    conf: cfg.ConfigOpts,
    transport: oslo_messaging.Transport,
    endpoints: Sequence[object],
    topic: str = TOPIC,
    *,
    answers: AnswerTracker | None = None,
) -> SchedulerRPCServer:
    """Return a server for a topic and for this host's own queue of it.

    It dispatches in threads, ``executor_thread_pool_size`` of them, and sends the
    heartbeats that a call monitor waits for. The caller starts, stops and waits.

    Parameters
    ----------
    answers : AnswerTracker, optional
        Receives the progress of replies; for a scheduler, its journal.
    """
    warn_of_missing_api()
    dispatcher = Dispatcher(list(endpoints), Serializer(), MethodsOnly)
    target = oslo_messaging.Target(topic=topic, server=conf.host)
    server = SchedulerRPCServer(transport, target, dispatcher)
    server.answers = answers
    return server


def start_all(servers: Iterable[SchedulerRPCServer]) -> Exception | None:
    """Start servers; if one fails, stop the others, and return its error.

    None of them can be started again then.
    """
    begun: list[SchedulerRPCServer] = []
    try:
        for server in servers:
            server.start()
            begun.append(server)
    except Exception as e:  # a driver's library raises errors of its own, too
        for server in begun:
            for close in (server.stop, server.wait):
                with contextlib.suppress(Exception):  # the same
                    close()
        return e
    return None


class SchedulerRPCServer(RPCServer):  # type: ignore[misc]
    """Fetches a message from the broker only when a thread is free to serve it.

    oslo.messaging's own server acknowledges each message at once, regardless of its
    load: messages wait here while other servers are idle, and are lost with the
    process. It also keeps its connection until the last message is served: until then
    the broker continues to send it messages that are never processed.
    """

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        # Idle threads of futurist's executor, the default, check only once a second
        # whether to end: each stop would take that long.
        self._executor_cls = ThreadPoolExecutor
        self._changed = threading.Condition()
        self._n_under_way = 0
        self._late = LateReplies()
        self._is_whole = not missing_of(SERVER)
        self.answers: AnswerTracker | None = None

    @property
    def n_under_way(self) -> int:
        """The number of messages in process, or waiting for their caller's queue."""
        return self._n_under_way + len(self._late)

    def _create_listener(self) -> _Listener:
        return _Listener(super()._create_listener(), self._late)

    def _on_incoming(self, incoming: Sequence[Any]) -> None:
        if not self._is_whole:
            super()._on_incoming(incoming)
            return
        # Called by the only thread that fetches messages; blocks the next fetch.
        with self._changed:
            self._n_under_way += 1
        future = self._work_executor.submit(self._process_incoming, incoming)
        future.add_done_callback(self._served)
        until = time.monotonic() + _MAX_WAIT_S
        with self._changed:
            while self._is_full() and time.monotonic() < until:
                self._changed.wait(_STOP_CHECK_S)

    def _process_incoming(self, incoming: Sequence[Any]) -> None:
        # Runs in its own thread, from the dispatch to the end of the reply.
        if self.answers is None:
            super()._process_incoming(incoming)
            return
        with contextlib.ExitStack() as tracking:
            answer = tracking.enter_context(self.answers.track_answer())
            messages = [TrackedMessage(message, answer) for message in incoming]
            super()._process_incoming(messages)
            for message in messages:
                if message.is_late:
                    self._add_late(message, tracking.pop_all())

    def _add_late(
        self, message: TrackedMessage, tracking: contextlib.ExitStack
    ) -> None:
        """Retry a reply in the background; the answer is tracked until that ends."""
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
    """Wraps a listener, and closes its connection when it stops: replies use others.

    The broker then requeues unprocessed messages at once. Private names are accessed
    defensively, as other drivers lack them.
    """

    def __init__(self, listener: Any, late: LateReplies) -> None:
        self._listener = listener
        self._late = late
        self._poll = getattr(listener, "_poll_style_listener", None)

    @property
    def is_taking(self) -> bool:
        """Whether it fetches messages; True if the driver does not say."""
        shutdown = getattr(self._poll, "_shutdown", None)
        return shutdown is None or not shutdown.is_set()

    def start(self, on_incoming: Callable[[Sequence[Any]], None]) -> None:
        self._listener.start(on_incoming)

    def stop(self) -> None:
        self._listener.stop()
        # While it closes, messages that arrive would be acknowledged, but never
        # processed.
        connection = getattr(self._poll, "conn", None)
        for consumer in getattr(connection, "_consumers", ()):
            consumer.callback = _ignore_message
        self._listener.cleanup()

    def cleanup(self) -> None:
        """Wait for late replies; called once all messages are served."""
        self._late.wait()


def _ignore_message(message: object) -> None:
    """Do not acknowledge a message: the broker delivers it to another server."""
