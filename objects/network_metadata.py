# SPDX-License-Identifier: Apache-2.0
"""The physical networks of an instance or a NUMA cell."""

from __future__ import annotations

from oslo_versionedobjects import fields as of

from .base import WireObject, register
from .fields import declare


@register
class NetworkMetadata(WireObject):
    """The physical networks, and whether there are tunneled ones."""

    VERSION = "1.0"
    fields = declare(
        physnets=of.SetOfStringsField(),
        tunneled=of.BooleanField(),
    )
