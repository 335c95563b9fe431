# SPDX-License-Identifier: Apache-2.0
"""A change that a person can make so that a filter passes hosts that it rejects."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ..scheduler.hosts import HostBatch

Mask = npt.NDArray[np.bool_]
#: Returns each host's value, shape (n_hosts,).
ValuesOfHosts = Callable[[HostBatch], npt.NDArray[Any]]

#: The maximum number of values of hosts that are listed.
_MAX_VALUES: Final = 3


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Remedy:
    """One change that lets a filter pass the hosts that fail one of its checks.

    Attributes
    ----------
    fails : ndarray of bool, shape (n_hosts,)
        The hosts that fail the check.
    text : str
        The change in words.
    needs_operator : bool
        Whether only an operator can make it: it concerns hosts, aggregates or options.
    alternative : str
        What an operator can change instead, so that these hosts pass the check; empty
        if there is nothing else.
    extra_specs, image_properties, hints : tuple of str
        The parts of the request without which the hosts pass the check.
    is_of_group : bool
        Whether the hosts pass the check if the request has no server group.
    values : callable or None
        Returns what hosts have in place of what the check requires.
    """

    fails: Mask
    text: str
    needs_operator: bool = False
    alternative: str = ""
    extra_specs: tuple[str, ...] = ()
    image_properties: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    is_of_group: bool = False
    values: ValuesOfHosts | None = None

    @property
    def is_of_request(self) -> bool:
        """Whether the change is one of the request."""
        parts = (self.extra_specs, self.image_properties, self.hints)
        return self.is_of_group or any(parts)


def without_extra_spec(
    name: str,
    required: str,
    fails: Mask,
    values: ValuesOfHosts | None = None,
    alternative: str = "",
) -> Remedy:
    """Return the change of one extra spec of the flavor."""
    return Remedy(
        fails,
        f'another flavor, without extra spec {name} (now "{required}"), or with '
        "another value of it",
        alternative=alternative,
        extra_specs=(name,),
        values=values,
    )


def without_image_property(
    name: str,
    required: object,
    fails: Mask,
    values: ValuesOfHosts | None = None,
    alternative: str = "",
) -> Remedy:
    """Return the change of one property of the image."""
    return Remedy(
        fails,
        f'another image, without property {name} (now "{required}"), or with another '
        "value of it",
        alternative=alternative,
        image_properties=(name,),
        values=values,
    )


def values_text(values: Iterable[object]) -> str:
    """Return the most frequent values, each with the number of hosts that have it.

    Of many numbers, the range.
    """
    by_value = Counter(values)
    if len(by_value) > _MAX_VALUES and all(
        isinstance(value, int | float) for value in by_value
    ):
        return f"{min(by_value)} to {max(by_value)}"  # type: ignore[type-var]
    counts = by_value.most_common()
    listed = [f"{value} ({n_hosts:,})" for value, n_hosts in counts[:_MAX_VALUES]]
    n_more = len(counts) - _MAX_VALUES
    return f"{', '.join(listed)}{f' and {n_more:,} more' if n_more > 0 else ''}"
