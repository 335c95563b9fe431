# SPDX-License-Identifier: Apache-2.0
"""Runs of traces on simulated hosts: what they place, count and measure."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oslo_config import cfg

from moorage.objects import InstanceGroup
from moorage.scheduler.conf import load
from moorage.scheduler.drivers.record import Outcome
from moorage.scheduler.errors import NoValidHost
from moorage.scheduler.service import build
from moorage.scheduler.sources.inventory import Inventory, read_inventory
from moorage.scheduler.views import CapturedView, StoredView
from moorage.simulator.cloud import Shape, SimulatedCloud, equal_hosts, lower_bound
from moorage.simulator.comparison import Comparison
from moorage.simulator.simulation import N_SAMPLES, Result, fewest_hosts, simulate
from moorage.simulator.traces import Trace, Units, request_spec, synthetic_trace
from moorage.testing.builders import instance_uuid, spec
from moorage.weighers.lifetime_model import LifetimeModel

from ..fixtures.clouds import (
    host,
    new_uuids,
    selected,
    started_scheduler,
    write_inventory,
)


def options(**filter_scheduler: Any) -> cfg.ConfigOpts:
    conf = load([], config_files=[])
    for name, value in filter_scheduler.items():
        conf.set_override(name, value, group="filter_scheduler")
    return conf


#: Instances end after an hour, but those that are a day old, or have 4 CPUs, stay.
LIFETIMES = LifetimeModel.of(
    np.array([0.0, 86400.0]),
    np.array([[3600.0, 30 * 86400.0], [30 * 86400.0, 30 * 86400.0]]),
    {(None, None, None, None): 1, (None, 4, 4096, None): 1},
)

STAYS = 1e6
PACK = {"cpu_weight_multiplier": -1.0, "ram_weight_multiplier": -1.0}


def trace_of(*rows: tuple[float, float, int, int]) -> Trace:
    """Return a trace of (arrival, departure, vCPUs, MiB)."""
    rows = tuple(sorted(rows))
    return Trace(
        "rows",
        Units(),
        [instance_uuid(i) for i in range(len(rows))],
        np.array([row[0] for row in rows], float),
        np.array([row[1] for row in rows], float),
        [request_spec(vcpus, mib, 0) for _, _, vcpus, mib in rows],
        np.arange(len(rows), dtype=np.int32),
    )


def small_hosts(count: int, cores: int = 8, gib: int = 16) -> Inventory:
    return equal_hosts(count, Shape(cores, gib), Units())


rows = st.tuples(
    st.integers(0, 50).map(float),
    st.integers(51, 100).map(float) | st.just(float("inf")),
    st.integers(1, 9),
    st.sampled_from([512, 4096, 16384, 20000]),
)


@given(trace=st.lists(rows, min_size=1, max_size=25), n_hosts=st.integers(1, 4))
def test_no_host_is_over_capacity_and_every_instance_counts(
    trace: list[tuple[float, float, int, int]], n_hosts: int
) -> None:
    result = simulate(options(), small_hosts(n_hosts), trace_of(*trace))
    assert result.used_at_end.max() <= 1.0
    assert result.n_requests == len(trace)
    assert result.n_refused == sum(result.refused_by_cause.values())
    assert result.n_refused == sum(result.refused_by_flavor.values())
    assert len(result.times_s) == N_SAMPLES
    impossible = sum(vcpus > 8 or mib > 16384 for _, _, vcpus, mib in trace)
    assert result.n_too_large == impossible <= result.n_refused


@given(trace=st.lists(rows, min_size=1, max_size=15))
def test_deleted_instances_give_all_back(
    trace: list[tuple[float, float, int, int]],
) -> None:
    cloud = SimulatedCloud(options(), small_hosts(3), seed=1)
    before = cloud.table.batch(), cloud.provider_view().state
    uuids = [instance_uuid(i) for i in range(len(trace))]
    for uuid, (_, _, vcpus, mib) in zip(uuids, trace, strict=True):
        cloud.place(request_spec(vcpus, mib, 1), [uuid])
    for uuid in reversed(uuids):
        cloud.end_build(uuid)
        cloud.delete(uuid)
    after = cloud.table.batch(), cloud.provider_view().state
    for name in ("free_ram_mb", "vcpus_used", "num_instances", "num_io_ops"):
        assert np.array_equal(getattr(before[0], name), getattr(after[0], name))
    for name, column in after[1].inventories.items():
        assert np.array_equal(column.used, before[1].inventories[name].used)


def test_instances_that_are_there_at_the_start_have_their_age(tmp_path: Path) -> None:
    model = tmp_path / "lifetimes.json"
    model.write_text(LIFETIMES.to_json())
    conf = options(lifetime_model=str(model), lifetime_weight_multiplier=9.0)
    now = int(time.time())
    hosts = (
        host("young", vcpus=99, launches=[[now, "p", 1, 1024, ""]]),
        host("old", launches=[[now - 90000, "p", 1, 1024, ""]]),
    )
    with started_scheduler(tmp_path, *hosts) as scheduler:
        view = StoredView.decode(CapturedView.of(scheduler.parts).encode())
    for started in (view, read_inventory(write_inventory(tmp_path, *hosts))):
        cloud = SimulatedCloud(conf, started, seed=0)
        record = cloud.place(request_spec(4, 4096, 0), new_uuids())
        assert [instance.host for instance in record.instances] == ["old"]
        cloud.now = 90000.0  # the other instance is as old by now
        record = cloud.place(request_spec(4, 4096, 0), new_uuids())
        assert [instance.host for instance in record.instances] == ["young"]


@pytest.mark.deep
def test_cloud_selects_as_the_scheduler_does_with_the_real_placement(
    tmp_path: Path,
) -> None:
    # No two hosts are equal, so that ties, which are broken at random, do not occur.
    hosts = [
        host(f"h{i}", vcpus=8 + 3 * i, memory_mb=16384 + 5000 * i, local_gb=100 + i)
        for i in range(6)
    ]
    path = write_inventory(tmp_path, *hosts)
    conf = options(**PACK)
    conf.set_override("source", "file", group="moorage")
    conf.set_override("inventory_file", str(path), group="moorage")
    scheduler = build(conf)
    cloud = SimulatedCloud(options(**PACK), read_inventory(path), seed=0)
    clouds = [cloud]
    rng = np.random.default_rng(7)
    outcomes = set()
    try:
        scheduler.start()
        for number, uuid in enumerate(new_uuids(60)):
            if number == 20:  # from here on, also on what a snapshot would have
                view = StoredView.decode(CapturedView.of(scheduler.parts).encode())
                clouds.append(SimulatedCloud(options(**PACK), view, seed=0))
            vcpus, mib = int(rng.integers(1, 6)), int(rng.integers(512, 9000))
            records = [
                cloud.place(request_spec(vcpus, mib, 2), [uuid]) for cloud in clouds
            ]
            try:
                sizes = {"vcpus": vcpus, "memory_mb": mib, "root_gb": 2}
                expected = selected(scheduler, uuid, **sizes).service_host
            except NoValidHost:
                expected = None
            for record in records:
                outcomes.add(record.outcome)
                hosts_of = [instance.host for instance in record.instances]
                assert hosts_of == ([expected] if expected else [])
    finally:
        scheduler.stop()
    assert outcomes == {Outcome.SELECTED, Outcome.NO_VALID_HOST}


def test_packing_keeps_hosts_empty_and_spreading_does_not() -> None:
    # A minute apart: hosts that build an instance weigh less.
    small = [(60.0 * i, 1e6, 1, 512) for i in range(40)]
    trace = trace_of(*small)
    spread, packed = (
        simulate(options(**changes), small_hosts(10), trace) for changes in ({}, PACK)
    )
    assert spread.series["empty_hosts"][-1] == 0
    assert packed.series["empty_hosts"][-1] == 0.5  # 5 of 10 hosts have 8 each
    assert packed.summary()["density"] > spread.summary()["density"]
    # An instance of a whole host finds one only where hosts are packed.
    whole = trace_of(*small, (3000, 1e6, 8, 16384))
    refused = [
        simulate(options(**changes), small_hosts(10), whole).n_refused
        for changes in ({}, PACK)
    ]
    assert refused == [1, 0]


def test_virtual_time_frees_what_has_left() -> None:
    trace = trace_of((0, 10, 8, 1024), (10, 20, 8, 1024), (15, 30, 8, 1024))
    result = simulate(options(), small_hosts(1), trace)
    assert result.n_refused == 1
    assert [*result.refused_by_flavor] == ["8x1024"]
    assert "Placement" in next(iter(result.refused_by_cause))


def test_builds_are_no_io_operations_of_the_first_population() -> None:
    cloud = SimulatedCloud(options(), small_hosts(1), seed=0)
    uuid = instance_uuid("a")
    cloud.place(request_spec(1, 512, 0), [uuid])
    assert cloud.table.batch().num_io_ops.tolist() == [1]
    cloud.end_build(uuid)
    assert cloud.table.batch().num_io_ops.tolist() == [0]


@pytest.mark.parametrize(("policy", "n_hosts"), [("anti-affinity", 2), ("affinity", 1)])
def test_server_group_has_its_members_of_the_simulation(
    policy: str, n_hosts: int
) -> None:
    cloud = SimulatedCloud(options(), small_hosts(2), seed=0)
    group = InstanceGroup(
        uuid=instance_uuid("group"), policy=policy, members=[], hosts=["elsewhere"],
        rules={},
    )  # fmt: skip
    hosts = set()
    for name in "ab":
        uuid = instance_uuid(name)
        group.members = [*group.members, uuid]
        record = cloud.place(spec(instance_group=group, root_gb=0), [uuid])
        hosts |= {instance.host for instance in record.instances}
    assert len(hosts) == n_hosts
    third = spec(instance_group=group, root_gb=0)
    outcome = cloud.place(third, [instance_uuid("c")]).outcome
    is_selected = outcome is Outcome.SELECTED
    assert is_selected is (policy == "affinity")


def test_request_for_several_instances_is_placed_whole_or_not_at_all() -> None:
    cloud = SimulatedCloud(options(), small_hosts(2), seed=0)
    both = spec(num_instances=3, vcpus=8, root_gb=0)
    assert cloud.place(both, new_uuids(3)).outcome is Outcome.NO_VALID_HOST
    assert cloud.n_instances == 0
    assert cloud.table.batch().vcpus_used.tolist() == [0, 0]
    both = spec(num_instances=2, vcpus=8, root_gb=0)
    assert cloud.place(both, new_uuids(2)).outcome is Outcome.SELECTED
    assert cloud.table.batch().vcpus_used.tolist() == [8, 8]


def test_fewest_hosts_are_found_by_bisection() -> None:
    # 16 instances of more than half a host: one host each.
    trace = trace_of(*((float(i), 1e6, 5, 512) for i in range(16)))
    bound = lower_bound(trace.peak().tolist(), small_hosts(1))
    assert bound == 10
    tried = []

    def run(n_hosts: int) -> Result:
        tried.append(n_hosts)
        return simulate(
            options(), small_hosts(n_hosts), trace, stops_at_refusal=True
        )  # fmt: skip

    assert fewest_hosts(run, bound) == 16
    assert len(tried) < 10
    too_large = trace_of((0, 1e6, 9, 512))
    run_too_large = lambda n: simulate(options(), small_hosts(n), too_large)  # noqa: E731
    assert fewest_hosts(run_too_large, 1) is None


@pytest.mark.deep
def test_two_runs_are_equal_also_with_another_hash_seed() -> None:
    program = (
        "import json, sys\n"
        "from moorage.scheduler.conf import load\n"
        "from moorage.simulator.cloud import Shape, equal_hosts\n"
        "from moorage.simulator.simulation import simulate\n"
        "from moorage.simulator.traces import synthetic_trace\n"
        "trace = synthetic_trace(300, rate_per_h=60, mean_lifetime_h=5, seed=4)\n"
        "conf = load([], config_files=[])\n"
        "conf.set_override('host_subset_size', 3, group='filter_scheduler')\n"
        "hosts = equal_hosts(6, Shape(32, 128), trace.units)\n"
        "result = simulate(conf, hosts, trace, seed=5).to_dict()\n"
        "del result['decisions_per_s']\n"
        "json.dump(result, sys.stdout)\n"
    )
    results = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert results[0] == results[1]
    assert json.loads(results[0])["summary"]["vcpus_used"] > 0.1


@pytest.mark.deep
def test_difference_has_an_interval_over_runs() -> None:
    trace = synthetic_trace(200, rate_per_h=60, mean_lifetime_h=5, seed=4)
    hosts = equal_hosts(6, Shape(32, 128), trace.units)
    traces = [trace, trace.jittered(1), trace.jittered(2)]
    runs = {
        name: [
            simulate(options(**changes), hosts, one, settings=name) for one in traces
        ]
        for name, changes in {"spread": {}, "pack": PACK}.items()
    }
    comparison = Comparison(runs)
    values = [
        pack.summary()["density"] - spread.summary()["density"]
        for spread, pack in zip(runs["spread"], runs["pack"], strict=True)
    ]
    difference = comparison.difference("pack", "density")
    assert difference.mean == pytest.approx(np.mean(values))
    # Student's t for 2 degrees of freedom is 4.303 (any table).
    expected = 4.303 * np.std(values, ddof=1) / 3**0.5
    assert difference.margin == pytest.approx(expected, rel=1e-3)
    alone = Comparison({name: one[:1] for name, one in runs.items()})
    assert np.isnan(alone.difference("pack", "density").margin)
    assert not alone.difference("pack", "density").is_certain


BARE_METAL = {
    "resources:CUSTOM_BAREMETAL": "1",
    **{f"resources:{name}": "0" for name in ("VCPU", "MEMORY_MB", "DISK_GB")},
}


def test_bare_metal_is_not_measured_in_cpus_and_memory(tmp_path: Path) -> None:
    node = {
        "vcpus": 0, "memory_mb": 0, "local_gb": 0, "hypervisor_type": "ironic",
        "resources": {"CUSTOM_BAREMETAL": {"total": 1, "max_unit": 1}},
    }  # fmt: skip
    nodes = [host("ironic", node=f"metal{i}", **node) for i in range(2)]
    path = write_inventory(tmp_path, host("a"), *nodes)
    trace = trace_of((0, STAYS, 4, 4096), (1, STAYS, 32, 131072), (9, STAYS, 2, 4096))
    trace.specs[1].flavor.extra_specs = BARE_METAL
    result = simulate(options(), read_inventory(path), trace)
    assert (result.n_refused, result.n_too_large) == (0, 0)
    # Measured before the last instance comes.
    last = {name: values[-1] for name, values in result.series.items()}
    assert last["vcpus_used"] == last["density"] == 4 / 8
    assert last["memory_used"] == 0.25
    assert last["empty_hosts"] == pytest.approx(1 / 3)
    assert last["room_for_largest"] == 1
    assert result.used_at_end.tolist() == [[6 / 8, 0.5]]
    alone = trace_of((0, STAYS, 32, 131072))
    alone.specs[0].flavor.extra_specs = BARE_METAL
    result = simulate(
        options(), read_inventory(write_inventory(tmp_path, *nodes)), alone
    )
    assert (result.n_refused, result.n_too_large, result.lower_bound) == (0, 0, None)
    assert result.series["room_for_largest"][-1] == 0


def test_instance_whose_disk_no_host_has_is_larger_than_any() -> None:
    trace = trace_of((0, STAYS, 1, 512), (1, STAYS, 1, 512))
    trace.specs[1].flavor.root_gb = 11
    result = simulate(options(), equal_hosts(2, Shape(8, 16, 10), Units()), trace)
    assert (result.n_refused, result.n_too_large) == (1, 1)


# -- moves that empty hosts ------------------------------------------------------------


@pytest.mark.deep
def test_hosts_are_emptied_by_as_many_moves_as_are_allowed() -> None:
    trace = synthetic_trace(120, rate_per_h=100, mean_lifetime_h=0.5, seed=5)
    runs = [
        simulate(
            options(**PACK), small_hosts(30, 16, 64), trace,
            defragment_every=every, max_moves=max_moves,
        )
        for every, max_moves in ((None, None), (10, 2), (10, 2), (10, None))
    ]  # fmt: skip
    n_moves = [run.n_moves for run in runs]
    assert n_moves[0] == 0
    assert 0 < n_moves[1] <= 12 * 2
    assert 0 < n_moves[3] <= 12  # one each time by default, or one for each 100
    assert runs[1].moved_gib > 0
    empty = [run.summary()["empty_hosts"] for run in runs]
    assert empty[0] < empty[3]
    assert empty[0] < empty[1]
    assert runs[1].series == runs[2].series


def _apart(cloud: SimulatedCloud, group: InstanceGroup | None) -> list[str]:
    """Leave two small instances on two hosts; return their UUIDs."""
    large = [instance_uuid(name) for name in ("large1", "large2")]
    small = [instance_uuid(name) for name in ("small1", "small2")]
    for uuid in large:
        assert cloud.place(request_spec(5, 1024, 0), [uuid]).outcome is Outcome.SELECTED
    for uuid in small:
        request = request_spec(2, 2048, 0)
        request.instance_group, request.project_id = group, "project"
        assert cloud.place(request, [uuid]).outcome is Outcome.SELECTED
    for uuid in large:
        cloud.delete(uuid)
    assert sorted(cloud.table.batch().vcpus_used.tolist()) == [0, 2, 2]
    return small


def test_a_moved_instance_uses_its_new_host_only() -> None:
    cloud = SimulatedCloud(options(**PACK), small_hosts(3), seed=0)
    small = _apart(cloud, None)
    assert cloud.defragment(5) == (1, 2048)
    hosts = cloud.table.batch()
    assert sorted(hosts.vcpus_used.tolist()) == [0, 0, 4]
    assert hosts.num_io_ops.sum() == 1  # of the instance that is not moved
    assert cloud.defragment(5) == (0, 0)
    # All of a host is free again.
    for name in ("a", "b"):
        uuid = instance_uuid(name)
        assert cloud.place(request_spec(8, 1024, 0), [uuid]).outcome is Outcome.SELECTED
        cloud.delete(uuid)
    for uuid in small:
        cloud.delete(uuid)
    assert cloud.n_instances == 0
    assert cloud.table.batch().vcpus_used.tolist() == [0, 0, 0]


def test_members_of_a_server_group_are_not_moved_together() -> None:
    cloud = SimulatedCloud(options(**PACK), small_hosts(3), seed=0)
    group = InstanceGroup(
        uuid=instance_uuid("group"), policy="anti-affinity", members=[], hosts=[],
        rules={},
    )  # fmt: skip
    _apart(cloud, group)
    assert cloud.defragment(5) == (0, 0)


def test_instances_of_the_inventory_stay(tmp_path: Path) -> None:
    instances = [instance_uuid(name) for name in "ab"]
    path = write_inventory(
        tmp_path,
        *(
            host(name, instances=[uuid], vcpus_used=1, num_instances=1)
            for name, uuid in zip("ab", instances, strict=True)
        ),
    )
    cloud = SimulatedCloud(options(**PACK), read_inventory(path), 0)
    assert cloud.table.instances.of_host("a")
    assert cloud.defragment(5) == (0, 0)
