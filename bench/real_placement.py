# SPDX-License-Identifier: Apache-2.0
"""One real Placement, told of a cloud once, for all that is measured on it."""

from __future__ import annotations

import enum
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from moorage.scheduler.placement.client import (
    PlacementAdapter,
    PlacementClient,
    Response,
)
from moorage.scheduler.placement.embedded import EmbeddedPlacement
from moorage.scheduler.placement.seed import seed
from moorage.scheduler.seeding import providers
from tests.fixtures.database_servers import Database, database_server
from tests.fixtures.placement_servers import PlacementServer

from .clouds import Cloud

#: Called with (providers done, providers in all).
Progress = Callable[[int, int], None]


class CountedAdapter:
    """An adapter to Placement that counts what is asked, by verb and first word."""

    def __init__(self, adapter: PlacementAdapter) -> None:
        self._adapter = adapter
        self.counts: Counter[str] = Counter()

    def get(self, url: str, **how: Any) -> Response:  # noqa: ANN401 - as it came
        self._count("GET", url)
        return self._adapter.get(url, **how)

    def delete(self, url: str, **how: Any) -> Response:  # noqa: ANN401 - as it came
        self._count("DELETE", url)
        return self._adapter.delete(url, **how)

    def put(self, url: str, **how: Any) -> Response:  # noqa: ANN401 - as it came
        self._count("PUT", url)
        return self._adapter.put(url, **how)

    def post(self, url: str, **how: Any) -> Response:  # noqa: ANN401 - as it came
        self._count("POST", url)
        return self._adapter.post(url, **how)

    def n_gets(self) -> int:
        """Return how many GETs there were, of anything."""
        return sum(n for what, n in self.counts.items() if what.startswith("GET"))

    def _count(self, verb: str, url: str) -> None:
        self.counts[f"{verb} /{url.strip('/').partition('?')[0].split('/')[0]}"] += 1


class Kind(enum.StrEnum):
    """Where Placement runs."""

    SQLITE = "sqlite"
    POSTGRESQL = "postgresql"
    MARIADB = "mariadb"

    @property
    def told(self) -> str:
        """What it is, for people."""
        return _TOLD[self]


_SERVED = "a process of its own, over HTTP, on"
_TOLD = {
    Kind.SQLITE: "embedded: called in this process, one request at a time, on SQLite",
    # One that is started here keeps its data in a temporary folder, without fsync.
    Kind.POSTGRESQL: f"{_SERVED} PostgreSQL",
    Kind.MARIADB: f"{_SERVED} MariaDB",
}


@dataclass(frozen=True, slots=True)
class Where:
    """Where Placement runs, and the file in which an embedded one stays."""

    kind: Kind = Kind.SQLITE
    path: Path | None = None


@contextmanager
def seeded_placement(
    cloud: Cloud, where: Where, progress: Progress
) -> Iterator[CountedAdapter]:
    """Yield an adapter to a Placement with the cloud's providers.

    A file that has as many is not told of them again.

    Raises
    ------
    RuntimeError
        The database is not there and cannot be started, or the file is of more hosts.
    """
    with _running(where) as adapter:
        client = PlacementClient(adapter)
        n_there = _n_providers(client)
        if n_there > len(cloud):
            raise RuntimeError(
                f"{where.path} has {n_there:,} providers: use a new file for "
                f"{len(cloud):,}"
            )
        if n_there < len(cloud):
            seed(client, providers(cloud.as_inventory()), progress=progress)
        yield CountedAdapter(adapter)


@contextmanager
def _running(where: Where) -> Iterator[PlacementAdapter]:
    if where.kind is Kind.SQLITE:
        with tempfile.TemporaryDirectory() as folder:
            path = where.path or Path(folder) / "placement.sqlite"
            with EmbeddedPlacement(str(path)) as placement:
                yield placement.adapter
        return
    try:
        url = database_server(Database[where.kind.name])
    except pytest.skip.Exception as e:
        raise RuntimeError(str(e)) from None
    with PlacementServer(url) as server:
        yield server.adapter


def _n_providers(client: PlacementClient) -> int:
    body: Any = client.read("/resource_providers")
    return len(body["resource_providers"])
