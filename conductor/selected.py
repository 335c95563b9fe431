# SPDX-License-Identifier: Apache-2.0
"""The parts of a Selection about Placement: allocation request, provider mapping."""

from __future__ import annotations

import json
from typing import Any

from ..objects import RequestSpec, Selection
from ..scheduler.candidates import AllocationRequest
from ..scheduler.errors import InvalidRequest


def allocation_request(selection: Selection) -> AllocationRequest | None:
    """Return the allocation request of a selection; None: there is nothing to claim.

    Raises
    ------
    InvalidRequest
        The field is neither JSON nor an allocation request.
    """
    is_set = "allocation_request" in selection and selection.allocation_request
    try:
        request: Any = json.loads(selection.allocation_request) if is_set else None
    except ValueError as e:
        raise _wrong(selection, f"not JSON: {e}") from e
    match request:
        case None | {"allocations": dict()}:
            return request
    raise _wrong(selection, 'without an object "allocations"')


def fill_provider_mapping(spec_obj: RequestSpec, selection: Selection) -> None:
    """Set the providers of a request's groups to those that a selection claims.

    This is nova's ``fill_provider_mapping``. A group that the selection does not map,
    such as a group of traits only, gets no provider, so that no provider of a host that
    was tried before remains.
    """
    groups = spec_obj.requested_resources if "requested_resources" in spec_obj else None
    if not groups:
        return
    mappings = (allocation_request(selection) or {}).get("mappings", {})
    for group in groups:
        group.provider_uuids = list(mappings.get(group.requester_id or "", ()))


def _wrong(selection: Selection, why: str) -> InvalidRequest:
    return InvalidRequest(
        f"Selection.allocation_request of host {selection.service_host} is {why}: it "
        "must be an allocation request of GET /allocation_candidates, or null"
    )
