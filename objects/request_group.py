# SPDX-License-Identifier: Apache-2.0
"""Requirements beside the flavor: destination, request groups, root provider."""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType

from oslo_versionedobjects import fields as of

from .base import EphemeralObject, WireObject, register
from .fields import NONE, declare


@register
class Destination(WireObject):
    """The required or forbidden destination of an instance."""

    VERSION = "1.4"
    fields = declare(
        aggregates=of.ListOfStringsField(nullable=True, default=NONE),
        allow_cross_cell_move=of.BooleanField(default=False),
        cell=of.ObjectField("CellMapping", nullable=True),
        forbidden_aggregates=of.SetOfStringsField(nullable=True, default=NONE),
        host=of.StringField(),
        node=of.StringField(nullable=True),
    )
    ADDED = MappingProxyType(
        {
            "cell": "1.1",
            "aggregates": "1.2",
            "allow_cross_cell_move": "1.3",
            "forbidden_aggregates": "1.4",
        }
    )
    aggregates: list[str] | None
    forbidden_aggregates: set[str] | None

    UNSET = MappingProxyType({"node": lambda: None, "cell": lambda: None})

    def require_aggregates(self, aggregates: Iterable[str]) -> None:
        """Require a host in one of these aggregates; several calls combine with AND."""
        self.aggregates = [*(self.aggregates or ()), ",".join(aggregates)]

    def append_forbidden_aggregates(self, forbidden_aggregates: set[str]) -> None:
        """Require a host in none of these aggregates."""
        forbidden = self.forbidden_aggregates or set()
        self.forbidden_aggregates = forbidden | forbidden_aggregates


@register
class RequestGroup(EphemeralObject):
    """Resources and traits that one provider must have."""

    VERSION = "1.3"
    fields = declare(
        aggregates=of.ListOfListsOfStringsField(default=[]),
        forbidden_aggregates=of.SetOfStringsField(default=set()),
        forbidden_traits=of.SetOfStringsField(default=set()),
        in_tree=of.UUIDField(nullable=True, default=NONE),
        provider_uuids=of.ListOfUUIDField(default=[]),
        requester_id=of.StringField(nullable=True, default=NONE),
        required_traits=of.SetOfStringsField(default=set()),
        resources=of.DictOfIntegersField(default={}),
        use_same_provider=of.BooleanField(default=True),
    )
    ADDED = MappingProxyType(
        {
            "requester_id": "1.1",
            "provider_uuids": "1.1",
            "in_tree": "1.2",
            "forbidden_aggregates": "1.3",
        }
    )

    resources: dict[str, int]

    def add_trait(self, trait_name: str, trait_type: str) -> None:
        """Add a required or forbidden trait."""
        if trait_type == "required":
            self.required_traits.add(trait_name)
        elif trait_type == "forbidden":
            self.forbidden_traits.add(trait_name)
        else:
            raise ValueError(
                f"trait {trait_name}: {trait_type!r} is neither required nor forbidden"
            )

    def is_empty(self) -> bool:
        """Return whether the group requires nothing."""
        return not (
            self.resources
            or self.required_traits
            or self.forbidden_traits
            or self.aggregates
            or self.forbidden_aggregates
        )

    def strip_zeros(self) -> None:
        """Remove resources with the amount 0."""
        self.resources = {rc: n for rc, n in self.resources.items() if n}


@register
class RequestLevelParams(WireObject):
    """Requirements on the provider tree as a whole."""

    VERSION = "1.1"
    fields = declare(
        root_forbidden=of.SetOfStringsField(default=set()),
        root_required=of.SetOfStringsField(default=set()),
        same_subtree=of.ListOfListsOfStringsField(default=[]),
    )
    ADDED = MappingProxyType({"same_subtree": "1.1"})

    root_required: set[str]
    root_forbidden: set[str]
    same_subtree: list[list[str]]

    def extend_with(self, other_req_lvl_params: RequestLevelParams) -> None:
        """Add the requirements of another object."""
        other = other_req_lvl_params
        self.root_required = self.root_required | other.root_required
        self.root_forbidden = self.root_forbidden | other.root_forbidden
        self.same_subtree = [*self.same_subtree, *other.same_subtree]
