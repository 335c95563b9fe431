# SPDX-License-Identifier: Apache-2.0
"""The command `moorage snapshot`."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable
from pathlib import Path

import click

from .client import ApiClient
from .session import CommandSession
from .snapshot_file import Snapshot, write_snapshot
from .stored_records import read_record, stored_records
from .tables import Answer


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--decisions", "n_decisions", type=click.IntRange(0, 100_000), default=1000,
    show_default=True, help="The number of decisions, the newest.",
)  # fmt: skip
@click.option(
    "--views", "n_views", type=click.IntRange(0, 1000), default=20,
    show_default=True, help="The number of views of these decisions, the newest.",
)  # fmt: skip
@click.pass_obj
def snapshot(
    session: CommandSession, file: Path, n_decisions: int, n_views: int
) -> None:
    """Write hosts, providers, options and decisions to FILE.

    Every command works on it later, without any service: moorage --snapshot FILE ….
    Options that may be secret are left out; names of hosts, projects and requests are
    not.
    """
    api = session.api()
    view = b64decode(api.get("views", "now")["data"])
    found = list(stored_records(api, n_decisions))
    records = [(int(each["id"]), b64decode(each["data"])) for each in found]
    views = _views(api, found, n_views)
    taken = Snapshot(api.now(), view, records, views)
    size = write_snapshot(file, taken)
    click.echo(
        f"{file}: {len(records)} decision(s), {len(views)} view(s), "
        f"{size / 1e6:.1f} MB."
    )


def _views(api: ApiClient, records: Iterable[Answer], most: int) -> dict[str, bytes]:
    views: dict[str, bytes] = {}
    for each in records:
        key = read_record(each).record.replay
        if key is None or key.view in views:
            continue
        if len(views) == most:
            break
        found = api.find("views", key.view)
        if found is not None:
            views[key.view] = b64decode(found["data"])
    return views
