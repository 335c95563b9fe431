# SPDX-License-Identifier: Apache-2.0
"""A move prefers the cell where the instance is."""

from __future__ import annotations

from typing import Any

import pytest
from oslo_config import cfg

from moorage.objects import CellMapping, Destination
from moorage.weighers.cross_cell import CrossCellWeigher

from ..conftest import CELL, batch, hosts, node_uuid, spec

HERE = CellMapping(uuid=CELL)


@pytest.mark.parametrize(
    ("destination", "raw"),
    [
        pytest.param(None, [0, 0], id="no destination"),
        pytest.param({}, [0, 0], id="empty destination"),
        pytest.param({"cell": HERE}, [0, 0], id="unknown whether it may leave"),
        pytest.param(
            {"cell": HERE, "allow_cross_cell_move": False}, [0, 0], id="may not leave"
        ),
        pytest.param(
            {"cell": None, "allow_cross_cell_move": True}, [0, 0], id="any cell"
        ),
        pytest.param(
            {"cell": HERE, "allow_cross_cell_move": True}, [1, -1], id="may leave"
        ),
        pytest.param(
            {
                "cell": CellMapping(uuid=node_uuid("unheard of")),
                "allow_cross_cell_move": True,
            },
            [-1, -1],
            id="a cell of no host",
        ),
    ],
)
def test_own_cell_is_preferred(
    destination: dict[str, Any] | None, raw: list[float], conf: cfg.ConfigOpts
) -> None:
    rows = batch(*hosts("cell_uuid", [CELL, node_uuid("other cell")]))
    spec_obj = spec(
        requested_destination=None
        if destination is None
        else Destination(**destination)
    )
    assert CrossCellWeigher(conf).weigh_all(rows, spec_obj).tolist() == raw
