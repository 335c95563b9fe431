# SPDX-License-Identifier: Apache-2.0
"""Disable and enable hosts where their source keeps that."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from ...database import StoreUnavailable
from ...errors import SchedulerError
from .client import read_options
from .inventory_edits import edit_inventory
from .text import safe


def switch(config_files: Sequence[str], host: str, reason: str, *, off: bool) -> str:
    """Disable (`off`) or enable a host; return what was done, for an operator.

    Raises
    ------
    click.ClickException
        The source of hosts keeps it elsewhere, or cannot be written.
    """
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
    except (SchedulerError, StoreUnavailable, LookupError, OSError) as e:
        raise click.ClickException(f"{e.args[0] if e.args else e}") from e
    raise click.ClickException(
        f"[moorage] source = {options.source} keeps no disabled hosts for this command"
    )


def _novas_command(host: str, reason: str, *, off: bool) -> str:
    because = f" --disable-reason {shlex.quote(reason)}" if off else ""
    state = "--disable" if off else "--enable"
    command = f"openstack compute service set {state}{because}"
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
        known = {record.host for _, record in store.load()}
        if host not in known:
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
