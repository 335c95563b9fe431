# SPDX-License-Identifier: Apache-2.0
"""What a move that was decided changes in the planned cloud."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from moorage.scheduler.explain import Explainer
from moorage.scheduler.planner.cloud import PlannedCloud
from moorage.scheduler.request import Request
from moorage.weighers.lifetime_model import LifetimeModel, group_of

from ...fixtures.clouds import host, new_uuids, request, started_scheduler


@pytest.mark.parametrize("is_freed", [False, True])
def test_launch_moves_with_its_instance(is_freed: bool, tmp_path: Path) -> None:
    model = LifetimeModel.of(
        np.zeros(1), np.array([[3600.0]]), {(None, None, None, None): 1}
    )
    path = tmp_path / "lifetimes.json"
    path.write_text(model.to_json())
    spec, [uuid] = request(), new_uuids()
    launch, other = [1000, *group_of(Request(spec))], [500, "p", 1, 1024, ""]
    hosts = host("a", launches=[launch, other]), host("b", launches=[])
    given: dict[str, dict[str, object]] = {
        "filter_scheduler": {"lifetime_model": str(path)}
    }
    with started_scheduler(tmp_path, *hosts, options=given) as scheduler:
        view = scheduler.candidates.provider_view
        parts, providers = Explainer(lambda: scheduler.parts, view).state()
        cloud = PlannedCloud(parts, providers)
        move = cloud.decide(cloud.request_of_move(spec, uuid, "a", ())[0])
        cloud.count(move, "a", is_freed=is_freed)
        rows = cloud.table.batch()
        after = dict(zip(rows.host, rows.launches, strict=True))
        assert after == {"a": (tuple(other),), "b": (tuple(launch),)}
