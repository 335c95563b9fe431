# SPDX-License-Identifier: Apache-2.0
"""Parts of a request: flavor, destination, resources, server group, earlier hosts."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Self

from oslo_versionedobjects import base as ovo
from oslo_versionedobjects import fields as of

from .base import EphemeralObject, Persistent, WireObject, register
from .envelope import version_tuple
from .fields import NONE, Since, declare
from .host import ComputeNode, ComputeNodeList


@register
class Flavor(Persistent, WireObject, ovo.VersionedObjectDictCompat):
    """The size of an instance and its extra specs."""

    VERSION = "1.2"
    fields = declare(
        description=Since("1.2", of.StringField(nullable=True)),
        disabled=of.BooleanField(),
        ephemeral_gb=of.IntegerField(),
        extra_specs=of.DictOfStringsField(),
        flavorid=of.StringField(),
        id=of.IntegerField(),
        is_public=of.BooleanField(),
        memory_mb=of.IntegerField(),
        name=of.StringField(nullable=True),
        projects=of.ListOfStringsField(),
        root_gb=of.IntegerField(),
        rxtx_factor=of.FloatField(nullable=True, default=1.0),
        swap=of.IntegerField(),
        vcpu_weight=of.IntegerField(nullable=True),
        vcpus=of.IntegerField(),
    )


@register
class Destination(WireObject):
    """The required or forbidden destination of an instance."""

    VERSION = "1.4"
    fields = declare(
        aggregates=Since("1.2", of.ListOfStringsField(nullable=True, default=NONE)),
        allow_cross_cell_move=Since("1.3", of.BooleanField(default=False)),
        cell=Since("1.1", of.ObjectField("CellMapping", nullable=True)),
        forbidden_aggregates=Since(
            "1.4", of.SetOfStringsField(nullable=True, default=NONE)
        ),
        host=of.StringField(),
        node=of.StringField(nullable=True),
    )
    aggregates: list[str] | None
    forbidden_aggregates: set[str] | None

    UNSET = MappingProxyType({"node": lambda: None, "cell": lambda: None})


@register
class RequestGroup(EphemeralObject):
    """Resources and traits that one provider must have."""

    VERSION = "1.3"
    fields = declare(
        aggregates=of.ListOfListsOfStringsField(default=[]),
        forbidden_aggregates=Since("1.3", of.SetOfStringsField(default=set())),
        forbidden_traits=of.SetOfStringsField(default=set()),
        in_tree=Since("1.2", of.UUIDField(nullable=True, default=NONE)),
        provider_uuids=Since("1.1", of.ListOfUUIDField(default=[])),
        requester_id=Since("1.1", of.StringField(nullable=True, default=NONE)),
        required_traits=of.SetOfStringsField(default=set()),
        resources=of.DictOfIntegersField(default={}),
        use_same_provider=of.BooleanField(default=True),
    )

    resources: dict[str, int]


@register
class RequestLevelParams(WireObject):
    """Requirements on the provider tree as a whole."""

    VERSION = "1.1"
    fields = declare(
        root_forbidden=of.SetOfStringsField(default=set()),
        root_required=of.SetOfStringsField(default=set()),
        same_subtree=Since("1.1", of.ListOfListsOfStringsField(default=[])),
    )

    root_required: set[str]
    root_forbidden: set[str]
    same_subtree: list[list[str]]


@register
class InstanceGroup(Persistent, WireObject, ovo.VersionedObjectDictCompat):
    """A server group, its policy and its members."""

    VERSION = "1.11"
    fields = declare(
        _rules=of.DictOfStringsField(),
        hosts=Since("1.10", of.ListOfStringsField(nullable=True)),
        id=of.IntegerField(),
        members=of.ListOfStringsField(nullable=True),
        name=of.StringField(nullable=True),
        policies=of.ListOfStringsField(nullable=True, read_only=True),
        policy=Since("1.11", of.StringField(nullable=True)),
        project_id=of.StringField(nullable=True),
        user_id=of.StringField(nullable=True),
        uuid=of.UUIDField(),
    )

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


@register
class SchedulerRetries(WireObject):
    """The number of attempts, and their hosts."""

    VERSION = "1.1"
    fields = declare(
        hosts=of.ObjectField("ComputeNodeList"),
        num_attempts=of.IntegerField(),
    )

    @classmethod
    def from_dict(cls, context: object, retry: dict[str, Any]) -> Self:
        """Create it from the old dict form; empty if the hosts are missing."""
        if "hosts" not in retry:
            return cls()
        nodes = [
            ComputeNode(context, host=host, hypervisor_hostname=node)
            for host, node in retry["hosts"]
        ]
        return cls(
            num_attempts=retry.get("num_attempts", len(nodes)),
            hosts=ComputeNodeList(objects=nodes),
        )
