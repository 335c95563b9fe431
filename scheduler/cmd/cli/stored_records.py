# SPDX-License-Identifier: Apache-2.0
"""Read stored decisions with their requests from the API."""

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
    """Yield the records of decisions in the form of the API, the newest first.

    Parameters
    ----------
    since : float, optional
        Only decisions from this time on, seconds since the epoch.
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
    """Return the decision that a record of the API holds.

    Raises
    ------
    click.ClickException
        The record is damaged, or is that of another release.
    """
    from ...decision_store import StoredDecision, UnreadableRecord

    try:
        return StoredDecision.read(int(record["id"]), b64decode(record["data"]))
    except UnreadableRecord as e:
        raise click.ClickException(f"A stored decision cannot be read: {e}") from e
