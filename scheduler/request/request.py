# SPDX-License-Identifier: Apache-2.0
"""A conductor's request as the scheduler reads it: each part once."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final, Self

import os_resource_classes as orc

from .checks import check_fields, check_groups, check_query
from .flavor_and_image import CPUPolicy, FlavorAndImage, cpu_policy, get_field
from .groups import FlavorGroups, QueryGroup, flavor_groups, query_groups
from .locality import Rule, SoftRule
from .numa import Guest, Networks
from .pci import read_requests
from .server_group import ServerGroup

if TYPE_CHECKING:
    from ...objects import (
        Destination,
        ImageMeta,
        NetworkRequest,
        RequestGroup,
        RequestSpec,
    )

LOG = logging.getLogger(__name__)

#: A hint of the conductor's: the request only checks an instance on its own host.
_CHECK_TYPE: Final = "_nova_check_type"
#: The attribute of a RequestSpec that refers to the `Request` that was read from it.
_REFERENCE: Final = "_validated_request"


@dataclass(frozen=True, slots=True)
class RequestedDestination:
    """Where a request wants its instances; an unset attribute restricts nothing.

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
    def read(cls, destination: Destination) -> Self:
        """Read the Destination of a request."""
        cell = get_field(destination, "cell")
        cell_uuid = cell.uuid if cell else None
        may_leave = bool(get_field(destination, "allow_cross_cell_move"))
        aggregate_sets = get_field(destination, "aggregates") or ()
        return cls(
            host=get_field(destination, "host") or None,
            node=get_field(destination, "node") or None,
            cell=None if may_leave else cell_uuid,
            preferred_cell=cell_uuid if may_leave else None,
            aggregates=tuple(frozenset(uuids.split(",")) for uuids in aggregate_sets),
            forbidden_aggregates=frozenset(
                get_field(destination, "forbidden_aggregates") or ()
            ),
        )


class Request:
    """A conductor's request: the RequestSpec, of which each part is read once.

    A decision begins with `validated`, which also reads all parts that can be invalid;
    otherwise, these are read at their first use. Moorage's own filters, weighers and
    prefilters get the same object from `of`.

    Attributes
    ----------
    spec_obj : moorage.objects.RequestSpec
        As the conductor sent it. Only plugins read it.
    settings : FlavorAndImage
        The guest's settings in flavor and image.
    availability_zone, project_id, user_id, instance_uuid : str or None
    image : moorage.objects.ImageMeta or None
    is_bfv : bool
        Whether the guest boots from a volume.
    requested_networks : sequence of moorage.objects.NetworkRequest
    requested_resources : sequence of moorage.objects.RequestGroup
        The groups of ports, PCI devices and device profiles.
    requested_groups : sequence of QueryGroup
        The same groups, in the form in which Placement is queried for them.
    root_required, root_forbidden : frozenset of str
        Traits that the root provider must and must not have.
    same_subtree : sequence of iterable of str
        Suffixes of groups that one subtree must serve.
    destination : RequestedDestination
    ignore_hosts : sequence of str
        Service hosts to leave out.
    force_hosts, force_nodes : sequence of str
        The only service hosts allowed, and the only compute nodes, by hypervisor
        hostname; empty: all.
    requested_host : (host, node, cell) or None
        The one host, compute node and cell that the request names. As in nova, of
        several forced hosts or nodes only the first counts.
    hints : mapping
        The values of all scheduler hints.
    is_rebuild : bool
        Whether the request only checks if an instance can be rebuilt on its host.
    skips_filters : bool
        Whether hosts are forced, so that no filter runs (nova's rule).
    numa : Guest or None
        The guest's NUMA cells; None: the guest has none.
    pci_requests : tuple of PciRequest
    """

    def __init__(self, spec_obj: RequestSpec) -> None:
        self.spec_obj = spec_obj
        get = partial(get_field, spec_obj)
        self.settings = FlavorAndImage.of(spec_obj)
        self.availability_zone: str | None = get("availability_zone")
        self.project_id: str | None = get("project_id")
        self.user_id: str | None = get("user_id")
        self.instance_uuid: str | None = get("instance_uuid")
        self.image: ImageMeta | None = get("image")
        self.is_bfv = bool(get("is_bfv"))
        self.requested_networks: Iterable[NetworkRequest] = (
            get("requested_networks") or ()
        )
        # What Placement is queried for.
        self.requested_resources: Sequence[RequestGroup] = (
            get("requested_resources") or ()
        )
        self.requested_groups = [
            QueryGroup.read(group) for group in self.requested_resources
        ]
        params = get("request_level_params")
        self.root_required = frozenset[str](get_field(params, "root_required") or ())
        self.root_forbidden = frozenset[str](get_field(params, "root_forbidden") or ())
        self.same_subtree: Sequence[Iterable[str]] = (
            get_field(params, "same_subtree") or ()
        )
        # Hosts.
        self.destination = RequestedDestination()
        if (destination := get("requested_destination")) is not None:
            self.destination = RequestedDestination.read(destination)
        self.ignore_hosts: Sequence[str] = get("ignore_hosts") or ()
        self.force_hosts: Sequence[str] = get("force_hosts") or ()
        self.force_nodes: Sequence[str] = get("force_nodes") or ()
        host, node = self.destination.host, self.destination.node
        if not host and not node:
            host = next(iter(self.force_hosts), None)
            node = next(iter(self.force_nodes), None)
        self.requested_host: tuple[str | None, str | None, str | None] | None = None
        if host or node:
            self.requested_host = (host, node, self.destination.cell)
        self.hints: Mapping[str, Sequence[str]] = get("scheduler_hints") or {}
        check_types = [value for value in self.hints.get(_CHECK_TYPE) or () if value]
        self.is_rebuild = check_types == ["rebuild"]
        self.skips_filters = (
            bool(self.force_hosts or self.force_nodes) and not check_types
        )
        # What the guest needs of a host.
        topology, devices = get("numa_topology"), get("pci_requests")
        self.numa = Guest.read(topology) if topology else None
        self.pci_requests = (
            read_requests(devices) if get_field(devices, "requests") else ()
        )
        # The rules about places that volumes and ports set.
        self.attachment_rules: tuple[Rule, ...] = ()
        self.attachment_preferences: tuple[SoftRule, ...] = ()

    @classmethod
    def validated(cls, spec_obj: RequestSpec) -> Self:
        """Return the request of a new decision.

        Raises
        ------
        InvalidRequest
            The request is malformed or contradictory; the message names the field.
        """
        request = cls(spec_obj)
        check_fields(spec_obj, request.settings)
        check_groups(
            request.flavor_groups, request.requested_groups, request.same_subtree
        )
        if not request.is_rebuild:  # a rebuild does not query Placement
            _ = request.server_group  # reading it raises
            check_query(request.groups)
        for extra_spec, reason in request.flavor_groups.ignored:
            LOG.warning("Extra spec %s is ignored: %s", extra_spec, reason)
        # Weak: the request must not outlive the decision that holds it.
        setattr(spec_obj, _REFERENCE, weakref.ref(request))
        return request

    @classmethod
    def of(cls, spec_obj: RequestSpec) -> Self:
        """Return the request of the decision in which a plugin gets `spec_obj`.

        Outside a decision, such as in a test of a plugin, `spec_obj` is read again.
        """
        reference = getattr(spec_obj, _REFERENCE, None)
        request: Self | None = reference() if reference is not None else None
        return cls(spec_obj) if request is None else request

    @staticmethod
    def share(spec_obj: RequestSpec, copied: RequestSpec) -> None:
        """Let `of` return the request of `spec_obj` for `copied`, an equal copy, too.

        A copy that is not shared is read anew, as a plugin may have changed it.
        """
        if (reference := getattr(spec_obj, _REFERENCE, None)) is not None:
            setattr(copied, _REFERENCE, reference)

    # -- what Placement is queried for ----------------------------------------------

    @cached_property
    def flavor_groups(self) -> FlavorGroups:
        """The groups that the flavor's extra specs define."""
        return flavor_groups(self.settings.extra_specs)

    @cached_property
    def groups(self) -> Sequence[QueryGroup]:
        """All groups of resources and traits, one without a suffix; read-only."""
        return query_groups(
            self.settings,
            self.flavor_groups,
            self.requested_groups,
            self.spec_obj.flavor,
            is_bfv=self.is_bfv,
            is_pinned=True,
        )

    @cached_property
    def fallback_groups(self) -> Sequence[QueryGroup] | None:
        """The groups for hosts that do not report PCPU yet, which have VCPU instead.

        None if no group requests PCPU, if the CPU policy is not dedicated, or if no
        resources would be left.
        """
        has_pcpu = any(orc.PCPU in group.resources for group in self.groups)
        if not has_pcpu or cpu_policy(self.settings) is not CPUPolicy.DEDICATED:
            return None
        groups = query_groups(
            self.settings,
            self.flavor_groups,
            self.requested_groups,
            self.spec_obj.flavor,
            is_bfv=self.is_bfv,
            is_pinned=False,
        )
        return groups if any(group.resources for group in groups) else None

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

    # -- the guest, hints and the server group --------------------------------------

    @cached_property
    def networks(self) -> Networks:
        """The networks that the guest's NUMA cells have to be near to."""
        return Networks.read(self.spec_obj)

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
        group = get_field(self.spec_obj, "instance_group")
        return None if group is None else ServerGroup.read(group)

    # -- rules about places ---------------------------------------------------------

    def set_attachment_rules(
        self, rules: Sequence[Rule], preferences: Sequence[SoftRule]
    ) -> None:
        """Add the rules and preferences about places that volumes and ports set.

        `locality.hints` then returns them, too. Called before filters and weighers are
        prepared.
        """
        self.attachment_rules = tuple(rules)
        self.attachment_preferences = tuple(preferences)
