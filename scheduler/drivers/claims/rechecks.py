# SPDX-License-Identifier: Apache-2.0
"""Check chosen hosts again for changes just before they are claimed.

A decision reads the host table, which a source refreshes about once a second, and
answers of Placement that are cached for some seconds or a minute. The state of a
compute service, and the traits and aggregates, which Placement does not check when it
grants a claim, are read again for the chosen hosts only.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from ....filters import BaseHostFilter
from ....objects import RequestSpec
from ...candidates import Offer
from ...placement.conditions import ProviderReader, conditions_of
from ...sources.base import ServiceHost, ServiceState
from ..filtering import explain_rejections
from ..instances import PlacedInstance
from ..parts import Parts
from ..record import OUTDATED, ClaimAttempt, DecisionRecord

LOG = logging.getLogger(__name__)

#: The age in seconds up to which an answer of Placement counts as current.
FRESH_S: Final = 1.0
#: The number of instances up to which candidates of an older answer are checked, with a
#: GET or two a host; for more, Placement is queried for candidates again.
MAX_RECHECKED: Final = 10
CHANGED: Final = "its traits or aggregates in Placement no longer match the request"


#: Attributes of a chosen host, as `read_attributes` returns them.
HostValues = Mapping[str, Any]


class Rechecks:
    """Reads the current state of the chosen hosts of one decision, each once.

    Parameters
    ----------
    filters : sequence of BaseHostFilter
        Prepared for this request.
    is_few : bool
        Whether to check candidates, too; otherwise they come from a new answer.
    """

    def __init__(
        self,
        parts: Parts,
        spec_obj: RequestSpec,
        filters: Sequence[BaseHostFilter],
        record: DecisionRecord,
        *,
        is_few: bool,
        global_request_id: str | None = None,
    ) -> None:
        self._clock = parts.clock
        self._source = parts.source
        self._table = parts.table
        self._candidates = parts.candidates
        self._spec = spec_obj
        self._filters = filters
        self._record = record
        self._is_few = is_few
        self._states: dict[ServiceHost, ServiceState | None] = {}
        self._providers = ProviderReader(
            parts.placement, global_request_id=global_request_id
        )

    def passes(self, uuid: str, host: HostValues) -> bool:
        """Return whether a host still passes the filters; record it if not."""
        key = _service_host(host)
        self._read([key])
        state = self._states[key]
        if state is None or state == _known_state(host):
            return True
        rejections = [
            rejection
            for now in self._table.batch([host["uuid"]]).with_numbers(
                dataclasses.asdict(state)
            )
            for rejection in explain_rejections(self._filters, now, self._spec)
        ]
        for rejection in rejections:
            self._note(uuid, key[1], f"{rejection.filter}: {rejection.reason}")
        return not rejections

    def read(self, placed: Iterable[PlacedInstance]) -> None:
        """Read the compute services of all these hosts at once."""
        self._read(_service_host(each.chosen.values) for each in placed)

    def still_fits(
        self, uuid: str, host: HostValues, offer: Offer, candidate: int
    ) -> bool:
        """Return whether a candidate still has the traits and aggregates asked for.

        Candidates of an answer younger than `FRESH_S` are not checked.

        Raises
        ------
        PlacementError
            Placement could not be queried.
        """
        part, number = offer.locate(candidate)
        if not self._is_few or not conditions_of(part.query):
            return True
        if self._candidates.age_s(part) <= FRESH_S:
            return True
        with self._record.timed("recheck"):
            fits = self._providers.still_fits(part, number, host["uuid"])
        if not fits:
            self._note(uuid, host["host"], CHANGED)
        return fits

    def _read(self, hosts: Iterable[ServiceHost]) -> None:
        unread = set(hosts).difference(self._states)
        if not unread:
            return
        with self._record.timed("recheck"):
            found = self._source.service_states(unread)
        self._states.update((host, found.get(host)) for host in unread)

    def _note(self, uuid: str, host: str, why: str) -> None:
        LOG.info("Not claiming host %s for instance %s: %s", host, uuid, why)
        at_ms = self._record.elapsed_ms(self._clock())
        attempt = ClaimAttempt((uuid,), (host,), OUTDATED, 0, why, at_ms)
        self._record.claims.append(attempt)


def _service_host(host: HostValues) -> ServiceHost:
    return host["cell_uuid"], host["host"]


def _known_state(host: HostValues) -> ServiceState:
    return ServiceState(host["disabled"], host["forced_down"])
