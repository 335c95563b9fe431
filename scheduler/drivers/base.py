# SPDX-License-Identifier: Apache-2.0
"""The interface of scheduler drivers.

A driver decides which hosts the instances of a request get. The scheduler does
everything else: it reads and validates the request, and queries Placement for
candidates; after the choice, it counts the instances in the host table, and publishes
and records the decision. If the driver raises, the scheduler releases its claims.
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
    """The hosts that instances may get, and rules and wishes for them as a whole.

    Attributes
    ----------
    rules : sequence of JointRule
        The rules to which all instances must conform together; each rule alone allows
        every one of `hosts`.
    wishes : sequence of PlacesUsed
        Weights of the places that the instances use, in addition to weights of hosts.
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
        The index of the host in a batch.
    candidate : int
        The candidate's number, an element of ``candidates.numbers`` of that batch.
    """

    instance_uuid: str
    index: int
    candidate: int


class DecisionSteps(abc.ABC):
    """The steps of one decision, which a driver calls in an order of its own.

    The steps may raise any SchedulerError. A driver must not catch any exception of
    theirs: by an exception, the scheduler notices, for example, outdated candidates.
    """

    @property
    @abc.abstractmethod
    def request(self) -> Request:
        """The request, validated; ``request.spec_obj`` is what the conductor sent."""

    @property
    @abc.abstractmethod
    def instance_uuids(self) -> Sequence[str]:
        """The instances, each of which needs a host."""

    @property
    @abc.abstractmethod
    def candidates(self) -> HostBatch:
        """The hosts with allocation candidates that the request does not exclude.

        ``candidates.candidates`` are the allocation candidates of these hosts. A
        rebuild has no allocation candidates: its hosts are all that it does not
        exclude. Instances whose claims were granted are counted on their hosts.
        """

    @property
    @abc.abstractmethod
    def rng(self) -> np.random.Generator:
        """The random generator of this decision, whose seed the record keeps.

        A replay repeats random choices only if they are made with this generator.
        """

    @abc.abstractmethod
    def passing(self, hosts: HostBatch, instance_uuid: str) -> HostBatch:
        """Return the hosts that pass all enabled filters for an instance.

        Called as often as the driver likes; each call is a step of the record.
        """

    @abc.abstractmethod
    def eligible(self, hosts: HostBatch, instance_uuid: str) -> Eligible:
        """Return the hosts that pass, for a driver that places several instances.

        In contrast to `passing`, rules about other instances of the request reject no
        host. They are returned instead, and concern all instances that are not counted
        on `hosts` yet.
        """

    @abc.abstractmethod
    def weights(self, hosts: HostBatch, instance_uuid: str) -> npt.NDArray[np.float64]:
        """Return the weight of each host, shape (n_hosts,): the highest is the best.

        The weight is the sum of the enabled weighers' multiplied, normalized weights,
        and 0 for a single host. The record gets the weights of the last call.
        """

    @abc.abstractmethod
    def ranked(self, hosts: HostBatch, instance_uuid: str) -> HostBatch:
        """Return the hosts in the order of ``filter_scheduler``, the best first."""

    @abc.abstractmethod
    def open_candidates(self, hosts: HostBatch) -> Mask:
        """Return which of ``hosts.candidates`` may still be claimed, shape (n,)."""

    @abc.abstractmethod
    def free(self, provider_uuid: str, resource_class: str) -> int:
        """Return the free amount of a provider of a candidate.

        Amounts that this request has reserved are not free. The amount is 0 if
        Placement was not queried: there are no candidates then, and nothing is claimed.
        """

    @abc.abstractmethod
    def claim(
        self, hosts: HostBatch, index: int, instance_uuid: str
    ) -> HostBatch | None:
        """Claim a host in Placement for an instance, which gets that host.

        A driver calls it with one host after another until a claim is granted, once for
        each instance. Placement's candidates of the host are tried in their order.

        Returns
        -------
        HostBatch or None
            The same hosts with the instance counted on the claimed one. None: the claim
            was refused, the host was busy, or a rule about other instances forbids it;
            the driver must try another host.
        """

    @abc.abstractmethod
    def n_passing(self, hosts: HostBatch, choices: Sequence[Choice]) -> int:
        """Return how many of the choices pass the filters, one after the other.

        All choices are of one host. The filters run for each with the previous choices
        counted on the host, up to the first that does not pass. The first choice always
        passes, as the hosts are eligible. Nothing is claimed, and rules about other
        instances are not checked.
        """

    @abc.abstractmethod
    def claim_together(
        self, hosts: HostBatch, choices: Sequence[Choice]
    ) -> tuple[HostBatch, list[str]]:
        """Claim the chosen candidates in one POST, split where Placement refuses it.

        As by `claim`, hosts are checked again before the claim, and server groups and
        rules about places after it. Instances whose claim is granted have their host.

        Returns
        -------
        hosts : HostBatch
            The same hosts with the instances counted whose claims were granted.
        refused : list of str
            The UUIDs of the other instances, for which nothing is claimed.
        """

    @abc.abstractmethod
    def selections(self, alternates: HostBatch) -> Selections:
        """Return what `BaseSchedulerDriver.select` has to return.

        Called once all instances have a host.

        Parameters
        ----------
        alternates : HostBatch
            Hosts that pass for the instance claimed last, the best first. Each instance
            gets the first of them in the cell of its host, as many as the request
            needs. Hosts that were chosen for an instance are left out.
        """

    @abc.abstractmethod
    def select_by_weight(self, weigh: Weigh | None = None) -> Selections:
        """Do all further steps as ``filter_scheduler`` does, and return the selections.

        Every instance without a host gets the passing host of the highest weight on
        which a claim is granted. Claims of several instances share a POST, busy hosts
        are tried again, and what an earlier, identical request claimed for the instance
        is taken over.

        Parameters
        ----------
        weigh : callable, optional
            Weighs the hosts, including alternates; by default the enabled weighers do.
        """

    @abc.abstractmethod
    def note(self, text: str) -> None:
        """Put a line about how the driver chose into the record, for operators."""

    @abc.abstractmethod
    def monotonic(self) -> float:
        """Return the time in seconds of a monotonic clock, to measure durations."""


class BaseSchedulerDriver(abc.ABC):
    """Chooses hosts for instances; must be thread-safe.

    A driver is created at the start, and anew when options and plugins are reloaded.

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

        Called once for a request, and again with new steps if Placement's candidates
        or the hosts were out of date.

        Returns
        -------
        list of list of Selection
            What ``steps.selections`` or ``steps.select_by_weight`` returned.

        Raises
        ------
        NoValidHost
            At least one instance fits nowhere. The scheduler releases the claims of the
            other instances, and may call again with newer candidates.
        """
