# SPDX-License-Identifier: Apache-2.0
"""The requested ports and networks of an instance."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from oslo_versionedobjects import fields as of

from .base import ObjectList, WireObject, register
from .fields import declare


@register
class NetworkRequest(WireObject):
    """A requested port or network."""

    VERSION = "1.3"
    fields = declare(
        address=of.IPAddressField(nullable=True),
        arq_uuid=of.UUIDField(nullable=True),
        device_profile=of.StringField(nullable=True),
        network_id=of.StringField(nullable=True),
        pci_request_id=of.UUIDField(nullable=True),
        port_id=of.UUIDField(nullable=True),
        tag=of.StringField(nullable=True),
    )
    ADDED = MappingProxyType(
        {
            "pci_request_id": "1.1",
            "tag": "1.2",
            "arq_uuid": "1.3",
            "device_profile": "1.3",
        }
    )

    def _default_of(self, name: str) -> Any:  # noqa: ARG002 - the base class's
        # nova reads every unset field of a request as None.
        return None


@register
class NetworkRequestList(ObjectList):
    """A list of network requests."""

    VERSION = "1.1"
    fields = declare(
        objects=of.ListOfObjectsField("NetworkRequest"),
    )
