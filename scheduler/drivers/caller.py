# SPDX-License-Identifier: Apache-2.0
"""Who asks: what a decision needs of a request context."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Final, Self

from ..errors import InvalidRequest, excerpt
from ..hosts import Consumption, HostBatch
from ..placement.query import Requirements

Starting = Callable[[Requirements | None], None]
Placing = Callable[[HostBatch, int, Consumption], None]


def tell_nobody(*told: object) -> None:
    """Stand in where nobody wants to know how far a request is."""


@dataclasses.dataclass(frozen=True, slots=True)
class Caller:
    """The parts of a request context that are handed on.

    Attributes
    ----------
    request_id : str or None
        nova's own id of the API request, for logs and the record.
    global_request_id : str or None
        What Placement is told as ``X-Openstack-Request-Id``.
    starting : callable
        Called once a request is known to have candidates, with what it requires of
        Placement; None for a rebuild, for which Placement is not asked.
    placing : callable
        Called once all instances have their hosts, with where the last one is: the
        hosts as it found them, the index of its own, and what it takes of that.
    """

    request_id: str | None = None
    global_request_id: str | None = None
    project_id: str | None = None
    user_id: str | None = None
    starting: Starting = tell_nobody
    placing: Placing = tell_nobody

    @classmethod
    def of(cls, context: object) -> Self:
        """Read a context: the dict of the wire, or nova's RequestContext.

        Raises
        ------
        InvalidRequest
            A request id is none that an HTTP header or a log line can have.
        """
        request_id = _request_id(context, "request_id")
        return cls(
            request_id=request_id,
            global_request_id=_request_id(context, "global_request_id") or request_id,
            project_id=_get(context, "project_id"),
            user_id=_get(context, "user_id"),
        )


#: Printable ASCII without spaces. nova's ids have 40 characters.
_REQUEST_ID: Final = re.compile(r"[!-~]{1,255}")


def _request_id(context: object, name: str) -> str | None:
    value = _get(context, name)
    if value and not _REQUEST_ID.fullmatch(value):
        raise InvalidRequest(
            f"{name} is {excerpt(value)}; it must have 1 to 255 printable ASCII "
            "characters and no space"
        )
    return value


def _get(context: object, name: str) -> str | None:
    if isinstance(context, Mapping):
        value = context.get(name)
    else:
        value = getattr(context, name, None)
    return value if isinstance(value, str) else None
