# SPDX-License-Identifier: Apache-2.0
"""Every failure that the scheduler raises on purpose.

    SchedulerError
    ├── NoValidHost              a request fits nowhere (nova's own class on the wire)
    ├── InvalidRequest           a request that cannot be asked: what is wrong where
    ├── HostMetricNotFound       a metric that is required, of a host that lacks it
    ├── NetworkError             Neutron could not do its part
    ├── ConfigurationError       stops the start
    │   ├── PluginError          a plugin is missing, broken or named twice
    │   └── InventoryError       the hosts' file cannot be used
    └── PlacementError           Placement could not do its part
        ├── PlacementUnavailable     unreachable, too slow, 5xx, or it speaks garbage
        ├── PlacementUnauthorized    401, 403, or no way to authenticate
        ├── PlacementIncompatible    it lacks the microversion that is needed
        ├── PlacementRejected        it refused a question or a claim as malformed
        └── AllocationUpdateFailed   somebody else changed the consumer meanwhile

A host that a filter rejects is no failure: it is data, in the decision record.

Over RPC AllocationUpdateFailed is nova's class of that name, and all others are
``nova.exception.NoValidHost``; see `as_nova`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final, Self

#: Characters of a value from outside that a message repeats.
_EXCERPT: Final = 200
#: Characters of a whole message, whatever it is made of: it is logged, recorded and
#: sent to the caller.
MAX_MESSAGE: Final = 4000


def excerpt(value: object) -> str:
    """Return a value from outside as messages quote it: its first 200 characters."""
    if isinstance(value, str) and len(value) > _EXCERPT:
        return f"{value[:_EXCERPT]!r}… ({len(value)} characters)"
    if isinstance(value, int) and value.bit_length() > 2 * _EXCERPT:
        return f"a number of {value.bit_length()} bits"  # repr() may refuse it
    return shortened(repr(value))


def shortened(text: str, most: int = _EXCERPT) -> str:
    """Return the first characters of a text, with an ellipsis where it goes on."""
    return text if len(text) <= most else f"{text[:most]}…"


class SchedulerError(Exception):
    """Say that something failed, where, and what to do about it."""

    #: Whether the line of a decision tells of it, so that no other has to.
    is_logged = False
    #: Whether it stands for an unexpected error, whose traceback is needed.
    is_unexpected = False

    def __init__(self, message: str = "") -> None:
        super().__init__(shortened(str(message), MAX_MESSAGE))

    #: What an end user is told of it; None: its own words, which name nothing that an
    #: end user must not know.
    for_users: ClassVar[str | None] = "The scheduler failed."


class NoValidHost(SchedulerError):
    """Say that a request fits nowhere.

    A stock conductor rebuilds an exception from its module, name, ``args`` and
    ``kwargs``; these are those of ``nova.exception.NoValidHost`` (nova 34). Where nova
    is in this process, an instance is one of that class, too: a direct call and the
    transport ``fake:/`` hand over the exception itself, which nova's code has to catch.

    Parameters
    ----------
    reason : str
        What follows "No valid host was found. ". It may reach an end user, so it has
        counts and no host names.
    """

    for_users: ClassVar[str | None] = None

    def __new__(cls, *_args: object, **_kwargs: object) -> Self:
        """Return an instance, of nova's class, too, if there is one."""
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
    """Name the field of a request that is wrong, its value, and what would be right."""

    for_users = None


class HostMetricNotFound(SchedulerError):
    """Name the metric and the host that lacks it, though it is required of all."""

    for_users = "A host lacks a metric that is required of all."


class NetworkError(SchedulerError):
    """Say what Neutron was asked and how that failed."""

    for_users = "Neutron could not do its part."


class ConfigurationError(SchedulerError):
    """Name the option or file that is wrong, and what would be right."""

    for_users = "The scheduler is not set up rightly."


class PluginError(ConfigurationError):
    """Name a plugin that cannot be used, its distribution, and the cause."""


class InventoryError(ConfigurationError):
    """Name the file, the host and the key that are wrong in an inventory of hosts."""


class PlacementError(SchedulerError):
    """Say what Placement was asked and how that failed."""

    for_users: ClassVar[str | None] = "Placement could not do its part."


class PlacementUnavailable(PlacementError):
    """Say that Placement did not answer, or not as Placement does."""

    for_users = "Placement was not reached, timed out or answered nonsense."


class PlacementUnauthorized(PlacementError):
    """Say that Placement or Keystone did not accept our credentials."""

    for_users = "Placement did not accept the scheduler's credentials."


class PlacementIncompatible(PlacementError):
    """Say which microversion is needed and which ones Placement has."""

    for_users = "Placement is too old."


class PlacementRejected(PlacementError):
    """Repeat what Placement found wrong with a question or a claim.

    Attributes
    ----------
    detail : str
        Its own words.
    """

    for_users = "Placement refused a question or a claim as malformed."

    def __init__(self, message: str = "", detail: str = "") -> None:
        super().__init__(message)
        self.detail = shortened(detail, MAX_MESSAGE)


class AllocationUpdateFailed(PlacementError):
    """Say that a consumer has allocations that this request did not make.

    Attributes
    ----------
    unresolved : mapping
        What consumers may hold of the claim that failed so; see `Claim`.
    """

    for_users: ClassVar[str | None] = None
    unresolved: Mapping[str, Any] = MappingProxyType({})


def _tree(root: type[SchedulerError]) -> dict[str, type[SchedulerError]]:
    found = {root.__name__: root}
    for each in root.__subclasses__():
        found |= _tree(each)
    return found


#: nova's message of an AllocationUpdateFailed; others of ours name the consumer, too.
_UPDATE_FAILED: Final = "Failed to update allocations for consumer {}. Error: {}"
_IN_NOVAS_WORDS: Final = re.compile(_UPDATE_FAILED.format(r"(\S+)", "(.*)"), re.DOTALL)
_UUID: Final = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.I)

#: Errors that cross as a NoValidHost whose reason starts with their name.
_CROSSING: Final = {
    name: kind for name, kind in _tree(SchedulerError).items() if name != "NoValidHost"
}


def _novas(name: str) -> type[Exception] | None:
    """Return nova's own class of that name, if nova is imported."""
    return getattr(sys.modules.get("nova.exception"), name, None)


def _crossing(kind: type[Exception], name: str) -> type[Any]:
    """Return a class that nova takes for its own of that name, and we for a `kind`."""
    novas = _novas(name)
    bases = (kind,) if novas is None else (kind, novas)
    return type(name, bases, dict(_AS_NOVAS))


def as_nova(error: Exception) -> Exception:
    """Return a failed decision's error as it goes over RPC: one of nova's own classes.

    AllocationUpdateFailed crosses as nova-scheduler sends it, with nova's message: a
    conductor sets states and records the action's event by it. All others cross as
    NoValidHost, the one class that nova 34's conductor ends every operation well for.
    After any other, an evacuated or rebuilt instance stays REBUILDING (its migration
    "accepted"), and after all but RemoteError a live migration leaves a running
    instance in ERROR; nova's own scheduler says NoValidHost of a Placement that is
    away, too. The reason has the error's class and what an end user may read of it;
    the rest is in the log, and in the traceback that goes with it.

    Parameters
    ----------
    error : Exception
        Of any class; one that is not ours crosses as SchedulerError.

    Returns
    -------
    Exception
        `error` itself if it is a NoValidHost; else one that is of its class, too,
        if that is ours.
    """
    is_ours = isinstance(error, SchedulerError)
    if is_ours and type(error).__module__ == NoValidHost.__module__:
        return error  # it has nova's class already
    made = _as_nova(error)
    made.is_unexpected = not is_ours
    made.is_logged = isinstance(error, SchedulerError) and error.is_logged
    return made


def _as_nova(error: Exception) -> SchedulerError:
    if isinstance(error, AllocationUpdateFailed):
        return _made(type(error), "AllocationUpdateFailed", **_update_failed(error))
    kind = type(error) if isinstance(error, SchedulerError) else SchedulerError
    name = next(c.__name__ for c in kind.__mro__ if _CROSSING.get(c.__name__) is c)
    told = str(error) if kind.for_users is None else kind.for_users
    reason = f"{name}: {told}"
    message = f"{_NO_VALID_HOST}{reason}"
    return _made(kind, "NoValidHost", message=message, reason=reason)


def _made(
    kind: type[SchedulerError], name: str, *, message: str, **kwargs: str
) -> SchedulerError:
    """Return an exception of nova's class of that name."""
    made: Any = Exception.__new__(_crossing(kind, name))
    made.args = (message,)
    made.kwargs = {**kwargs, "code": 500}
    answer: SchedulerError = made
    return answer


def _update_failed(error: AllocationUpdateFailed) -> dict[str, str]:
    """Return nova's message of a failed update, and what it is made of."""
    text = str(error)
    if said := _IN_NOVAS_WORDS.fullmatch(text):
        consumer, why = said.groups()
    else:
        named = _UUID.search(text)
        consumer, why = "" if named is None else named[0], text
    message = _UPDATE_FAILED.format(consumer, why)
    return {"message": message, "consumer_uuid": consumer, "error": why}


def from_nova(message: str) -> SchedulerError:
    """Return the error that a scheduler had, of what a NoValidHost over RPC says.

    Parameters
    ----------
    message : str
        As `as_nova` and `NoValidHost` write it.
    """
    _, _, reason = message.partition(_NO_VALID_HOST)
    name, _, text = reason.partition(": ")
    kind = _CROSSING.get(name)
    return NoValidHost(reason) if kind is None else kind(text)
