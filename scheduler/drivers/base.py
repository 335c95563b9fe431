# SPDX-License-Identifier: Apache-2.0
"""The interface of scheduler drivers.

A driver decides which hosts the instances of a request get. Everything around that
choice is the scheduler's: it reads and validates the request, queries Placement for
candidates, and afterwards counts the instances in the host table, publishes and records
the decision; if the driver raises, it releases what the driver has claimed.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from oslo_config import cfg

from ...objects import Selection
from ..candidates import Mask
from ..hosts import HostBatch
from ..locality import JointRule, PlacesUsed
from ..request import Request

Selections = list[list[Selection]]

#: Returns the weight of each host for an instance, shape (n_hosts,), finite.
Weigh = Callable[[HostBatch, str], npt.NDArray[np.float64]]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Eligible:
    """The hosts that instances may get, and what they conform to together.

    Attributes
    ----------
    rules : sequence of JointRule
        Of `hosts`, which all of them allow.
    wishes : sequence of PlacesUsed
        Of `hosts`: weights besides those of the hosts.
    """

    hosts: HostBatch
    rules: Sequence[JointRule]
    wishes: Sequence[PlacesUsed]


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """A host and an allocation candidate for an instance.

    Attributes
    ----------
    index : int
        The host's in a batch.
    candidate : int
        Its number, of ``candidates.numbers`` of that batch.
    """

    instance_uuid: str
    index: int
    candidate: int


class DecisionSteps(abc.ABC):
    """The steps of one decision, which a driver calls in an order of its own.

    The steps may raise any SchedulerError; a driver lets every exception through, by
    which the scheduler notices, for example, that candidates are out of date.
    """

    @property
    @abc.abstractmethod
    def request(self) -> Request:
        """The request, validated; ``request.spec_obj`` is what the conductor sent."""

    @property
    @abc.abstractmethod
    def instance_uuids(self) -> Sequence[str]:
        """The instances that need a host each."""

    @property
    @abc.abstractmethod
    def candidates(self) -> HostBatch:
        """The hosts with allocation candidates that the request does not exclude.

        ``candidates.candidates`` are the allocation candidates of these hosts. For a
        rebuild, and for an old conductor, which claims by itself: all hosts. Instances
        that have been claimed are counted on their hosts.
        """

    @property
    @abc.abstractmethod
    def rng(self) -> np.random.Generator:
        """The random generator of this decision, whose seed the record keeps.

        A replay repeats what is chosen with it, and only that.
        """

    @abc.abstractmethod
    def passing(self, hosts: HostBatch, instance_uuid: str) -> HostBatch:
        """Return the hosts that pass all enabled filters for an instance.

        Called as often as the driver likes; each call is a step of the record.
        """

    @abc.abstractmethod
    def eligible(self, hosts: HostBatch, instance_uuid: str) -> Eligible:
        """Return the hosts that pass, for a driver that places several instances.

        As `passing`, but for rules about other instances of the request: those are
        returned, for all instances that are not counted on `hosts` yet.
        """

    @abc.abstractmethod
    def weights(self, hosts: HostBatch, instance_uuid: str) -> npt.NDArray[np.float64]:
        """Return the weight of each host, shape (n_hosts,): the highest is the best.

        It is the sum of the enabled weighers' multiplied, normalized weights, and 0 for
        a single host. The record has the last weights of the hosts that are claimed.
        """

    @abc.abstractmethod
    def ranked(self, hosts: HostBatch, instance_uuid: str) -> HostBatch:
        """Return the hosts in the order of ``filter_scheduler``, the best first."""

    @abc.abstractmethod
    def open_candidates(self, hosts: HostBatch) -> Mask:
        """Return which of ``hosts.candidates`` may still be claimed, shape (n,)."""

    @abc.abstractmethod
    def free(self, provider_uuid: str, resource_class: str) -> int:
        """Return what a provider of a candidate has left, less what this request has.

        It is 0 where Placement was not asked: such candidates need nothing.
        """

    @abc.abstractmethod
    def claim(
        self, hosts: HostBatch, index: int, instance_uuid: str
    ) -> HostBatch | None:
        """Claim a host in Placement for an instance, which gets that host.

        Called once for each instance with success, and before that with as many hosts
        as refuse. Placement's candidates of that host are tried in their order.

        Returns
        -------
        HostBatch or None
            The same hosts with the instance counted on the claimed one. None: refused,
            busy, or against the policy of the server group; try another host.
        """

    @abc.abstractmethod
    def n_passing(self, hosts: HostBatch, choices: Sequence[Choice]) -> int:
        """Return how many of these choices pass the filters, one after the other.

        All are of one host, on which each counts the ones before it. The first one
        passes, as the hosts are eligible. Nothing is claimed, and rules about other
        instances are not checked.
        """

    @abc.abstractmethod
    def claim_together(
        self, hosts: HostBatch, choices: Sequence[Choice]
    ) -> tuple[HostBatch, list[str]]:
        """Claim the chosen candidates in one POST, split where Placement refuses it.

        Hosts are checked again before, and groups after the claim, as by `claim`.
        Instances whose claim is granted have their host.

        Returns
        -------
        hosts : HostBatch
            The same hosts with those instances counted on them.
        refused : list of str
            The other instances, for which nothing is claimed.
        """

    @abc.abstractmethod
    def selections(self, alternates: HostBatch) -> Selections:
        """Return what the driver returns, once all instances have a host.

        Parameters
        ----------
        alternates : HostBatch
            Hosts that pass for the instance claimed last, the best first. Each instance
            gets as many of its cell as the request needs; chosen hosts are left out.
        """

    @abc.abstractmethod
    def select_by_weight(self, weigh: Weigh | None = None) -> Selections:
        """Do all further steps as ``filter_scheduler`` does.

        Every instance without a host gets the passing host of the highest weight that
        grants a claim. Claims of several instances share a POST, busy hosts are tried
        again, and what an earlier, repeated request claimed is taken over.

        Parameters
        ----------
        weigh : callable, optional
            Weighs the hosts, alternates as well; by default the enabled weighers.
        """

    @abc.abstractmethod
    def note(self, text: str) -> None:
        """Put a line about how the driver chose into the record, for operators."""

    @abc.abstractmethod
    def monotonic(self) -> float:
        """Return the seconds of a clock that is never set, to limit times."""


class BaseSchedulerDriver(abc.ABC):
    """Chooses hosts for instances; must be thread-safe.

    One is created at the start, and one whenever options and plugins are reloaded.

    Parameters
    ----------
    conf : oslo_config.cfg.ConfigOpts
        The options; they do not change.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self.conf = conf

    @abc.abstractmethod
    def select(self, steps: DecisionSteps) -> Selections:
        """Choose and claim a host for each instance.

        Called once for a request, and again, with new steps, if Placement's candidates
        were out of date.

        Returns
        -------
        list of list of Selection
            What ``steps.selections`` returns.

        Raises
        ------
        NoValidHost
            At least one instance fits nowhere; the scheduler releases the claims of the
            others, and may call again with newer candidates.
        """
