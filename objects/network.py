# SPDX-License-Identifier: Apache-2.0
"""The networks, ports and security groups of a request."""

from __future__ import annotations

from typing import Any

from oslo_versionedobjects import fields as of

from .base import ObjectList, Persistent, WireObject, register
from .fields import Since, declare


@register
class NetworkMetadata(WireObject):
    """The physical networks, and whether there are tunneled ones."""

    VERSION = "1.0"
    fields = declare(
        physnets=of.SetOfStringsField(),
        tunneled=of.BooleanField(),
    )


@register
class NetworkRequest(WireObject):
    """A requested port or network."""

    VERSION = "1.3"
    fields = declare(
        address=of.IPAddressField(nullable=True),
        arq_uuid=Since("1.3", of.UUIDField(nullable=True)),
        device_profile=Since("1.3", of.StringField(nullable=True)),
        network_id=of.StringField(nullable=True),
        pci_request_id=Since("1.1", of.UUIDField(nullable=True)),
        port_id=of.UUIDField(nullable=True),
        tag=Since("1.2", of.StringField(nullable=True)),
    )

    def _default_of(self, name: str) -> Any:  # noqa: ARG002 - the base class's
        # nova reads every unset field of a request as None.
        return None


@register
class NetworkRequestList(ObjectList):
    """A list of network requests."""

    VERSION = "1.1"
    fields = declare(objects=of.ListOfObjectsField("NetworkRequest"))


@register
class SecurityGroup(Persistent, WireObject):
    """A security group."""

    VERSION = "1.2"
    fields = declare(
        description=of.StringField(),
        id=of.IntegerField(),
        name=of.StringField(),
        project_id=of.StringField(),
        user_id=of.StringField(),
        uuid=Since("1.2", of.UUIDField()),
    )


@register
class SecurityGroupList(ObjectList):
    """A list of security groups."""

    VERSION = "1.1"
    fields = declare(objects=of.ListOfObjectsField("SecurityGroup"))
