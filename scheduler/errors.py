# SPDX-License-Identifier: Apache-2.0
"""The exceptions that the scheduler raises deliberately.

    SchedulerError
    ├── NoValidHost              a request fits no host (over RPC, nova's class)
    ├── InvalidRequest           a malformed or contradictory request
    ├── HostMetricNotFound       a host lacks a required metric
    ├── NetworkError             Neutron failed
    ├── ConfigurationError       the configuration is invalid: the start is aborted
    │   ├── PluginError          a plugin is missing, broken or named twice
    │   ├── InventoryError       the inventory file is invalid
    │   └── DatabaseUnavailable  a database cannot be reached
    └── PlacementError           Placement failed
        ├── PlacementUnavailable     unreachable, too slow, 5xx, or a malformed answer
        ├── PlacementUnauthorized    401, 403, or authentication failed
        ├── PlacementIncompatible    Placement lacks the required microversion
        ├── PlacementRejected        Placement rejected a query or a claim as malformed
        └── AllocationUpdateFailed   another client changed the consumer concurrently

A host that a filter rejects is not an error, but data in the decision record.

Over RPC, AllocationUpdateFailed is sent as nova's class of that name, and every other
error as ``nova.exception.NoValidHost``; see `as_nova`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final, Self

#: Maximum characters of an external value in a message.
_MAX_EXCERPT: Final = 200
#: Maximum characters of a whole message: it is logged, recorded and sent to the caller.
MAX_MESSAGE: Final = 4000


def excerpt(value: object) -> str:
    """Return an external value as messages quote it: at most 200 characters of it."""
    if isinstance(value, str) and len(value) > _MAX_EXCERPT:
        return f"{value[:_MAX_EXCERPT]!r}… ({len(value)} characters)"
    if isinstance(value, int) and value.bit_length() > 2 * _MAX_EXCERPT:
        # repr() raises an error for too large numbers.
        return f"a number of {value.bit_length()} bits"
    return shortened(repr(value))


def shortened(text: str, most: int = _MAX_EXCERPT) -> str:
    """Return at most `most` characters of a text, with an ellipsis if truncated."""
    return text if len(text) <= most else f"{text[:most]}…"


class SchedulerError(Exception):
    """The base class; messages say what failed, where, and what to do about it."""

    #: Whether a decision's log line has this error, so that it is not logged again.
    is_logged = False
    #: Whether ``__cause__`` is an unexpected error, whose traceback must be logged.
    is_unexpected = False

    def __init__(self, message: str = "") -> None:
        super().__init__(shortened(str(message), MAX_MESSAGE))

    #: The text for end users; None: the message, as it has nothing confidential.
    for_users: ClassVar[str | None] = "The scheduler failed."


class NoValidHost(SchedulerError):
    """Raised when a request fits no host.

    A stock conductor rebuilds an exception from its module, name, ``args`` and
    ``kwargs``. This class has those of ``nova.exception.NoValidHost`` (nova 34). If
    nova is imported in this process, an instance is also one of nova's class: a direct
    call and the transport ``fake:/`` pass the exception object itself, which
    nova's code must catch.

    Parameters
    ----------
    reason : str
        The text after "No valid host was found. ". It may reach an end user, so it has
        counts and no host names.
    """

    for_users: ClassVar[str | None] = None

    def __new__(cls, *_args: object, **_kwargs: object) -> Self:
        """Return an instance, also of nova's class if it is imported."""
        nova_class = _nova_class("NoValidHost")
        if nova_class is None or issubclass(cls, nova_class):
            return super().__new__(cls)
        instance: Self = Exception.__new__(_with_nova_class(cls, "NoValidHost"))
        return instance

    def __init__(self, reason: str = "") -> None:
        reason = shortened(reason, MAX_MESSAGE - len(_NO_VALID_HOST))
        super().__init__(f"{_NO_VALID_HOST}{reason}")
        self.reason = reason
        self.kwargs = {"code": 500, "reason": reason}


_NOVA_MODULE: Final = "nova.exception"
NoValidHost.__module__ = _NOVA_MODULE
_NO_VALID_HOST: Final = "No valid host was found. "


class InvalidRequest(SchedulerError):
    """Raised for an invalid request.

    The message has the field, its value, and valid values.
    """

    for_users = None


class HostMetricNotFound(SchedulerError):
    """Raised when a host lacks a metric that is required of all hosts.

    The message has the host and the metric.
    """

    for_users = "A host lacks a metric that is required of all."


class NetworkError(SchedulerError):
    """Raised when a request to Neutron fails; the message has request and cause."""

    for_users = "Neutron failed."


class ConfigurationError(SchedulerError):
    """Raised for an invalid option or file.

    The message has the name of the option or file, and valid values.
    """

    for_users = "The scheduler is misconfigured."


class PluginError(ConfigurationError):
    """Raised for an unusable plugin; the message has name, distribution and cause."""


class InventoryError(ConfigurationError):
    """Raised for an invalid inventory of hosts; the message has file, host and key."""


class DatabaseUnavailable(ConfigurationError):
    """Raised at the start if a database is unreachable; it may be available later."""


class PlacementError(SchedulerError):
    """Raised when a request to Placement fails; the message has request and cause."""

    for_users: ClassVar[str | None] = "Placement failed."


class PlacementUnavailable(PlacementError):
    """Raised when Placement does not answer, or its answer is malformed."""

    for_users = "Placement was unreachable, timed out or sent a malformed answer."


class PlacementUnauthorized(PlacementError):
    """Raised when Placement or Keystone rejects the scheduler's credentials."""

    for_users = "Placement rejected the scheduler's credentials."


class PlacementIncompatible(PlacementError):
    """Raised when Placement lacks the required microversion.

    The message has the microversions that Placement supports.
    """

    for_users = "Placement is too old."


class PlacementRejected(PlacementError):
    """Raised when Placement rejects a query or a claim as malformed.

    Attributes
    ----------
    detail : str
        Placement's error text.
    """

    for_users = "Placement rejected a query or a claim as malformed."

    def __init__(self, message: str = "", detail: str = "") -> None:
        super().__init__(message)
        self.detail = shortened(detail, MAX_MESSAGE)


class AllocationUpdateFailed(PlacementError):
    """Raised when a consumer has allocations that this request did not make.

    Attributes
    ----------
    unresolved : mapping
        By consumer, the part of the failed claim that Placement may still grant; a
        `Claim` each.
    """

    for_users: ClassVar[str | None] = None
    unresolved: Mapping[str, Any] = MappingProxyType({})


def _tree(root: type[SchedulerError]) -> dict[str, type[SchedulerError]]:
    """Return a class and all its subclasses, by name."""
    by_name = {root.__name__: root}
    for subclass in root.__subclasses__():
        by_name |= _tree(subclass)
    return by_name


#: nova's message of an AllocationUpdateFailed. Moorage raises the error with other
#: messages, too, which also contain the consumer's UUID.
_UPDATE_FAILED: Final = "Failed to update allocations for consumer {}. Error: {}"
_NOVA_UPDATE_FAILED: Final = re.compile(
    _UPDATE_FAILED.format(r"(\S+)", "(.*)"), re.DOTALL
)
_UUID: Final = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.I)

#: The classes that are sent as a NoValidHost whose reason starts with the class's name.
_SENT_AS_NO_VALID_HOST: Final = {
    name: kind for name, kind in _tree(SchedulerError).items() if name != "NoValidHost"
}


def _nova_class(name: str) -> type[Exception] | None:
    """Return nova's class of that name; None: nova is not imported."""
    return getattr(sys.modules.get("nova.exception"), name, None)


def _with_nova_class(kind: type[Exception], name: str) -> type[Any]:
    """Return a subclass of `kind` that is sent over RPC as nova's class `name`."""
    nova_class = _nova_class(name)
    bases = (kind,) if nova_class is None else (kind, nova_class)
    return type(name, bases, {"__module__": _NOVA_MODULE})


def as_ours(error: Exception) -> SchedulerError:
    """Return the error as a SchedulerError; an unexpected error becomes the cause."""
    if isinstance(error, SchedulerError):
        return error
    unexpected = SchedulerError(f"An unexpected error: {type(error).__name__}: {error}")
    unexpected.is_unexpected = True
    unexpected.__cause__ = error
    return unexpected


def as_nova(error: Exception) -> Exception:
    """Convert a failed decision's error to one of nova's classes, for RPC.

    AllocationUpdateFailed is sent as nova-scheduler sends it, with nova's message:
    conductors set the instance's state and record the event of the instance action by
    it. Every other error is sent as NoValidHost, the only class that nova 34's
    conductor handles in every operation. After an error of another class, an evacuated
    or rebuilt instance stays REBUILDING (its migration "accepted"). After all classes
    but RemoteError, a live migration leaves a running instance in ERROR. nova's
    scheduler also raises NoValidHost for an unreachable Placement. The reason has the
    error's class and the text for end users. The message is in the log, and in the
    traceback that is sent along.

    Parameters
    ----------
    error : Exception
        An error of any class; `as_ours` is applied to it first.

    Returns
    -------
    Exception
        `error` itself if it has one of nova's classes already. Otherwise an error of
        nova's class, which is also an instance of the SchedulerError's class.
    """
    error = as_ours(error)
    if type(error).__module__ == NoValidHost.__module__:
        return error  # it has nova's class already
    converted = _as_nova(error)
    converted.is_unexpected, converted.is_logged = error.is_unexpected, error.is_logged
    return converted


def _as_nova(error: SchedulerError) -> SchedulerError:
    kind = type(error)
    if isinstance(error, AllocationUpdateFailed):
        return _nova_error(kind, "AllocationUpdateFailed", **_update_failed(error))
    name = next(
        base.__name__
        for base in kind.__mro__
        if _SENT_AS_NO_VALID_HOST.get(base.__name__) is base
    )
    text = str(error) if kind.for_users is None else kind.for_users
    reason = f"{name}: {text}"
    message = f"{_NO_VALID_HOST}{reason}"
    return _nova_error(kind, "NoValidHost", message=message, reason=reason)


def _nova_error(
    kind: type[SchedulerError], name: str, *, message: str, **kwargs: str
) -> SchedulerError:
    """Return an error of class `kind` and of nova's class `name`."""
    instance: Any = Exception.__new__(_with_nova_class(kind, name))
    instance.args = (message,)
    instance.kwargs = {**kwargs, "code": 500}
    error: SchedulerError = instance
    return error


def _update_failed(error: AllocationUpdateFailed) -> dict[str, str]:
    """Return nova's message of a failed update, and the values in that message."""
    text = str(error)
    if match := _NOVA_UPDATE_FAILED.fullmatch(text):
        consumer, cause = match.groups()
    else:
        uuid = _UUID.search(text)
        consumer, cause = "" if uuid is None else uuid[0], text
    message = _UPDATE_FAILED.format(consumer, cause)
    return {"message": message, "consumer_uuid": consumer, "error": cause}


def from_nova(message: str) -> SchedulerError:
    """Return the scheduler's error that `as_nova` converted to a NoValidHost.

    Parameters
    ----------
    message : str
        The message of the NoValidHost.
    """
    _, _, reason = message.partition(_NO_VALID_HOST)
    name, _, text = reason.partition(": ")
    kind = _SENT_AS_NO_VALID_HOST.get(name)
    return NoValidHost(reason) if kind is None else kind(text)
