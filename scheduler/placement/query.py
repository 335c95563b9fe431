# SPDX-License-Identifier: Apache-2.0
"""A request's query to Placement: GET /allocation_candidates.

    request's groups ─────┐
    destination ──────────┼─▶ groups without resources moved ─▶ parameters
    prefilters ───────────┘

The parameters are exactly nova 34's (``nova.scheduler.utils``); where Placement would
refuse nova's query, it is rewritten so that Placement can answer it. A flavor can
request more than in nova (:mod:`moorage.scheduler.request.groups`).

Placement refuses a group that has traits, aggregates or a tree and no resources,
unless a ``same_subtree`` names it; nova 34 sends it with ``resources=`` and finds no
valid host. Such a group has a meaning, though:

- the unsuffixed one, if a flavor requests all resources in suffixed groups, applies to
  the host: its traits move to the root provider; its any-of traits, aggregates and
  tree, which cannot, to the groups that the compute node itself serves;
- a suffixed one requires that some provider of the host has these traits: a
  ``same_subtree`` of that group alone expresses this.

Groups that were dropped because they request nothing are removed from subtrees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import os_resource_classes as orc

from ..candidates import CandidatesQuery
from ..errors import NoValidHost
from ..request import Request
from ..request.groups import QueryGroup

#: Classes of the compute node's own provider, not of nested or sharing providers.
_ROOT_CLASSES = frozenset({orc.VCPU, orc.PCPU, orc.MEMORY_MB})


def without_empty_resources(
    groups: list[QueryGroup], root: QueryGroup, subtrees: list[tuple[str, ...]]
) -> tuple[list[QueryGroup], list[tuple[str, ...]]]:
    """Return groups and subtrees that Placement can answer, with the same meaning.

    Parameters
    ----------
    groups : list of QueryGroup
        The groups of one query: one has no suffix, and at least one has resources.
        They are modified.
    root : QueryGroup
        Its traits are required of the root provider; traits are added to it.
    subtrees : list of tuple of str
        Suffixes of groups that one subtree must serve.

    Raises
    ------
    NoValidHost
        The requested host is not in the tree that a group is confined to.
    """
    without_resources = [group for group in groups if not group.resources]
    for group in without_resources:
        if not group.suffix:
            _move_to_root(group, root, groups)
            groups = [other for other in groups if other is not group]
    suffixes = {group.suffix for group in groups}
    kept_subtrees = [tuple(s for s in subtree if s in suffixes) for subtree in subtrees]
    subtrees = [subtree for subtree in kept_subtrees if subtree]
    named_suffixes = {suffix for subtree in subtrees for suffix in subtree}
    single_subtrees = [
        (group.suffix,)
        for group in without_resources
        if group.suffix and group.suffix not in named_suffixes
    ]
    return groups, subtrees + single_subtrees


def _move_to_root(bare: QueryGroup, root: QueryGroup, groups: list[QueryGroup]) -> None:
    """Move what a group without resources requires to the root, or to its groups."""
    root.required |= bare.required
    root.forbidden |= bare.forbidden
    with_resources = [group for group in groups if group.resources]
    root_groups = [
        group for group in with_resources if _ROOT_CLASSES & group.resources.keys()
    ]
    for group in root_groups or with_resources:
        group.member_of = group.member_of + bare.member_of
        group.forbidden_aggregates |= bare.forbidden_aggregates
        group.required_any |= bare.required_any
        confine(group, bare.in_tree)


def confine(group: QueryGroup, tree: str | None) -> None:
    """Confine a group to a tree; NoValidHost if it is confined to another already.

    Placement accepts one tree per group. Two providers of one tree count as two trees.
    """
    if tree and group.in_tree not in (None, tree):
        raise NoValidHost(
            "It is confined to another host (in_tree) than the requested one."
        )
    group.in_tree = tree or group.in_tree


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


def build_query(
    request: Request,
    requirements: Requirements,
    *,
    limit: int,
    groups: Sequence[QueryGroup] | None = None,
) -> CandidatesQuery:
    """Return a request's query to Placement.

    Parameters
    ----------
    requirements : Requirements
        What prefilters and the driver add.
    limit : int
        Most allocation candidates to request, ``[scheduler] max_placement_results``;
        not used where a hint or `requirements` needs them all.
    groups : sequence of QueryGroup, optional
        Instead of ``request.groups``: ``request.fallback_groups`` find the hosts that
        do not report PCPU yet, for a guest with dedicated CPUs.

    Raises
    ------
    NoValidHost
        The host that `requirements` name is not in the tree that the flavor names.
    """
    requested = request.groups if groups is None else groups
    queried = [group.copy() for group in requested]
    # The destination, and what prefilters require, apply to the unsuffixed group.
    destination = request.destination
    unsuffixed = next(group for group in queried if not group.suffix)
    unsuffixed.member_of += [*destination.aggregates, *requirements.member_of]
    unsuffixed.forbidden_aggregates |= destination.forbidden_aggregates
    unsuffixed.forbidden_aggregates |= requirements.forbidden_aggregates
    if requirements.in_tree:
        confine(unsuffixed, requirements.in_tree)
    for group in queried:
        group.required |= requirements.group_required.get(group.suffix, set())
    # The traits of the root provider.
    root = QueryGroup(
        required=requirements.root_required.union(request.root_required),
        forbidden=requirements.root_forbidden.union(request.root_forbidden),
    )
    subtrees = [tuple(sorted(suffixes)) for suffixes in request.same_subtree]
    if subtrees or not all(group.resources for group in queried):
        queried, subtrees = without_empty_resources(queried, root, subtrees)
    params = [(f"root_{name}", value) for name, value in root.params()]
    params += [("same_subtree", ",".join(suffixes)) for suffixes in subtrees]
    params += [param for group in queried for param in group.params()]
    if request.group_policy is not None:
        params.append(("group_policy", request.group_policy))
    needs_all = not _UNLIMITED_HINTS.isdisjoint(request.hints)
    if needs_all or not requirements.is_limited:
        return CandidatesQuery(tuple(sorted(params)), None)
    params.append(("limit", str(limit)))
    return CandidatesQuery(tuple(sorted(params)), limit)
