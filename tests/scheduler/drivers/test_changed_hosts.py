# SPDX-License-Identifier: Apache-2.0
"""Asking only about changed hosts gives what asking about all hosts gives, bit for bit.

Requests for several instances are decided twice, on hosts of which many weigh the same:
with what plugins promise by `ROWWISE`, and without. Other requests place and remove
members of the server group while these are decided.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oslo_config import cfg

from moorage.objects import RequestSpec
from moorage.scheduler.candidates import AllocationCandidates
from moorage.scheduler.drivers.claims.contention import Contention
from moorage.scheduler.drivers.driver_steps import DriverSteps
from moorage.scheduler.drivers.parts import Parts
from moorage.scheduler.drivers.plugins import load_filters, load_weighers
from moorage.scheduler.drivers.prepared import Caller, PreparedRequest
from moorage.scheduler.drivers.record import DecisionRecord
from moorage.scheduler.entry_points import load_plugins
from moorage.scheduler.errors import NoValidHost
from moorage.scheduler.hosts import HostBatch, HostTable
from moorage.scheduler.request import Request
from moorage.scheduler.service import build
from moorage.weighers import BaseHostWeigher

from ...conftest import (
    NOW,
    aggregate,
    group,
    host,
    image,
    instance_uuid,
    node_uuid,
    options,
    spec,
    table,
)
from ...fixtures.clouds import host as inventory_host
from ...fixtures.clouds import offer_of, write_inventory
from ...fixtures.property_tests import examples
from ...strategies.offers import random_offers

PLUGINS = [*load_plugins("moorage.filters").values()]
PLUGINS += load_plugins("moorage.weighers").values()
#: Instances of the request, the first of which other requests may place as well.
UUIDS = [instance_uuid(f"new {i}") for i in range(7)]
MEMBERS = [instance_uuid(f"member {i}") for i in range(6)]
POLICIES = ("affinity", "anti-affinity", "soft-affinity", "soft-anti-affinity")


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parts]:
    folder: Path = tmp_path_factory.mktemp("parts")
    conf = options()
    path = write_inventory(folder, inventory_host("h0"))
    conf.set_override("inventory_file", str(path), group="moorage")
    scheduler = build(conf)
    yield scheduler.parts
    scheduler.stop()


class ChangesOfOtherRequests(BaseHostWeigher):
    """Lets other requests change instances, after all other plugins were asked."""

    ROWWISE = True

    def __init__(self, changed_table: HostTable, seed: int) -> None:
        self._table = changed_table
        self._rng = random.Random(seed)

    def weigh_all(self, hosts: HostBatch, spec_obj: RequestSpec) -> Any:
        for _ in range(self._rng.choice((0, 0, 1, 3))):
            name = f"h{self._rng.randrange(8)}"
            change = self._rng.choice(
                (self._table.instances.add, self._table.instances.remove)
            )
            change(name, self._rng.choice([*MEMBERS, *UUIDS[:2]]))
        return hosts.free_ram_mb * 0.0


#: Loaded once; each decision sets all that differ.
CONF = options(enabled_filters=sorted(load_plugins("moorage.filters")))


def _conf(rng: random.Random) -> cfg.ConfigOpts:
    changes = {
        "max_io_ops_per_host": rng.choice((3, 8)),
        "max_instances_per_host": rng.choice((4, 50)),
        "ram_weight_multiplier": rng.choice((1.0, -1.0, 1e308)),
        "num_instances_weight_multiplier": rng.choice((0.0, -0.3)),
        "soft_affinity_weight_multiplier": rng.choice((1.0, 0.1)),
        "image_props_weight_multiplier": rng.choice((0.0, 0.7)),
        "host_subset_size": rng.choice((1, 1, 1, 3)),
        "shuffle_best_same_weighed_hosts": rng.random() < 0.2,
    }
    for name, value in changes.items():
        CONF.set_override(name, value, group="filter_scheduler")
    levels = ["rack"] if rng.random() < 0.3 else []
    CONF.set_override("levels", levels, group="locality")
    return CONF


def _table(rng: random.Random) -> HostTable:
    """Return some hosts that often weigh the same, and some with several nodes."""
    n_hosts = rng.randint(2, 12)
    # Enough for a ranking that is not sorted as a whole.
    n_more = 400 if rng.random() < 0.1 else 0
    records = [
        host(
            host=f"h{i if rng.random() < 0.9 else 0}",
            nodename=f"n{i}",
            free_ram_mb=rng.choice((2048, 4096, 8192)),
            vcpus_used=rng.choice((0, 2, 7)),
            num_io_ops=rng.choice((0, 1, 2)),
            num_instances=rng.choice((0, 3)),
            failed_builds=rng.choice((0, 0, 0, 1)),
            cpu_allocation_ratio=rng.choice((1.0, 4.0)),
        )
        for i in range(n_hosts + n_more)
    ]
    names = [record.host for record in records]
    aggregates = [
        aggregate(
            i,
            *rng.sample(names, len(names) // 2),
            rack=f"r{i}",
            ram_weight_multiplier=rng.choice(("2", "0.1")),
        )
        for i in range(2)
    ]
    instances: dict[str, list[str]] = {}
    for uuid in rng.sample([*MEMBERS, UUIDS[0]], 4):
        instances.setdefault(rng.choice(names), []).append(uuid)
    return table(*records, aggregates=aggregates, instances=instances)


def _spec(rng: random.Random) -> RequestSpec:
    changes: dict[str, Any] = {"instance_group": None}
    if rng.random() < 0.8:
        changes["instance_group"] = group(
            rng.choice(POLICIES), members=[*MEMBERS[:4], *UUIDS], hosts=[]
        )
    if rng.random() < 0.2:
        changes["scheduler_hints"] = {"spread_level": ["rack"]}
    return spec(
        memory_mb=rng.choice((512, 4096)),
        image=image(hw_architecture="x86_64") if rng.random() < 0.5 else image(),
        **changes,
    )


def _offered(rng: random.Random) -> tuple[HostTable, RequestSpec, HostBatch]:
    """Return hosts with NUMA cells and devices, and their candidates for a request."""
    offers = random_offers(
        rng, n_hosts=rng.randint(2, 6), n_requests=1, most_candidates=3
    )
    flat: list[Mapping[str, Any]] = []
    by_host: dict[str, Sequence[int]] = {}
    for report, (of_request,) in zip(offers.reports, offers.mappings, strict=True):
        by_host[node_uuid(report.host)] = range(len(flat), len(flat) + len(of_request))
        flat += [{"mappings": mappings} for mappings in of_request]
    hosts = table(*(report.record() for report in offers.reports))
    offer = offer_of(AllocationCandidates(flat, {}, by_host))
    return hosts, offers.requests[0], hosts.batch_of_offer(offer)


def _decided(parts: Parts, seed: int, *, has_devices: bool) -> dict[str, Any]:
    """Return all that a decision selects and records."""
    rng = random.Random(seed)
    conf = _conf(rng)
    if has_devices:
        hosts, spec_obj, batch = _offered(rng)
    else:
        hosts, spec_obj = _table(rng), _spec(rng)
        batch = hosts.batch()
    uuids = UUIDS[: rng.randint(2, len(UUIDS))]
    spec_obj.instance_uuid, spec_obj.num_instances = uuids[0], len(uuids)
    weighers = load_weighers(conf, lambda: NOW)
    parts = dataclasses.replace(
        parts,
        conf=conf,
        table=hosts,
        filters=load_filters(conf, lambda: NOW),
        weighers=[*weighers, ChangesOfOtherRequests(hosts, seed)],
    )
    request = Request.validated(spec_obj)
    record = DecisionRecord(None, tuple(uuids), len(uuids), NOW)
    prepared = PreparedRequest(parts, Caller(), request, uuids, record, n_alternates=2)
    share = rng.choice((0.0, 0.0, 0.5))
    attempt = DriverSteps(prepared, batch, None, None, Contention(share), seed)
    try:
        selections = attempt.select_by_weight()
    except NoValidHost as e:
        return {"steps": record.steps, "failed": str(e)}
    return {
        "steps": record.steps,
        "instances": record.instances,
        "hosts": [placed.value("uuid") for placed in attempt.placed],
        "weights": [placed.weight for placed in attempt.placed],
        "selections": [[s.obj_to_primitive() for s in each] for each in selections],
        "next random number": attempt.rng.random(),
    }


@pytest.mark.deep
@given(seed=st.integers(0, 2**32 - 1), has_devices=st.booleans())
@examples(3)
def test_decisions_are_those_of_asking_about_all_hosts(
    parts: Parts, seed: int, has_devices: bool
) -> None:
    kept = _decided(parts, seed, has_devices=has_devices)
    with pytest.MonkeyPatch.context() as patch:
        for plugin in (*PLUGINS, ChangesOfOtherRequests):
            patch.setattr(plugin, "ROWWISE", False)
        in_full = _decided(parts, seed, has_devices=has_devices)
    assert kept == in_full
