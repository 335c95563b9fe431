# SPDX-License-Identifier: Apache-2.0
"""A view is read as it was captured; damaged bytes are refused in one line."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oslo_config import cfg

from moorage.scheduler.conf import load
from moorage.scheduler.errors import ConfigurationError
from moorage.scheduler.hosts import (
    Consumption,
    HostAggregate,
    HostPools,
    HostTable,
    HostTopology,
    PlacementPlace,
)
from moorage.scheduler.hosts.numa.cells import CellHardware, HostCell, Pages
from moorage.scheduler.placement.providers import (
    InventoryRecord,
    ProviderColumns,
    ProviderRecord,
    ProviderTable,
    ProviderView,
)
from moorage.scheduler.views import (
    CapturedView,
    OfflineParts,
    StoredView,
    UnreadableView,
)
from moorage.scheduler.views.options import set_options
from moorage.testing.builders import (
    NOW,
    host,
    instance_uuid,
    node_uuid,
    pci_pool,
    pci_pools,
    table,
)

from ...fixtures.property_tests import examples

#: A host with more CPUs than 64 bits can number.
_CELL = HostCell(
    CellHardware(0, (0, 1), (2, 200), ((2, 200),), 512, 1, frozenset({"net"}), True),
    cpu_usage=1,
    memory_usage=128,
    pinned=1 << 200,
    pages=(Pages(4, 1000, 5, 1), Pages(1 << 20, 2)),
)


def _table() -> HostTable:
    made = table(
        host(
            host="a",
            stats={"io": "1", "\u00e4": ""},
            metrics={"cpu": 0.5, "n": 1},
            last_seen_up=math.nan,
            numa_topology=HostTopology((_CELL,)),
            pci_stats=HostPools.read(
                pci_pools(pci_pool(2, numa_node=1), pci_pool(3, vendor_id="x"))
            ),
        ),
        host(host="b", last_seen_up=NOW - 5, cpu_info=None, disabled=True),
        host(host="c", cpu_allocation_ratio=0.1, launches=((5, "p", 1, 512, ""),)),
        aggregates=[
            HostAggregate(3, instance_uuid("x"), "fast", frozenset("ab"), {"k": "v"})
        ],
        instances={"a": [instance_uuid(1), "no UUID"], "b": [instance_uuid(1)]},
        images={instance_uuid(1): {"os_distro": "debian"}},
    )
    made.claims.consume(
        node_uuid("b"), instance_uuid(2), Consumption(512, 1024, 2), NOW - 9
    )
    made.drop(node_uuid("a"))  # the last row takes its place
    made.put(host(host="d", numa_topology=HostTopology((_CELL,))))
    made.put_cell_names({instance_uuid("cell"): "north"})
    places = (PlacementPlace(instance_uuid("r"), "rack", "r1"),)
    made.put_placement_places({node_uuid(name): places for name in ("b", "gone")})
    return made


def _providers() -> ProviderTable:
    root = ProviderRecord(
        node_uuid("b"),
        None,
        7,
        {"VCPU": InventoryRecord(10, 1, 1, 8, 2, 0.7), "CUSTOM_X": InventoryRecord(1)},
        {"VCPU": 3},
        frozenset({"CUSTOM_T"}),
        frozenset({instance_uuid("x")}),
    )
    child = ProviderRecord(
        instance_uuid("child"), root.uuid, 1, {"VGPU": InventoryRecord(4)}
    )
    gone = ProviderRecord(instance_uuid("gone"), None, 1, {"VGPU": InventoryRecord(4)})
    made = ProviderTable(ProviderColumns.of([gone, root, child]), is_mysql=True)
    made.remove([gone.uuid])
    made.add_names(traits=["CUSTOM_KNOWN"])
    return made


def _captured(**changes: Any) -> CapturedView:
    hosts = _table()
    conf = load([], config_files=[])
    for name, value in changes.items():
        group, _, option = name.partition("__")
        conf.set_override(option, value, group=group)
    return CapturedView(
        hosts.image(),
        hosts.columns,
        NOW,
        11,
        conf,
        are_zones_checked=False,
        unknowns=("No host aggregate is known.",),
        providers=_providers().view(),
    )


def _rows(made: HostTable) -> Mapping[str, list[Any]]:
    batch = made.batch()
    return {
        name: [repr(value) for value in getattr(batch, name)]
        for name in batch.column_names
    }


def test_hosts_are_read_as_they_were() -> None:
    before = _table()
    after = StoredView.decode(_captured().encode()).table(lambda: NOW)
    assert _rows(after) == _rows(before)
    assert after.claims.unreported() == before.claims.unreported()
    assert set(after.aggregates) == set(before.aggregates)
    assert after.placement_places == before.placement_places
    assert after.cell_names == before.cell_names == {instance_uuid("cell"): "north"}
    [row] = after.batch([node_uuid("b")])
    assert row.placement_places[0].place == ("rack", "r1")
    assert after.image().hosts_of.keys() == before.image().hosts_of.keys()
    assert after.image().properties == before.image().properties
    for name in "abcd":
        mine, its = after.instances.of_host(name), before.instances.of_host(name)
        assert mine == its
    for uuid in map(instance_uuid, (1, 2)):
        mine, its = (made.instances.reported_hosts_of(uuid) for made in (after, before))
        assert mine == its


def _described(view: ProviderView) -> list[object]:
    state = view.state
    described: list[object] = [view.known_traits, view.known_classes]
    described.extend(state.record(uuid) for uuid in state.trees.uuids if uuid)
    for name, column in sorted(state.inventories.items()):
        limits = [column.distinct.max_used(n)[column.kinds].tolist() for n in (1, 2, 7)]
        described.append((name, column.rows.tolist(), limits))
    return described


def test_providers_are_read_as_they_were() -> None:
    read = StoredView.decode(_captured().encode()).providers
    assert read is not None
    before, after = _described(_providers().view()), _described(read)
    # What a claim of 7 may use with the ratio 0.7 depends on the kind of database.
    assert after == before


def test_options_are_read_without_secrets() -> None:
    options = {"filter_scheduler__host_subset_size": 5}
    secret = {
        "moorage__store_connection": "mysql://u:s3cret@db/hosts",
        "api_database__connection": "mysql://u:s3cret@db/nova",
    }
    data = _captured(**options, **secret).encode()
    assert StoredView.decode(data).options["filter_scheduler"] == {
        "host_subset_size": 5
    }
    assert b"s3cret" not in zlib.decompress(data[len(b"moorage view 1") :])


def test_secrets_of_other_owners_are_left_out_and_masked() -> None:
    conf = load([], config_files=[])
    conf.register_opts(
        [cfg.StrOpt("passwd"), cfg.ListOpt("servers"), cfg.DictOpt("backends")], "acme"
    )
    conf.set_override("passwd", "s3cret", "acme")
    conf.set_override("servers", ["redis://u:s3cret@h"], "acme")
    backends = {"a": "redis://u:s3cret@h", "api_key": "s3cret"}
    conf.set_override("backends", backends, "acme")
    assert set_options(conf)["acme"] == {
        "servers": ["redis://u:***@h"],
        "backends": {"a": "redis://u:***@h", "api_key": "***"},
    }


def test_code_of_a_view_is_not_imported(tmp_path: Any, monkeypatch: Any) -> None:
    (tmp_path / "hostile.py").write_text(
        "import pathlib\npathlib.Path(__file__).with_suffix('.run').touch()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    hostile = {
        "filter_scheduler__available_filters": ["hostile.filters"],
        "filter_scheduler__weight_classes": ["hostile.weighers"],
    }
    offline = OfflineParts(StoredView.decode(_captured(**hostile).encode()))
    assert offline.left_out == ["hostile.filters", "hostile.weighers"]
    assert not (tmp_path / "hostile.run").exists()


def test_file_that_a_third_party_reads_is_known_by_its_option(
    tmp_path: Path, monkeypatch: Any
) -> None:
    (tmp_path / "acme.py").write_text(
        """
from pathlib import Path

from moorage.scheduler.conf.values import PluginFile
from moorage.weighers import BaseHostWeigher
from oslo_config import cfg


class AcmeWeigher(BaseHostWeigher):
    def __init__(self, conf, **options):
        super().__init__(conf, **options)
        file = cfg.Opt("file", type=PluginFile(["factor"]), default="")
        conf.register_opts([file, cfg.FloatOpt("factor", default=1.0)], "acme")
        if conf.acme.file:
            Path(conf.acme.file).read_text()
        elif conf.acme.factor != 1:
            raise ValueError("no file")

    def weigh_host(self, host_state, spec_obj):
        return 0.0
"""
    )
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "acme.txt"
    view = dataclasses.replace(
        StoredView.decode(_captured().encode()),
        options={"acme": {"file": str(path), "factor": 2.0}},
    )

    def missing() -> Sequence[str]:
        conf = load([], config_files=[])
        weighers = ["acme.AcmeWeigher"]
        conf.set_override("weight_classes", weighers, "filter_scheduler")
        return OfflineParts(view, conf).left_out

    assert missing() == [f"{path} of [acme] file"]
    path.touch()
    assert missing() == []


# -- hostile bytes ---------------------------------------------------------------------


_MAGIC = b"moorage view \x02"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "no view"),
        (b"moorage view \x01", "another version"),
        (_MAGIC, "truncated"),
        (_MAGIC + b"xxxx", "damaged"),
        (_MAGIC + zlib.compress(struct.pack(">I", 1 << 31) + b"x"), "a piece of"),
        (_MAGIC + zlib.compress(struct.pack(">I", 5) + b"x"), "truncated"),
        (_MAGIC + zlib.compress(struct.pack(">I", 1) + b"\xc1"), "damaged"),
        (_captured().encode()[:-100], "truncated"),
        (_captured().encode()[:600], "truncated"),
    ],
    ids=range(9),
)
def test_bytes_that_are_no_view_are_refused(data: bytes, why: str) -> None:
    with pytest.raises(UnreadableView, match=why):
        StoredView.decode(data)


_PLAIN = zlib.decompress(_captured().encode()[len(_MAGIC) :])


@examples(3)
@given(
    places=st.lists(st.integers(0, len(_PLAIN) - 1), min_size=1, max_size=4),
    byte=st.integers(0, 255),
)
def test_changed_bytes_raise_nothing_else(places: list[int], byte: int) -> None:
    changed = bytearray(_PLAIN)
    for place in places:
        changed[place] = byte
    with (
        contextlib.suppress(UnreadableView, ConfigurationError),
        np.errstate(all="ignore"),
    ):
        OfflineParts(StoredView.decode(_MAGIC + zlib.compress(bytes(changed), 1)))
