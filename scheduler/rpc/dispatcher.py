# SPDX-License-Identifier: Apache-2.0
"""Dispatch messages to the methods of endpoints, and reject malformed ones."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable
from typing import Any, Final

import oslo_messaging
from oslo_messaging.rpc.dispatcher import (
    NoSuchMethod,
    RPCAccessPolicyBase,
    RPCDispatcher,
    UnsupportedVersion,
)

from ...objects import MalformedObject
from .. import logs
from ..drivers.caller import Caller
from ..errors import (
    ConfigurationError,
    InvalidRequest,
    SchedulerError,
    as_nova,
    excerpt,
    shortened,
)

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
            It holds the error to answer: InvalidRequest for a malformed message (its
            version, its method, its arguments' names or types; unreadable objects), as
            NoValidHost if it is a request for destinations (see `as_nova`); or another
            deliberate error.
        """
        try:
            self._check(incoming.message)
            return super().dispatch(incoming)
        except MalformedObject as e:
            # The path to the error may have texts as long as the limits allow.
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
