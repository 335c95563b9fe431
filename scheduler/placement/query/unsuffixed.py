# SPDX-License-Identifier: Apache-2.0
"""Groups without resources, rewritten so that Placement can answer them.

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

import os_resource_classes as orc

from ...errors import NoValidHost
from ...request.groups import QueryGroup

#: Classes of the compute node's own provider, not of nested or sharing providers.
_ROOT_CLASSES = frozenset({orc.VCPU, orc.PCPU, orc.MEMORY_MB})


def without_empty_resources(
    groups: list[QueryGroup], root: QueryGroup, subtrees: list[tuple[str, ...]]
) -> tuple[list[QueryGroup], list[tuple[str, ...]]]:
    """Return groups and subtrees that Placement can answer, with the same meaning.

    Parameters
    ----------
    groups : list of QueryGroup
        Of one query, one of them without a suffix, one with resources; the groups are
        modified.
    root : QueryGroup
        Its traits are required of the root provider; traits are added to it.
    subtrees : list of tuple of str
        Suffixes of groups that one subtree must serve.

    Raises
    ------
    NoValidHost
        The requested host is not in the tree that a group is confined to.
    """
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
    """Confine a group to a tree; NoValidHost if it is confined to another already.

    Placement accepts one tree per group. Two providers of one tree count as two trees.
    """
    if tree and group.in_tree not in (None, tree):
        raise NoValidHost(
            "It is confined to another host (in_tree) than the requested one."
        )
    group.in_tree = tree or group.in_tree


def _served_by_root(groups: list[QueryGroup]) -> list[QueryGroup]:
    with_resources = [group for group in groups if group.resources]
    of_root = [g for g in with_resources if _ROOT_CLASSES & g.resources.keys()]
    return of_root or with_resources
