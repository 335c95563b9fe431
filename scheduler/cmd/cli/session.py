# SPDX-License-Identifier: Apache-2.0
"""The options before a command: which API, or which snapshot, it asks."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import click

from .client import ApiClient, find_api


@dataclasses.dataclass(slots=True)
class CommandSession:
    """The API, or the snapshot, that the commands ask."""

    url: str | None
    token_file: str | None
    config_files: Sequence[str]
    snapshot: Path | None = None
    _api: ApiClient | None = None

    def api(self) -> ApiClient:
        """Return a client of the API; for a snapshot, of an API in this process."""
        if self._api is None and self.snapshot is not None:
            from .offline import offline_api

            self._api = offline_api(self.snapshot, self.config_files)
        if self._api is None:
            self._api = find_api(self.url, self.token_file, self.config_files)
        return self._api

    def refuse_snapshot(self) -> None:
        """Refuse a command that changes something, if a snapshot is asked.

        Raises
        ------
        click.UsageError
        """
        if self.snapshot is not None:
            raise click.UsageError(
                "A snapshot is only read: --snapshot cannot be changed"
            )
