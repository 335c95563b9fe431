# SPDX-License-Identifier: Apache-2.0
"""The command lifetimes: from a trace, from nova's databases, and wrong input."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from moorage.scheduler.cmd.cli.main import cli
from moorage.weighers.lifetime_model import LifetimeModel

from ....conftest import NOW, instance_uuid
from ...sources.nova_db.databases import Nova, us

TRACE = Path(__file__).parents[4] / "examples/data/traces/azure-packing-batched.csv"


def call(*args: str, status: int = 0, before: tuple[str, ...] = ()) -> Result:
    result = CliRunner().invoke(cli, [*before, "lifetimes", *args])
    assert result.exit_code == status, result.output
    return result


def test_learned_lifetimes_weigh_in_a_simulation(tmp_path: Path) -> None:
    """The third instance joins the long one, not the short one on the fuller host."""
    rows = [
        f"{name}{day},{day * 20000 + at},{day * 20000 + at + lifetime},{cpus},1024"
        for day in range(24)
        for name, at, lifetime, cpus in (
            ("long", 0, 15000, 2),
            ("short", 100, 1000, 7),
            ("third", 200, 15000, 1),
        )
    ]
    trace, path = tmp_path / "trace.csv", tmp_path / "lifetimes.json"
    trace.write_text("\n".join(["id,at,end,cpus,mb", *rows]))
    columns = "id=id,arrival_s=at,departure_s=end,vcpus=cpus,memory_mb=mb"
    path.write_text(call(str(trace), "--columns", columns, "--first", "37").stdout)
    learned = LifetimeModel.read(path)
    assert [key[1] for key in learned.row_of] == [None, 2, 7, 1, None, 2, 7, 1, 2, 7, 1]
    conf = tmp_path / "lifetimes.conf"
    conf.write_text(
        f"[filter_scheduler]\nlifetime_weight_multiplier = 4\nlifetime_model = {path}\n"
    )
    args = ["simulate", str(trace), "--columns", columns, "--hosts", "3"]
    args += ["--shape", "8:64", "--set", "moorage.preset=pack"]
    run = CliRunner().invoke(cli, [*args, "--compare", str(conf), "--json"])
    packed, with_lifetimes = (
        np.array(run["series"]["empty_hosts"]) for run in json.loads(run.stdout)["runs"]
    )
    in_use = packed < 1
    assert packed[in_use].mean() == pytest.approx(1 / 3, abs=0.02)
    assert with_lifetimes[in_use].mean() == pytest.approx(2 / 3, abs=0.05)


def test_nothing_later_than_the_last_request_is_learned(tmp_path: Path) -> None:
    """The long ones have not ended yet when the last of the first requests arrives."""
    trace = tmp_path / "trace.csv"
    rows = [f"{i},{i},1000,1,1024" for i in range(20)] + ["last,5000,6000,1,1024"]
    trace.write_text("\n".join(["id,at,end,cpus,mb", *rows]))
    columns = "id=id,arrival_s=at,departure_s=end,vcpus=cpus,memory_mb=mb"
    before, after = (
        json.loads(call(str(trace), "--columns", columns, *first).stdout)["groups"]
        for first in (["--first", "20"], [])
    )
    assert before[0]["instances"] == 19
    assert before[0]["remaining_s"][0] > 10 * after[0]["remaining_s"][0]


def test_lifetimes_are_learned_from_novas_databases(tmp_path: Path) -> None:
    with Nova(tmp_path) as nova:
        # The command has the real time.
        begin_s = time.time() - NOW - 100 * 3600
        hours = [(float(i), 2.0) for i in range(30)]
        for i, (at, lived) in enumerate(hours):
            ended = begin_s + (at + lived) * 3600
            nova.instance(
                instance_uuid(i), "a", project_id="p", vcpus=2, memory_mb=2048,
                image_ref="image", created_at=us(begin_s + at * 3600),
                deleted_at=us(ended), deleted=i + 1,
            )  # fmt: skip
        nova.instance(
            instance_uuid("never on a host"), None, project_id="p", vcpus=2,
            memory_mb=2048, created_at=us(begin_s),
        )  # fmt: skip
        path = tmp_path / "moorage.conf"
        path.write_text(f"[api_database]\nconnection = {nova.connections['api']}\n")
        before = ("--config-file", str(path))
        groups = json.loads(call(before=before).stdout)["groups"]
        # The observation begins as the first one ends.
        assert groups[-1]["instances"] == 29
        assert groups[-1]["image"] == "image"
        assert groups[-1]["remaining_s"][0] == pytest.approx(7200, rel=0.5)
        few = json.loads(call("--since", "80h", before=before).stdout)["groups"]
        assert few[0]["instances"] == 11
        with nova.cells["cell1"].begin() as connection:
            connection.exec_driver_sql("UPDATE instances SET deleted_at = NULL")
        text = call(before=before, status=1).output
        assert "no deleted instance to learn from" in text


@pytest.mark.parametrize(
    "args",
    [
        ["no-such-file"],
        ["--first", "3"],
        [str(TRACE), "--since", "1d"],
        [str(TRACE), "--first", "1"],
        [],
    ],
)
def test_wrong_input_gets_one_line(args: list[str]) -> None:
    result = CliRunner().invoke(cli, ["lifetimes", *args])
    assert result.exit_code != 0
    assert re.search("^Error: .+$", result.output, re.MULTILINE)
    assert "Traceback" not in result.output
