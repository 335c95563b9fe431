# SPDX-License-Identifier: Apache-2.0
"""ImagePropertiesWeigher over the source nova_db, and nova 34's over the same rows."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import sqlalchemy as sa

from moorage.objects import RequestSpec
from moorage.testing import image, spec
from moorage.weighers import BaseHostWeigher
from moorage.weighers.image_properties import ImagePropertiesWeigher

from ..fixtures.nova_changes import Changes
from ..fixtures.nova_databases import Cell, Kind, NovaDatabases
from ..fixtures.nova_peer import Peer
from ..fixtures.nova_rows import Rows, fill
from .compared import Both, Options, conf_of

N_HOSTS = 24
N_ROUNDS = 20
STEPS_S = (0.0, 0.0, 0.4, 1.0, 7.0, 70.0)
_MULTIPLIER = "image_props_weight_multiplier"

pytestmark = [
    pytest.mark.deep,
    pytest.mark.peer,
    pytest.mark.usefixtures("quiet"),
    pytest.mark.xdist_group("nova_db"),
]

REQUESTS = (
    spec(image=image(os_distro="ubuntu", hw_disk_bus="virtio", hw_boot_menu=True)),
    spec(
        image=image(
            os_distro="arch",
            hw_numa_nodes=2,
            hw_numa_mem=[512, 1024],
            hw_architecture="x86_64",
            hw_scsi_model="lsilogic",
            traits_required=["HW_CPU_X86_AVX"],
        )
    ),
)
ALL: Options = {"filter_scheduler": {_MULTIPLIER: 1.0}}
SOME: Options = {
    "filter_scheduler": {
        _MULTIPLIER: -2.0,
        "image_props_weight_setting": ["os_distro=2", "hw_disk_bus=-0.5"],
    }
}


class Weighing(Both):
    """Both weighers over the same databases, for a `with`."""

    def __init__(
        self, peer: Peer, databases: NovaDatabases, options: Options, **how: Any
    ) -> None:
        super().__init__(peer, databases, options, **how)
        self._weigher = ImagePropertiesWeigher(conf_of(databases, options))

    def unlike(self) -> list[tuple[Any, ...]]:
        """Return request, node, ours and nova's [weight, multiplier] that differ."""
        spec_objs = [request.obj_to_primitive() for request in REQUESTS]
        novas = self.novas(weigher="ImagePropertiesWeigher", spec_objs=spec_objs)
        return [
            (number, uuid, ours.get(uuid), its.get(uuid))
            for number, its in enumerate(novas["weights"])
            for ours in [self._weighed(REQUESTS[number], self._weigher)]
            for uuid in sorted(ours.keys() | its.keys())
            if ours.get(uuid) != its.get(uuid)
        ]

    def _weighed(
        self, request: RequestSpec, weigher: BaseHostWeigher
    ) -> dict[str, list[float]]:
        batch = self.table.batch()
        prepared = weigher.prepare(request)
        figures = zip(
            prepared.weigh_all(batch, request).tolist(),
            prepared.multipliers(batch).tolist(),
            strict=True,
        )
        return {batch.value("uuid", i): [*pair] for i, pair in enumerate(figures)}

    def weights(self) -> list[set[float]]:
        """Return the different weights of each request."""
        return [
            {weight for weight, _ in self._weighed(request, self._weigher).values()}
            for request in REQUESTS
        ]


@pytest.fixture
def databases(kind: Kind) -> Iterator[NovaDatabases]:
    with NovaDatabases(kind, n_cells=2, is_whole=False) as made:
        yield made


@pytest.fixture
def rows(databases: NovaDatabases) -> Rows:
    return fill(databases, N_HOSTS, has_numa=0.0, has_images=True, shares=(0.7, 0.3))


class Guests:
    """Instances that come, move, are rebuilt and go, as nova's services write it."""

    def __init__(self, databases: NovaDatabases, rows: Rows) -> None:
        self._databases, self._rows = databases, rows
        self._changes = Changes(databases, rows, seed=2)

    def clock(self) -> float:
        return self._changes.clock()

    def round(self) -> list[str]:
        """Do some changes, none or more seconds later; return what was done."""
        changes, rng = self._changes, self._rows.rng
        changes.now += datetime.timedelta(seconds=rng.choice(STEPS_S))
        kinds = [
            self.rebuild, self.rebuild, self.build, changes.build_instance,
            changes.move_instance, changes.delete_instance, changes.report,
        ]  # fmt: skip
        return [change() for change in rng.choices(kinds, k=rng.randint(1, 5))]

    def build(self) -> str:
        """Make an instance on its host, with all that belongs to it."""
        cell, now = self._cell(), self._changes.now
        host = self._rows.rng.choice(self._live(cell, "compute_nodes"))["host"]
        made = self._rows.instance(host, host, now)
        kept = self._rows.system_metadata(made["uuid"], now)
        self._databases.insert(cell.url, "instances", [made])
        self._databases.insert(cell.url, "instance_system_metadata", kept)
        return f"built {made['uuid']} on {host}"

    def rebuild(self) -> str:
        """Give an instance another image; of the old one no row is left."""
        cell, now = self._cell(), self._changes.now
        uuid = self._rows.rng.choice(self._live(cell, "instances"))["uuid"]
        instances = self._databases.tables["instances"]
        kept = self._databases.tables["instance_system_metadata"]
        with self._databases.engine(cell.url).begin() as connected:
            connected.execute(
                instances.update()
                .where(instances.c.uuid == uuid)
                .values(updated_at=now)
            )
            connected.execute(kept.delete().where(kept.c.instance_uuid == uuid))
            connected.execute(kept.insert(), self._rows.system_metadata(uuid, now))
        return f"rebuilt {uuid}"

    def _cell(self) -> Cell:
        return self._rows.rng.choice(self._databases.cells)

    def _live(self, cell: Cell, name: str) -> Sequence[sa.RowMapping]:
        table = self._databases.tables[name]
        live = (table.c.deleted == 0) & table.c.host.is_not(None)
        with self._databases.engine(cell.url).connect() as connected:
            found = connected.execute(table.select().where(live).order_by(table.c.id))
            return found.mappings().all()


@pytest.mark.database
@pytest.mark.parametrize(
    ("kind", "options"),
    [(Kind.MARIADB, ALL), (Kind.POSTGRESQL, SOME)],
    ids=["mariadb, all properties", "postgresql, some"],
)
def test_weights_follow_what_instances_keep_of_their_images(
    peer: Peer, databases: NovaDatabases, rows: Rows, options: Options
) -> None:
    guests = Guests(databases, rows)
    with Weighing(peer, databases, options, clock=guests.clock) as both:
        assert both.unlike() == []
        assert any(len(different) > 2 for different in both.weights())
        for number in range(N_ROUNDS):
            done = guests.round()
            both.poll()
            assert both.unlike() == [], f"after round {number}: {done}"
