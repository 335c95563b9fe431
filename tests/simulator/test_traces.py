# SPDX-License-Identifier: Apache-2.0
"""Traces in the public formats, and what is left out of them."""

from __future__ import annotations

import gzip
import math
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from moorage.objects import InstanceGroup
from moorage.scheduler.request import Request
from moorage.simulator.cloud import read_nodes
from moorage.simulator.traces import (
    COLUMNS,
    MAX_JITTER_S,
    TraceError,
    history_trace,
    parse_columns,
    read_trace,
    synthetic_trace,
)
from moorage.testing.builders import instance_uuid, spec

DAY_S = 86400.0
COSPOT = """vmId,tenantId,cores,ram,vmTypeId,starttime,endtime
1,10,200.0,28.0,0,-5.5,inf
2,11,400.0,56.0,0,0.5,1.5
3,10,200.0,28.0,1,0.25,
"""
HUAWEI = """vmid,cpu,memory,time,type
7,2,4,0,0
8,1,1,5,0
7,2,4,60,1
"""
OPENB = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,"
    "creation_time,deletion_time,scheduled_time\n"
    "openb-pod-0000,12000,16384,1,1000,,LS,Running,0,12537496,0\n"
    "openb-pod-0001,6000,12288,1,460,,LS,Running,10,,10\n"
    "openb-pod-0002,4000,8192,0,0,,BE,Running,11,,11\n"
    "openb-pod-0003,8000,30517,8,1000,V100M16|V100M32,LS,Pending,12,,\n"
)
NODES = (
    "sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,P100\nn1,32000,262144,0,\n"
)


def _written(folder: Path, text: str, name: str = "trace.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_cospot_is_in_days_hundredths_of_cores_and_quarters_of_gb(
    tmp_path: Path,
) -> None:
    trace = read_trace(_written(tmp_path, COSPOT))
    assert trace.arrivals.tolist() == [-5.5 * DAY_S, 0.25 * DAY_S, 0.5 * DAY_S]
    assert trace.departures.tolist() == [math.inf, math.inf, 1.5 * DAY_S]
    assert trace.amounts().tolist() == [[200, 28, 0], [200, 28, 0], [400, 56, 0]]
    assert (trace.units.vcpus_per_core, trace.units.memory_per_gib) == (100, 4)
    assert {one.project_id for one in trace.specs} == {"10", "11"}
    assert trace.peak().tolist() == [800, 112, 0]


def test_compressed_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv.gz"
    path.write_bytes(gzip.compress(COSPOT.encode()))
    assert len(read_trace(path)) == 3


def test_huawei_pairs_creations_with_deletions(tmp_path: Path) -> None:
    trace = read_trace(_written(tmp_path, HUAWEI))
    assert trace.arrivals.tolist() == [0, 5]
    assert trace.departures.tolist() == [60, math.inf]
    assert trace.amounts().tolist() == [[2, 4096, 0], [1, 1024, 0]]


def test_openb_is_in_thousandths_of_cpus_and_whole_gpus(tmp_path: Path) -> None:
    trace = read_trace(_written(tmp_path, OPENB))
    assert trace.amounts().tolist() == [
        [12000, 16384, 0], [6000, 12288, 0], [4000, 8192, 0], [8000, 30517, 0]
    ]  # fmt: skip
    assert trace.departures.tolist() == [12537496, math.inf, math.inf, math.inf]
    # A shared GPU, of 460 thousandths, is a whole one.
    devices = [Request.of(one).pci_requests for one in trace.specs]
    assert [sum(one.count for one in found) for found in devices] == [1, 1, 0, 8]


def test_nodes_of_openb_are_hosts_with_devices(tmp_path: Path) -> None:
    path = _written(tmp_path, NODES, "nodes.csv")
    first, second = (host.record for host in read_nodes(path).hosts)
    assert (first.host, first.vcpus_total, first.free_ram_mb) == ("n0", 64000, 262144)
    assert [one.pci_stats.n_free for one in (first, second)] == [2, 0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sn,cpu_milli\n", "has the columns sn, cpu_milli, memory_mib, gpu"),
        (NODES + "n0,1,1,1,T4\n", "line 4 has no host"),
        (NODES + "n9,0,1,1,T4\n", "line 4 has no host"),
        (NODES + "n9,1,1,-1,T4\n", "line 4 has no host"),
        (NODES + "n9,1," + "9" * 30 + ",1,T4\n", "line 4 has no host"),
        (NODES + "n9\n", "line 4 has no host"),
        (NODES.splitlines()[0] + "\n", "has no hosts"),
        ("\udcff", "cannot be read"),
    ],
)
def test_wrong_nodes_get_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "nodes.csv"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(TraceError) as caught:
        read_nodes(path)
    assert message in str(caught.value)


def test_azure_uses_the_machine_that_hosts_most_types(tmp_path: Path) -> None:
    path = tmp_path / "packing_trace_zone_a_v1.sqlite"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(
            "CREATE TABLE vmType (id, vmTypeId, machineId, core, memory, hdd, ssd, nic)"
        )
        database.execute(
            "CREATE TABLE vm (vmId, tenantId, vmTypeId, priority, starttime, endtime)"
        )
        database.executemany(
            "INSERT INTO vmType VALUES (?, ?, ?, ?, ?, 0, 0, 0)",
            [(0, 0, 16, 0.5, 0.25), (1, 0, 17, 0.25, 0.125), (2, 1, 17, 0.1, 0.2)],
        )
        database.executemany(
            "INSERT INTO vm VALUES (?, 1, ?, 0, ?, ?)",
            [(5, 0, -1.0, None), (6, 1, 2.0, 3.0), (7, 9, 0.0, 1.0)],
        )
    trace = read_trace(path)
    assert trace.amounts().tolist() == [[2500, 1250, 0], [1000, 2000, 0]]
    assert trace.arrivals.tolist() == [-DAY_S, 2 * DAY_S]
    assert trace.departures.tolist() == [math.inf, 3 * DAY_S]
    assert trace.skipped == {"of types that machine 17 cannot host": "1 (vmId 7)"}


def test_columns_of_another_format_are_named(tmp_path: Path) -> None:
    text = "vm,born,died,cpus,mib,gb\na,3,9,2,512,5\nb,1,,1,256,0\n"
    names = "id=vm,arrival_s=born,departure_s=died,vcpus=cpus,memory_mb=mib,disk_gb=gb"
    trace = read_trace(_written(tmp_path, text), parse_columns(names))
    assert trace.arrivals.tolist() == [1, 3]  # sorted
    assert trace.amounts().tolist() == [[1, 256, 0], [2, 512, 5]]


def test_lines_that_cannot_be_used_are_counted_and_named(tmp_path: Path) -> None:
    lines = [
        "ok,1,10,5.0,0,2.0,3.0", "hole,1,,5.0,0,2.0,3.0", "text,1,two,5.0,0,2.0,3.0",
        "negative,1,-1,5.0,0,2.0,3.0", "backwards,1,1,5.0,0,3.0,2.0",
        "ok,1,10,5.0,0,2.0,3.0", "nan,1,1,nan,0,2.0,3.0", "never,1,1,1.0,0,inf,inf",
    ]  # fmt: skip
    text = "vmId,tenantId,cores,ram,vmTypeId,starttime,endtime\n" + "\n".join(lines)
    trace = read_trace(_written(tmp_path, text))
    assert len(trace) == 1
    assert trace.skipped == {
        "with a value that is missing or no number": "4 (line 3, line 4, line 8, …)",
        "without CPUs or memory, or with negative amounts": "1 (line 5)",
        "that end before they start": "1 (line 6)",
        "without an id, or with one that came before": "1 (line 7)",
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the columns (none) are of no known format"),
        (b"a,b\n1,2\n", "the columns a, b are of no known format"),
        (COSPOT.splitlines()[0].encode(), "it is empty"),
        (b"\xff\xfe\x00", "cannot be read"),
        (b"SQLite format 3\x00" + b"x" * 100, "cannot be read"),
    ],
    ids=["empty", "unknown", "header only", "binary", "damaged database"],
)
def test_file_that_is_no_trace_is_named(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "trace.csv"
    path.write_bytes(content)
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    assert "trace.csv" in str(caught.value)
    assert message in str(caught.value)


def test_cut_archive_is_named(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv.gz"
    path.write_bytes(gzip.compress(COSPOT.encode() * 1000)[:-200])
    with pytest.raises(TraceError, match="cannot be read"):
        read_trace(path)


def test_damaged_archive_is_named(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv.gz"
    content = bytearray(gzip.compress(COSPOT.encode(), mtime=0))
    content[12] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(TraceError, match="cannot be read: Error -3"):
        read_trace(path)


def test_damaged_schema_is_shown_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "trace.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE vmType (vmTypeId, machineId, core, memory)")
    path.write_bytes(path.read_bytes().replace(b"vmTypeId,", b"\x1b[2Jxxx,"))
    with pytest.raises(TraceError) as raised:
        read_trace(path)
    assert "unrecognized token" in str(raised.value)
    assert str(raised.value).isprintable()


def test_columns_of_a_trace_are_shown_in_one_line(tmp_path: Path) -> None:
    path = _written(tmp_path, f'"\x1b[2J\n","{"x" * 1000}"\n1,2\n')
    for columns in (None, dict.fromkeys(COLUMNS, "a")):
        with pytest.raises(TraceError) as raised:
            read_trace(path, columns)
        assert str(raised.value).isprintable()
        assert len(str(raised.value)) < 700


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id=vm", "no arrival_s, departure_s, vcpus, memory_mb"),
        ("id=a,arrival_s=b,departure_s=c,vcpus=d,memory_mb=e,ram=f", "unknown ram"),
        ("id=,arrival_s=b,departure_s=c,vcpus=d,memory_mb=e", "unknown id"),
    ],
)
def test_wrong_columns_are_named(text: str, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        parse_columns(text)


def test_missing_column_is_named(tmp_path: Path) -> None:
    names = "id=vm,arrival_s=a,departure_s=b,vcpus=c,memory_mb=d"
    with pytest.raises(TraceError, match="there is no column a, b, c, d"):
        read_trace(_written(tmp_path, "vm\n1\n"), parse_columns(names))


def test_synthetic_trace_depends_on_its_seed_only() -> None:
    one, same, other = (
        synthetic_trace(500, rate_per_h=60, mean_lifetime_h=10, seed=seed)
        for seed in (1, 1, 2)
    )
    assert np.array_equal(one.arrivals, same.arrivals)
    assert one.uuids == same.uuids
    assert not np.array_equal(one.arrivals, other.arrivals)
    assert one.arrivals[-1] == pytest.approx(500 * 60, rel=0.2)


def test_jitter_moves_arrivals_and_keeps_lifetimes(tmp_path: Path) -> None:
    trace = read_trace(_written(tmp_path, COSPOT))
    moved = trace.jittered(3)
    assert moved.arrivals[0] == trace.arrivals[0]  # the population of the beginning
    before = dict(zip(trace.uuids, trace.arrivals, strict=True))
    after = dict(zip(moved.uuids, moved.arrivals, strict=True))
    assert all(abs(after[uuid] - before[uuid]) <= MAX_JITTER_S for uuid in before)
    assert after != before
    lifetimes = [(t.departures - t.arrivals)[-1] for t in (trace, moved)]
    assert lifetimes[0] == pytest.approx(lifetimes[1])


def test_history_has_each_instance_once_from_its_first_decision() -> None:
    a, b, c = (instance_uuid(name) for name in "abc")
    trace = history_trace(
        [(130.0, [a], spec(vcpus=4)), (100.0, [a, b], spec()), (160.0, [c], spec())],
        "history",
    )
    assert list(trace.uuids) == [a, b, c]
    assert trace.arrivals.tolist() == [0, 0, 60]
    assert [one.num_instances for one in trace.specs] == [2, 1]
    assert np.isinf(trace.departures).all()


def test_history_without_a_request_is_refused() -> None:
    with pytest.raises(TraceError, match="no decision with its request is stored"):
        history_trace([], "history")


def test_requests_that_come_again_are_other_instances_and_groups() -> None:
    uuids = [instance_uuid(name) for name in "ab"]
    group = InstanceGroup(
        uuid=instance_uuid("group"), policy="affinity", members=uuids, hosts=["h"],
        rules={},
    )  # fmt: skip
    trace = history_trace([(0.0, uuids, spec(instance_group=group))], "history")
    again = trace.repeated()
    assert not set(again.uuids) & set(uuids)
    [repeated] = again.specs
    assert set(repeated.instance_group.members) == set(again.uuids)
    assert repeated.instance_group.uuid != group.uuid
    assert trace.specs[0].instance_group.members == uuids


def test_first_requests_are_whole() -> None:
    uuids = [instance_uuid(name) for name in "abcde"]
    trace = history_trace(
        [(0.0, uuids[:3], spec()), (1.0, uuids[3:4], spec()), (2.0, uuids[4:], spec())],
        "history",
    )
    assert [*trace.first(1).uuids] == uuids[:3]
    assert [*trace.first(2).uuids] == uuids[:4]
    assert [*trace.first(10**9).uuids] == uuids


def test_amounts_that_no_host_can_have_are_left_out(tmp_path: Path) -> None:
    text = "vm,a,b,c,d\n1,0,9,1e300,512\n2,0,9,1,1e18\n3,0,9,1,512\n"
    names = "id=vm,arrival_s=a,departure_s=b,vcpus=c,memory_mb=d"
    trace = read_trace(_written(tmp_path, text), parse_columns(names))
    assert trace.peak().tolist() == [1, 512, 0]
    assert trace.skipped == {
        "with more than 2,147,483,647 of a resource": "2 (line 2, line 3)"
    }


def test_mark_of_utf_8_is_no_part_of_the_first_column(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(COSPOT, encoding="utf-8-sig")  # as spreadsheets write it
    assert len(read_trace(path)) == 3


def _azure(path: Path, types: Sequence[tuple[object, ...]]) -> Path:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE vmType (vmTypeId, machineId, core, memory)")
        database.execute(
            "CREATE TABLE vm (vmId, tenantId, vmTypeId, starttime, endtime)"
        )
        database.executemany("INSERT INTO vmType VALUES (?, ?, ?, ?)", types)
        database.executemany(
            "INSERT INTO vm VALUES (?, 1, ?, ?, 1.0)", [(1, 0, 0.0), (2, 1, "soon")]
        )
    return path


def test_text_among_the_numbers_of_azure_is_left_out(tmp_path: Path) -> None:
    types = [(0, 1, "half", 0.5), (1, 1, 0.5, 0.5), (1, "none", 0.5, b"\xff")]
    path = _azure(tmp_path / "azure.sqlite", types)
    with pytest.raises(TraceError, match=r"2 \(vmId 1, vmId 2\) with a value that is"):
        read_trace(path)


def test_machines_of_azure_may_have_ids_of_several_types(tmp_path: Path) -> None:
    types = [(0, 1, 0.5, 0.5), (0, "none", 0.5, 0.5), (0, None, 0.5, 0.5)]
    assert len(read_trace(_azure(tmp_path / "azure.sqlite", types))) == 1


def test_database_is_only_read_whatever_its_name_is(tmp_path: Path) -> None:
    path = _azure(tmp_path / "a?mode=rwc&x#b%20.sqlite", [(0, 1, 0.5, 0.5)])
    assert len(read_trace(path)) == 1
    assert [*tmp_path.iterdir()] == [path]


def test_root_disks_on_volumes_need_no_host() -> None:
    uuids = [instance_uuid(name) for name in "ab"]
    local, on_volume = spec(root_gb=20), spec(root_gb=20, is_bfv=True)
    trace = history_trace(
        [(0.0, uuids[:1], local), (1.0, uuids[1:], on_volume)], "history"
    )
    assert trace.amounts()[:, 2].tolist() == [20, 0]
