# SPDX-License-Identifier: Apache-2.0
"""What a source of host state is."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Collection, Mapping, Sequence

from oslo_config import cfg

from ..hosts import HostTable
from ..instances import InstanceLocation, InstanceState


@dataclasses.dataclass(frozen=True, slots=True)
class ServiceState:
    """What an operator has said of a compute service."""

    disabled: bool
    forced_down: bool


#: A service host, by the UUID of its cell and its name.
ServiceHost = tuple[str, str]


class BaseHostSource(abc.ABC):
    """Fill the host table and keep it fresh.

    Parameters
    ----------
    conf : oslo_config.cfg.ConfigOpts, optional
        Options with their values; those of the scheduler that uses it by default.
    """

    #: Whether it comes to tell what instances use; else claims are all that is known.
    is_reporting = True

    #: Whether requests come from a nova, whose API checks that a zone exists.
    are_zones_checked = True

    # A class's, so that a source whose __init__ is all its own can adopt options.
    _conf: cfg.ConfigOpts | None = None

    def __init__(self, conf: cfg.ConfigOpts | None = None) -> None:
        self._conf = conf

    @property
    def conf(self) -> cfg.ConfigOpts:
        """The options.

        Raises
        ------
        RuntimeError
            None were given, and no scheduler uses the source yet.
        """
        if self._conf is None:
            raise RuntimeError(f"{type(self).__name__} has no options yet")
        return self._conf

    def adopt(self, conf: cfg.ConfigOpts) -> None:
        """Take a scheduler's options where none were given."""
        if self._conf is None:
            self._conf = conf

    @abc.abstractmethod
    def start(self, table: HostTable) -> None:
        """Fill the table, once, before the first decision; leave no thread behind.

        A process may be forked after it.

        Raises
        ------
        ConfigurationError
            The state of hosts cannot be had; the message says from where, and why.
        """

    def check(self) -> None:
        """Say whether to serve what `start` has read; by default it is.

        Called after it once a service: a worker that comes later is not asked.

        Raises
        ------
        ConfigurationError
            No; the message says why, and what to do.
        """
        return

    def follow(self, table: HostTable) -> None:  # noqa: ARG002 - for those that do
        """Keep the table fresh from now on; called once in each process that decides.

        By default nothing: the state of hosts changes by `refresh` only.
        """
        return

    def look(
        self,
        table: HostTable,  # noqa: ARG002 - as above
        missing: Collection[str] = (),  # noqa: ARG002 - as above
    ) -> None:
        """Make the table as fresh as a decision needs it; by default it is.

        Called before each decision, by many threads at a time, and again where
        Placement names compute nodes that have no row. It never fails: what cannot be
        read stays as it is, and `notes` tells.

        Parameters
        ----------
        missing : collection of str
            UUIDs of such nodes.
        """
        return

    def poll(self, table: HostTable) -> bool:  # noqa: ARG002 - for those that poll
        """Read now what the next poll would read; return whether that was done.

        Called before a request fails for the state of hosts. By default the table is
        as fresh as it can be, and nothing is read. It raises nothing.
        """
        return False

    def service_states(
        self,
        hosts: Collection[ServiceHost],  # noqa: ARG002 - for sources that know
    ) -> Mapping[ServiceHost, ServiceState]:
        """Return the present state of some compute services.

        Called before a decision claims on these hosts, and only worth an answer where
        the table may be older than the decision and one service can be read at little
        cost. Hosts whose state is not known are left out, by default all. It raises
        nothing.
        """
        return {}

    def refresh(self, table: HostTable) -> None:
        """Look at everything again, as SIGHUP asks.

        Raises
        ------
        ConfigurationError
            It cannot be read; the hosts stay as they were.
        """
        self.start(table)

    def seen_at(self) -> float | None:
        """Return when the oldest part of what the table holds was read.

        Seconds since the epoch; None: the source vouches for it, however old.
        """
        return None

    def age_s(self, now: float) -> float | None:
        """Return the seconds since `seen_at`; None where the source vouches for it.

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
        """Return where an instance is; by default that is not known.

        Called for allocations whose request had no answer, in a thread of its own: it
        may ask a database. It raises nothing.
        """
        return InstanceLocation(InstanceState.UNKNOWN)

    def troubles(self) -> Sequence[str]:
        """Return what keeps the source from doing its part: nobody is ready then.

        By default nothing does. It asks nobody.
        """
        return ()

    def notes(self) -> Sequence[str]:
        """Return what is not as it should be, for an operator; each says since when."""
        return ()

    def report_counts(self) -> Mapping[str, int]:
        """Return how many reports of hosts came to what since the start, by a word.

        By default none come.
        """
        return {}

    @property
    def endpoints(self) -> Sequence[object]:
        """What an RPC server on the scheduler's topic serves for this source."""
        return ()

    def stop(self) -> None:
        """Let go of what `start` and `follow` took; by default nothing."""
        return
