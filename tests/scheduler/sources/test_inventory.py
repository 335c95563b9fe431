# SPDX-License-Identifier: Apache-2.0
"""A valid inventory is read in full; an invalid one is rejected with every mistake."""

from __future__ import annotations

import json
import math
import uuid
from pathlib import Path
from typing import Any

import pytest
import yaml

from moorage.scheduler.errors import InventoryError
from moorage.scheduler.sources.inventory import read_inventory

from ...conftest import instance_uuid

CELL, NODE = str(uuid.uuid4()), str(uuid.uuid4())

HOST = {"host": "a", "cell": "c1", "vcpus": 8, "memory_mb": 4096, "local_gb": 10}
CELLS = [{"name": "c1"}]
PLAIN = {"cells": CELLS, "hosts": [HOST]}


def _write(folder: Path, document: Any) -> Path:
    path = folder / "inventory.yaml"
    path.write_text(document if isinstance(document, str) else yaml.dump(document))
    return path


# -- contents -------------------------------------------------------------------------

YAML = f"""
templates:
  plain: &plain {{cell: c1, vcpus: 8, memory_mb: 4096, local_gb: 100}}
cells:
  - {{name: c1, uuid: {CELL}}}
aggregates:
  - name: east
    hosts: [a, b]
    metadata: {{availability_zone: east}}
hosts:
  - {{<<: *plain, host: a}}
  - <<: *plain
    host: b
    node: b.example.org
    uuid: {NODE.upper()}
    vcpus_used: 4
    memory_mb_used: 1024
    local_gb_used: 30
    cpu_allocation_ratio: 4
    reserved_host_cpus: 1
    reserved_host_disk_mb: 1500
    supported_instances: [[amd64, kvm, hvm]]
    cpu_info: {{topology: {{cores: 4}}, arch: x86_64}}
    traits: [HW_CPU_X86_AVX2, CUSTOM_FAST]
    resources: {{VGPU: {{total: 4}}, CUSTOM_FPGA: {{total: 1}}}}
    stats: {{tier: gold}}
    metrics: {{cpu.percent: 0.5}}
    disabled: true
    instances: [{instance_uuid(1)}]
"""


def test_yaml_is_read_in_full(tmp_path: Path) -> None:
    inventory = read_inventory(_write(tmp_path, YAML))
    plain, full = inventory.hosts
    record = full.record
    assert inventory.cells == {"c1": CELL}
    assert (record.uuid, record.cell_uuid, record.host) == (NODE, CELL, "b")
    assert record.nodename == record.hypervisor_hostname == "b.example.org"
    assert (record.free_ram_mb, record.total_usable_ram_mb) == (3072, 4096)
    assert (record.free_disk_mb, record.disk_mb_used) == (70 * 1024, 30 * 1024)
    assert (record.vcpus_total, record.vcpus_used) == (8, 4)
    assert record.supported_instances == (("x86_64", "kvm", "hvm"),)
    assert json.loads(str(record.cpu_info))["topology"] == {"cores": 4}
    assert (record.disabled, record.stats) == (True, {"tier": "gold"})
    assert record.metrics == {"cpu.percent": 0.5}
    assert plain.record.metrics is None
    assert full.traits == {"HW_CPU_X86_AVX2", "CUSTOM_FAST"}
    assert full.resources.keys() == {"VGPU", "CUSTOM_FPGA"}
    assert full.instances == {instance_uuid(1)}
    assert plain.record.nodename == "a"
    assert not plain.record.disabled
    assert plain.record.last_seen_up == math.inf


def test_aggregates_are_read(tmp_path: Path) -> None:
    (east,) = read_inventory(_write(tmp_path, YAML)).aggregates
    assert (east.name, east.hosts, east.availability_zone) == (
        "east",
        {"a", "b"},
        "east",
    )


def test_json_is_read_like_yaml(tmp_path: Path) -> None:
    first = read_inventory(_write(tmp_path, YAML))
    again = json.dumps(yaml.safe_load(YAML))
    assert read_inventory(_write(tmp_path, again)) == first


def test_json_may_have_a_number_that_yaml_reads_as_text(tmp_path: Path) -> None:
    document = yaml.safe_load(YAML)
    document["hosts"][0]["cpu_allocation_ratio"] = "RATIO"
    text = json.dumps(document).replace('"RATIO"', "4e1")
    first = read_inventory(_write(tmp_path, text)).hosts[0]
    assert first.record.cpu_allocation_ratio == 40


def test_yaml_may_begin_as_json_does(tmp_path: Path) -> None:
    first = read_inventory(_write(tmp_path, YAML))
    again = yaml.dump(yaml.safe_load(YAML), default_flow_style=True)
    assert again.startswith("{")
    assert read_inventory(_write(tmp_path, again)) == first


def test_usage_is_reserved_as_the_hardware_it_needs(tmp_path: Path) -> None:
    _, full = read_inventory(_write(tmp_path, YAML)).hosts
    # 4 vCPUs at a ratio of 4 use 1; 1500 MiB are 2 GiB in part.
    assert full.reserved == {"VCPU": 1 + 1, "MEMORY_MB": 1024, "DISK_GB": 2 + 30}


def test_uuids_that_are_left_out_stay_the_same(tmp_path: Path) -> None:
    first, again = (read_inventory(_write(tmp_path, PLAIN)) for _ in range(2))
    assert first == again
    assert uuid.UUID(first.hosts[0].record.uuid)


# -- what is wrong ---------------------------------------------------------------------

A = "host 'a', key "


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param({"vcpus": 0}, A + "'vcpus': 0 is less", id="no CPU"),
        pytest.param({"vcpus": -1}, A + "'vcpus': -1", id="negative"),
        pytest.param({"vcpus": "8"}, A + "'vcpus': '8' is not of", id="text"),
        pytest.param({"vcpus": 8.0}, A + "'vcpus': 8.0 is not of", id="not an integer"),
        pytest.param({"vcpus": True}, A + "'vcpus': True is not of", id="a claim"),
        pytest.param({"memory_mb": 2**31}, A + "'memory_mb': 214", id="beyond 32 bits"),
        pytest.param(
            {"cpu_allocation_ratio": math.nan},
            A + "'cpu_allocation_ratio': nan is not of",
            id="a ratio that is not a number",
        ),
        pytest.param(
            {"cpu_allocation_ratio": math.inf},
            A + "'cpu_allocation_ratio': inf is not of",
            id="an infinite ratio",
        ),
        pytest.param(
            {"ram_allocation_ratio": 0}, A + "'ram_allocation_ratio': 0", id="ratio 0"
        ),
        pytest.param({"vcpu": 8}, "host 'a': .*'vcpu' was unexpected", id="misspelt"),
        pytest.param({1: 8}, "host 'a': .*1 was unexpected", id="a number as key"),
        pytest.param(
            {"cell": "c2"}, A + "'cell': there is no cell 'c2', only c1", id="cell"
        ),
        pytest.param({"uuid": "x"}, A + "'uuid': 'x' does not match", id="UUID"),
        pytest.param({"host": ""}, "host number 1, key 'host': ", id="empty name"),
        pytest.param({"host": 7}, "key 'host': 7 is not of type 'string'", id="name"),
        pytest.param(
            {"memory_mb_used": 4097},
            A + "'memory_mb_used': 4097 is more than memory_mb, 4096",
            id="more used than there is",
        ),
        pytest.param(
            {"traits": ["HW_CPU_X86_AVX3"]},
            A + "'traits': 'HW_CPU_X86_AVX3' is neither a standard trait",
            id="unknown trait",
        ),
        pytest.param(
            {"traits": ["get_traits"]},
            A + "'traits': 'get_traits' is neither a standard trait",
            id="a name of the library that is no trait",
        ),
        pytest.param({"traits": ["CUSTOM_x"]}, A + "'traits': 'CUSTOM_x'", id="custom"),
        pytest.param(
            {"resources": {"GPU": {"total": 1}}},
            A + "'resources': 'GPU' is neither a standard resource class",
            id="unknown resource class",
        ),
        pytest.param(
            {"resources": {"VGPU": {"total": 0}}},
            A + "'resources.VGPU.total': 0 is less",
            id="nothing of a class",
        ),
        pytest.param(
            {"resources": {"VGPU": {}}},
            A + "'resources.VGPU': 'total' is a required",
            id="no total",
        ),
        pytest.param(
            {"supported_instances": [["x86_64", "kvm"]]},
            A + "'supported_instances.0': ",
            id="a pair for a triple",
        ),
        pytest.param(
            {"supported_instances": [["x86_64", "kvm", "hmv"]]},
            A + "'supported_instances': .*hmv",
            id="unknown mode",
        ),
        pytest.param({"stats": {"x": 1}}, A + "'stats.x': 1 is not of", id="stats"),
        pytest.param({"metrics": {"x": "1"}}, A + "'metrics.x': '1' is not", id="text"),
        pytest.param({"stats": {1: 2, "x": 3}}, A + "'stats", id="keys of any type"),
        pytest.param({"cpu_info": "{}"}, A + "'cpu_info': '{}' is not", id="CPU text"),
        pytest.param(
            {"cpu_info": {1: "x", "y": "z"}}, A + "'cpu_info': cannot", id="no JSON"
        ),
        pytest.param(
            {"instances": ["x"]}, A + "'instances.0': 'x' does", id="instance"
        ),
    ],
)
def test_mistake_of_a_host_names_file_host_and_key(
    changes: dict[Any, Any], message: str, tmp_path: Path
) -> None:
    path = _write(tmp_path, {"cells": CELLS, "hosts": [{**HOST, **changes}]})
    with pytest.raises(InventoryError, match=message) as caught:
        read_inventory(path)
    assert str(caught.value).startswith(f"{path}: ")


@pytest.mark.parametrize("key", HOST)
def test_required_key_is_named(key: str, tmp_path: Path) -> None:
    document = {**PLAIN, "hosts": [{k: v for k, v in HOST.items() if k != key}]}
    with pytest.raises(InventoryError, match=f"host .*: '{key}' is a required"):
        read_inventory(_write(tmp_path, document))


#: Each list has the one before nine times: 9 ** 9 texts.
_BOMB = "".join(
    f"- &a{n} [{','.join([f'*a{n - 1}' if n else 'lol'] * 9)}]\n" for n in range(9)
)
TWO = [HOST, {**HOST, "host": "b"}]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        pytest.param("", "None is not of type 'object'", id="empty file"),
        pytest.param("[]", r"\[\] is not of type 'object'", id="a list"),
        pytest.param("{", "not valid YAML or JSON", id="neither YAML nor JSON"),
        pytest.param("a: b: c", "not valid YAML or JSON.*", id="wrong colon"),
        pytest.param(
            "!!python/object:os.x {}", "not valid YAML or JSON", id="unsafe tag"
        ),
        pytest.param("a: 2026-99-99", "not valid YAML: .*month must be", id="a date"),
        pytest.param("a: !!int ''", "not valid YAML: a value", id="no number"),
        pytest.param(f"a: {'9' * 5000}", "not valid YAML: .*digits", id="long number"),
        pytest.param('{"a":' * 100_000, "it is nested too deeply", id="deep"),
        pytest.param("a: &a [*a]", "must have at most 100 levels", id="endless"),
        pytest.param(_BOMB, "must have at most 5000000 values", id="bomb"),
        pytest.param({"hosts": [HOST]}, "'cells' is a required", id="no cells"),
        pytest.param({"cells": CELLS}, "'hosts' is a required", id="no hosts"),
        pytest.param({"cells": [], "hosts": [HOST]}, "key 'cells': ", id="zero cells"),
        pytest.param({"cells": CELLS, "hosts": []}, "key 'hosts': ", id="zero hosts"),
        pytest.param({"cells": CELLS, "hosts": {}}, "key 'hosts': {} is", id="a dict"),
        pytest.param(
            {"cells": CELLS, "hosts": ["a"]}, "host number 1: 'a' is not", id="a name"
        ),
        pytest.param(
            {"cells": CELLS, "hosts": [HOST], "host": 1}, "'host' was un", id="section"
        ),
        pytest.param(
            {"cells": CELLS * 2, "hosts": [HOST]}, "cell 'c1' is defined 2", id="cells"
        ),
        pytest.param(
            {"cells": CELLS, "hosts": [HOST] * 3}, "node 'a' is defined 3", id="hosts"
        ),
        pytest.param(
            {
                "cells": CELLS,
                "hosts": [
                    {**TWO[0], "uuid": NODE},
                    {**TWO[1], "uuid": NODE.upper()},
                ],
            },
            f"uuid '{NODE}' is defined 2 times",
            id="UUIDs of hosts",
        ),
        pytest.param(
            {
                "cells": [{"name": n, "uuid": CELL} for n in ("c1", "c2")],
                "hosts": TWO,
            },
            f"uuid '{CELL}' is defined 2 times",
            id="UUIDs of cells",
        ),
        pytest.param(
            {
                "cells": CELLS,
                "hosts": TWO,
                "aggregates": [{"name": "x", "hosts": ["a"]}] * 2,
            },
            "aggregate 'x' is defined 2 times",
            id="aggregates",
        ),
        pytest.param(
            {
                "cells": CELLS,
                "hosts": TWO,
                "aggregates": [{"name": "x", "hosts": ["a", "z"]}],
            },
            "aggregate 'x', key 'hosts': there is no host 'z'",
            id="unknown host of an aggregate",
        ),
    ],
)
def test_broken_document_is_refused(
    document: Any, message: str, tmp_path: Path
) -> None:
    path = _write(tmp_path, document)
    with pytest.raises(InventoryError, match=message) as caught:
        read_inventory(path)
    assert str(caught.value).startswith(f"{path}: ")


def test_every_mistake_is_reported_up_to_a_limit(tmp_path: Path) -> None:
    hosts = [{**HOST, "host": f"h{i}", "vcpus": 0} for i in range(25)]
    with pytest.raises(InventoryError) as caught:
        read_inventory(_write(tmp_path, {"cells": CELLS, "hosts": hosts}))
    lines = str(caught.value).splitlines()
    assert len(lines) == 21
    assert "host 'h0'" in lines[0]
    assert "host 'h19'" in lines[19]
    assert lines[20].endswith("and 5 more")


@pytest.mark.parametrize("name", ["missing.yaml", "."])
def test_file_that_cannot_be_read_is_named(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    with pytest.raises(InventoryError, match=f"{path}: cannot be read: "):
        read_inventory(path)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "inventory.yaml"
    path.write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(InventoryError, match="not valid YAML or JSON"):
        read_inventory(path)
