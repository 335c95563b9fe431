# SPDX-License-Identifier: Apache-2.0
"""A snapshot answers on a machine without the files that its options name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from click.testing import CliRunner, Result

from moorage.scheduler.cmd.cli.main import cli
from moorage.scheduler.conf import load
from moorage.scheduler.web import make_web_server
from moorage.weighers.lifetime_model import LifetimeModel

from ....fixtures.explaining_api import SELECTED, explaining_api


def _run(args: list[str], status: int = 0) -> Result:
    result = CliRunner().invoke(cli, args, env={"MOORAGE_URL": None})
    assert result.exit_code == status, result.output
    return result


def test_missing_file_of_an_option_is_named(
    tmp_path: Path,
) -> None:
    model = LifetimeModel.of(
        np.zeros(1), np.array([[3600.0]]), {(None, None, None, None): 1}
    )
    file, snapshot = tmp_path / "lifetimes.json", tmp_path / "cloud.snapshot"
    file.write_text(model.to_json())
    conf = load([], config_files=[])
    conf.set_override("port", 0, group="web")
    with (
        explaining_api(
            tmp_path,
            filter_scheduler__lifetime_model=str(file),
            filter_scheduler__lifetime_weight_multiplier=2.0,
        ) as api,
        make_web_server(conf, api.app) as server,
    ):
        _run(["--url", f"http://127.0.0.1:{server.port}", "snapshot", str(snapshot)])
    replay, dry_run = (
        ["replay", SELECTED],
        ["schedule", "--dry-run", "--vcpus", "1", "--ram", "64"],
    )
    assert "Identical" in _run(["--snapshot", str(snapshot), *replay]).stdout
    copied = file.rename(tmp_path / "copy.json")
    missing = f"{file} of [filter_scheduler] lifetime_model"
    text = " ".join(_run(["--snapshot", str(snapshot), *dry_run]).stdout.split())
    assert f"{missing} is not on this machine" in text
    text = _run(["--snapshot", str(snapshot), *replay], 1).output
    assert f"{missing}, which a view does not have" in text
    assert text.count("\n") == 1
    given = tmp_path / "given.conf"
    given.write_text(f"[filter_scheduler]\nlifetime_model = {copied}\n")
    options, of_snapshot = ["--config-file", str(given)], ["--snapshot", str(snapshot)]
    text = _run([*of_snapshot, *replay, *options]).stdout
    assert "selected h2; funnel, weights and alternates are those" in text
    assert "not on this machine" not in _run([*options, *of_snapshot, *dry_run]).stdout
