# SPDX-License-Identifier: Apache-2.0
"""Flavors are read from a database that nova 34 made."""

from __future__ import annotations

import pytest
from oslo_config import cfg

from moorage.scheduler.sources.nova_db import NovaDBSource

from ..fixtures.nova_databases import Kind, NovaDatabases

pytestmark = [
    pytest.mark.deep,
    pytest.mark.peer,
    pytest.mark.xdist_group("nova_db"),
]


def test_flavors_are_read_from_novas_own_tables(conf: cfg.ConfigOpts) -> None:
    with NovaDatabases(Kind.SQLITE, n_cells=0) as nova:
        row = {"name": "gold", "flavorid": "7", "vcpus": 2, "memory_mb": 64, "swap": 0}
        old = {"name": "old", "flavorid": "8", "disabled": True}
        rows = [{"id": 3, "disabled": False, **row}, {"id": 4, **row, **old}]
        nova.insert(nova.api_url, "flavors", rows)
        spec = {"flavor_id": 3, "key": "hw:cpu_policy", "value": "dedicated"}
        nova.insert(nova.api_url, "flavor_extra_specs", [spec])
        source = NovaDBSource(nova.api, nova.engine, conf=conf)
        [gold] = source.flavors()
        assert (gold.name, gold.vcpus, gold.memory_mb) == ("gold", 2, 64)
        assert gold.extra_specs == {"hw:cpu_policy": "dedicated"}
