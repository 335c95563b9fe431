# SPDX-License-Identifier: Apache-2.0
"""Disable and enable hosts in the store or the file of their source.

Other hosts and comments in the file are not changed.
"""

from __future__ import annotations

import dataclasses
import json
import shlex
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import yaml

from ...database import StoreUnavailable
from ...errors import InventoryError, SchedulerError
from ...failures import cause_of
from ...sources.inventory import Inventory, read_inventory
from .client import read_options
from .replacing import replace_file
from .text import safe


def edit_inventory(path: Path, host: str, *, disabled: bool, reason: str) -> bool:
    """Write to a file whether a host is disabled; return whether the file was changed.

    The file is replaced as a whole, after the new text was read: it must change the
    state of this host only.

    Raises
    ------
    InventoryError
        The file has mistakes, or cannot be edited because of anchors or merge keys.
    LookupError
        The file has no such host.
    OSError
        The file cannot be written.
    """
    inventory = read_inventory(path)
    nodes = [node for node in inventory.hosts if node.record.host == host]
    if not nodes:
        raise LookupError(f"{path} has no host {safe(host)!r}")
    if all(node.record.disabled is disabled for node in nodes):
        return False
    expected = _with_state(inventory, host, disabled=disabled)

    def check(new_path: Path) -> None:
        try:
            new_inventory = read_inventory(new_path)
        except InventoryError:
            new_inventory = None
        # An edited anchor changes other hosts; a merged name is not in the text.
        if new_inventory is None or expected != _with_state(new_inventory, host):
            raise InventoryError(
                f"{path}: host {safe(host)!r} gets its name or state from an anchor or "
                "a merge key: edit the file by hand"
            )

    text = edited(path.read_text("utf-8"), host, disabled=disabled, reason=reason)
    replace_file(path, text, check)
    return True


def _with_state(
    inventory: Inventory, host: str, *, disabled: bool | None = None
) -> Inventory:
    """Return an inventory with this state of a host, and without its reason."""
    hosts = []
    for node in inventory.hosts:
        record = node.record
        if record.host == host:
            is_disabled = record.disabled if disabled is None else disabled
            record = dataclasses.replace(
                record, disabled=is_disabled, disabled_reason=None
            )
        hosts.append(dataclasses.replace(node, record=record))
    return dataclasses.replace(inventory, hosts=tuple(hosts))


def edited(text: str, host: str, *, disabled: bool, reason: str) -> str:
    """Return the text of a file with another state of a host; comments remain."""
    if disabled:
        # A string of JSON is also one of YAML, but for pairs of surrogates.
        quoted = "".join(
            character if character.isprintable() else json.dumps(character)[1:-1]
            for character in json.dumps(reason, ensure_ascii=False)
        )
        text = _with_value(text, host, "disabled_reason", quoted)
        return _with_value(text, host, "disabled", "true")
    text = _with_value(text, host, "disabled_reason", "null", is_added=False)
    return _with_value(text, host, "disabled", "false")


def _with_value(
    text: str, host: str, name: str, value: str, *, is_added: bool = True
) -> str:
    """Return the text of a file with a value set for a key of a host.

    Parameters
    ----------
    is_added : bool
        Whether the key is added to a host that lacks it.
    """
    # From the end of the file, so that earlier positions remain valid.
    for node in reversed(list(_hosts(yaml.compose(text), host))):
        nodes = dict(_pairs(node))
        if name in nodes:
            value_node = nodes[name]
            text = (
                f"{text[: value_node.start_mark.index]}{value}"
                f"{text[value_node.end_mark.index :]}"
            )
        elif is_added:
            text = _inserted(text, node, nodes["host"], name, value)
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
    """Return the text with a key after the host's name, in the style of the mapping."""
    [key] = [key_node for key_node, value_node in node.value if value_node is after]
    end = after.end_mark.index
    if node.flow_style:
        quoted = f'"{name}"' if key.style == '"' else name
        return f"{text[:end]}, {quoted}: {value}{text[end:]}"
    end = text.find("\n", end) if "\n" in text[end:] else len(text)
    indent = " " * key.start_mark.column
    return f"{text[:end]}\n{indent}{name}: {value}{text[end:]}"


def switch(config_files: Sequence[str], host: str, reason: str, *, off: bool) -> str:
    """Disable (`off`) or enable a host; return what was done, for an operator.

    Raises
    ------
    click.ClickException
        The source of hosts cannot be written, or disabled hosts are kept elsewhere.
    UnicodeEncodeError
        The reason is not UTF-8.
    """
    reason.encode()
    conf = read_options(config_files)
    if not conf.config_file and not conf.config_dir:
        raise click.ClickException(
            "No configuration file is given or found: pass --config-file, whose "
            "[moorage] source says where hosts are disabled"
        )
    options = conf.moorage
    try:
        match options.source:
            case "file":
                return _in_file(options, host, reason, off=off)
            case "push":
                return _in_store(options, host, reason, off=off)
            case "nova_db":
                raise click.ClickException(_novas_command(host, reason, off=off))
    except OSError as e:
        raise click.ClickException(cause_of(e)) from e
    except (SchedulerError, StoreUnavailable, LookupError) as e:
        raise click.ClickException(f"{e.args[0] if e.args else e}") from e
    raise click.ClickException(
        f"[moorage] source = {options.source} keeps no disabled hosts for this command"
    )


def _novas_command(host: str, reason: str, *, off: bool) -> str:
    reason_option = f" --disable-reason {shlex.quote(reason)}" if off else ""
    state = "--disable" if off else "--enable"
    command = f"openstack compute service set {state}{reason_option}"
    return (
        "nova keeps which hosts are disabled ([moorage] source = nova_db); run: "
        f"{command} {safe(shlex.quote(host))} nova-compute"
    )


def _in_file(options: Any, host: str, reason: str, *, off: bool) -> str:  # noqa: ANN401 - oslo.config's
    if not options.inventory_file:
        raise LookupError("[moorage] inventory_file is not set")
    path = Path(options.inventory_file)
    if not edit_inventory(path, host, disabled=off, reason=reason):
        return f"{safe(host)} is {_state(off)} already."
    return (
        f"{safe(host)} is {_state(off)} in {path}. Reload moorage-scheduler and "
        "moorage-api (SIGHUP) to apply it."
    )


def _in_store(options: Any, host: str, reason: str, *, off: bool) -> str:  # noqa: ANN401 - as above
    from ...sources.push.store import HostStore

    store = HostStore(options.store_connection)
    try:
        store.upgrade()
        stored_hosts = {record.host for _, record in store.load()}
        if host not in stored_hosts:
            raise LookupError(f"{store.name} has no host {safe(host)!r}")
        if off:
            store.disable(host, reason, time.time())
        elif not store.enable(host):
            return f"{safe(host)} is enabled already, unless its agent disables it."
    finally:
        store.close()
    return f"{safe(host)} is {_state(off)}; schedulers see it within seconds."


def _state(off: bool) -> str:
    return "disabled" if off else "enabled"
