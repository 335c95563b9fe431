# SPDX-License-Identifier: Apache-2.0
"""The table has what the file contains, and after a refresh what it contains then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from oslo_config import cfg

from moorage.scheduler.errors import ConfigurationError, InventoryError
from moorage.scheduler.hosts import Consumption, HostTable
from moorage.scheduler.sources.file import FileSource

from ...conftest import instance_uuid

ONE, TWO = instance_uuid(1), instance_uuid(2)
SMALL = Consumption(memory_mb=512, disk_mb=1024, vcpus=1)


def _host(name: str, **changes: Any) -> dict[str, Any]:
    plain = {"cell": "c1", "vcpus": 8, "memory_mb": 4096, "local_gb": 10}
    return {"host": name, **plain, **changes}


class Cloud:
    """A source, its table, and the file between them."""

    def __init__(self, conf: cfg.ConfigOpts, path: Path) -> None:
        conf.set_override("inventory_file", str(path), group="moorage")
        self.path, self.table, self.source = path, HostTable(), FileSource(conf)

    def write(self, *hosts: dict[str, Any], **aggregates: list[str]) -> None:
        document = {
            "cells": [{"name": "c1"}],
            "hosts": list(hosts),
            "aggregates": [{"name": n, "hosts": h} for n, h in aggregates.items()],
        }
        self.path.write_text(yaml.dump(document))

    def contents(self) -> dict[str, tuple[int, list[str], list[str]]]:
        """Free RAM, aggregates and instances by node."""
        return {
            h.nodename: (
                h.free_ram_mb,
                sorted(a.name for a in h.aggregates),
                list(h.instances),
            )
            for h in self.table.batch()
        }

    def node_uuid(self, node: str) -> str:
        (found,) = self.table.nodes_of(None, node)
        return found


@pytest.fixture
def cloud(conf: cfg.ConfigOpts, tmp_path: Path) -> Cloud:
    """A cloud of the hosts a, with an instance, and b."""
    made = Cloud(conf, tmp_path / "inventory.yaml")
    made.write(_host("a", instances=[ONE]), _host("b"), east=["a"], all=["a", "b"])
    made.source.start(made.table)
    return made


def test_table_has_the_files_contents(cloud: Cloud) -> None:
    assert cloud.contents() == {
        "a": (4096, ["all", "east"], [ONE]),
        "b": (4096, ["all"], []),
    }
    [cell] = {host.cell_uuid for host in cloud.table.batch()}
    assert cloud.table.cell_names == {cell: "c1"}


def test_refresh_drops_what_the_file_has_no_more(cloud: Cloud) -> None:
    cloud.write(_host("b", memory_mb=2048), _host("c", instances=[TWO]), all=["b", "c"])
    cloud.source.refresh(cloud.table)
    assert cloud.contents() == {"b": (2048, ["all"], []), "c": (4096, ["all"], [TWO])}


def test_refresh_drops_instances_that_are_not_listed_any_more(cloud: Cloud) -> None:
    cloud.write(_host("a"), _host("b", instances=[ONE]))
    cloud.source.refresh(cloud.table)
    assert cloud.contents() == {"a": (4096, [], []), "b": (4096, [], [ONE])}


def test_refresh_keeps_claims_that_the_file_does_not_include(cloud: Cloud) -> None:
    cloud.table.claims.consume(cloud.node_uuid("b"), TWO, SMALL)
    cloud.source.refresh(cloud.table)
    assert cloud.contents()["b"] == (4096 - 512, ["all"], [TWO])


def test_refresh_keeps_instances_that_the_file_never_listed(cloud: Cloud) -> None:
    cloud.table.set_instances("b", [TWO])
    cloud.source.refresh(cloud.table)
    assert cloud.contents()["b"][2] == [TWO]


@pytest.mark.parametrize("text", ["{", "cells: []", None])
def test_broken_new_file_changes_nothing(text: str | None, cloud: Cloud) -> None:
    before, revision = cloud.contents(), cloud.table.revision
    if text is None:
        cloud.path.unlink()
    else:
        cloud.path.write_text(text)
    with pytest.raises(InventoryError, match=str(cloud.path)):
        cloud.source.refresh(cloud.table)
    assert (cloud.contents(), cloud.table.revision) == (before, revision)
    assert {h.record.host for h in cloud.source.inventory.hosts} == {"a", "b"}


def test_nodes_of_one_service_host_share_their_instances(
    conf: cfg.ConfigOpts, tmp_path: Path
) -> None:
    cloud = Cloud(conf, tmp_path / "inventory.yaml")
    cloud.write(
        _host("a", node="n1", instances=[ONE]),
        _host("a", node="n2", instances=[TWO]),
        _host("a", node="n3"),
    )
    cloud.source.start(cloud.table)
    assert {n: set(row[2]) for n, row in cloud.contents().items()} == {
        n: {ONE, TWO} for n in ("n1", "n2", "n3")
    }


def test_option_that_is_not_set_is_named(conf: cfg.ConfigOpts) -> None:
    with pytest.raises(ConfigurationError, match=r"\[moorage\] inventory_file is not"):
        FileSource(conf).start(HostTable())
