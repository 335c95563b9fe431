# SPDX-License-Identifier: Apache-2.0
"""Check chosen hosts again for changes just before they are claimed.

A decision reads the host table, which a source refreshes about once a second, and
answers of Placement that are cached for some seconds or a minute. The state of a
compute service, and the traits and aggregates, which Placement does not check when it
grants a claim, are read again for the chosen hosts only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from ...candidates import Offer
from ...placement.conditions import ProviderReader, conditions_of
from ...sources.base import ServiceHost, ServiceState
from ..filtering import explain_rejections
from ..instances import Assignment
from ..prepared import PreparedRequest
from ..record import OUTDATED
from .check import ClaimCheck, Excluded, Refusal

#: The age in seconds up to which an answer of Placement counts as current.
FRESH_S: Final = 1.0
#: The number of instances up to which candidates of an older answer are checked, with a
#: GET or two a host; for more, Placement is queried for candidates again.
MAX_RECHECKED: Final = 10
CHANGED: Final = "its traits or aggregates in Placement no longer match the request"


class FreshState(ClaimCheck):
    """Checks that chosen hosts and candidates are as they were read, or still pass.

    Each compute service is read once.
    """

    def __init__(self, prepared: PreparedRequest, offer: Offer) -> None:
        self._prepared = prepared
        self._offer = offer
        #: Otherwise the candidates come from a new answer.
        self._are_few = len(prepared.instance_uuids) <= MAX_RECHECKED
        self._states: dict[ServiceHost, ServiceState | None] = {}
        self._providers = ProviderReader(
            prepared.parts.placement,
            global_request_id=prepared.caller.global_request_id,
        )

    def read(self, assignments: Sequence[Assignment]) -> None:
        """Read the compute services of all these hosts at once."""
        self._read(_service_host(each.host) for each in assignments)

    def before(self, assignment: Assignment) -> Refusal | None:
        """Return a refusal if the host, or the candidate, no longer passes.

        Candidates of an answer younger than `FRESH_S` are not checked.

        Raises
        ------
        PlacementError
            Placement could not be queried.
        """
        host = assignment.host
        self._read([_service_host(host)])
        state = self._states[_service_host(host)]
        known = ServiceState(host["disabled"], host["forced_down"])
        if state is not None and state != known:
            hosts = self._prepared.parts.table.batch([host["uuid"]])
            rejections = [
                f"{rejection.filter}: {rejection.reason}"
                for now in hosts.with_numbers(dataclasses.asdict(state))
                for rejection in explain_rejections(
                    self._prepared.filters, now, self._prepared.request.spec_obj
                )
            ]
            if rejections:
                return Refusal(OUTDATED, rejections, Excluded.HOST)
        if self._still_fits(assignment):
            return None
        return Refusal(OUTDATED, [CHANGED], Excluded.CANDIDATE_OF_ANSWER)

    def _still_fits(self, assignment: Assignment) -> bool:
        """Return whether a candidate still has the traits and aggregates asked for."""
        answer, number = self._offer.locate(assignment.candidate)
        if not self._are_few or not conditions_of(answer.query):
            return True
        if self._prepared.parts.candidates.age_s(answer) <= FRESH_S:
            return True
        with self._prepared.record.timed("recheck"):
            return self._providers.still_fits(answer, number, assignment.value("uuid"))

    def _read(self, hosts: Iterable[ServiceHost]) -> None:
        unread = set(hosts).difference(self._states)
        if not unread:
            return
        with self._prepared.record.timed("recheck"):
            states = self._prepared.parts.source.service_states(unread)
        self._states.update((host, states.get(host)) for host in unread)


def _service_host(host: Mapping[str, Any]) -> ServiceHost:
    return host["cell_uuid"], host["host"]
