# SPDX-License-Identifier: Apache-2.0
"""Groups without resources, asked so that Placement can answer them.

Placement refuses a group that has traits, aggregates or a tree and no resources,
unless a ``same_subtree`` names it; nova 34 asks it as ``resources=`` and finds no valid
host. Such a group means something, though:

- the unsuffixed one, where a flavor asks for everything in groups of its own, speaks of
  the host: its traits are asked of the root provider; its any-of traits, aggregates
  and tree, which cannot be, of the groups that the compute node itself serves;
- a suffixed one asks that some provider of the host has these traits: a
  ``same_subtree`` of that group alone says so.

A subtree loses the groups that were dropped because they ask for nothing.
"""

from __future__ import annotations

import os_resource_classes as orc

from ..errors import InvalidRequest, NoValidHost
from .query_groups import QueryGroup

#: What a compute node itself has, and not a provider below or beside it.
_ROOT_CLASSES = frozenset({orc.VCPU, orc.PCPU, orc.MEMORY_MB})


class NoResourcesRequested(InvalidRequest):
    """Say that a request sets every amount to 0."""


def without_empty_resources(
    groups: list[QueryGroup], root: QueryGroup, subtrees: list[tuple[str, ...]]
) -> tuple[list[QueryGroup], list[tuple[str, ...]]]:
    """Return groups and subtrees that Placement can answer, with the same meaning.

    Parameters
    ----------
    groups : list of QueryGroup
        Of one query, one of them without a suffix; the lists' groups are changed.
    root : QueryGroup
        Whose traits are asked of the root provider; added to.
    subtrees : list of tuple of str
        Suffixes of groups that one subtree has to serve.

    Raises
    ------
    NoResourcesRequested
        No group has resources.
    NoValidHost
        The host that is wanted is not in the tree that a group is confined to.
    """
    if not any(group.resources for group in groups):
        raise NoResourcesRequested(
            "flavor.extra_specs set every amount to 0; one resource must be asked for"
        )
    bare = [group for group in groups if not group.resources]
    for group in bare:
        if not group.suffix:
            _move_to_root(group, root, groups)
            groups = [other for other in groups if other is not group]
    subtrees = _without_dropped(subtrees, {group.suffix for group in groups})
    named = {suffix for suffixes in subtrees for suffix in suffixes}
    alone = [(g.suffix,) for g in bare if g.suffix and g.suffix not in named]
    return groups, subtrees + alone


def _without_dropped(
    subtrees: list[tuple[str, ...]], suffixes: set[str]
) -> list[tuple[str, ...]]:
    left = (tuple(s for s in subtree if s in suffixes) for subtree in subtrees)
    return [subtree for subtree in left if subtree]


def _move_to_root(bare: QueryGroup, root: QueryGroup, groups: list[QueryGroup]) -> None:
    root.required |= bare.required
    root.forbidden |= bare.forbidden
    for group in _served_by_root(groups):
        group.member_of = group.member_of + bare.member_of
        group.forbidden_aggregates |= bare.forbidden_aggregates
        group.required_any |= bare.required_any
        confine(group, bare.in_tree)


def confine(group: QueryGroup, tree: str | None) -> None:
    """Confine a group to one tree more; NoValidHost where it is in another already.

    Placement takes one tree a group. Two providers of one tree are not known as such.
    """
    if tree and group.in_tree not in (None, tree):
        raise NoValidHost(
            "It is confined to another host (in_tree) than the one that is asked for."
        )
    group.in_tree = tree or group.in_tree


def _served_by_root(groups: list[QueryGroup]) -> list[QueryGroup]:
    with_resources = [group for group in groups if group.resources]
    of_root = [g for g in with_resources if _ROOT_CLASSES & g.resources.keys()]
    return of_root or with_resources
