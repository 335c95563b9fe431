# SPDX-License-Identifier: Apache-2.0
"""What the host table holds at one revision: its columns, and all the rest."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from .aggregates import HostAggregate
from .image_properties import ImageProperties
from .instances import InstanceMap
from .interning import Codes, Interner
from .pending import UnreportedClaim


@dataclasses.dataclass(frozen=True, slots=True)
class View:
    """The table's columns as they were at one revision."""

    numbers: Mapping[str, npt.NDArray[Any]]
    codes: Mapping[str, Codes]
    interners: Mapping[str, Interner]
    instances: InstanceMap
    revision: int


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class TableImage:
    """All that a host table holds at one revision; it does not change.

    Attributes
    ----------
    hosts_of : mapping
        The service hosts of each instance.
    properties : mapping
        The image properties of instances that have any.
    """

    view: View
    aggregates: tuple[HostAggregate, ...]
    hosts_of: Mapping[str, tuple[str, ...]]
    properties: Mapping[str, ImageProperties]
    claims: tuple[UnreportedClaim, ...]

    @property
    def revision(self) -> int:
        """The revision of the table."""
        return self.view.revision
