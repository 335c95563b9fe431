# SPDX-License-Identifier: Apache-2.0
"""The kinds of guest that a hypervisor runs."""

from __future__ import annotations

from typing import Any

from .base import WireObject, register
from .enums import Architecture, EnumField, HVType, VMMode
from .envelope import version_tuple
from .fields import declare


@register
class HVSpec(WireObject):
    """A supported combination of architecture, hypervisor type and guest mode."""

    VERSION = "1.2"
    fields = declare(
        arch=EnumField(Architecture()),
        hv_type=EnumField(HVType()),
        vm_mode=EnumField(VMMode()),
    )

    def obj_make_compatible(
        self, primitive: dict[str, Any], target_version: str
    ) -> None:
        """Restore the old name of vz, parallels."""
        super().obj_make_compatible(primitive, target_version)
        if version_tuple(target_version) < (1, 1) and primitive.get("hv_type") == "vz":
            primitive["hv_type"] = "parallels"
