# SPDX-License-Identifier: Apache-2.0
"""Where hosts are: their places at the levels that an operator has named."""

from .masks import Masks
from .places import LEVEL_KEY, NOWHERE, PLACE_KEY, SEVERAL, Places, place_of

__all__ = [
    "LEVEL_KEY",
    "NOWHERE",
    "PLACE_KEY",
    "SEVERAL",
    "Masks",
    "Places",
    "place_of",
]
