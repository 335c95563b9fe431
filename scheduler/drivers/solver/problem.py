# SPDX-License-Identifier: Apache-2.0
"""What is asked of the solver: how many instances each allocation candidate gets."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from ...candidates import resources_of
from ...locality import JointRule, PlacesUsed
from ..base import DecisionSteps, Eligible

Numbers = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class SharedRoom:
    """What several options use of one provider's resource class.

    Attributes
    ----------
    options : ndarray of int64, shape (n,)
    amounts : ndarray of int64, shape (n,)
        What an instance of each needs.
    free : int
    """

    options: Numbers
    amounts: Numbers
    free: int


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """How to place so many instances on options, the open candidates of some hosts.

    Attributes
    ----------
    hosts : ndarray of int64, shape (n_options,)
        The index of each option's host.
    candidates : ndarray of int64, shape (n_options,)
        The number of each option's candidate.
    most : ndarray of int64, shape (n_options,)
        The most instances that each may get.
    weights : ndarray of float64, shape (n_hosts,)
    """

    n_instances: int
    hosts: Numbers
    candidates: Numbers
    most: Numbers
    weights: npt.NDArray[np.float64]
    shared: Sequence[SharedRoom]
    rules: Sequence[JointRule]
    wishes: Sequence[PlacesUsed]

    @classmethod
    def read(cls, steps: DecisionSteps, eligible: Eligible, n_left: int) -> Problem:
        """Return the problem of placing so many instances that have no host yet.

        The weights are those of the hosts before any of these instances is placed.
        """
        hosts = eligible.hosts
        offered = hosts.candidates
        options = np.flatnonzero(steps.open_candidates(hosts))
        most, shared = _rooms(
            steps, [resources_of(offered.request(i)) for i in options.tolist()], n_left
        )
        [uuid, *_] = steps.instance_uuids
        return cls(
            n_instances=n_left,
            hosts=offered.rows[options].astype(np.int64),
            candidates=offered.numbers[options].astype(np.int64),
            most=most,
            weights=steps.weights(hosts, uuid),
            shared=shared,
            rules=eligible.rules,
            wishes=eligible.wishes,
        )

    def with_most(self, options: npt.NDArray[np.bool_], most: int) -> Problem:
        """Return the same with so many instances for some options at most."""
        return dataclasses.replace(self, most=np.where(options, most, self.most))


def _rooms(
    steps: DecisionSteps,
    needs: Sequence[Mapping[str, Mapping[str, int]]],
    n_instances: int,
) -> tuple[Numbers, list[SharedRoom]]:
    """Return how many instances fit each option alone, and what options share."""
    most = np.full(len(needs), n_instances, np.int64)
    users: defaultdict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for option, need in enumerate(needs):
        for provider, resources in need.items():
            for name, amount in resources.items():
                users[provider, name].append((option, amount))
    shared = []
    for (provider, name), mine in users.items():
        free = steps.free(provider, name)
        options, amounts = np.array(mine, np.int64).T
        most[options] = np.minimum(most[options], np.maximum(free, 0) // amounts)
        if len(mine) > 1:
            shared.append(SharedRoom(options, amounts, free))
    return most, shared
