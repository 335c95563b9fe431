# SPDX-License-Identifier: Apache-2.0
"""The command `moorage snapshot`, and the file that it writes.

The file has the present view, decisions, and the views of these decisions.
"""

from __future__ import annotations

import os
import tempfile
from base64 import b64decode
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import click
import msgspec

from .client import ApiClient
from .replacing import require_replaceable
from .session import CommandSession
from .stored_records import read_record, stored_records
from .tables import Answer

#: The first bytes of a file, and after them the version of the format.
_MAGIC: Final = b"moorage snapshot "
_VERSION: Final = b"\x01"
_MAX_BYTES: Final = 1 << 30


class Snapshot(msgspec.Struct, array_like=True):
    """The content of a file; views and decisions are compressed as in the store.

    Attributes
    ----------
    taken_at : float
        Seconds since the epoch.
    view : bytes
        The state at that time: hosts, providers and options.
    records : list of (id, bytes)
        Decisions with their requests, the newest first.
    views : dict
        The views on which these decisions were made, by the id of the view.
    """

    taken_at: float
    view: bytes
    records: list[tuple[int, bytes]]
    views: dict[str, bytes]


def write_snapshot(path: Path, snapshot: Snapshot) -> int:
    """Write a file, all of it or nothing, for its owner only; return its size.

    Raises
    ------
    click.ClickException
    """
    data = _MAGIC + _VERSION + msgspec.msgpack.encode(snapshot)
    if len(data) > _MAX_BYTES:
        raise click.ClickException(
            f"{path} would have {len(data)} bytes, more than {_MAX_BYTES}; pass fewer "
            "--views or --decisions"
        )
    temporary = ""
    try:
        path = require_replaceable(path)
        fd, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(fd)
        os.replace(temporary, path)
    except OSError as e:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        raise click.ClickException(f"{path} cannot be written: {e.strerror}") from e
    return len(data)


def read_snapshot(path: Path) -> Snapshot:
    """Read a file, which is not trusted.

    Raises
    ------
    click.ClickException
        The file is no snapshot, is damaged, or has another version; one line says
        which.
    """
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise refused(path, f"it has more than {_MAX_BYTES} bytes")
        data = path.read_bytes()
    except OSError as e:
        raise refused(path, e.strerror or str(e)) from e
    if not data.startswith(_MAGIC):
        raise refused(path, "it is no snapshot: `moorage snapshot FILE` writes one")
    if data[len(_MAGIC) : len(_MAGIC) + 1] != _VERSION:
        raise refused(path, "it has the format of another version of Moorage")
    try:
        body = memoryview(data)[len(_MAGIC) + 1 :]
        return msgspec.msgpack.decode(body, type=Snapshot)
    except (msgspec.MsgspecError, ValueError, RecursionError) as e:
        raise refused(path, f"it is damaged or truncated: {e}") from e


def refused(path: Path, why: str) -> click.ClickException:
    """Return the error of a file that cannot be used."""
    return click.ClickException(f"--snapshot {path} cannot be read: {why}")


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
    stored = list(stored_records(api, n_decisions))
    records = [(int(record["id"]), b64decode(record["data"])) for record in stored]
    views = _views(api, stored, n_views)
    content = Snapshot(api.now(), view, records, views)
    size = write_snapshot(file, content)
    click.echo(
        f"{file}: {len(records)} decision(s), {len(views)} view(s), "
        f"{size / 1e6:.1f} MB."
    )


def _views(api: ApiClient, records: Iterable[Answer], limit: int) -> dict[str, bytes]:
    views: dict[str, bytes] = {}
    for record in records:
        key = read_record(record).record.replay
        if key is None or key.view in views:
            continue
        if len(views) == limit:
            break
        view = api.find("views", key.view)
        if view is not None:
            views[key.view] = b64decode(view["data"])
    return views
