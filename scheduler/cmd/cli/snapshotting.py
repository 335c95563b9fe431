# SPDX-License-Identifier: Apache-2.0
"""The command `moorage snapshot`."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from .client import ApiClient
from .snapshot_file import Snapshot, write_snapshot

#: Decisions that are asked for at once.
_PAGE: Final = 200


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
def snapshot(session: Any, file: Path, n_decisions: int, n_views: int) -> None:  # noqa: ANN401 - main's
    """Write hosts, providers, options and decisions to FILE.

    Every command works on it later, without any service: moorage --snapshot FILE ….
    Options that may be secret are left out; names of hosts, projects and requests are
    not.
    """
    api = session.api()
    view = b64decode(api.get("views", "now")["data"])
    records = list(_records(api, n_decisions))
    views = _views(api, records, n_views)
    taken = Snapshot(api.now(), view, records, views)
    size = write_snapshot(file, taken)
    click.echo(
        f"{file}: {len(records)} decision(s), {len(views)} view(s), "
        f"{size / 1e6:.1f} MB."
    )


def _records(api: ApiClient, most: int) -> Iterator[tuple[int, bytes]]:
    after = None
    while most > 0:
        answer = api.get("records", limit=min(most, _PAGE), after=after)
        for each in answer["records"]:
            yield int(each["id"]), b64decode(each["data"])
        most -= len(answer["records"])
        after = answer["next"]
        if after is None:
            return


def _views(
    api: ApiClient, records: list[tuple[int, bytes]], most: int
) -> dict[str, bytes]:
    from ...decision_store import StoredDecision, UnreadableRecord

    views: dict[str, bytes] = {}
    for id_, data in records:
        try:
            key = StoredDecision.read(id_, data).record.replay
        except UnreadableRecord as e:
            raise click.ClickException(f"A stored decision cannot be read: {e}") from e
        if key is None or key.view in views:
            continue
        if len(views) == most:
            break
        found = api.find("views", key.view)
        if found is not None:
            views[key.view] = b64decode(found["data"])
    return views
