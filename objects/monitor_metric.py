# SPDX-License-Identifier: Apache-2.0
"""Metrics of compute monitors."""

from __future__ import annotations

from types import MappingProxyType

from oslo_versionedobjects import fields as of

from .base import ObjectList, WireObject, register
from .enums import EnumField, MonitorMetricType
from .fields import declare


@register
class MonitorMetric(WireObject):
    """A metric."""

    VERSION = "1.1"
    fields = declare(
        name=EnumField(MonitorMetricType()),
        numa_membw_values=of.DictOfIntegersField(nullable=True),
        source=of.StringField(),
        timestamp=of.DateTimeField(),
        value=of.IntegerField(),
    )
    ADDED = MappingProxyType({"numa_membw_values": "1.1"})


@register
class MonitorMetricList(ObjectList):
    """A list of metrics."""

    VERSION = "1.1"
    fields = declare(
        objects=of.ListOfObjectsField("MonitorMetric"),
    )
