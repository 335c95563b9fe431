# SPDX-License-Identifier: Apache-2.0
"""A host's cells together: their sockets and threads, and guests that come and go."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from moorage.objects import NetworkMetadata, NUMACell, NUMAPagesTopology, NUMATopology
from moorage.scheduler.hosts.numa import HostTopology, Pages
from moorage.scheduler.request.numa import Guest

from .numa_hosts import cpus, fit, guests, host, host_cell, hosts, mask, pinned


def test_cells_are_found_by_id() -> None:
    topology = host(host_cell(3), host_cell(1), host_cell(0))
    assert topology.bits_of([0, 3, 7]) == 0b101


@pytest.mark.parametrize(
    ("siblings", "has_threads"),
    [([], False), ([()], False), ([(0,), (1,)], False), ([(0,), (1, 2)], True)],
)
def test_threads_are_derived_from_siblings(
    siblings: list[tuple[int, ...]], has_threads: bool
) -> None:
    assert host(host_cell(siblings=siblings)).has_threads is has_threads


def test_isolated_guest_uses_whole_cores() -> None:
    guest = Guest((pinned(1, thread_policy="isolate"),), is_isolated_emulator=True)
    topology = host(host_cell(cpus=tuple(range(8))))
    fitted = fit(topology, guest)
    assert fitted is not None
    assert cpus(topology.with_guest(fitted).cells[0].pinned) == {0, 4, 1, 5}


def test_isolated_guest_gives_back_no_thread_that_another_holds() -> None:
    guest = Guest((pinned(3, thread_policy="isolate"),), is_isolated_emulator=True)
    topology = host(host_cell(cpus=tuple(range(8)), pinned=mask(0)))
    fitted = fit(topology, guest)
    assert fitted is not None
    with_it = topology.with_guest(fitted)
    assert cpus(with_it.cells[0].pinned) == set(range(8))
    assert with_it.without_guest(fitted) == topology


@given(hosts(), guests())
def test_guest_that_leaves_frees_what_it_used(
    topology: HostTopology, guest: Guest
) -> None:
    fitted = fit(topology, guest)
    if fitted is None:
        return
    with_it = topology.with_guest(fitted)
    used = sum(cell.memory_usage for cell in topology.cells)
    required_mb = sum(cell.memory_mb for cell in guest.cells)
    assert sum(cell.memory_usage for cell in with_it.cells) == used + required_mb
    if all(cell.memory_mb >= 1024 for cell in guest.cells):  # no broken huge page
        assert with_it.without_guest(fitted) == topology


def test_description_has_the_free_amounts() -> None:
    description = host(
        host_cell(
            pinned=mask(0, 1), memory_usage=96, pages=(Pages(2048, 1000, reserved=3),)
        )
    ).describe()
    for amount in ("6 of 8", "4000 of 4096 MiB", "997 of 1000 pages of 2048 KiB"):
        assert amount in description


REPORTED = NUMATopology(
    cells=[
        NUMACell(
            id=number,
            cpuset={0, 1} if number else set(),
            pcpuset={8, 9, 10, 11},
            memory=2048,
            cpu_usage=number,
            memory_usage=512,
            pinned_cpus={8},
            siblings=[{8, 10}, {9, 11}],
            mempages=[
                NUMAPagesTopology(size_kb=4, total=100, used=1, reserved=2),
                NUMAPagesTopology(size_kb=2048, total=10, used=0, reserved=0),
            ],
            network_metadata=NetworkMetadata(physnets={"a", "b"}, tunneled=True),
            socket=None if number else 3,
        )
        for number in range(2)
    ]
)
TEXT = json.dumps(REPORTED.obj_to_primitive())

#: What a field may hold that is not as computes write it today.
ODD: list[Any] = [None, 0, -1, "3", 2.5, True, [], {}, [1, "2"], [[0], [1]]]
ODD += [10**12, "x"]


def _plain(topology: NUMATopology) -> list[dict[str, Any]]:
    """Return the fields of all cells as values that compare."""
    return [
        {
            "id": cell.id,
            "cpuset": set(cell.cpuset),
            "pcpuset": set(cell.pcpuset),
            "memory": cell.memory,
            "cpu_usage": cell.cpu_usage,
            "memory_usage": cell.memory_usage,
            "pinned_cpus": set(cell.pinned_cpus),
            "siblings": list(map(set, cell.siblings)),
            "mempages": [
                (p.size_kb, p.total, p.used, p.reserved) for p in cell.mempages
            ],
            "socket": cell.socket,
            "networks": _networks(cell),
        }
        for cell in topology.cells
    ]


def _networks(cell: NUMACell) -> tuple[set[str], bool]:
    if "network_metadata" not in cell:
        return set(), False
    return set(cell.network_metadata.physnets), cell.network_metadata.tunneled


def test_text_primitive_and_object_read_as_the_same() -> None:
    read = HostTopology.read(TEXT)
    assert read == HostTopology.read(json.loads(TEXT)) == HostTopology.read(REPORTED)
    assert hash(read) == hash(HostTopology.read(REPORTED))


def test_report_round_trips_unchanged() -> None:
    assert _plain(HostTopology.read(TEXT).to_object()) == _plain(REPORTED)


@given(hosts())
def test_any_host_survives_the_wire(topology: HostTopology) -> None:
    text = json.dumps(topology.to_object().obj_to_primitive())
    assert HostTopology.read(text) == topology
    written = topology.write()
    assert HostTopology.read(written) == topology
    of_text = NUMATopology.obj_from_primitive(json.loads(written))
    assert _plain(of_text) == _plain(topology.to_object())


def test_all_of_a_report_is_read() -> None:
    cell = HostTopology.read(TEXT).cells[1]
    assert (cell.hardware.cpus, set(cell.hardware.pcpus)) == ((0, 1), {8, 9, 10, 11})
    assert (cell.cpu_usage, cell.memory_usage, cell.pinned) == (1, 512, mask(8))
    assert cpus(cell.free_pcpus) == {9, 10, 11}
    assert cell.pages[0] == Pages(4, total=100, used=1, reserved=2)
    assert (cell.pages[0].free_kb, cell.pages[0].total_kb) == (97 * 4, 400)
    assert cell.hardware.physnets == {"a", "b"}
    assert cell.hardware.is_tunneled


@pytest.mark.parametrize("part", ["memory", "siblings", "mempages"])
def test_hosts_that_differ_in_one_part_are_distinguished_in_one_batch(
    part: str,
) -> None:
    def cells_text(number: int) -> str:
        report = json.loads(TEXT)
        for cell in report["nova_object.data"]["cells"]:
            data = cell["nova_object.data"]
            if part == "memory":
                data["memory"] += number
            elif part == "siblings":
                data["siblings"] = [[8, 10 + number]]
            else:
                data["mempages"][0]["nova_object.data"]["total"] += number
        return json.dumps(report)

    read = [HostTopology.read(cells_text(number)) for number in range(50)]
    assert len(set(map(hash, read))) == len(set(read)) == 50


def test_hosts_of_one_make_share_their_hardware() -> None:
    other = json.loads(TEXT)
    other["nova_object.data"]["cells"][0]["nova_object.data"]["memory_usage"] = 0
    cell, twin = HostTopology.read(TEXT).cells[0], HostTopology.read(other).cells[0]
    assert cell != twin
    assert cell.hardware is twin.hardware


@pytest.mark.parametrize(
    ("missing", "empty"),
    [
        ("pcpuset", set()),
        ("siblings", []),
        ("mempages", []),
        ("pinned_cpus", set()),
        ("socket", None),
        ("networks", (set(), False)),
    ],
)
def test_field_that_an_older_compute_lacks_is_empty(missing: str, empty: Any) -> None:
    old = json.loads(TEXT)
    for cell in old["nova_object.data"]["cells"]:
        del cell["nova_object.data"][missing.replace("networks", "network_metadata")]
    read = _plain(HostTopology.read(old).to_object())
    assert read == [{**cell, missing: empty} for cell in _plain(REPORTED)]


def test_reserved_pages_that_an_older_compute_lacks_are_none() -> None:
    old = json.loads(TEXT)
    cell = old["nova_object.data"]["cells"][0]["nova_object.data"]
    del cell["mempages"][0]["nova_object.data"]["reserved"]
    assert HostTopology.read(old).cells[0].pages[0] == Pages(4, total=100, used=1)


def test_unknown_fields_are_ignored() -> None:
    newer = json.loads(TEXT)
    newer["nova_object.data"]["cells"][0]["nova_object.data"]["later"] = {"x": 1}
    assert HostTopology.read(newer) == HostTopology.read(TEXT)


def test_form_before_there_were_objects_is_read() -> None:
    text = json.dumps(
        {
            "cells": [
                {
                    "id": 1,
                    "cpus": "0-5,^2,^4-5, 9,,",
                    "mem": {"total": 4096, "used": 1024},
                    "cpu_usage": 3,
                }
            ]
        }
    )
    (cell,) = HostTopology.read(text).cells
    assert cpus(cell.hardware.cpu_mask) == {0, 1, 3, 9}
    assert (cell.id, cell.cpu_usage) == (1, 3)
    assert (cell.hardware.memory_mb, cell.memory_usage) == (4096, 1024)
    assert (cell.hardware.pcpus, cell.pages) == ((), ())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "[]",
        "{}",
        '{"cells": 3}',
        '{"cells": [{"id": 0, "cpus": "a-b"}]}',
        '{"nova_object.name": "NUMATopology", "nova_object.data": {}}',
        TEXT.replace('"memory": 2048', '"memory": "much"'),
        TEXT.replace('"size_kb": 4,', '"size_kb": 0,'),
        TEXT.replace('"pinned_cpus": [8]', '"pinned_cpus": [-8]'),
        TEXT.replace('"pinned_cpus": [8]', '"pinned_cpus": ["eight"]'),
    ],
)
def test_what_is_no_topology_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"(?i)numa.topology"):
        HostTopology.read(text)


def _cell(**changes: Any) -> dict[str, Any]:
    plain = {"id": 0, "cpuset": [0], "memory": 1}
    return {"nova_object.data": {**plain, **changes}}


def _sizes(*sizes_kb: int) -> list[dict[str, Any]]:
    return [{"nova_object.data": {"size_kb": kb, "total": 1}} for kb in sizes_kb]


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        pytest.param([_cell(), _cell()], "2 cells of id 0", id="twin cells"),
        pytest.param([_cell(id=None)], "int", id="no id"),
        pytest.param([_cell(id=-1)], "-1 is not between 0", id="negative id"),
        pytest.param([_cell(socket="far")], "far", id="odd socket"),
        pytest.param([_cell(socket=2**70)], "not between -1", id="vast socket"),
        pytest.param([_cell(cpuset=[10**13])], "10000000000000 is not", id="vast CPU"),
        pytest.param([_cell(memory=2**63)], "not between 0", id="vast memory"),
        pytest.param([_cell(memory=float("inf"))], "infinity", id="endless memory"),
        pytest.param(
            [_cell(mempages=_sizes(4, 2048, 4))],
            "2 entries for pages of KiB 4",
            id="twin pages",
        ),
        pytest.param([_cell(mempages=_sizes(2**70))], "not between 1", id="vast pages"),
        pytest.param(
            [_cell(mempages=_sizes(*range(1, 18)))], "17 sizes", id="many page sizes"
        ),
    ],
)
def test_invalid_cells_are_reported(cells: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(ValueError, match=f"not a NUMATopology: .*{message}"):
        HostTopology.read({"nova_object.data": {"cells": cells}})


@pytest.mark.parametrize("cpus", ["5-3", "0-99999999999", "-3", "70000"])
def test_invalid_cpus_of_old_reports_are_reported(cpus: str) -> None:
    with pytest.raises(ValueError, match="not a NUMATopology"):
        HostTopology.read({"cells": [{"id": 0, "cpus": cpus}]})


def test_more_cells_than_a_choice_has_bits_are_refused() -> None:
    many = {"cells": [{"id": number} for number in range(65)]}
    with pytest.raises(ValueError, match="65 cells"):
        HostTopology.read(many)


@pytest.mark.parametrize("value", [pytest.param(v, id=repr(v)) for v in (..., *ODD)])
@pytest.mark.parametrize("part", ["cell", "pages", "networks"])
def test_text_is_parsed_like_its_object(part: str, value: object) -> None:
    for name in _part(json.loads(TEXT), part):
        primitive = json.loads(TEXT)
        data = _part(primitive, part)
        data[name] = value
        if value is ...:
            del data[name]
        assert _outcome(json.dumps(primitive)) == _outcome(primitive), name


def _part(primitive: dict[str, Any], part: str) -> dict[str, Any]:
    """Return the fields of the second cell, or of one of its objects."""
    cell: dict[str, Any] = primitive["nova_object.data"]["cells"][1]["nova_object.data"]
    parts: dict[str, Any]
    parts = {"pages": cell["mempages"][0], "networks": cell["network_metadata"]}
    return cell if part == "cell" else parts[part]["nova_object.data"]


def _outcome(value: object) -> object:
    try:
        return HostTopology.read(value)
    except ValueError:
        return None
