# SPDX-License-Identifier: Apache-2.0
"""The real Placement with providers written to its database, and what it answers."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock
from urllib.parse import urlencode

import sqlalchemy as sa
from placement import db_api
from placement.db.sqlalchemy import models
from placement.objects import allocation_candidate, research_context

from moorage.scheduler.placement.providers import ProviderRecord

from ....fixtures.placement_servers import EmbeddedPlacementFixture
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


class RealPlacement(EmbeddedPlacementFixture):
    """An embedded Placement whose providers are written in one step."""

    def _setUp(self) -> None:
        super()._setUp()
        self._traits: dict[str, int] = {}
        self._classes: dict[str, int] = {}
        self._know(TRAITS, [CUSTOM_CLASS])

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
        with _session() as session:
            self._traits = _ids(session, models.Trait)
            self._classes = _ids(session, models.ResourceClass)

    def _put(self, url: str) -> None:
        headers = {"OpenStack-API-Version": "placement 1.36"}
        assert self.adapter.put(url, headers=headers).status_code < 300

    def fill(self, cloud: list[ProviderRecord]) -> None:
        """Replace all providers."""
        self._know(
            {name for record in cloud for name in record.traits},
            {name for record in cloud for name in record.inventories},
        )
        ids = {record.uuid: i for i, record in enumerate(cloud, 1)}
        parents = {record.uuid: record.parent_uuid for record in cloud}
        aggregates = sorted(frozenset[str]().union(*(r.aggregates for r in cloud)))
        with _session() as session:
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

    def get(self, params: Params) -> Any:
        """Return the response to a query."""
        is_newer = any(
            name.startswith("required") and value.startswith("in:")
            for name, value in params
        )
        version = "1.39" if is_newer else "1.36"
        return self.adapter.get(
            f"/allocation_candidates?{urlencode(params)}",
            headers={"OpenStack-API-Version": f"placement {version}"},
        )


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

    It copies what it is going to add to, and treats candidates of different trees as
    different until all groups are merged.
    """
    request = allocation_candidate.AllocationRequest
    context = research_context.RequestWideSearchContext
    equal = request.__eq__

    def is_same(self: Any, other: Any) -> bool:
        anchors = self.anchor_root_provider_uuid, other.anchor_root_provider_uuid
        return anchors[0] == anchors[1] and equal(self, other)

    with (
        mock.patch.object(context, "copy_arr_if_needed", lambda _, arr: copy.copy(arr)),
        mock.patch.object(request, "__eq__", is_same),
    ):
        yield


@contextmanager
def _session() -> Iterator[Any]:
    context = db_api.DbContext()
    with db_api.placement_context_manager.writer.using(context) as session:
        yield session


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
