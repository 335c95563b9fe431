# SPDX-License-Identifier: Apache-2.0
"""Who asks: what a decision needs of a request context."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Self

from ..placement.query import Requirements

Starting = Callable[[Requirements | None], None]


def tell_nobody(requirements: Requirements | None) -> None:
    """Stand in where nobody wants to know that a request starts."""


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
    """

    request_id: str | None = None
    global_request_id: str | None = None
    project_id: str | None = None
    user_id: str | None = None
    starting: Starting = tell_nobody

    @classmethod
    def of(cls, context: object, *, starting: Starting = tell_nobody) -> Self:
        """Read a context: the dict of the wire, or nova's RequestContext."""
        request_id = _get(context, "request_id")
        return cls(
            request_id=request_id,
            global_request_id=_get(context, "global_request_id") or request_id,
            project_id=_get(context, "project_id"),
            user_id=_get(context, "user_id"),
            starting=starting,
        )


def _get(context: object, name: str) -> str | None:
    if isinstance(context, Mapping):
        value = context.get(name)
    else:
        value = getattr(context, name, None)
    return value if isinstance(value, str) else None
