# SPDX-License-Identifier: Apache-2.0
"""A host that changed after the query for candidates is not claimed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moorage.scheduler.conf import load
from moorage.scheduler.errors import NoValidHost
from moorage.scheduler.placement.adapter import Verb
from moorage.scheduler.placement.seed import seed
from moorage.scheduler.seeding import providers
from moorage.scheduler.service import Scheduler, build
from moorage.scheduler.sources.inventory import read_inventory
from moorage.testing import PlacementFixture
from moorage.testing.builders import node_uuid

from ....fixtures.clouds import CONTEXT, host, new_uuids, request, write_inventory
from ....fixtures.hand_time import HandTime

FAST, SLOW = "CUSTOM_FAST", "CUSTOM_SLOW"
ZONE, OTHER_ZONE = new_uuids(2)


class RecordingAdapter:
    """An adapter to Placement that records what is read."""

    def __init__(self, adapter: Any) -> None:
        self._adapter = adapter
        self.read: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._adapter, name)

    def get(self, url: str, **options: Any) -> Any:
        self.read.append(url.partition("?")[0])
        return self._adapter.get(url, **options)


class Cloud:
    """A scheduler of hosts with the trait FAST, in the aggregate ZONE."""

    def __init__(self, folder: Path, placement: PlacementFixture, names: str) -> None:
        sizes = {"vcpus": 64, "memory_mb": 2**17, "local_gb": 1000}
        hosts = [
            host(name, uuid=node_uuid(name), traits=[FAST, SLOW], **sizes)
            for name in names
        ]
        zone = {
            "uuid": ZONE,
            "name": "zone",
            "hosts": list(names),
            "metadata": {"availability_zone": "zone"},
        }
        path = write_inventory(folder, *hosts, aggregates=[zone])
        conf = load([], config_files=[])
        conf.set_override("inventory_file", str(path), group="moorage")
        conf.set_override("candidates_max_age", 60.0, group="moorage")
        self.placement = placement.client
        seed(self.placement, providers(read_inventory(path)))
        for name in names:
            self.change(name, FAST, aggregates=[ZONE])
        self.adapter = RecordingAdapter(placement.embedded.adapter)
        self.time = HandTime()
        self.scheduler: Scheduler = build(
            conf, placement=self.adapter, waiter=self.time, clock=self.time
        )
        self.scheduler.start()

    def change(self, name: str, *traits: str, aggregates: Any = None) -> None:
        """Give a host other traits, or other aggregates, in Placement alone."""
        url = f"/resource_providers/{node_uuid(name)}"
        for kind, values in (("traits", traits), ("aggregates", aggregates)):
            if values is not None:
                now: Any = self.placement.read(f"{url}/{kind}")
                body = {
                    "resource_provider_generation": now["resource_provider_generation"],
                    kind: list(values),
                }
                assert self.placement.write(Verb.PUT, f"{url}/{kind}", body).is_done

    def select(self, n_instances: int = 1, **changes: Any) -> list[str]:
        answer: Any = self.scheduler.select_destinations(
            CONTEXT,
            request(num_instances=n_instances, **changes),
            new_uuids(n_instances),
            return_objects=True,
        )
        return [chosen.service_host for [chosen, *_] in answer]

    def reads(self) -> list[str]:
        """Return what was read since the last call, without UUIDs."""
        urls, self.adapter.read = self.adapter.read, []
        return [url.rpartition("/")[2] for url in urls]


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    with PlacementFixture() as placement:
        cloud = Cloud(tmp_path, placement, "ab")
        yield cloud
        cloud.scheduler.stop()


def _extra(name: str, value: str) -> dict[str, Any]:
    return {"extra_specs": {f"trait:{name}": value}}


CONSTRAINTS = {
    "required": _extra(FAST, "required"),
    "forbidden": _extra(SLOW, "forbidden"),
    "aggregate": {"availability_zone": "zone"},
}


def _make_unsuitable(cloud: Cloud, name: str) -> None:
    """Have a host fulfil none of these any more."""
    cloud.change(name, SLOW, aggregates=[OTHER_ZONE])


@pytest.mark.parametrize("what", CONSTRAINTS)
@pytest.mark.parametrize("n_instances", [1, 3])
def test_host_that_fits_no_more_is_not_selected(
    cloud: Cloud, what: str, n_instances: int
) -> None:
    [other] = cloud.select(**CONSTRAINTS[what])
    cloud.time.pass_by(2)
    [next_best] = {"a", "b"} - {other}
    _make_unsuitable(cloud, next_best)
    assert set(cloud.select(n_instances, **CONSTRAINTS[what])) == {other}
    [newest, *_] = cloud.scheduler.decisions.newest()
    assert "outdated" in {claim.result for claim in newest.claims}
    _make_unsuitable(cloud, other)
    cloud.time.pass_by(2)
    with pytest.raises(NoValidHost):
        cloud.select(n_instances, **CONSTRAINTS[what])


@pytest.mark.parametrize(
    ("what", "read"),
    [("required", "traits"), ("forbidden", "traits"), ("aggregate", "aggregates")],
)
def test_one_read_checks_a_host(cloud: Cloud, what: str, read: str) -> None:
    cloud.select(**CONSTRAINTS[what])
    cloud.time.pass_by(2)
    cloud.reads()
    cloud.select(**CONSTRAINTS[what])
    assert cloud.reads() == [read]


def test_fresh_answer_is_not_checked(cloud: Cloud) -> None:
    cloud.select(**CONSTRAINTS["required"])
    cloud.reads()
    cloud.time.pass_by(0.9)
    cloud.select(**CONSTRAINTS["required"])
    assert cloud.reads() == []


def test_query_without_traits_and_aggregates_is_not_checked(cloud: Cloud) -> None:
    cloud.select()
    cloud.reads()
    cloud.time.pass_by(2)
    cloud.select()
    assert cloud.reads() == []


def test_large_request_queries_placement_again(cloud: Cloud) -> None:
    cloud.select(**CONSTRAINTS["required"])
    cloud.time.pass_by(2)
    _make_unsuitable(cloud, "a")
    cloud.reads()
    assert set(cloud.select(11, **CONSTRAINTS["required"])) == {"b"}
    assert cloud.reads() == ["allocation_candidates"]


def test_host_whose_provider_is_gone_is_not_selected(cloud: Cloud) -> None:
    [other] = cloud.select(**CONSTRAINTS["required"])
    cloud.time.pass_by(2)
    [gone] = {"a", "b"} - {other}
    url = f"/resource_providers/{node_uuid(gone)}"
    assert cloud.placement.write(Verb.DELETE, url).is_done
    for _ in range(3):
        assert cloud.select(**CONSTRAINTS["required"]) == [other]
