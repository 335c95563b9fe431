# SPDX-License-Identifier: Apache-2.0
"""The hosts as a tree of their places, from the API's answer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from rich.console import Console
from rich.tree import Tree

from .answering import print_notes
from .tables import Answer
from .text import cell


def show_tree(console: Console, answer: Answer) -> None:
    """Print rooms, rows and racks with their hosts, and what conflicts."""
    from ...locality.conflicts import find_conflicts  # NumPy is slow to import

    hosts = answer["hosts"]
    levels = list(hosts[0]["places"]) if hosts else []
    if not levels:
        console.print("No level is configured: see [locality] levels.")
        return
    tree = Tree(cell(f"{len(hosts)} hosts"))
    _grow(tree, hosts, levels[::-1])
    console.print(tree)
    print_notes(console, find_conflicts({h["node"]: h["places"] for h in hosts}))


def _grow(tree: Tree, hosts: Sequence[Answer], levels: Sequence[str]) -> None:
    """Add the places of the first level, the largest, and those inside them."""
    if not levels:
        tree.add(cell(", ".join(sorted(each["node"] for each in hosts))))
        return
    inside: defaultdict[str, list[Answer]] = defaultdict(list)
    for each in hosts:
        inside[_name(levels[0], each["places"][levels[0]])].append(each)
    for name in sorted(inside):
        _grow(tree.add(cell(f"{name} ({len(inside[name])})")), inside[name], levels[1:])


def _name(level: str, names: Sequence[str]) -> str:
    if not names:
        return f"no {level}"
    return f"{level} {' and '.join(names)}"
