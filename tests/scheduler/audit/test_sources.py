# SPDX-License-Identifier: Apache-2.0
"""An audit with the sources that know no migrations: what they know is compared."""

from __future__ import annotations

import contextlib
import uuid
from pathlib import Path
from typing import Any

import pytest

from moorage.scheduler import conf as moorage_conf
from moorage.scheduler.audit import AuditReport, Kind, audit
from moorage.scheduler.placement.client import PlacementClient
from moorage.scheduler.placement.seed import Provider, seed
from moorage.scheduler.seeding import providers
from moorage.scheduler.service import build
from moorage.scheduler.sources.inventory import read_inventory

from ...fixtures.allocations import claim_one, request_of
from ...fixtures.clouds import host, write_inventory
from ...fixtures.fed_sources import FEEDS
from ...fixtures.placement_servers import EmbeddedPlacementFixture, MisbehavingServer

ONE, TWO = (str(uuid.UUID(int=i, version=4)) for i in (1, 2))
GONE = "00000000-0000-4000-8000-00000000000a"


def _audit(folder: Path, text: str, feed: Any = None) -> AuditReport:
    """Audit with the options of a file."""
    path = folder / "moorage.conf"
    path.write_text(f"[moorage]\nclaims_directory =\n{text}")
    conf = moorage_conf.load([], config_files=[str(path)])
    if feed is not None:
        feed.configure(conf)
    return audit(conf, pause_s=0, min_age_s=0, rate=1e6, note=lambda _text: None)


def _found(report: AuditReport) -> set[tuple[Kind, str]]:
    return {(finding.kind, finding.subject) for finding in report.findings}


def _inventory(folder: Path) -> Path:
    return write_inventory(
        folder,
        host("h1", instances=[ONE, TWO]),
        host("h2", vcpus=4),
        aggregates=[{"name": "fast", "hosts": ["h1"]}],
    )


def _spoil(client: PlacementClient, made: list[Provider]) -> set[tuple[Kind, str]]:
    """Write a provider without a host, another inventory, and no aggregate."""
    one, two = made
    wrong = {**two.inventories, "VCPU": {"total": 5}}
    seed(client, [
        Provider(GONE, "gone", {"VCPU": {"total": 1}}),
        Provider(one.uuid, one.name, one.inventories),
        Provider(two.uuid, two.name, wrong),
    ])  # fmt: skip
    return {
        (Kind.HOSTLESS, GONE),
        (Kind.NOT_IN_AGGREGATE, one.uuid),
        (Kind.INVENTORY, two.uuid),
    }


def test_hosts_of_a_file_are_compared_with_the_embedded_placement(
    tmp_path: Path,
) -> None:
    path, database = _inventory(tmp_path), str(tmp_path / "placement.sqlite")
    made = list(providers(read_inventory(path)))
    text = (
        f"source = file\ninventory_file = {path}\n"
        f"embedded_placement_database = {database}\n"
    )
    with EmbeddedPlacementFixture(database) as placement:
        seed(placement.client, made)
        claim_one(placement.client, TWO, request_of(made[0].uuid))
    report = _audit(tmp_path, text)
    assert report.findings == []
    assert any("does not know instances" in note for note in report.notes)
    assert any("1 consumers hold allocations" in note for note in report.notes)
    with EmbeddedPlacementFixture(database) as placement:
        faults = _spoil(placement.client, made)
    assert _found(_audit(tmp_path, text)) == faults


@pytest.mark.parametrize(
    "name", ["push", pytest.param("kafka", marks=pytest.mark.kafka)]
)
@pytest.mark.xdist_group("kafka")
def test_reported_hosts_and_instances_are_compared(tmp_path: Path, name: str) -> None:
    path = _inventory(tmp_path)
    made = list(providers(read_inventory(path)))
    with contextlib.ExitStack() as stack:
        placement = stack.enter_context(EmbeddedPlacementFixture())
        server = stack.enter_context(MisbehavingServer(placement.placement.wsgi_app))
        feed = stack.enter_context(FEEDS[name](path, tmp_path))
        client = placement.client
        seed(client, made)
        for instance in (ONE, TWO):
            claim_one(client, instance, request_of(made[0].uuid))
        conf = moorage_conf.load([], config_files=[])
        conf.set_override("source", name, group="moorage")
        feed.configure(conf)
        scheduler = build(conf, placement=placement.adapter)
        scheduler.start()
        feed.report(scheduler)
        scheduler.stop()
        text = (
            f"source = {name}\n[placement]\nauth_type = admin_token\ntoken = admin\n"
            f"endpoint = {server.url}\nendpoint_override = {server.url}\n"
        )
        report = _audit(tmp_path, text, feed)
        assert report.findings == []
        assert any("doubled" in note for note in report.notes)
        client.delete_allocations(TWO)
        faults = _spoil(client, made) | {(Kind.MISSING, TWO)}
        assert _found(_audit(tmp_path, text, feed)) == faults
