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
"""

from __future__ import annotations


class SchedulerError(Exception):
    """Say that something failed, where, and what to do about it."""


class NoValidHost(SchedulerError):
    """Say that a request fits nowhere.

    A stock conductor rebuilds an exception from its module, name, ``args`` and
    ``kwargs``; these are those of ``nova.exception.NoValidHost`` (nova 34).

    Parameters
    ----------
    reason : str
        What follows "No valid host was found. ". It may reach an end user, so it has
        counts and no host names.
    """

    def __init__(self, reason: str = "") -> None:
        super().__init__(f"No valid host was found. {reason}")
        self.reason = reason
        self.kwargs = {"code": 500, "reason": reason}


NoValidHost.__module__ = "nova.exception"


class InvalidRequest(SchedulerError):
    """Name the field of a request that is wrong, its value, and what would be right."""


class HostMetricNotFound(SchedulerError):
    """Name the metric and the host that lacks it, though it is required of all."""


class NetworkError(SchedulerError):
    """Say what Neutron was asked and how that failed."""


class ConfigurationError(SchedulerError):
    """Name the option or file that is wrong, and what would be right."""


class PluginError(ConfigurationError):
    """Name a plugin that cannot be used, its distribution, and the cause."""


class InventoryError(ConfigurationError):
    """Name the file, the host and the key that are wrong in an inventory of hosts."""


class PlacementError(SchedulerError):
    """Say what Placement was asked and how that failed."""


class PlacementUnavailable(PlacementError):
    """Say that Placement did not answer, or not as Placement does."""


class PlacementUnauthorized(PlacementError):
    """Say that Placement or Keystone did not accept our credentials."""


class PlacementIncompatible(PlacementError):
    """Say which microversion is needed and which ones Placement has."""


class PlacementRejected(PlacementError):
    """Repeat what Placement found wrong with a question or a claim."""


class AllocationUpdateFailed(PlacementError):
    """Say that a consumer has allocations that this request did not make.

    It is nova's class on the wire, as `NoValidHost` is: a stock conductor ends a
    rebuild or an evacuation well for errors that it knows, and for these only.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.kwargs = {"code": 500}


AllocationUpdateFailed.__module__ = "nova.exception"
