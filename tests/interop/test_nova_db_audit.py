# SPDX-License-Identifier: Apache-2.0
"""An audit reads databases that nova 34 made."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from moorage.scheduler import conf as moorage_conf
from moorage.scheduler.audit.nova_cloud import NovaReader

from ..fixtures.nova_databases import Kind, NovaDatabases
from ..fixtures.nova_rows import fill

pytestmark = [
    pytest.mark.database,
    pytest.mark.deep,
    pytest.mark.peer,
    pytest.mark.xdist_group("nova_db"),
]


@pytest.mark.parametrize(
    "kind",
    [Kind.MARIADB, Kind.POSTGRESQL],
    ids=lambda kind: kind.value,
)
def test_novas_own_tables_are_read(kind: Kind) -> None:
    with NovaDatabases(kind, n_cells=2) as nova:
        fill(nova, 20)
        cell = nova.cells[0]
        with nova.engine(cell.url).begin() as connection:
            live = (
                connection.execute(
                    sa.text("SELECT uuid FROM instances WHERE deleted = 0")
                )
                .scalars()
                .all()
            )
            moved, evacuated = live[:2]
            connection.execute(
                sa.text(
                    "INSERT INTO migrations (uuid, instance_uuid, status, "
                    "migration_type, deleted) VALUES (:uuid, :instance, :status, "
                    ":type, 0)"
                ),
                [
                    {"uuid": f"0-{status}", "instance": instance, "status": status,
                     "type": type_}
                    for instance, status, type_ in (
                        (moved, "migrating", "live-migration"),
                        (evacuated, "done", "evacuation"),
                        (evacuated, "completed", "migration"),
                    )
                ],
            )  # fmt: skip
        conf = moorage_conf.load([], config_files=[])
        conf.set_override("connection", nova.api_url, "api_database")
        conf.set_override("connection", nova.main_url, "database")
        reader = NovaReader(conf)
        cloud = reader.read()
        fates = reader.fates(["0-completed", "0-migrating", "nothing"])
        assert reader.flavors(live) == {}
        reader.close()
    assert len(cloud.hosts) >= 20
    assert {moved, "0-migrating"} <= cloud.in_use
    assert "0-completed" not in cloud.in_use
    assert evacuated in cloud.instances.keys() | cloud.in_use
    assert {uuid: fate.state.value for uuid, fate in fates.items()} == {
        "0-completed": "gone",
        "0-migrating": "in use",
        "nothing": "gone",
    }
