# SPDX-License-Identifier: Apache-2.0
"""The benchmarks run and print every table; no test depends on a time."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.canned import CannedPlacement
from bench.clouds import Cloud, make_cloud, make_numa_cloud
from bench.filtering import (
    WAYS,
    FilteringHarness,
    Question,
    filled_placement,
    providers_of,
    used_cloud,
)
from bench.nova import Nova
from bench.path import count_path
from bench.requests import of_flavor, plain
from bench.timing import Percentiles, Plan, format_percentiles
from moorage.scheduler.errors import PlacementUnavailable
from moorage.scheduler.placement.client import PlacementClient

from ..fixtures.nova_peer import peer_or_skip

_ROOT = Path(__file__).parents[2]

_TABLES = (
    "A decision without Placement and network, ms",
    "Each plugin alone, for 200 hosts, ms",
    "Instances in one request, without Placement, ms",
    "Decisions one after the other, claims released at once",
    "Decisions beside reports and renewals of cached answers, ms",
    "The longest holds of the interpreter while decisions run, ms",
    "A decision for a guest with cells or devices, without Placement, ms",
    "A decision with the embedded Placement (SQLite), ms",
    "Candidates from resource providers in memory, ms",
    "The table of resource providers, ms",
    "Requests to one Placement with 50 providers",
    "Decisions with that Placement, and PUTs of the same allocations, ms",
    "A message on the wire, ms",
    "A reply with two alternates an instance, CPU time in ms",
    "Reports of 200 hosts to the source push, CPU time",
    "The store of decisions, at 200 hosts",
    "What-if questions, milliseconds",
    "Rules about places, 200 hosts, ms",
    "Requests for 20 instances, 50 hosts, ms",
    "Eight schedulers on 4 hosts that are 90% full",
    "The path of a plain request",
)
_SOURCE_TABLES = (
    "A start from nova 34's databases, 4 cells, ms",
    "A poll of nova's databases for changes, ms",
    "Memory of the host table and of the source nova_db",
)


def _bench(*options: str, has_nova: bool = False, **environment: str) -> str:
    without = () if has_nova else ("--no-nova",)
    done = subprocess.run(
        [sys.executable, "-m", "bench", "--quick", *without, *options],
        capture_output=True,
        check=False,
        cwd=_ROOT,
        env=os.environ | environment,
        text=True,
        timeout=800,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    return done.stdout


@pytest.mark.deep
def test_every_table_is_printed_without_nova(tmp_path: Path) -> None:
    sizes = ["--hosts=200", "--runs=1", "--placement-hosts=50", "--ingest-hosts=200"]
    printed = _bench(*sizes, MOORAGE_PEER_PYTHON=str(tmp_path / "python"))

    assert [title for title in _TABLES if title not in printed] == []
    assert "nova_db not measured: " in printed
    # Without MariaDB, or RabbitMQ, the reason is printed instead.
    assert (
        "Following Placement's database on MariaDB, ms" in printed
        or "following not measured: " in printed
    )
    for title, part in (
        ("Hosts with room: by filters, Placement's database,", "filtering"),
        ("Requests that all differ, providers in memory,", "memory"),
    ):
        assert title in printed or f"{part} not measured: " in printed
    if "filtering not measured: " not in printed:
        _check_that_all_ways_select_the_same(printed)
    assert (
        "Memory of workers" in printed or "memory of workers not measured: " in printed
    )
    assert (
        "Decisions while others ask for explanations, 200 hosts, ms" in printed
        or "explaining not measured: " in printed
    )


def _check_that_all_ways_select_the_same(printed: str) -> None:
    _, _, rest = printed.partition("Hosts with room: by filters,")
    rows, _, _ = rest.partition("└")
    lines = [line.split("│") for line in rows.splitlines() if "│" in line]
    assert [line[2].strip() for line in lines] == [*WAYS, *WAYS]
    selected = [(line[1], int(line[3].replace(",", ""))) for line in lines]
    assert len(set(selected)) == 2
    assert all(0 < n < int(n_hosts) for n_hosts, n in selected)


@pytest.mark.deep
@pytest.mark.kafka
@pytest.mark.xdist_group("kafka")
def test_table_of_the_source_kafka_is_printed() -> None:
    printed = _bench("kafka", "--ingest-hosts", "500")

    if "kafka not measured" not in printed:
        assert "The source kafka, one broker" in printed
        assert "500 hosts with two NUMA cells each" in printed
        assert "a decision alone, ms" in printed
        assert re.search(r"a decision, none of [1-9][\d,]* reports/s followed", printed)
        assert re.search(r"a decision, [1-9][\d,]* of [1-9][\d,]* reports/s", printed)


@pytest.mark.deep
@pytest.mark.database
@pytest.mark.kafka
@pytest.mark.peer
@pytest.mark.xdist_group("kafka")
def test_table_of_the_load_of_a_relay_is_printed() -> None:
    peer_or_skip()

    printed = _bench("relay", "--ingest-hosts", "200")

    if "relay not measured" not in printed:
        assert "The load on nova's databases" in printed
        assert "200 hosts in four cells" in printed
        assert "one relay for 4 schedulers with kafka" in printed


@pytest.mark.deep
@pytest.mark.peer
def test_decisions_beside_nova_have_ratios() -> None:
    peer_or_skip()

    printed = _bench("decisions", "--hosts=50", "--runs=1", has_nova=True)

    rows = [x.split("│") for x in printed.splitlines() if x.startswith("│ 50 ")]
    assert rows
    assert all(row[-4].strip().endswith(" x") for row in rows), printed


@pytest.mark.deep
@pytest.mark.peer
def test_tables_of_the_source_nova_db_are_printed() -> None:
    python = peer_or_skip()

    printed = _bench("sources", "--runs=1", MOORAGE_PEER_PYTHON=str(python))

    assert [title for title in _SOURCE_TABLES if title not in printed] == []


@pytest.mark.deep
@pytest.mark.peer
@pytest.mark.parametrize(
    "cloud",
    [
        pytest.param(make_cloud(8), id="plain hosts"),
        pytest.param(make_numa_cloud(8, has_pools=True), id="cells and devices"),
    ],
)
def test_nova_decides_on_the_cloud_of_the_benchmark(cloud: Cloud) -> None:
    peer_or_skip()

    with Nova() as nova:
        nova.load(cloud, ["ComputeFilter"], ["RAMWeigher"])
        decision = nova.decisions(plain(cloud), Plan(runs=2, budget_s=9))

    assert decision.n_passed > 0


@pytest.mark.deep
@pytest.mark.database
def test_ways_that_select_different_hosts_are_an_error() -> None:
    cloud = used_cloud(20)
    full = [
        replace(provider, used=dict.fromkeys(provider.used, 1 << 20))
        for provider in providers_of(cloud)
    ]
    try:
        with filled_placement(full) as (server, _costs):
            harness = FilteringHarness(cloud, server)
            with pytest.raises(RuntimeError, match="differ"):
                harness.compare(Question.of(of_flavor(cloud, (1, 512, 1)), limit=20))
    except LookupError as e:
        pytest.skip(str(e))


@pytest.mark.parametrize(
    ("samples", "median", "p99"),
    [
        pytest.param([3.0], 3.0, 3.0, id="one is both"),
        pytest.param([9.0, 1.0, 2.0], 2.0, 9.0, id="of few, the p99 is the highest"),
        pytest.param([1.0, 2.0], 1.5, 2.0, id="the median may lie between two"),
        pytest.param(range(99), 49.0, 98.0, id="of 99, the p99 is the highest"),
        pytest.param(range(1, 101), 50.5, 99.0, id="of 100, the p99 is the 99th"),
        pytest.param(range(1, 102), 51.0, 100.0, id="of 101, the p99 is the 100th"),
        pytest.param(range(1, 201), 100.5, 198.0, id="of 200, the p99 is the 198th"),
    ],
)
def test_percentiles(samples: list[float], median: float, p99: float) -> None:
    assert Percentiles.of(samples) == Percentiles(median, p99, len(samples))


def test_percentiles_need_a_sample() -> None:
    with pytest.raises(ValueError, match="no median"):
        Percentiles.of([])


def test_scaled_percentiles_keep_their_number_of_samples() -> None:
    assert Percentiles(2.0, 3.0, 5).scaled(10) == Percentiles(20.0, 30.0, 5)


@pytest.mark.parametrize(
    ("times", "cell"),
    [
        pytest.param(Percentiles(1.234, 1.9, 5), "1.23 / 1.9", id="three digits"),
        pytest.param(Percentiles(1234.5, 9876.4, 5), "1,234 / 9,876", id="thousands"),
        pytest.param(Percentiles(7.0, 7.0, 1), "7", id="a single run stands alone"),
        pytest.param(None, "-", id="not measured"),
    ],
)
def test_cell_shows_median_and_p99(times: Percentiles | None, cell: str) -> None:
    assert format_percentiles(times) == cell


def test_path_of_a_request_leads_from_its_call_to_the_claim() -> None:
    counts = count_path(4)

    assert counts.depth > counts.n_hops > 0
    assert len(counts.functions) > len(counts.classes) > len(counts.main_path)
    assert next(iter(counts.main_path)) == "scheduler/selector.py"
    assert counts.main_path.keys() >= {
        "scheduler/drivers/decision.py",
        "scheduler/drivers/filter_scheduler.py",
        "scheduler/placement/client.py",
    }


def test_files_of_the_main_path_are_listed_in_the_documentation() -> None:
    page = (_ROOT / "doc" / "explanation" / "architecture.rst").read_text("utf-8")
    assert [file for file in count_path(4).main_path if f"``{file}``" not in page] == []


def test_canned_placement_lists_the_instances_on_a_host() -> None:
    cloud = make_cloud(2)
    client = PlacementClient(CannedPlacement(cloud, plain(cloud)))
    host = cloud.records[1]

    answer: Any = client.read(f"/resource_providers/{host.uuid}/allocations")

    assert answer["allocations"].keys() == set(cloud.instances[host.host])
    assert answer["resource_provider_generation"] == 1
    for held in answer["allocations"].values():
        assert held["resources"].keys() == {"VCPU", "MEMORY_MB", "DISK_GB"}
        assert held["consumer_generation"] == 1


@pytest.mark.parametrize(
    "path", ["/usages", "/resource_providers", "/resource_providers/none/allocations"]
)
def test_canned_placement_answers_unknown_paths_with_404(path: str) -> None:
    cloud = make_cloud(1)
    placement = CannedPlacement(cloud, plain(cloud))

    with pytest.raises(PlacementUnavailable, match="404"):
        PlacementClient(placement).read(path)
    assert placement.put(path).status_code == 404
