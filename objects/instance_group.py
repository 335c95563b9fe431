# SPDX-License-Identifier: Apache-2.0
"""Server groups: instances with an affinity or anti-affinity policy."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from oslo_versionedobjects import base as ovo
from oslo_versionedobjects import fields as of

from .base import WireObject, register
from .envelope import version_tuple
from .fields import declare
from .mixins import Persistent


@register
class InstanceGroup(Persistent, WireObject, ovo.VersionedObjectDictCompat):
    """A server group, its policy and its members."""

    VERSION = "1.11"
    fields = declare(
        _rules=of.DictOfStringsField(),
        hosts=of.ListOfStringsField(nullable=True),
        id=of.IntegerField(),
        members=of.ListOfStringsField(nullable=True),
        name=of.StringField(nullable=True),
        policies=of.ListOfStringsField(nullable=True, read_only=True),
        policy=of.StringField(nullable=True),
        project_id=of.StringField(nullable=True),
        user_id=of.StringField(nullable=True),
        uuid=of.UUIDField(),
    )
    ADDED = MappingProxyType({"hosts": "1.10", "policy": "1.11"})

    def __init__(self, context: object = None, **kwargs: object) -> None:
        """Accept `rules` for the field `_rules`, as nova does."""
        if "rules" in kwargs:
            kwargs["_rules"] = kwargs.pop("rules")
        super().__init__(context, **kwargs)

    @property
    def rules(self) -> dict[str, Any]:
        """The parameters of the policy, with numbers as int."""
        if "_rules" not in self:
            return {}
        rules: dict[str, Any] = dict(self._rules)
        if "max_server_per_host" in rules:
            rules["max_server_per_host"] = int(rules["max_server_per_host"])
        return rules

    def _default_of(self, name: str) -> Any:
        # Before 1.11 there was a list of policies, which never had more than one item.
        if name == "policy" and self.obj_attr_is_set("policies"):
            return self.policies[0] if self.policies else None
        if name == "policies" and self.obj_attr_is_set("policy"):
            return [self.policy] if self.policy else []
        return super()._default_of(name)

    def obj_make_compatible(
        self, primitive: dict[str, Any], target_version: str
    ) -> None:
        """Add the list of policies and the metadata that old versions have."""
        target = version_tuple(target_version)
        if target < (1, 11):
            policy = primitive.get("policy")
            primitive["policies"] = [policy] if policy else []
            primitive.pop("_rules", None)
        if target < (1, 7):
            primitive["metadetails"] = {}
        super().obj_make_compatible(primitive, target_version)
