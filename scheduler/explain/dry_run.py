# SPDX-License-Identifier: Apache-2.0
"""A decision without claims: where instances would go now."""

from __future__ import annotations

import copy
import uuid
from typing import Final

from ...objects import RequestSpec
from ..drivers.claims.recorded import RecordedClaims
from ..drivers.decision import Decision
from ..drivers.parts import Parts
from ..drivers.prepared import Caller
from ..drivers.record import DecisionRecord
from ..errors import NoValidHost

_NAMESPACE: Final = uuid.UUID("6d6f6f72-6167-5000-8000-6472792d7275")


def dry_run(
    parts: Parts, caller: Caller, spec_obj: RequestSpec, n_instances: int
) -> DecisionRecord:
    """Decide a request for `n_instances` as the scheduler does, but claim nothing.

    The outcome of the returned record is `Outcome.SELECTED` or `Outcome.NO_VALID_HOST`;
    the record is not stored. Each process orders hosts of equal weight differently,
    unless ``random_seed`` is set.

    Raises
    ------
    SchedulerError
        The request is invalid, or a component failed.
    """
    spec_obj = copy.deepcopy(spec_obj)
    spec_obj.num_instances = n_instances
    uuids = [str(uuid.uuid5(_NAMESPACE, str(i))) for i in range(n_instances)]
    record = DecisionRecord(
        caller.request_id,
        tuple(uuids),
        n_instances,
        started_at=parts.clock(),
        project_id=caller.project_id,
        n_known_hosts=len(parts.table),
    )
    decision = Decision(
        parts,
        caller,
        spec_obj,
        uuids,
        record,
        return_alternates=True,
        recorded=RecordedClaims(),
    )
    try:
        with decision.concluding():
            decision.run()
    except NoValidHost as e:
        record.user_message = e.reason
    return record
