# SPDX-License-Identifier: Apache-2.0
"""The virtual CPUs of a guest: topology, model, features."""

from __future__ import annotations

from oslo_versionedobjects import fields as of

from .base import WireObject, register
from .enums import Architecture, CPUFeaturePolicy, CPUMatch, CPUMode, EnumField
from .fields import declare


@register
class VirtCPUTopology(WireObject):
    """Sockets, cores and threads of a guest."""

    VERSION = "1.0"
    fields = declare(
        cores=of.IntegerField(nullable=True, default=1),
        sockets=of.IntegerField(nullable=True, default=1),
        threads=of.IntegerField(nullable=True, default=1),
    )


@register
class VirtCPUFeature(WireObject):
    """A CPU feature and the guest's policy for it."""

    VERSION = "1.0"
    fields = declare(
        name=of.StringField(),
        policy=EnumField(CPUFeaturePolicy(), nullable=True),
    )


@register
class VirtCPUModel(WireObject):
    """The CPU model of a guest."""

    VERSION = "1.0"
    fields = declare(
        arch=EnumField(Architecture(), nullable=True),
        features=of.ListOfObjectsField("VirtCPUFeature", default=[]),
        match=EnumField(CPUMatch(), nullable=True),
        mode=EnumField(CPUMode(), nullable=True),
        model=of.StringField(nullable=True),
        topology=of.ObjectField("VirtCPUTopology", nullable=True),
        vendor=of.StringField(nullable=True),
    )
