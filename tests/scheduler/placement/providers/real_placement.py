# SPDX-License-Identifier: Apache-2.0
"""Real Placements with providers written to their databases, and what they answer."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock
from urllib.parse import urlencode

from keystoneauth1.adapter import Adapter
from oslo_db.sqlalchemy import enginefacade
from placement import db_api
from placement.objects import allocation_candidate, research_context

from moorage.scheduler.placement.client import PlacementClient
from moorage.scheduler.placement.providers import ProviderRecord

from ....fixtures.database_servers import Database, database_server
from ....fixtures.placement_rows import write_providers
from ....fixtures.placement_servers import EmbeddedPlacementFixture, PlacementServer
from .random_clouds import CUSTOM_CLASS, TRAITS

Params = list[tuple[str, str]]
#: {(allocations, mappings)} and summaries, in a form that can be compared.
Answer = tuple[set[Any], dict[str, Any]]


class RealPlacement:
    """A Placement whose providers are written to its database in one step.

    Parameters
    ----------
    adapter
        To the Placement that answers.
    in_process
        To one in this process, whose code `corrected` changes.
    database : optional
        URL of the database of the Placement that answers; the one in this process uses
        it while it must. None: they are the same.

    Attributes
    ----------
    client : PlacementClient
    is_mysql : bool
    """

    def __init__(
        self, adapter: Adapter, in_process: Adapter, database: str | None = None
    ) -> None:
        self._adapter = adapter
        self._in_process = in_process
        self.client = PlacementClient(adapter)
        self.is_mysql = (database or "").startswith("mysql")
        self._is_postgresql = (database or "").startswith("postgresql")
        self._manager = None
        if database:
            self._manager = enginefacade.transaction_context()
            self._manager.configure(connection=database)
        self._known: set[str] = set()
        self._know(TRAITS, [CUSTOM_CLASS])

    @contextmanager
    def _database(self) -> Iterator[None]:
        """Let Placement's code in this process use the database."""
        if self._manager is None:
            yield
            return
        undo = db_api.placement_context_manager.patch_factory(self._manager)
        try:
            yield
        finally:
            undo()

    def close(self) -> None:
        """Close the connections to the database."""
        if self._manager is not None:
            self._manager.dispose_pool()

    def _know(self, traits: Iterable[str], classes: Iterable[str]) -> None:
        """Create the custom names that are new."""
        urls = {f"/traits/{name}" for name in traits}
        urls |= {f"/resource_classes/{name}" for name in classes}
        for url in urls - self._known:
            if "/CUSTOM_" in url:
                headers = {"OpenStack-API-Version": "placement 1.36"}
                assert self._adapter.put(url, headers=headers).status_code < 300
        self._known |= urls

    def fill(self, cloud: list[ProviderRecord]) -> None:
        """Replace all providers."""
        self._know(
            {name for record in cloud for name in record.traits},
            {name for record in cloud for name in record.inventories},
        )
        writer = db_api.placement_context_manager.writer
        with self._database(), writer.using(db_api.DbContext()) as session:
            write_providers(session, cloud)

    def fails_for(self, params: Params) -> bool:
        """Return whether a query may fail: PostgreSQL refuses a trait's name as ID."""
        return self._is_postgresql and any(
            "!" in value for name, value in params if name == "required"
        )

    def get(self, params: Params, *, is_corrected: bool = False) -> Any:
        """Return the response to a query, or that of a `corrected` Placement."""
        is_newer = any(
            name.startswith("required") and value.startswith("in:")
            for name, value in params
        )
        version = "1.39" if is_newer else "1.36"
        url = f"/allocation_candidates?{urlencode(params)}"
        headers = {"OpenStack-API-Version": f"placement {version}"}
        if not is_corrected:
            return self._adapter.get(url, headers=headers, raise_exc=False)
        with corrected(), self._database():
            return self._in_process.get(url, headers=headers)


@contextmanager
def embedded() -> Iterator[RealPlacement]:
    """Yield the Placement in this process, on SQLite."""
    with EmbeddedPlacementFixture() as placement:
        yield RealPlacement(placement.adapter, placement.adapter)


@contextmanager
def served(kind: Database) -> Iterator[RealPlacement]:
    """Yield a Placement over HTTP, on a database server."""
    with (
        PlacementServer(database_server(kind)) as server,
        EmbeddedPlacementFixture() as in_process,
    ):
        placement = RealPlacement(
            server.adapter, in_process.adapter, server.database_url
        )
        try:
            yield placement
        finally:
            placement.close()


def comparable(body: dict[str, Any]) -> Answer:
    """Return an answer's body without its order."""
    requests = {
        (
            frozenset(
                (uuid, frozenset(part["resources"].items()))
                for uuid, part in request["allocations"].items()
            ),
            frozenset(
                (suffix, frozenset(uuids))
                for suffix, uuids in request["mappings"].items()
            ),
        )
        for request in body["allocation_requests"]
    }
    summaries = {
        uuid: {**summary, "traits": sorted(summary["traits"])}
        for uuid, summary in body["provider_summaries"].items()
    }
    return requests, summaries


def depends_on_order(params: Params, cloud: list[ProviderRecord]) -> bool:
    """Return whether Placement's answer may depend on the order of its rows."""
    return _may_add_twice(params) or _may_lose_trees(params, cloud)


def _may_add_twice(params: Params) -> bool:
    resources = [value for name, value in params if name.startswith("resources")]
    classes = [part.split(":")[0] for value in resources for part in value.split(",")]
    return ("group_policy", "none") not in params and len(classes) > len(set(classes))


def _may_lose_trees(params: Params, cloud: list[ProviderRecord]) -> bool:
    shared = {
        name
        for record in cloud
        if "MISC_SHARES_VIA_AGGREGATE" in record.traits
        for name in record.inventories
    }
    resources = dict(params).get("resources", "")
    classes = {part.split(":")[0] for part in resources.split(",") if part}
    n_groups = len({n for n, _ in params if n.startswith(("resources", "required"))})
    return bool(classes) and classes <= shared and n_groups > 1


@contextmanager
def corrected() -> Iterator[None]:
    """Make Placement's answers independent of the order of its rows.

    It copies what it is going to add to, treats candidates of different trees as
    different until all groups are merged, and excludes traits by their IDs: Placement
    itself excludes them later, and PostgreSQL refuses its names of traits.
    """
    request = allocation_candidate.AllocationRequest
    context = research_context.RequestWideSearchContext
    equal = request.__eq__

    trees_with_traits = research_context._get_trees_with_traits  # noqa: SLF001 - patched

    def by_ids(ctx: Any, rp_ids: Any, required: Any, forbidden: Any) -> Any:
        return trees_with_traits(ctx, rp_ids, required, list(forbidden.values()))

    def is_same(self: Any, other: Any) -> bool:
        anchors = self.anchor_root_provider_uuid, other.anchor_root_provider_uuid
        return anchors[0] == anchors[1] and equal(self, other)

    with (
        mock.patch.object(context, "copy_arr_if_needed", lambda _, arr: copy.copy(arr)),
        mock.patch.object(request, "__eq__", is_same),
        mock.patch.object(research_context, "_get_trees_with_traits", by_ids),
    ):
        yield
