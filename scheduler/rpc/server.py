# SPDX-License-Identifier: Apache-2.0
"""The RPC server of a scheduler: it dispatches messages, and rejects malformed ones."""

from __future__ import annotations

import contextlib
import inspect
import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

import oslo_messaging
from oslo_config import cfg
from oslo_messaging.rpc.dispatcher import (
    NoSuchMethod,
    RPCAccessPolicyBase,
    RPCDispatcher,
    UnsupportedVersion,
)
from oslo_messaging.rpc.server import RPCServer

from ...objects import MalformedObject, Serializer, UnsetField
from .. import logs
from ..drivers.prepared import Caller
from ..errors import (
    ConfigurationError,
    InvalidRequest,
    SchedulerError,
    as_nova,
    excerpt,
    shortened,
)
from .endpoints import TOPIC
from .private_api import SERVER, missing_of, warn_of_missing_api
from .replies import AnswerTracker, LateReplies, LateReply, TrackedMessage

LOG = logging.getLogger(__name__)

#: Maximum characters of an error in a message, in the log and in the answer.
_MAX_CHARS: Final = 500

_SELECT: Final = "select_destinations"
_VERSION: Final = re.compile(r"[0-9]{1,9}\.[0-9]{1,9}(\.[0-9]{1,9})?")


class MethodsOnly(RPCAccessPolicyBase):  # type: ignore[misc]
    """Allows only public methods; an endpoint has other attributes, such as target."""

    def is_allowed(self, endpoint: object, method: str) -> bool:
        """Return whether a name belongs to a public method."""
        is_public = not method.startswith("_")
        return is_public and inspect.ismethod(getattr(endpoint, method))


class Dispatcher(RPCDispatcher):  # type: ignore[misc]
    """Reads a message's arguments, and calls the endpoint that has its method.

    In contrast to oslo.messaging's dispatcher, a malformed message fails like one with
    invalid arguments, and an error that the scheduler raises deliberately is logged in
    one line, where oslo.messaging's server logs a traceback.
    """

    def dispatch(self, incoming: Any) -> Any:
        """Return the answer in its wire form.

        Raises
        ------
        oslo_messaging.ExpectedException
            It holds the error to answer: InvalidRequest if the message is malformed
            (version, method, names or types of arguments, unreadable objects, missing
            fields), or another deliberate error. In the answer to a request for
            destinations, a SchedulerError has nova's class (see `as_nova`).
        """
        try:
            self._check(incoming.message)
            return super().dispatch(incoming)
        except (MalformedObject, UnsetField) as e:
            # The error names the path to the wrong part, whose keys may be long.
            failure: Exception = InvalidRequest(shortened(str(e), _MAX_CHARS))
        except ConfigurationError:
            raise  # an operator needs the traceback
        except (SchedulerError, NoSuchMethod, UnsupportedVersion) as e:
            if isinstance(e, SchedulerError) and e.is_unexpected:
                raise  # it needs its traceback
            failure = e
        is_select = incoming.message.get("method") == _SELECT
        if is_select and isinstance(failure, SchedulerError):
            failure = as_nova(failure)
        _log(incoming, failure)
        raise _expected(failure)

    def _check(self, message: dict[str, Any]) -> None:
        """Reject messages with which oslo.messaging's dispatcher would crash."""
        version, method = message.get("version", "1.0"), message.get("method")
        if not isinstance(version, str) or not _VERSION.fullmatch(version):
            raise InvalidRequest(
                f"version is {excerpt(version)}; it must look like 4.5"
            )
        if not isinstance(method, str):
            raise InvalidRequest(f"method is {excerpt(method)}; it must be a name")
        arguments = message.get("args", {})
        if not isinstance(arguments, dict):
            raise InvalidRequest(
                f"args are {excerpt(arguments)}; they must be a dict by name"
            )
        for function in self._methods(method, message.get("namespace")):
            try:
                inspect.signature(function).bind({}, **arguments)
            except TypeError as e:
                raise InvalidRequest(f"{method}: {shortened(str(e))}") from None

    def _methods(self, name: str, namespace: object) -> list[Callable[..., Any]]:
        """Return the methods of that name in the endpoints of a namespace."""
        return [
            getattr(endpoint, name)
            for endpoint in self.endpoints
            if _namespace(endpoint) == namespace
            and hasattr(endpoint, name)
            and self.access_policy.is_allowed(endpoint, name)
        ]


def _namespace(endpoint: object) -> str | None:
    target = getattr(endpoint, "target", None)
    return None if target is None else target.namespace


def _expected(failure: Exception) -> oslo_messaging.ExpectedException:
    """Wrap a failure so that oslo.messaging's server answers it without logging."""
    try:
        raise failure from failure.__cause__
    except Exception:
        return oslo_messaging.ExpectedException()


def _log(incoming: Any, failure: Exception) -> None:
    """Log a failure in one line, unless a decision's log line has it."""
    if isinstance(failure, SchedulerError) and failure.is_logged:
        return
    context = incoming.ctxt
    try:
        request_id = Caller.of(context).request_id
    except InvalidRequest:
        context, request_id = {}, None
    with logs.request(context, ()):
        LOG.warning(
            "Rejected request %s for %s: %s",
            request_id or "-",
            excerpt(incoming.message.get("method")),
            shortened(str(failure), _MAX_CHARS),
        )


#: Seconds after which another message is fetched although no thread is free: the broker
#: closes a connection without heartbeats, by default after 60 s.
_MAX_WAIT_S: Final = 20.0
#: Seconds between two checks whether a server without a free thread must stop.
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
    heartbeats that a call monitor waits for. The caller starts and stops the server.

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

    After an error, none of the servers can be started again.
    """
    started: list[SchedulerRPCServer] = []
    try:
        for server in servers:
            server.start()
            started.append(server)
    except Exception as e:  # a driver's library raises errors of its own, too
        for server in started:
            for close in (server.stop, server.wait):
                with contextlib.suppress(Exception):  # a driver's library, too
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
        deadline = time.monotonic() + _MAX_WAIT_S
        with self._changed:
            while self._is_full() and time.monotonic() < deadline:
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
        """Return whether all threads are busy while the listener fetches messages."""
        size: int = self.conf.executor_thread_pool_size
        return self._n_under_way >= size and self.listener.is_taking

    def _served(self, _future: Future[None]) -> None:
        with self._changed:
            self._n_under_way -= 1
            self._changed.notify_all()


class _Listener:
    """Wraps a listener, and closes its connection, which no reply uses, at the stop.

    The broker then requeues unprocessed messages at once. Private names are accessed
    defensively, as other drivers lack them.
    """

    def __init__(self, listener: Any, late: LateReplies) -> None:
        self._listener = listener
        self._late = late
        self._poll = getattr(listener, "_poll_style_listener", None)

    @property
    def is_taking(self) -> bool:
        """Whether the listener fetches messages; True if the driver does not say."""
        shutdown = getattr(self._poll, "_shutdown", None)
        return shutdown is None or not shutdown.is_set()

    def start(self, on_incoming: Callable[[Sequence[Any]], None]) -> None:
        self._listener.start(on_incoming)

    def stop(self) -> None:
        self._listener.stop()
        # While the connection closes, messages that arrive would be acknowledged, but
        # never processed.
        connection = getattr(self._poll, "conn", None)
        for consumer in getattr(connection, "_consumers", ()):
            consumer.callback = _ignore_message
        self._listener.cleanup()

    def cleanup(self) -> None:
        """Wait for late replies; called once all messages are served."""
        self._late.wait()


def _ignore_message(message: object) -> None:
    """Do not acknowledge a message: the broker delivers it to another server."""
