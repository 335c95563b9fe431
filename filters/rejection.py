# SPDX-License-Identifier: Apache-2.0
"""Why one filter rejects one host, in words for an operator."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection


@dataclasses.dataclass(frozen=True, slots=True)
class Rejection:
    """What a filter required of a host and what is there.

    It may hold host names and instance UUIDs: it is for operators, not for end users.

    Attributes
    ----------
    filter : str
        The filter's class name.
    reason : str
        Its ``REASON``.
    attribute : str or None
        What of the host it looked at; None, as in the next two: the filter does not
        tell.
    required, available : str or None
        What that had to be, and what it is.
    """

    filter: str
    reason: str
    attribute: str | None = None
    required: str | None = None
    available: str | None = None

    def because(
        self, attribute: str, *, required: object, available: object
    ) -> Rejection:
        """Return the same with what was looked at, required and found, as text."""
        return dataclasses.replace(
            self,
            attribute=attribute,
            required=_text(required),
            available=_text(available),
        )


def _text(value: object) -> str:
    if isinstance(value, Collection) and not isinstance(value, str):
        return ", ".join(sorted(map(str, value))) or "nothing"
    return "nothing" if value is None or value == "" else str(value)
