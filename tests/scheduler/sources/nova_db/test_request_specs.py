# SPDX-License-Identifier: Apache-2.0
"""Request specs of nova's API database."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from oslo_config import cfg

from moorage.scheduler.sources.base import RequestsUnavailable
from moorage.scheduler.sources.nova_db import schema

from ....fixtures.clouds import new_uuids, request
from .databases import Nova


@pytest.fixture
def nova(tmp_path: Path) -> Iterator[Nova]:
    with Nova(tmp_path) as nova:
        yield nova


def test_request_specs_are_read_and_damaged_ones_left_out(
    nova: Nova, conf: cfg.ConfigOpts
) -> None:
    uuids = new_uuids(600)
    specs = {
        uuid: json.dumps(request(vcpus=1 + number).obj_to_primitive())
        for number, uuid in enumerate(uuids[:598])
    }
    rows = {**specs, uuids[598]: "{", uuids[599]: '{"nova_object.name": "Other"}'}
    with nova.api.begin() as connection:
        connection.execute(
            schema.request_specs.insert(),
            [{"instance_uuid": uuid, "spec": text} for uuid, text in rows.items()],
        )
    found = nova.source(conf).requests_of([*uuids, *new_uuids()])
    assert found.keys() == specs.keys()
    assert [found[uuid].flavor.vcpus for uuid in uuids[:3]] == [1, 2, 3]


def test_a_lost_database_is_an_error(
    nova: Nova, conf: cfg.ConfigOpts, tmp_path: Path
) -> None:
    source = nova.source(conf)
    nova.api.dispose()
    (tmp_path / "api.sqlite").unlink()
    with pytest.raises(RequestsUnavailable, match="Reading request specs"):
        source.requests_of(new_uuids())
