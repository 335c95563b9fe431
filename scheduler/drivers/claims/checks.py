# SPDX-License-Identifier: Apache-2.0
"""Check of a claim what Placement does not check when it grants the claim.

may_try ▸ before ▸ Placement ▸ after

This module has the interface `ClaimCheck`, and the checks of a host's current state and
of its CPUs and devices. The checks of server groups and of rules about places are in
`groups` and `levels`.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence
from typing import Final

from ...candidates import Offer
from ...hosts import HostBatch
from ...placement.allocations.claims import ClaimAnswer
from ...placement.allocations.limits import MAX_COLLISIONS
from ...placement.conditions import ProviderReader, conditions_of
from ...placement.members import read_as
from ...sources.base import ServiceHost, ServiceState
from ..filtering import explain_rejections
from ..instances import Assignment
from ..prepared import PreparedRequest
from ..record import COLLIDED, DEVICES_CLAIMED_FIRST, OUTDATED
from .peer_claims import ClaimState, PeerClaim


class Excluded(enum.Enum):
    """What an attempt to decide does not try again after a refusal."""

    #: Nothing is excluded, but another host is tried first.
    NOTHING = enum.auto()
    CANDIDATE = enum.auto()
    #: The candidate is excluded, also for later requests that use the same answer of
    #: Placement.
    CANDIDATE_OF_ANSWER = enum.auto()
    HOST = enum.auto()


@dataclasses.dataclass(frozen=True, slots=True)
class Refusal:
    """Why an instance does not get a candidate.

    Attributes
    ----------
    result : str
        A value of `ClaimAttempt.result`.
    details : sequence of str
        The details; the record gets a `ClaimAttempt` for each of them.
    """

    result: str
    details: Sequence[str]
    excluded: Excluded


class ClaimCheck:
    """A rule that `Claims` checks for each claim; by default it allows everything.

    Attributes
    ----------
    is_counting : bool
        Whether the check makes filters count instances that other requests place at the
        same time. The filters then run again before each further round over all hosts.
    """

    is_counting = False

    def read(self, assignments: Sequence[Assignment]) -> None:
        """Read at once what `before` needs for each assignment.

        Called before several instances are claimed together.
        """

    def may_try(self, assignment: Assignment) -> bool:
        """Return whether to try a host now; called for instances claimed singly."""
        return True

    def before(self, assignment: Assignment) -> Refusal | None:
        """Return why a claim must not be sent; None: send it now."""

    def after(
        self, assignment: Assignment, answer: ClaimAnswer, eligible: HostBatch
    ) -> Refusal | None:
        """Return why a claim that was granted must be released; None: it is kept.

        Parameters
        ----------
        eligible : HostBatch
            The hosts that passed the filters that do not depend on other instances,
            with the instances that are claimed together counted on them.
        """

    def undo(self, instance_uuid: str) -> None:
        """Undo what `before` did for a claim that is not kept.

        It may be called twice for the same instance.
        """

    def may_retry(self, n_rounds: int) -> bool | None:
        """Return whether to try all hosts again after `n_rounds` rounds.

        Called once after each round over all hosts. None: the check refused no host for
        a temporary reason.
        """


def read_roots(
    prepared: PreparedRequest, offer: Offer, instance_uuid: str
) -> frozenset[str]:
    """Return the root providers of an instance's allocations, as Placement has them.

    They are the compute nodes also where the allocations are on their children only,
    and other roots, such as shared storage.

    Raises
    ------
    PlacementError
        Placement could not be read.
    """
    placement, table = prepared.parts.placement, prepared.parts.table
    request_id = prepared.caller.global_request_id
    held = placement.allocations(instance_uuid, global_request_id=request_id)
    roots = set()
    for provider in held.resources:
        root = provider if table.has_node(provider) else offer.root_of(provider)
        if root is None:  # its host has no candidate: it may be full
            root = read_as(
                placement,
                f"/resource_providers/{provider}",
                lambda body: str(body["root_provider_uuid"]),
                request_id,
            )
        roots.add(root)
    return frozenset(roots)


#: The age in seconds up to which an answer of Placement counts as current.
FRESH_S: Final = 1.0
#: The maximum number of instances of a request for which candidates of an older answer
#: are checked, with a GET or two for each host. For a request of more instances,
#: Placement is queried for candidates again.
MAX_RECHECKED: Final = 10
CHANGED: Final = "its traits or aggregates in Placement no longer match the request"


class FreshState(ClaimCheck):
    """Checks that chosen hosts and candidates have not changed, or still pass.

    A decision reads the host table, which a source refreshes about once a second, and
    answers of Placement that are cached for some seconds or a minute. So for the chosen
    hosts, this check reads the state of the compute services again, each of them once,
    and traits and aggregates, which Placement does not check when it grants a claim.
    """

    def __init__(self, prepared: PreparedRequest, offer: Offer) -> None:
        self._prepared = prepared
        self._offer = offer
        #: Whether candidates are checked: those of many instances are of a new answer.
        self._are_few = len(prepared.instance_uuids) <= MAX_RECHECKED
        self._states: dict[ServiceHost, ServiceState | None] = {}
        #: Created when the first candidate is checked.
        self._providers: ProviderReader | None = None

    def read(self, assignments: Sequence[Assignment]) -> None:
        """Read the states of all compute services that have not been read yet."""
        hosts = {(a.host["cell_uuid"], a.host["host"]) for a in assignments}
        if unread := hosts.difference(self._states):
            with self._prepared.record.timed("recheck"):
                states = self._prepared.parts.source.service_states(unread)
            self._states.update((host, states.get(host)) for host in unread)

    def before(self, assignment: Assignment) -> Refusal | None:
        """Return a refusal if the host, or the candidate, no longer passes.

        Candidates are not checked if Placement's answer is not older than `FRESH_S`.

        Raises
        ------
        PlacementError
            Placement could not be queried.
        """
        parts, host = self._prepared.parts, assignment.host
        self.read([assignment])
        state = self._states[host["cell_uuid"], host["host"]]
        state_as_read = ServiceState(host["disabled"], host["forced_down"])
        if state is not None and state != state_as_read:
            hosts = parts.table.batch([host["uuid"]])
            rejections = [
                f"{rejection.filter}: {rejection.reason}"
                for host_now in hosts.with_numbers(dataclasses.asdict(state))
                for rejection in explain_rejections(
                    self._prepared.filters, host_now, self._prepared.request.spec_obj
                )
            ]
            if rejections:
                return Refusal(OUTDATED, rejections, Excluded.HOST)
        answer, number = self._offer.locate(assignment.candidate)
        if (
            not self._are_few
            or not conditions_of(answer.query)
            or parts.candidates.age_s(answer) <= FRESH_S
        ):
            return None
        if self._providers is None:
            self._providers = ProviderReader(
                parts.placement,
                global_request_id=self._prepared.caller.global_request_id,
            )
        with self._prepared.record.timed("recheck"):
            if self._providers.still_fits(answer, number, host["uuid"]):
                return None
        return Refusal(OUTDATED, [CHANGED], Excluded.CANDIDATE_OF_ANSWER)


@dataclasses.dataclass(frozen=True, slots=True)
class _Reserved:
    """A reservation, and whether its guest fitted when the reservation was made.

    A guest that did not fit then is not checked again after its claim.
    """

    claim: PeerClaim
    has_fitted: bool


class FitCheck(ClaimCheck):
    """Reserves CPUs and PCI devices, which Placement does not know, before a claim.

    Placement counts the dedicated CPUs and the memory of a host, but not of each of its
    NUMA cells, and it counts only those PCI devices that nova reports to it. So it can
    grant the same CPUs or devices to two guests that are placed at the same time.
    Therefore a guest is counted in the host table before it is claimed, and announced
    to the other schedulers while Placement handles the claim. Once the claim is
    granted, the reservations of the other schedulers have arrived. Of guests that do
    not fit together, the earlier ones keep their claims; the order is by time, then by
    UUID, so that all schedulers see the same order. The claim of a guest that does not
    fit after the earlier ones is released, and the guest gets another host.

    Parameters
    ----------
    since : int
        The revision of the hosts that the decision reads.
    """

    def __init__(self, prepared: PreparedRequest, offer: Offer, *, since: int) -> None:
        self._prepared = prepared
        self._offer = offer
        self._since = since
        self._reserved: dict[str, _Reserved] = {}
        self._n_collisions = 0

    def before(self, assignment: Assignment) -> Refusal | None:
        """Reserve what a guest needs; return a refusal if the host lacks it now.

        Nothing is reserved for a guest that is on that host already, or that an earlier
        request has claimed there. The answer to that request may be lost, and a guest
        that was claimed later, before the earlier claim was known here, be in use: it
        must fit beside that, too.
        """
        parts, uuid = self._prepared.parts, assignment.instance_uuid
        table, host = parts.table, assignment.value("host")
        node_uuid, now = assignment.value("uuid"), parts.clock()
        refusal = Refusal(OUTDATED, [DEVICES_CLAIMED_FIRST], Excluded.CANDIDATE)
        if host in table.instances.hosts_of(uuid):
            has_place = table.claims.has_place(node_uuid, uuid, beside_all=True)
            return None if has_place else refusal
        if not table.claims.consume_if_fits(
            node_uuid, uuid, assignment.consumption, now, self._since
        ):
            return refusal
        spec_obj = self._prepared.request.spec_obj
        claim = PeerClaim.of(
            assignment, self._offer, spec_obj, now, ClaimState.RESERVED
        )
        has_fitted = table.claims.has_place(node_uuid, uuid)
        self._reserved[uuid] = _Reserved(claim, has_fitted)
        if parts.publish_claims is not None:
            parts.publish_claims([claim])
        return None

    def after(
        self, assignment: Assignment, answer: ClaimAnswer, eligible: HostBatch
    ) -> Refusal | None:
        """Return a refusal if a guest does not fit after the guests reserved earlier.

        After `MAX_COLLISIONS` such refusals, claims are kept, and the compute service
        has to check them. A claim that is found may be of an earlier request, so that
        the host counts it already, or of this one, whose write got no answer.
        """
        uuid = assignment.instance_uuid
        reserved = self._reserved.get(uuid)
        if reserved is None or not reserved.has_fitted:
            return None
        if self._n_collisions >= MAX_COLLISIONS:
            return None
        claims, node_uuid = self._prepared.parts.table.claims, reserved.claim.node_uuid
        # Reserved once more: if Placement's answer took seconds, the reservation may
        # have been released as one of a scheduler that has ended.
        is_reserved = claims.consume_if_fits(
            node_uuid,
            uuid,
            assignment.consumption,
            reserved.claim.claimed_at,
            self._since,
        )
        if is_reserved and claims.has_place(node_uuid, uuid):
            return None
        self._n_collisions += 1
        return Refusal(COLLIDED, [DEVICES_CLAIMED_FIRST], Excluded.CANDIDATE)

    def undo(self, instance_uuid: str) -> None:
        """Release a guest's reservation, if any, and announce the release to others."""
        reserved = self._reserved.pop(instance_uuid, None)
        if reserved is not None:
            parts, claim = self._prepared.parts, reserved.claim
            parts.table.claims.withdraw(
                claim.node_uuid, instance_uuid, claim.claimed_at
            )
            withdrawn = dataclasses.replace(claim, state=ClaimState.WITHDRAWN)
            if parts.publish_claims is not None:
                parts.publish_claims([withdrawn])
