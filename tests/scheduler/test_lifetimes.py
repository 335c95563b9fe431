# SPDX-License-Identifier: Apache-2.0
"""A decision by lifetimes names the model, and its claim is one of the launches."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from moorage.weighers.lifetime_model import LifetimeModel

from ..fixtures.clouds import host, new_uuids, selected, started_scheduler

#: Instances end after an hour, those with 4 CPUs after 30 days.
MODEL = LifetimeModel.of(
    np.zeros(1),
    np.array([[3600.0], [30 * 86400.0]]),
    {(None, None, None, None): 1, (None, 4, 4096, None): 1},
)


@pytest.mark.parametrize("driver", ["filter_scheduler", "solver"])
@pytest.mark.parametrize(
    ("multiplier", "expected"),
    [pytest.param(0.0, "larger", id="off"), pytest.param(9.0, "staying", id="on")],
)
def test_long_instance_joins_one_that_stays(
    driver: str, multiplier: float, expected: str, tmp_path: Path
) -> None:
    now = int(time.time())
    hosts = (
        host("larger", vcpus=16, launches=[[now, "p", 1, 1024, ""]]),
        host("staying", launches=[[now - 9999, "p", 4, 4096, "image"]]),
    )
    path = tmp_path / "lifetimes.json"
    path.write_text(MODEL.to_json())
    given: dict[str, dict[str, object]] = {
        "moorage": {"driver": driver},
        "filter_scheduler": {
            "lifetime_model": str(path),
            "lifetime_weight_multiplier": multiplier,
        },
    }
    with started_scheduler(tmp_path, *hosts, options=given) as scheduler:
        placed = selected(scheduler, new_uuids()[0], vcpus=4, memory_mb=4096)
        assert placed.service_host == expected
        [record] = scheduler.decisions.newest()
        assert MODEL.version in record.origins["LifetimeWeigher"]
        rows = scheduler.table.batch()
        [launches] = rows.launches[rows.host == expected]
        assert len(launches) == 2
        assert now <= launches[-1][0] <= time.time()
        assert launches[-1][2:] == (4, 4096, "")
