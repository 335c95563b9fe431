# SPDX-License-Identifier: Apache-2.0
"""A request, its caller and its prepared plugins, as all attempts to decide read them.

A `PreparedRequest` is created once for a decision, and not modified by its attempts. A
`Caller` has the parts of a request context that a decision needs.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Final, Self

from ..candidates import Offer
from ..errors import InvalidRequest, excerpt
from ..hosts import HostBatch
from ..request import Request
from .filter_chain import collect_limits
from .instances import (
    NO_CANDIDATE,
    Assignment,
    consumption_of,
    consumption_on_host,
    read_attributes,
)
from .parts import Parts
from .record import DecisionRecord

#: Printable ASCII without spaces. nova's ids have 40 characters.
_REQUEST_ID: Final = re.compile(r"[!-~]{1,255}")


@dataclasses.dataclass(frozen=True, slots=True)
class Caller:
    """The parts of a request context that logs, records and Placement get.

    Attributes
    ----------
    request_id : str or None
        nova's own id of the API request, for logs and the record.
    global_request_id : str or None
        Sent to Placement as ``X-Openstack-Request-Id``.
    """

    request_id: str | None = None
    global_request_id: str | None = None
    project_id: str | None = None
    user_id: str | None = None

    @classmethod
    def of(cls, context: object) -> Self:
        """Read a context: the dict of the wire, or nova's RequestContext.

        Raises
        ------
        InvalidRequest
            A request id contains characters not allowed in an HTTP header.
        """
        values: dict[str, str | None] = {}
        for field in dataclasses.fields(cls):
            if isinstance(context, Mapping):
                value = context.get(field.name)
            else:
                value = getattr(context, field.name, None)
            values[field.name] = value if isinstance(value, str) else None
        for name in ("request_id", "global_request_id"):
            if (value := values[name]) and not _REQUEST_ID.fullmatch(value):
                raise InvalidRequest(
                    f"{name} is {excerpt(value)}; it must have 1 to 255 printable "
                    "ASCII characters and no space"
                )
        values["global_request_id"] = (
            values["global_request_id"] or values["request_id"]
        )
        return cls(**values)


class PreparedRequest:
    """A request and the plugins that are prepared for it.

    Parameters
    ----------
    n_alternates : int
        The maximum number of alternates for each instance.

    Attributes
    ----------
    filters : sequence of BaseHostFilter
        The filters that apply to the request, in the order in which they run.
    n_first : int
        The number of filters at the start of `filters` without ``may_pass_later``.
    weighers : sequence of BaseHostWeigher
        The weighers that can distinguish hosts for the request.
    """

    def __init__(
        self,
        parts: Parts,
        caller: Caller,
        request: Request,
        instance_uuids: Sequence[str],
        record: DecisionRecord,
        *,
        n_alternates: int,
    ) -> None:
        self.parts = parts
        self.caller = caller
        self.request = request
        self.instance_uuids = instance_uuids
        self.record = record
        self.n_alternates = n_alternates
        spec_obj = request.spec_obj
        enabled = () if request.skips_filters else parts.filters
        filters = [filter_.prepare(spec_obj) for filter_ in enabled]
        applied = [filter_ for filter_ in filters if not filter_.is_idle]
        self.filters = sorted(applied, key=lambda filter_: filter_.may_pass_later)
        self.n_first = sum(not filter_.may_pass_later for filter_ in applied)
        weighers = [weigher.prepare(spec_obj) for weigher in parts.weighers]
        self.weighers = [weigher for weigher in weighers if not weigher.is_idle]
        record.origins = {type(w).__name__: w.origin for w in self.weighers if w.origin}
        self._consumption = consumption_of(request, parts.conf)

    def assign(
        self,
        instance_uuid: str,
        hosts: HostBatch,
        index: int,
        offer: Offer | None = None,
        candidate: int = NO_CANDIDATE,
    ) -> Assignment:
        """Return the candidate, limits and consumption of an instance on a host."""
        limits = self.limits(hosts, index)
        mappings = None
        if offer is not None and candidate != NO_CANDIDATE:
            mappings = offer.request(candidate)["mappings"]
        consumption = self._consumption
        if consumption.need is not None:
            consumption = consumption_on_host(consumption, limits, mappings)
        host = read_attributes(hosts, index)
        return Assignment(instance_uuid, host, candidate, limits, consumption)

    def limits(self, hosts: HostBatch, index: int) -> dict[str, object]:
        """Return the limits that the compute service of a host gets."""
        return collect_limits(
            self.filters,
            hosts,
            index,
            self.request.spec_obj,
            is_rebuild=self.request.is_rebuild,
        )
