# SPDX-License-Identifier: Apache-2.0
"""The interface of a source of host state."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from oslo_config import cfg

from ...objects import Flavor, RequestSpec
from ..errors import InvalidRequest, SchedulerError
from ..hosts import HostTable
from ..instances import InstanceLocation, InstanceState


@dataclasses.dataclass(frozen=True, slots=True)
class ServiceState:
    """How an operator has marked a compute service."""

    disabled: bool
    forced_down: bool


#: A service host: the UUID of its cell, and its name.
ServiceHost = tuple[str, str]


class NoFlavors(InvalidRequest):
    """Raised by a source that knows no flavors."""


class BuildRequestUnavailable(SchedulerError):
    """Raised when the database of nova's build requests fails or does not answer."""


class FlavorsUnavailable(SchedulerError):
    """Raised when the database of the flavors fails or does not answer."""


class RequestsUnavailable(SchedulerError):
    """Raised when the database of instances' requests fails or does not answer."""


class GroupsUnavailable(SchedulerError):
    """Raised when the database of the server groups fails or does not answer."""


class BaseHostSource(abc.ABC):
    """Fill the host table and keep it fresh.

    Parameters
    ----------
    conf : oslo_config.cfg.ConfigOpts, optional
        The options; defaults to those of the scheduler that uses the source.
    """

    #: Whether the source reports the usage of instances. If not, only claims are known.
    is_reporting = True

    #: Whether requests come from nova, whose API checks that a zone exists.
    are_zones_checked = True

    #: Whether the source reads host aggregates. If not, those in the table come from
    #: casts to the scheduler.
    has_aggregates = True

    # A class attribute: a subclass may define __init__ without calling super's.
    _conf: cfg.ConfigOpts | None = None

    def __init__(self, conf: cfg.ConfigOpts | None = None) -> None:
        self._conf = conf

    @property
    def conf(self) -> cfg.ConfigOpts:
        """The options.

        Raises
        ------
        RuntimeError
            No options were given, and no scheduler uses the source yet.
        """
        if self._conf is None:
            raise RuntimeError(f"{type(self).__name__} has no options yet")
        return self._conf

    def adopt(self, conf: cfg.ConfigOpts) -> None:
        """Use a scheduler's options if none were given."""
        if self._conf is None:
            self._conf = conf

    @abc.abstractmethod
    def start(self, table: HostTable) -> None:
        """Fill the table once, before the first decision.

        No thread may be left running: the process may be forked afterwards.

        Raises
        ------
        ConfigurationError
            Host state cannot be read; the message says from where, and the cause.
        """

    def check(self) -> None:
        """Raise an error if what `start` has read must not be served.

        Called once in each service, after `start`, and not in workers that the service
        starts later. By default, everything may be served.

        Raises
        ------
        ConfigurationError
            The state must not be served; the message says why, and what to do.
        """
        return

    def start_polling(self, table: HostTable) -> None:  # noqa: ARG002 - for sources that poll
        """Keep the table fresh from now on; called once in each process that decides.

        Does nothing by default: host state changes by `refresh` only.
        """
        return

    def refresh_if_stale(
        self,
        table: HostTable,  # noqa: ARG002 - for sources that read between polls
        missing: Collection[str] = (),  # noqa: ARG002 - for sources that read on demand
    ) -> None:
        """Make the table as fresh as a decision needs it; does nothing by default.

        Called before each decision, by many threads at a time, and again when
        Placement returns compute nodes that have no row. This method never fails: state
        that cannot be read stays as it is, and `notes` reports the failure.

        Parameters
        ----------
        missing : collection of str
            UUIDs of the compute nodes without a row.
        """
        return

    def poll(self, table: HostTable) -> bool:  # noqa: ARG002 - for sources that poll
        """Poll immediately; return whether the source has polled.

        Called before a request fails because of host state. By default nothing is read:
        the table is as fresh as it can be. This method raises nothing.
        """
        return False

    def service_states(
        self,
        hosts: Collection[ServiceHost],  # noqa: ARG002 - for sources that know
    ) -> Mapping[ServiceHost, ServiceState]:
        """Return the current state of some compute services.

        Called before a decision claims on these hosts. Override this method only if the
        table may be older than the decision and reading one service is cheap. Hosts
        whose state is unknown are left out; by default, all hosts are. This method
        raises nothing.
        """
        return {}

    def refresh(self, table: HostTable) -> None:
        """Read everything again; called on SIGHUP.

        Raises
        ------
        ConfigurationError
            Host state cannot be read; the hosts stay as they were.
        """
        self.start(table)

    def is_gone(self, node_uuid: str, cell_uuid: str) -> bool:  # noqa: ARG002 - for sources that know
        """Return whether a compute node without a row no longer exists.

        Override this method if the table may lack nodes that exist, as they were not
        read.
        """
        return True

    def seen_at(self) -> float | None:
        """Return when the oldest part of the table's contents was read.

        Seconds since the epoch; None if the contents never become stale.
        """
        return None

    def age_s(self, now: float) -> float | None:
        """Return the seconds since `seen_at`; None if `seen_at` returns None.

        Parameters
        ----------
        now : float
            Seconds since the epoch.
        """
        seen_at = self.seen_at()
        return None if seen_at is None else now - seen_at

    def locate_instance(
        self,
        instance_uuid: str,  # noqa: ARG002 - for sources that know
    ) -> InstanceLocation:
        """Return where an instance is; by default, its location is unknown.

        Called in its own thread for allocations whose request was never answered, so it
        may query a database. This method raises nothing.
        """
        return InstanceLocation(InstanceState.UNKNOWN)

    def mark_deleted(self, instance_uuids: Iterable[str]) -> None:  # noqa: B027 - optional
        """Remember that a conductor has reported the deletion of instances.

        By default nothing is remembered, for sources that find deletions by themselves.
        """

    def boot_volumes(
        self,
        instance_uuid: str,  # noqa: ARG002 - for sources that know
    ) -> Sequence[str]:
        """Return the UUID of the volume that a new instance boots from, if it has one.

        By default, the sequence is empty. Called in its own thread, so it may query a
        database.

        Raises
        ------
        SchedulerError
            The volume cannot be read.
        """
        return ()

    def flavors(
        self,
        names: Collection[str] | None = None,  # noqa: ARG002 - for sources that know
    ) -> Sequence[Flavor]:
        """Return nova's flavors that are not disabled, or only those with these names.

        This method may query a database.

        Raises
        ------
        NoFlavors
            The source knows no flavors; the default.
        InvalidRequest
            There are too many flavors.
        FlavorsUnavailable
        """
        raise NoFlavors(
            "Flavors of nova are read with [moorage] source = nova_db only: pass "
            "flavors, or use those of recent decisions"
        )

    def requests_of(
        self,
        instance_uuids: Collection[str],  # noqa: ARG002 - for sources that know
    ) -> Mapping[str, RequestSpec]:
        """Return the current requests of instances, with flavor, image and hints.

        Instances whose request is unknown are left out; by default, all are. This
        method may query a database.

        Raises
        ------
        RequestsUnavailable
        """
        return {}

    def members_of_groups(
        self,
        uuids: Collection[str],  # noqa: ARG002 - for sources that know
        project_id: str,  # noqa: ARG002 - for sources that know
        is_placed: Callable[[str], bool],  # noqa: ARG002 - for sources that know
    ) -> Mapping[str, frozenset[str]]:
        """Return the members of a project's server groups, by the group's UUID.

        Members that are queued for deletion are left out, unless `is_placed` returns
        that they are on a host. UUIDs that are no group of the project are left out; by
        default, all are.

        Called for the UUIDs in a request's hints that are no known instances, and for a
        request's own group if many of its members are on no host. This method may query
        a database.

        Raises
        ------
        GroupsUnavailable
        """
        return {}

    def troubles(self) -> Sequence[str]:
        """Return the faults that make the scheduler not ready; by default, none.

        This method waits for no database or network.
        """
        return ()

    def cell_names(self) -> Mapping[str, str]:
        """Return the names of cells by UUID, without I/O; by default, none is known."""
        return {}

    def notes(self) -> Sequence[str]:
        """Return faults for an operator to read, each with the time since it exists."""
        return ()

    def unknowns(self) -> Sequence[str]:
        """Return what decisions or explanations may need and this source cannot give.

        Each answer of the HTTP API includes it. By default, nothing is missing.
        """
        return ()

    def refused_report(
        self,
        host: str,  # noqa: ARG002 - for sources that receive reports
    ) -> tuple[float, str] | None:
        """Return when and why the newest report of a service host was refused.

        Seconds since the epoch, and the error; None, the default: it was accepted.
        """
        return None

    def report_counts(self) -> Mapping[str, int]:
        """Return the number of host reports since the start, by outcome.

        Empty by default.
        """
        return {}

    def n_unread(self) -> int:
        """Return the number of messages that are not read yet; 0 by default."""
        return 0

    @property
    def endpoints(self) -> Sequence[object]:
        """The RPC endpoints to serve on the scheduler's topic for this source."""
        return ()

    def stop(self) -> None:
        """Release what `start` and `start_polling` acquired; by default nothing."""
        return
