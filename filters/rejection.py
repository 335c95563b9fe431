# SPDX-License-Identifier: Apache-2.0
"""Why a filter rejects a host: what it requires, and what the host has."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

#: An attribute of a host, what a filter requires of it, and what the host has.
Mismatch = tuple[str, object, object]


@dataclasses.dataclass(frozen=True, slots=True)
class Rejection:
    """What a filter required of a host, and what the host has.

    A rejection may contain host names and instance UUIDs: it is for operators, not for
    end users.

    Attributes
    ----------
    filter : str
        The filter's class name.
    reason : str
        The reason that the filter gives, by default its ``REASON``.
    attribute : str or None
        The host's attribute; None: the filter does not name one.
    required, available : str or None
        The required and the actual value of the attribute; None: the filter does not
        name an attribute.
    """

    filter: str
    reason: str
    attribute: str | None = None
    required: str | None = None
    available: str | None = None

    def because(
        self, attribute: str, *, required: object, available: object
    ) -> Rejection:
        """Return a copy with an attribute, its required and its actual value."""
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
