# SPDX-License-Identifier: Apache-2.0
"""Flavors of nova's API database, and their capacity."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import pytest
from oslo_config import cfg
from werkzeug.test import Client

from moorage.objects import Flavor
from moorage.scheduler.errors import InvalidRequest
from moorage.scheduler.explain import Explainer
from moorage.scheduler.hosts import HostTable
from moorage.scheduler.sources.base import BaseHostSource, FlavorsUnavailable
from moorage.scheduler.sources.nova_db import NovaDBSource, schema
from moorage.scheduler.sources.nova_db.database_lookups import MAX_FLAVORS
from moorage.scheduler.web import Answers, make_app

from ....fixtures.explained_clouds import explained_cloud
from .databases import Nova


def _add(nova: Nova, name: str, **columns: object) -> int:
    sizes = {"flavorid": f"id-{name}", "vcpus": 1, "memory_mb": 128, "swap": 0}
    return nova.insert(nova.api, schema.flavors, name=name, **sizes | columns)


@pytest.fixture
def nova(tmp_path: Path) -> Iterator[Nova]:
    with Nova(tmp_path) as nova:
        _add(nova, "small", root_gb=1, ephemeral_gb=2, swap=512)
        gold = _add(nova, "gold", disabled=False)
        _add(nova, "old", disabled=True)
        for key, value in (("trait:CUSTOM_GOLD", "required"), ("empty", None)):
            nova.insert(
                nova.api, schema.flavor_extra_specs,
                flavor_id=gold, key=key, value=value,
            )  # fmt: skip
        yield nova


@pytest.fixture
def source(nova: Nova, conf: cfg.ConfigOpts) -> NovaDBSource:
    return nova.source(conf)


def test_flavors_that_are_not_disabled_are_read(source: NovaDBSource) -> None:
    small, gold = source.flavors()
    sizes = (small.vcpus, small.memory_mb, small.root_gb, small.ephemeral_gb)
    assert (small.name, small.flavorid, *sizes) == ("small", "id-small", 1, 128, 1, 2)
    assert (small.swap, small.extra_specs) == (512, {})
    assert (gold.name, gold.root_gb, gold.ephemeral_gb) == ("gold", 0, 0)
    assert gold.extra_specs == {"trait:CUSTOM_GOLD": "required", "empty": ""}


def test_flavors_are_read_by_name(source: NovaDBSource) -> None:
    assert [each.name for each in source.flavors(["gold", "old", "GOLD"])] == ["gold"]
    assert source.flavors([]) == []


def test_too_many_flavors_are_refused_unless_named(
    nova: Nova, source: NovaDBSource
) -> None:
    row = {"vcpus": 1, "memory_mb": 1, "swap": 0}
    rows = [{"name": f"{i}", "flavorid": f"{i}", **row} for i in range(MAX_FLAVORS)]
    with nova.api.begin() as connection:
        connection.execute(schema.flavors.insert(), rows)
    with pytest.raises(InvalidRequest, match="more than 1000 flavors"):
        source.flavors()
    assert [each.name for each in source.flavors(["7"])] == ["7"]


class _WithFlavors(BaseHostSource):
    """Hosts that do not change, beside the flavors of nova's database."""

    def __init__(self, nova: NovaDBSource) -> None:
        super().__init__()
        self._nova = nova

    def start(self, table: HostTable) -> None:
        """Do nothing: the table is full."""

    def flavors(self, names: Collection[str] | None = None) -> Sequence[Flavor]:
        return self._nova.flavors(names)


@pytest.fixture
def answers(source: NovaDBSource) -> Iterator[Answers]:
    with explained_cloud(2) as (scheduler, _):
        parts = dataclasses.replace(scheduler.parts, source=_WithFlavors(source))
        explainer = Explainer(lambda: parts, scheduler.candidates.provider_view)
        yield Answers(explainer, None)


@pytest.fixture
def client(answers: Answers) -> Client:
    return Client(make_app(answers))


def test_capacity_of_novas_flavors(client: Client) -> None:
    answer = client.post("/v1/capacity", json={"from": "nova"})
    assert answer.json is not None
    small, gold = answer.json["flavors"]
    assert (small["flavor"], small["disk_gb"], gold["flavor"]) == ("small", 3, "gold")
    assert small["n_instances"] > 0 == gold["n_instances"]
    one = client.post("/v1/capacity", json={"from": "nova", "name": "small"})
    assert one.json is not None
    assert one.json["flavors"] == [small]
    none = client.post("/v1/capacity", json={"from": "nova", "name": "old"})
    assert (none.status_code, none.json) == (
        404,
        {"error": "There is no flavor named 'old'"},
    )


def test_capacity_of_flavors_by_name_is_that_of_novas(answers: Answers) -> None:
    report = answers.capacity_of(["small", "old"])
    assert [each.flavor for each in report.flavors] == ["small"]


def test_a_lost_database_is_one_line(
    nova: Nova, source: NovaDBSource, client: Client, tmp_path: Path
) -> None:
    nova.api.dispose()
    (tmp_path / "api.sqlite").unlink()
    with pytest.raises(FlavorsUnavailable, match=r"\[api_database\] connection"):
        source.flavors()
    answer = client.post("/v1/capacity", json={"from": "nova"})
    assert answer.status_code == 503
    assert answer.json is not None
    assert "no such table: flavors" in answer.json["error"]
    assert "\n" not in answer.json["error"]
