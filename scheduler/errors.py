# SPDX-License-Identifier: Apache-2.0
"""The exceptions that the scheduler raises deliberately.

    SchedulerError
    ├── NoValidHost              a request fits nowhere (nova's own class on the wire)
    ├── InvalidRequest           a malformed or contradictory request
    ├── HostMetricNotFound       a host lacks a required metric
    ├── NetworkError             Neutron failed
    ├── ConfigurationError       stops the start
    │   ├── PluginError          a plugin is missing, broken or named twice
    │   ├── InventoryError       the inventory file is invalid
    │   └── DatabaseUnavailable  a database cannot be reached
    └── PlacementError           Placement failed
        ├── PlacementUnavailable     unreachable, too slow, 5xx, or a malformed answer
        ├── PlacementUnauthorized    401, 403, or no way to authenticate
        ├── PlacementIncompatible    it lacks the required microversion
        ├── PlacementRejected        it rejected a query or a claim as malformed
        └── AllocationUpdateFailed   another client changed the consumer concurrently

A host that a filter rejects is not an error, but data in the decision record.

Over RPC AllocationUpdateFailed is nova's class of that name, and all others are
``nova.exception.NoValidHost``; see `as_nova`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final, Self

#: Maximum characters of an external value in a message.
_EXCERPT: Final = 200
#: Maximum characters of a whole message: it is logged, recorded and sent to the caller.
MAX_MESSAGE: Final = 4000


def excerpt(value: object) -> str:
    """Return an external value as messages quote it: its first 200 characters."""
    if isinstance(value, str) and len(value) > _EXCERPT:
        return f"{value[:_EXCERPT]!r}… ({len(value)} characters)"
    if isinstance(value, int) and value.bit_length() > 2 * _EXCERPT:
        return f"a number of {value.bit_length()} bits"  # repr() may refuse it
    return shortened(repr(value))


def shortened(text: str, most: int = _EXCERPT) -> str:
    """Return the first characters of a text, with an ellipsis if truncated."""
    return text if len(text) <= most else f"{text[:most]}…"


class SchedulerError(Exception):
    """The base class; messages say what failed, where, and what to do about it."""

    #: Whether a decision's log line has it, so that it is not logged again.
    is_logged = False
    #: Whether it stands for an unexpected error, its cause, whose traceback is needed.
    is_unexpected = False

    def __init__(self, message: str = "") -> None:
        super().__init__(shortened(str(message), MAX_MESSAGE))

    #: The text for end users; None: the message, which has nothing confidential.
    for_users: ClassVar[str | None] = "The scheduler failed."


class NoValidHost(SchedulerError):
    """Raised when a request fits nowhere.

    A stock conductor rebuilds an exception from its module, name, ``args`` and
    ``kwargs``; these are those of ``nova.exception.NoValidHost`` (nova 34). If nova is
    imported in this process, an instance is also one of that class: a direct call and
    the transport ``fake:/`` pass the exception itself, which nova's code must catch.

    Parameters
    ----------
    reason : str
        The text after "No valid host was found. ". It may reach an end user, so it has
        counts and no host names.
    """

    for_users: ClassVar[str | None] = None

    def __new__(cls, *_args: object, **_kwargs: object) -> Self:
        """Return an instance, also of nova's class if it is imported."""
        novas = _novas("NoValidHost")
        if novas is None or issubclass(cls, novas):
            return super().__new__(cls)
        made: Self = Exception.__new__(_crossing(cls, "NoValidHost"))
        return made

    def __init__(self, reason: str = "") -> None:
        reason = shortened(reason, MAX_MESSAGE - len(_NO_VALID_HOST))
        super().__init__(f"{_NO_VALID_HOST}{reason}")
        self.reason = reason
        self.kwargs = {"code": 500, "reason": reason}


_AS_NOVAS: Final = {"__module__": "nova.exception"}
NoValidHost.__module__ = _AS_NOVAS["__module__"]
_NO_VALID_HOST: Final = "No valid host was found. "


class InvalidRequest(SchedulerError):
    """Raised for an invalid request; names the field, its value, and valid ones."""

    for_users = None


class HostMetricNotFound(SchedulerError):
    """Raised when a host lacks a metric that is required of all hosts; names both."""

    for_users = "A host lacks a metric that is required of all."


class NetworkError(SchedulerError):
    """Raised when a request to Neutron fails; names the request and the cause."""

    for_users = "Neutron failed."


class ConfigurationError(SchedulerError):
    """Raised for an invalid option or file; names it, and valid values."""

    for_users = "The scheduler is misconfigured."


class PluginError(ConfigurationError):
    """Raised for an unusable plugin; names it, its distribution, and the cause."""


class InventoryError(ConfigurationError):
    """Raised for an invalid inventory of hosts; names the file, host and key."""


class DatabaseUnavailable(ConfigurationError):
    """Raised at the start for a database that cannot be reached, perhaps for now."""


class PlacementError(SchedulerError):
    """Raised when a request to Placement fails; names the request and the cause."""

    for_users: ClassVar[str | None] = "Placement failed."


class PlacementUnavailable(PlacementError):
    """Raised when Placement does not answer, or its answer is malformed."""

    for_users = "Placement was unreachable, timed out or sent a malformed answer."


class PlacementUnauthorized(PlacementError):
    """Raised when Placement or Keystone rejects the scheduler's credentials."""

    for_users = "Placement rejected the scheduler's credentials."


class PlacementIncompatible(PlacementError):
    """Raised when Placement lacks the required microversion; names those it has."""

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
        What consumers may hold of the failed claim; see `Claim`.
    """

    for_users: ClassVar[str | None] = None
    unresolved: Mapping[str, Any] = MappingProxyType({})


def _tree(root: type[SchedulerError]) -> dict[str, type[SchedulerError]]:
    by_name = {root.__name__: root}
    for subclass in root.__subclasses__():
        by_name |= _tree(subclass)
    return by_name


#: nova's message of an AllocationUpdateFailed; Moorage's others name the consumer, too.
_UPDATE_FAILED: Final = "Failed to update allocations for consumer {}. Error: {}"
_NOVA_UPDATE_FAILED: Final = re.compile(
    _UPDATE_FAILED.format(r"(\S+)", "(.*)"), re.DOTALL
)
_UUID: Final = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.I)

#: Errors that cross as a NoValidHost whose reason starts with their name.
_CROSSING: Final = {
    name: kind for name, kind in _tree(SchedulerError).items() if name != "NoValidHost"
}


def _novas(name: str) -> type[Exception] | None:
    """Return nova's own class of that name, if nova is imported."""
    return getattr(sys.modules.get("nova.exception"), name, None)


def _crossing(kind: type[Exception], name: str) -> type[Any]:
    """Return a subclass of `kind` that passes for nova's class of that name."""
    novas = _novas(name)
    bases = (kind,) if novas is None else (kind, novas)
    return type(name, bases, dict(_AS_NOVAS))


def as_ours(error: Exception) -> SchedulerError:
    """Return an error of the scheduler, which an unexpected one is the cause of."""
    if isinstance(error, SchedulerError):
        return error
    unexpected = SchedulerError(f"An unexpected error: {type(error).__name__}: {error}")
    unexpected.is_unexpected = True
    unexpected.__cause__ = error
    return unexpected


def as_nova(error: Exception) -> Exception:
    """Convert a failed decision's error to one of nova's classes, for RPC.

    AllocationUpdateFailed crosses as nova-scheduler sends it, with nova's message: a
    conductor sets states and records the action's event by it. All others cross as
    NoValidHost, the only class that nova 34's conductor handles in every operation.
    After any other, an evacuated or rebuilt instance stays REBUILDING (its migration
    "accepted"), and after all but RemoteError a live migration leaves a running
    instance in ERROR; nova's scheduler raises NoValidHost for an unreachable Placement,
    too. The reason has the error's class and its text for end users; the rest is in
    the log, and in the traceback that is sent along.

    Parameters
    ----------
    error : Exception
        Of any class; one that is not a SchedulerError crosses as SchedulerError.

    Returns
    -------
    Exception
        `error` itself if it has one of nova's classes already; otherwise an error that
        is also of its class if that is a SchedulerError.
    """
    error = as_ours(error)
    if type(error).__module__ == NoValidHost.__module__:
        return error  # it has nova's class already
    crossing = _as_nova(error)
    crossing.is_unexpected, crossing.is_logged = error.is_unexpected, error.is_logged
    return crossing


def _as_nova(error: SchedulerError) -> SchedulerError:
    kind = type(error)
    if isinstance(error, AllocationUpdateFailed):
        return _crossing_error(kind, "AllocationUpdateFailed", **_update_failed(error))
    name = next(c.__name__ for c in kind.__mro__ if _CROSSING.get(c.__name__) is c)
    text = str(error) if kind.for_users is None else kind.for_users
    reason = f"{name}: {text}"
    message = f"{_NO_VALID_HOST}{reason}"
    return _crossing_error(kind, "NoValidHost", message=message, reason=reason)


def _crossing_error(
    kind: type[SchedulerError], name: str, *, message: str, **kwargs: str
) -> SchedulerError:
    """Return an exception of nova's class of that name."""
    crossing: Any = Exception.__new__(_crossing(kind, name))
    crossing.args = (message,)
    crossing.kwargs = {**kwargs, "code": 500}
    answer: SchedulerError = crossing
    return answer


def _update_failed(error: AllocationUpdateFailed) -> dict[str, str]:
    """Return nova's message of a failed update, and its arguments."""
    text = str(error)
    if match := _NOVA_UPDATE_FAILED.fullmatch(text):
        consumer, why = match.groups()
    else:
        named = _UUID.search(text)
        consumer, why = "" if named is None else named[0], text
    message = _UPDATE_FAILED.format(consumer, why)
    return {"message": message, "consumer_uuid": consumer, "error": why}


def from_nova(message: str) -> SchedulerError:
    """Return the scheduler's error that a NoValidHost over RPC stands for.

    Parameters
    ----------
    message : str
        In the form of `as_nova` and `NoValidHost`.
    """
    _, _, reason = message.partition(_NO_VALID_HOST)
    name, _, text = reason.partition(": ")
    kind = _CROSSING.get(name)
    return NoValidHost(reason) if kind is None else kind(text)
