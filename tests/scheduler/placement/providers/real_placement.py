# SPDX-License-Identifier: Apache-2.0
"""Real Placements with providers written to their databases, and what they answer."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock
from urllib.parse import urlencode

import sqlalchemy as sa
from keystoneauth1.adapter import Adapter
from oslo_db.sqlalchemy import enginefacade
from placement import db_api
from placement.db.sqlalchemy import models
from placement.objects import allocation_candidate, research_context

from moorage.scheduler.placement.client import PlacementClient
from moorage.scheduler.placement.providers import ProviderRecord

from ....fixtures.database_servers import Database, database_server
from ....fixtures.placement_servers import EmbeddedPlacementFixture, PlacementServer
from .random_clouds import CUSTOM_CLASS, TRAITS

_EMPTIED = (
    models.Allocation,
    models.Consumer,
    models.Inventory,
    models.ResourceProviderAggregate,
    models.ResourceProviderTrait,
    models.PlacementAggregate,
    models.ResourceProvider,
)

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
        self._traits: dict[str, int] = {}
        self._classes: dict[str, int] = {}
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

    @contextmanager
    def _session(self) -> Iterator[Any]:
        writer = db_api.placement_context_manager.writer
        with self._database(), writer.using(db_api.DbContext()) as session:
            yield session

    def close(self) -> None:
        """Close the connections to the database."""
        if self._manager is not None:
            self._manager.dispose_pool()

    def _know(self, traits: Iterable[str], classes: Iterable[str]) -> None:
        """Create the custom names that are new."""
        new = [f"/traits/{name}" for name in traits if name not in self._traits]
        new += [
            f"/resource_classes/{name}" for name in classes if name not in self._classes
        ]
        if not new:
            return
        for url in new:
            if "/CUSTOM_" in url:
                self._put(url)
        with self._session() as session:
            self._traits = _ids(session, models.Trait)
            self._classes = _ids(session, models.ResourceClass)

    def _put(self, url: str) -> None:
        headers = {"OpenStack-API-Version": "placement 1.36"}
        assert self._adapter.put(url, headers=headers).status_code < 300

    def fill(self, cloud: list[ProviderRecord]) -> None:
        """Replace all providers."""
        self._know(
            {name for record in cloud for name in record.traits},
            {name for record in cloud for name in record.inventories},
        )
        ids = {record.uuid: i for i, record in enumerate(cloud, 1)}
        parents = {record.uuid: record.parent_uuid for record in cloud}
        aggregates = sorted(frozenset[str]().union(*(r.aggregates for r in cloud)))
        with self._session() as session:
            # InnoDB deletes no row that another one refers to, though all go.
            no_tree = {"parent_provider_id": None, "root_provider_id": None}
            session.execute(sa.update(models.ResourceProvider).values(no_tree))
            for model in _EMPTIED:
                session.execute(sa.delete(model))
            _insert(session, models.ResourceProvider, [
                {
                    "id": ids[r.uuid], "uuid": r.uuid, "name": r.uuid,
                    "generation": r.generation,
                    "parent_provider_id": ids[r.parent_uuid] if r.parent_uuid else None,
                    "root_provider_id": ids[_root(r.uuid, parents)],
                }
                for r in cloud
            ])  # fmt: skip
            _insert(session, models.PlacementAggregate, [
                {"id": i, "uuid": each} for i, each in enumerate(aggregates, 1)
            ])  # fmt: skip
            for record in cloud:
                self._fill_parts(session, record, ids[record.uuid], aggregates)

    def _fill_parts(
        self, session: Any, record: ProviderRecord, number: int, aggregates: list[str]
    ) -> None:
        of = {"resource_provider_id": number}
        _insert(session, models.Inventory, [
            {**of, "resource_class_id": self._classes[name], **inventory._asdict()}
            for name, inventory in record.inventories.items()
        ])  # fmt: skip
        _insert(session, models.Allocation, [
            {
                **of, "resource_class_id": self._classes[name],
                "consumer_id": f"{record.uuid[:-1]}{i}", "used": amount,
            }
            for name, used in record.used.items()
            for i, amount in enumerate((used // 2, used - used // 2))
            if amount
        ])  # fmt: skip
        _insert(session, models.ResourceProviderTrait, [
            {**of, "trait_id": self._traits[name]} for name in record.traits
        ])  # fmt: skip
        _insert(session, models.ResourceProviderAggregate, [
            {**of, "aggregate_id": aggregates.index(each) + 1}
            for each in record.aggregates
        ])  # fmt: skip

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
    """Let Placement's answers not depend on the order of its rows.

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


def _ids(session: Any, model: Any) -> dict[str, int]:
    rows = session.execute(sa.select(model.name, model.id))
    return {row.name: row.id for row in rows}


def _insert(session: Any, model: Any, rows: list[dict[str, Any]]) -> None:
    if rows:
        session.execute(sa.insert(model), rows)


def _root(uuid: str, parents: dict[str, str | None]) -> str:
    while parent := parents[uuid]:
        uuid = parent
    return uuid
