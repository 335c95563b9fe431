# SPDX-License-Identifier: Apache-2.0
"""Disable and enable a host in an inventory file, and leave everything else in it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import yaml

from ...sources.inventory import read_inventory
from .replacing import replace_file
from .text import safe


def edit_inventory(path: Path, host: str, *, disabled: bool, reason: str) -> bool:
    """Write whether a host is disabled into a file; return whether it was changed.

    The file is replaced as a whole, once the new one was read without a mistake.

    Raises
    ------
    InventoryError
        The file has mistakes, before or after the edit.
    LookupError
        It has no such host.
    OSError
        It cannot be written.
    """
    records = [each.record for each in read_inventory(path).hosts]
    mine = [record for record in records if record.host == host]
    if not mine:
        raise LookupError(f"{path} has no host {safe(host)!r}")
    if all(record.disabled is disabled for record in mine):
        return False
    text = edited(path.read_text("utf-8"), host, disabled=disabled, reason=reason)
    replace_file(path, text, read_inventory)
    return True


def edited(text: str, host: str, *, disabled: bool, reason: str) -> str:
    """Return the text of a file with another state of a host, comments included."""
    if disabled:
        # A text of JSON is one of YAML, too.
        text = _with_value(text, host, "disabled_reason", json.dumps(reason))
        return _with_value(text, host, "disabled", "true")
    text = _with_value(text, host, "disabled_reason", "null", is_added=False)
    return _with_value(text, host, "disabled", "false")


def _with_value(
    text: str, host: str, name: str, value: str, *, is_added: bool = True
) -> str:
    """Return the text of a file with another value of a key of a host.

    Parameters
    ----------
    is_added : bool
        Whether a host without the key gets it.
    """
    # From the end, so that earlier positions stay valid.
    for node in reversed(list(_hosts(yaml.compose(text), host))):
        own = dict(_pairs(node))
        if name in own:
            at = own[name]
            text = f"{text[: at.start_mark.index]}{value}{text[at.end_mark.index :]}"
        elif is_added:
            text = _inserted(text, node, own["host"], name, value)
    return text


def _hosts(root: yaml.Node | None, host: str) -> Iterator[yaml.MappingNode]:
    """Yield the mappings of a host's compute nodes, in the order of the file."""
    hosts = dict(_pairs(root)).get("hosts")
    items = hosts.value if isinstance(hosts, yaml.SequenceNode) else ()
    for item in items:
        name = dict(_pairs(item)).get("host")
        if isinstance(name, yaml.ScalarNode) and name.value == host:
            yield item


def _pairs(node: yaml.Node | None) -> Iterator[tuple[str, yaml.Node]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                yield key.value, value


def _inserted(
    text: str, node: yaml.MappingNode, after: yaml.Node, name: str, value: str
) -> str:
    """Return the text with a key after the host's name, in the mapping's own style."""
    [key] = [k for k, v in node.value if v is after]
    end = after.end_mark.index
    if node.flow_style:
        quoted = f'"{name}"' if key.style == '"' else name
        return f"{text[:end]}, {quoted}: {value}{text[end:]}"
    end = text.find("\n", end) if "\n" in text[end:] else len(text)
    indent = " " * key.start_mark.column
    return f"{text[:end]}\n{indent}{name}: {value}{text[end:]}"
