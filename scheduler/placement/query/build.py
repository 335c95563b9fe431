# SPDX-License-Identifier: Apache-2.0
"""A request's query to Placement: GET /allocation_candidates.

    flavor's extra specs ─┐
    CPU policies ─────────┤
    ports, devices ───────┼─▶ groups ─▶ groups without resources moved ─▶ parameters
    flavor's amounts ─────┤
    guest's features ─────┤
    destination, prefilters

The parameters are exactly nova 34's (``nova.scheduler.utils``); where Placement would
refuse nova's query, it is rewritten so that Placement can answer it
(:mod:`.unsuffixed`). A flavor can request more than in nova (:mod:`.flavor_groups`).
The request is not modified.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from oslo_log import log as logging

from ...errors import InvalidRequest, excerpt
from ...request.checks import validate_request
from ...request.cpu_policy import CPUPolicy, cpu_policy
from ...request.flavor_and_image import FlavorAndImage, set_field
from ...request.flavor_groups import FlavorGroups, flavor_groups
from ...request.groups import QueryGroup, joined_traits
from ...request.resources import query_groups
from ..client import MICROVERSION
from .unsuffixed import NoResourcesRequested, confine, without_empty_resources

if TYPE_CHECKING:
    from ....objects import RequestSpec

LOG = logging.getLogger(__name__)

#: The first microversion with any-of traits; older ones refuse ``in:``.
ANY_OF_MICROVERSION = "1.39"

#: Hints that need all candidates: their hosts may be beyond any limit.
_UNLIMITED_HINTS = frozenset({"group", "same_host", "different_host"})


@dataclass(slots=True)
class Requirements:
    """What prefilters and the driver add to a request's query.

    Attributes
    ----------
    root_required, root_forbidden : set of str
        Traits that the root provider, the compute node, must and must not have.
    member_of : list of frozenset of str
        Non-empty sets of aggregate UUIDs: the host must be in one of each set.
    forbidden_aggregates : set of str
        UUIDs of aggregates that the host must not be in.
    group_required : dict
        Traits by the suffix of a port's or device's group, whose provider must have
        them; a suffix that the request does not have is ignored.
    in_tree : str, optional
        UUID of the one requested compute node; set by the driver.
    is_limited : bool
        Whether Placement may truncate the candidates; cleared by the driver where the
        requested hosts have several compute nodes.
    """

    root_required: set[str] = field(default_factory=set)
    root_forbidden: set[str] = field(default_factory=set)
    member_of: list[frozenset[str]] = field(default_factory=list)
    forbidden_aggregates: set[str] = field(default_factory=set)
    group_required: dict[str, set[str]] = field(default_factory=dict)
    in_tree: str | None = None
    is_limited: bool = True


@dataclass(frozen=True, slots=True)
class CandidatesQuery:
    """One query to Placement; equal queries share a cached answer.

    Attributes
    ----------
    params : tuple of (name, value)
        Sorted; a name can occur more than once.
    limit : int or None
        Most candidates in the answer, also among `params`; None: all.
    """

    params: tuple[tuple[str, str], ...]
    limit: int | None = None

    @property
    def microversion(self) -> str:
        """nova's microversion, or a newer one for any-of traits."""
        is_newer = any(
            name.startswith("required") and value.startswith("in:")
            for name, value in self.params
        )
        return ANY_OF_MICROVERSION if is_newer else MICROVERSION

    @property
    def path(self) -> str:
        """The path and query to GET, below Placement's endpoint."""
        return f"/allocation_candidates?{urlencode(self.params)}"


def build_query(
    spec_obj: RequestSpec, requirements: Requirements, *, limit: int
) -> CandidatesQuery:
    """Return a request's query to Placement.

    Parameters
    ----------
    spec_obj : moorage.objects.RequestSpec
        The request; it is only read.
    requirements : Requirements
        What prefilters and the driver add.
    limit : int
        Most allocation candidates to request, ``[scheduler] max_placement_results``;
        not used where a hint or `requirements` needs them all.

    Raises
    ------
    InvalidRequest
        The request is invalid: the message names the field.
    NoValidHost
        The host that `requirements` name is not in the tree that the flavor names.
    """
    validate_request(spec_obj)
    guest = FlavorAndImage.of(spec_obj)
    for extra_spec, reason in flavor_groups(guest.extra_specs).ignored:
        LOG.warning("Extra spec %s is ignored: %s", extra_spec, reason)
    return _query(spec_obj, guest, requirements, limit, is_pinned=True)


def build_fallback_query(
    spec_obj: RequestSpec, requirements: Requirements, *, limit: int
) -> CandidatesQuery | None:
    """Return the query for hosts that do not report PCPU yet, or None.

    Only for a guest with dedicated CPUs: it has VCPU instead of PCPU, and no trait of
    the thread policy. None also if no resources would be left in the query.
    Parameters and errors are those of `build_query`.
    """
    validate_request(spec_obj)
    guest = FlavorAndImage.of(spec_obj)
    if cpu_policy(guest) is not CPUPolicy.DEDICATED:
        return None
    try:
        return _query(spec_obj, guest, requirements, limit, is_pinned=False)
    except NoResourcesRequested:
        return None


def _query(
    spec_obj: RequestSpec,
    guest: FlavorAndImage,
    requirements: Requirements,
    limit: int,
    *,
    is_pinned: bool,
) -> CandidatesQuery:
    from_flavor = flavor_groups(guest.extra_specs)
    groups = query_groups(spec_obj, guest, from_flavor, is_pinned=is_pinned)
    _add_destination(groups, spec_obj, requirements)
    for group in groups:
        group.required |= requirements.group_required.get(group.suffix, set())
    root = _root_traits(spec_obj, requirements)
    subtrees = [tuple(sorted(s)) for s in _request_level(spec_obj, "same_subtree")]
    groups, subtrees = without_empty_resources(groups, root, subtrees)
    policy = _group_policy(from_flavor, groups)
    effective = limit if _is_limited(spec_obj, requirements) else None
    params = sorted(_params(groups, root, subtrees, policy, effective))
    for name, value in params:
        if not (name.isascii() and value.isascii()):
            raise InvalidRequest(
                f"{excerpt(name)} is {excerpt(value)} in the request's query to "
                "Placement, whose names have ASCII characters only"
            )
    return CandidatesQuery(tuple(params), effective)


def _add_destination(
    groups: list[QueryGroup], spec_obj: RequestSpec, requirements: Requirements
) -> None:
    root = next(group for group in groups if not group.suffix)
    destination = set_field(spec_obj, "requested_destination")
    ored = set_field(destination, "aggregates") or ()
    root.member_of += [frozenset(uuids.split(",")) for uuids in ored]
    root.member_of += requirements.member_of
    forbidden = set_field(destination, "forbidden_aggregates") or ()
    root.forbidden_aggregates |= requirements.forbidden_aggregates.union(forbidden)
    confine(root, requirements.in_tree)


def _request_level(spec_obj: RequestSpec, name: str) -> Any:  # noqa: ANN401 - of its field's type
    return set_field(set_field(spec_obj, "request_level_params"), name) or ()


def _root_traits(spec_obj: RequestSpec, requirements: Requirements) -> QueryGroup:
    """Return a group whose traits are those of the root provider."""
    return QueryGroup(
        required=requirements.root_required.union(
            _request_level(spec_obj, "root_required")
        ),
        forbidden=requirements.root_forbidden.union(
            _request_level(spec_obj, "root_forbidden")
        ),
    )


def _group_policy(from_flavor: FlavorGroups, groups: list[QueryGroup]) -> str | None:
    """Return the group policy; "none" where ports or devices made one necessary.

    A flavor with several groups of resources must set it; Placement refuses the query
    otherwise.
    """
    suffixes = {group.suffix for group in groups if group.suffix}
    if from_flavor.policy or len(suffixes) < 2:
        return from_flavor.policy
    using = {group.suffix for group in groups if group.suffix and group.resources}
    if len(using & from_flavor.groups.keys()) <= 1:
        return "none"
    LOG.warning(
        "The flavor has several groups (resources<S>:, trait<S>:) and no group_policy; "
        "Placement will refuse it. Set its extra spec group_policy to none or isolate."
    )
    return None


def _is_limited(spec_obj: RequestSpec, requirements: Requirements) -> bool:
    hints = set_field(spec_obj, "scheduler_hints") or {}
    return requirements.is_limited and _UNLIMITED_HINTS.isdisjoint(hints)


def _params(
    groups: list[QueryGroup],
    root: QueryGroup,
    subtrees: list[tuple[str, ...]],
    policy: str | None,
    limit: int | None,
) -> Iterator[tuple[str, str]]:
    if limit is not None:
        yield "limit", str(limit)
    if policy is not None:
        yield "group_policy", policy
    if traits := joined_traits(root.required, root.forbidden):
        yield "root_required", traits
    for suffixes in subtrees:
        yield "same_subtree", ",".join(suffixes)
    for group in groups:
        yield from group.params()
