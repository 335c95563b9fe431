# SPDX-License-Identifier: Apache-2.0
"""A real Placement with the providers of a cloud."""

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

from moorage.scheduler.placement.adapter import PlacementAdapter, Response
from moorage.scheduler.placement.client import PlacementClient
from moorage.scheduler.placement.embedded import EmbeddedPlacement
from moorage.scheduler.placement.seed import seed
from moorage.scheduler.seeding import providers
from tests.fixtures.database_servers import Database, database_server
from tests.fixtures.placement_servers import PlacementServer

from .clouds import Cloud

#: Called with (providers done, providers in all).
Progress = Callable[[int, int], None]


class CountedAdapter:
    """An adapter to Placement that counts requests by verb and first path segment.

    Attributes
    ----------
    n_bytes : int
        The size of the answers to GETs.
    """

    def __init__(self, adapter: PlacementAdapter) -> None:
        self._adapter = adapter
        self.counts: Counter[str] = Counter()
        self.n_bytes = 0

    def get(self, url: str, **options: Any) -> Response:  # noqa: ANN401 - passed on
        self._count("GET", url)
        response = self._adapter.get(url, **options)
        self.n_bytes += len(response.content)
        return response

    def delete(self, url: str, **options: Any) -> Response:  # noqa: ANN401 - passed on
        self._count("DELETE", url)
        return self._adapter.delete(url, **options)

    def put(self, url: str, **options: Any) -> Response:  # noqa: ANN401 - passed on
        self._count("PUT", url)
        return self._adapter.put(url, **options)

    def post(self, url: str, **options: Any) -> Response:  # noqa: ANN401 - passed on
        self._count("POST", url)
        return self._adapter.post(url, **options)

    def n_gets(self) -> int:
        """Return the number of GETs."""
        return sum(n for what, n in self.counts.items() if what.startswith("GET"))

    def _count(self, verb: str, url: str) -> None:
        self.counts[f"{verb} /{url.strip('/').partition('?')[0].split('/')[0]}"] += 1


class Kind(enum.StrEnum):
    """The database of Placement."""

    SQLITE = "sqlite"
    POSTGRESQL = "postgresql"
    MARIADB = "mariadb"

    @property
    def description(self) -> str:
        """A description for the tables."""
        return _DESCRIPTIONS[self]


_SERVED = "a separate process, over HTTP, on"
_DESCRIPTIONS = {
    Kind.SQLITE: "embedded: called in this process, one request at a time, on SQLite",
    # A server started by the benchmark uses a temporary folder, without fsync.
    Kind.POSTGRESQL: f"{_SERVED} PostgreSQL",
    Kind.MARIADB: f"{_SERVED} MariaDB",
}


@dataclass(frozen=True, slots=True)
class Where:
    """Where Placement runs, and the file of an embedded one."""

    kind: Kind = Kind.SQLITE
    path: Path | None = None


@contextmanager
def seeded_placement(
    cloud: Cloud, where: Where, progress: Progress
) -> Iterator[CountedAdapter]:
    """Yield an adapter to a Placement with the cloud's providers.

    Providers that a file already has are not created again.

    Raises
    ------
    RuntimeError
        The database cannot be started, or the file has more providers than the cloud.
    """
    with _running(where) as adapter:
        client = PlacementClient(adapter)
        n_existing = _n_providers(client)
        if n_existing > len(cloud):
            raise RuntimeError(
                f"{where.path} has {n_existing:,} providers: use a new file for "
                f"{len(cloud):,}"
            )
        if n_existing < len(cloud):
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
