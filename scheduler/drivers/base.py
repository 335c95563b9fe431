# SPDX-License-Identifier: Apache-2.0
"""The interface of scheduler drivers.

A driver decides which hosts the instances of a request get. Everything around that
choice is the scheduler's: it reads and validates the request, queries Placement for
candidates, and afterwards counts the instances in the host table, publishes and records
the decision; if the driver raises, it releases what the driver has claimed.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
from oslo_config import cfg

from ...objects import Selection
from ..hosts import HostBatch
from ..request import Request

Selections = list[list[Selection]]


class DecisionSteps(Protocol):
    """The steps of one decision, which a driver calls in an order of its own.

    The steps may raise any SchedulerError; a driver lets every exception through, by
    which the scheduler notices, for example, that candidates are out of date.
    """

    @property
    def request(self) -> Request:
        """The request, validated; ``request.spec_obj`` is what the conductor sent."""

    @property
    def instance_uuids(self) -> Sequence[str]:
        """The instances that need a host each."""

    @property
    def candidates(self) -> HostBatch:
        """The hosts with allocation candidates that the request does not exclude.

        ``candidates.candidates`` are the allocation candidates of these hosts. For a
        rebuild, and for an old conductor, which claims by itself: all hosts.
        """

    def passing(self, hosts: HostBatch, instance_uuid: str) -> HostBatch:
        """Return the hosts that pass all enabled filters for an instance.

        Called as often as the driver likes; each call is a step of the record.
        """

    def weights(self, hosts: HostBatch, instance_uuid: str) -> npt.NDArray[np.float64]:
        """Return the weight of each host, shape (n_hosts,): the highest is the best.

        It is the sum of the enabled weighers' multiplied, normalized weights, and 0 for
        a single host.
        """

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

    def selections(self, alternates: HostBatch) -> Selections:
        """Return what the driver returns, once all instances have a host.

        Parameters
        ----------
        alternates : HostBatch
            Hosts that pass for the instance claimed last, the best first. Each instance
            gets as many of its cell as the request needs; chosen hosts are left out.
        """

    def select_by_weight(self) -> Selections:
        """Do all steps as ``filter_scheduler``: for requests that need nothing else."""


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
