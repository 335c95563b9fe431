# SPDX-License-Identifier: Apache-2.0
"""Parse options that are lists of ``name=factor``."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable

LOG = logging.getLogger(__name__)


def factors(option: str, elements: Iterable[str]) -> tuple[tuple[str, float], ...]:
    """Return (name, factor) pairs; invalid elements are ignored with a warning.

    Parameters
    ----------
    option : str
        The option's name, for the warning.
    """
    pairs = [(element, _pair(element)) for element in elements]
    invalid = [element for element, pair in pairs if pair is None]
    if invalid:
        LOG.warning(
            "%s: ignoring what is not NAME=NUMBER: %s", option, ", ".join(invalid)
        )
    return tuple(pair for _, pair in pairs if pair is not None)


def _pair(element: str) -> tuple[str, float] | None:
    name, _, text = element.partition("=")
    try:
        factor = float(text)
    except ValueError:
        return None
    is_pair = name.strip() and math.isfinite(factor)
    return (name.strip(), factor) if is_pair else None
