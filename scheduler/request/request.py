# SPDX-License-Identifier: Apache-2.0
"""A conductor's request as the scheduler reads it: each part once."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Self

from .checks import (
    check_fields,
    check_flavor_groups,
    check_query,
    check_requested_groups,
    check_subtrees,
)
from .flavor_and_image import CPUPolicy, FlavorAndImage, cpu_policy, set_field
from .groups import FlavorGroups, QueryGroup, flavor_groups, query_groups
from .locality import (
    AttachmentHint,
    Rule,
    SoftRule,
    attachment_hints,
    locality_rules,
    soft_rules,
)
from .numa import Guest, Networks
from .pci import PciRequest, read_requests
from .server_group import ServerGroup

if TYPE_CHECKING:
    from ...objects import Destination, RequestSpec


@dataclass(frozen=True, slots=True)
class RequestedDestination:
    """Where a request wants its instances; what is unset restricts nothing.

    Attributes
    ----------
    host, node : str or None
        The service host, and the compute node by its hypervisor hostname.
    cell : str or None
        UUID of the only cell allowed.
    preferred_cell : str or None
        UUID of the cell that is preferred; the instances may leave it.
    aggregates : tuple of frozenset of str
        A host must be in one aggregate of each set, by UUID.
    forbidden_aggregates : frozenset of str
    """

    host: str | None = None
    node: str | None = None
    cell: str | None = None
    preferred_cell: str | None = None
    aggregates: tuple[frozenset[str], ...] = ()
    forbidden_aggregates: frozenset[str] = frozenset()

    @classmethod
    def read(cls, destination: Destination | None) -> Self:
        """Read the object in a request."""
        cell = set_field(destination, "cell")
        cell_uuid = cell.uuid if cell else None
        may_leave = bool(set_field(destination, "allow_cross_cell_move"))
        ored = set_field(destination, "aggregates") or ()
        return cls(
            host=set_field(destination, "host") or None,
            node=set_field(destination, "node") or None,
            cell=None if may_leave else cell_uuid,
            preferred_cell=cell_uuid if may_leave else None,
            aggregates=tuple(frozenset(uuids.split(",")) for uuids in ored),
            forbidden_aggregates=frozenset(
                set_field(destination, "forbidden_aggregates") or ()
            ),
        )


LOG = logging.getLogger(__name__)

#: A hint of the conductor's: the request only checks an instance on its own host.
_CHECK_TYPE: Final = "_nova_check_type"
#: Where a RequestSpec refers to the request that was read from it.
_REFERENCE: Final = "_validated_request"


@dataclass(slots=True)
class _AttachmentRules:
    """The rules that follow from where the volumes and ports of a request are."""

    rules: tuple[Rule, ...] = ()
    preferences: tuple[SoftRule, ...] = ()


@dataclass(frozen=True, eq=False)
class Request:
    """A request, of which each part is read at its first use and then kept.

    A decision begins with `validated`, which reads all parts that can be invalid.
    Filters, weighers and prefilters of ours get to the same object with `of`.

    Attributes
    ----------
    spec_obj : moorage.objects.RequestSpec
        As the conductor sent it. Only plugins read it.
    """

    spec_obj: RequestSpec

    @classmethod
    def validated(cls, spec_obj: RequestSpec) -> Self:
        """Return the request of a new decision.

        Raises
        ------
        InvalidRequest
            The request is malformed or contradictory: the message names the field.
        """
        check_fields(spec_obj)
        request = cls(spec_obj)
        suffixes = check_flavor_groups(request.flavor_groups)
        check_requested_groups(request.requested_groups, suffixes)
        check_subtrees(request.request_level("same_subtree"), suffixes)
        if not request.is_rebuild:  # for which Placement is not queried
            _ = request.server_group  # reading it raises
            check_query(request.groups)
        for extra_spec, reason in request.flavor_groups.ignored:
            LOG.warning("Extra spec %s is ignored: %s", extra_spec, reason)
        # Weak: the decision that holds the request must not be outlived by it.
        setattr(spec_obj, _REFERENCE, weakref.ref(request))
        return request

    @classmethod
    def of(cls, spec_obj: RequestSpec) -> Self:
        """Return the request of the decision in which a plugin gets `spec_obj`.

        Outside a decision, such as in a test of a plugin, it is read again.
        """
        reference = getattr(spec_obj, _REFERENCE, None)
        request: Self | None = reference() if reference is not None else None
        return cls(spec_obj) if request is None else request

    @staticmethod
    def share(spec_obj: RequestSpec, copied: RequestSpec) -> None:
        """Let a copy of `spec_obj` have its request, too: they differ in nothing else.

        Any other copy is read anew, as a plugin may have changed it.
        """
        if (reference := getattr(spec_obj, _REFERENCE, None)) is not None:
            setattr(copied, _REFERENCE, reference)

    def field(self, name: str) -> Any:  # noqa: ANN401 - of its field's type
        """Return a field of the RequestSpec, None if it is not set."""
        return set_field(self.spec_obj, name)

    # -- what Placement is queried for ----------------------------------------------

    @cached_property
    def settings(self) -> FlavorAndImage:
        """The guest's settings in flavor and image."""
        return FlavorAndImage.of(self.spec_obj)

    @cached_property
    def flavor_groups(self) -> FlavorGroups:
        """The groups that the flavor's extra specs define."""
        return flavor_groups(self.settings.extra_specs)

    @cached_property
    def requested_groups(self) -> Sequence[QueryGroup]:
        """The groups of ports, PCI devices and device profiles."""
        groups = self.field("requested_resources") or ()
        return [QueryGroup.read(group) for group in groups]

    @cached_property
    def groups(self) -> Sequence[QueryGroup]:
        """All groups of resources and traits, one without a suffix; read-only."""
        return self._query_groups(is_pinned=True)

    @cached_property
    def fallback_groups(self) -> Sequence[QueryGroup] | None:
        """The groups for hosts that do not report PCPU yet, which have VCPU instead.

        None if no CPU is dedicated, or if no resources would be left.
        """
        if cpu_policy(self.settings) is not CPUPolicy.DEDICATED:
            return None
        groups = self._query_groups(is_pinned=False)
        return groups if any(group.resources for group in groups) else None

    def _query_groups(self, *, is_pinned: bool) -> list[QueryGroup]:
        flavor, requested = self.flavor_groups, self.requested_groups
        return query_groups(
            self.settings, flavor, requested, self.spec_obj, is_pinned=is_pinned
        )

    @cached_property
    def group_policy(self) -> str | None:
        """The group policy; "none" where ports or devices made one necessary.

        A flavor with several groups of resources must set it; Placement refuses the
        query otherwise.
        """
        policy, in_flavor = self.flavor_groups.policy, self.flavor_groups.groups
        suffixed = [group for group in self.groups if group.suffix]
        if policy or len(suffixed) < 2:
            return policy
        if sum(g.suffix in in_flavor and bool(g.resources) for g in suffixed) <= 1:
            return "none"
        LOG.warning(
            "The flavor has several groups (resources<S>:, trait<S>:) and no "
            "group_policy; Placement will refuse it. Set its extra spec group_policy "
            "to none or isolate."
        )
        return None

    def request_level(self, name: str) -> Sequence[Any]:
        """Return one of ``request_level_params``, such as ``root_required``."""
        return set_field(self.field("request_level_params"), name) or ()

    # -- hosts ----------------------------------------------------------------------

    @cached_property
    def destination(self) -> RequestedDestination:
        """The destination that the request names."""
        return RequestedDestination.read(self.field("requested_destination"))

    @cached_property
    def ignore_hosts(self) -> Sequence[str]:
        """Service hosts to leave out."""
        return self.field("ignore_hosts") or ()

    @cached_property
    def force_hosts(self) -> Sequence[str]:
        """The only service hosts allowed; empty: all."""
        return self.field("force_hosts") or ()

    @cached_property
    def force_nodes(self) -> Sequence[str]:
        """The only compute nodes allowed, by hypervisor hostname; empty: all."""
        return self.field("force_nodes") or ()

    @property
    def is_rebuild(self) -> bool:
        """Whether it checks if an instance can be rebuilt on its host."""
        return self.hint_values(_CHECK_TYPE) == ["rebuild"]

    @property
    def skips_filters(self) -> bool:
        """Whether hosts are forced, so that no filter runs (nova's rule)."""
        is_forced = bool(self.force_hosts or self.force_nodes)
        return is_forced and not self.hint_values(_CHECK_TYPE)

    # -- what the guest needs of a host ---------------------------------------------

    @cached_property
    def numa(self) -> Guest | None:
        """The guest's NUMA cells; None: it has none."""
        topology = self.field("numa_topology")
        return Guest.read(topology) if topology else None

    @cached_property
    def networks(self) -> Networks:
        """The networks that the guest's NUMA cells have to be near to."""
        return Networks.read(self.spec_obj)

    @cached_property
    def pci_requests(self) -> tuple[PciRequest, ...]:
        """The requested PCI devices."""
        return read_requests(self.field("pci_requests"))

    # -- hints and the server group -------------------------------------------------

    @cached_property
    def hints(self) -> Mapping[str, Sequence[str]]:
        """The values of all scheduler hints."""
        return self.field("scheduler_hints") or {}

    def hint_values(self, name: str) -> list[str]:
        """Return the values of a scheduler hint; empty if it is unset or empty."""
        return [value for value in self.hints.get(name) or () if value]

    @cached_property
    def server_group(self) -> ServerGroup | None:
        """The server group of the instances.

        Raises
        ------
        InvalidRequest
            The rule of its policy is invalid.
        """
        group = self.field("instance_group")
        return None if group is None else ServerGroup.read(group)

    def locality_rules(self, levels: Sequence[str]) -> Sequence[Rule]:
        """Return the rules about places at these levels; see `locality_rules`.

        Raises
        ------
        InvalidRequest
            A hint or an extra spec about places is malformed.
        """
        key = tuple(levels)
        if key not in self._rules:
            read = locality_rules(self, key)
            self._rules[key] = (*read, *self._of_attachments.rules)
        return self._rules[key]

    @cached_property
    def _rules(self) -> dict[tuple[str, ...], tuple[Rule, ...]]:
        return {}

    @cached_property
    def _of_attachments(self) -> _AttachmentRules:
        return _AttachmentRules()

    def attachment_hints(self, levels: Sequence[str]) -> Sequence[AttachmentHint]:
        """Return the volumes and ports that hints name; see `attachment_hints`.

        Raises
        ------
        InvalidRequest
            One of the hints is malformed.
        """
        return attachment_hints(self, levels)

    def set_attachment_rules(
        self, rules: Sequence[Rule], preferences: Sequence[SoftRule]
    ) -> None:
        """Have `locality_rules` and `soft_locality_rules` return these, too.

        Called before filters and weighers are prepared.
        """
        found = self._of_attachments
        found.rules, found.preferences = tuple(rules), tuple(preferences)
        self._rules.clear()

    def soft_locality_rules(self, levels: Sequence[str]) -> Sequence[SoftRule]:
        """Return the preferences about places at these levels; see `soft_rules`.

        Raises
        ------
        InvalidRequest
            A hint or an extra spec about places is malformed.
        """
        return (*soft_rules(self, levels), *self._of_attachments.preferences)
