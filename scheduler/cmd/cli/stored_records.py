# SPDX-License-Identifier: Apache-2.0
"""Decisions with their requests, as the API has them stored."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import click

from .client import ApiClient
from .tables import Answer

if TYPE_CHECKING:  # NumPy is slow to import
    from ...decision_store import StoredDecision

#: Decisions that are asked for at once.
_PAGE: Final = 200


def stored_records(
    api: ApiClient, limit: int, *, since: float | None = None
) -> Iterator[Answer]:
    """Yield decisions as the API answers them, the newest first.

    Parameters
    ----------
    since : float, optional
        Only those not older than this, seconds since the epoch.
    """
    after = None
    while limit > 0:
        answer = api.get("records", since=since, after=after, limit=min(limit, _PAGE))
        yield from answer["records"]
        limit -= len(answer["records"])
        after = answer["next"]
        if after is None:
            return


def read_record(record: Answer) -> StoredDecision:
    """Return a decision.

    Raises
    ------
    click.ClickException
        A newer or broken release wrote it.
    """
    from ...decision_store import StoredDecision, UnreadableRecord

    try:
        return StoredDecision.read(int(record["id"]), b64decode(record["data"]))
    except UnreadableRecord as e:
        raise click.ClickException(f"A stored decision cannot be read: {e}") from e
