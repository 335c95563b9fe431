# SPDX-License-Identifier: Apache-2.0
"""What other processes choose, such as names of hosts, stays one line of a log."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_CODE = """
import logging, sys
from moorage.scheduler import logs
from oslo_config import cfg

conf = cfg.ConfigOpts()
logs.register_opts(conf)
conf([], project="moorage", default_config_files=[])
conf.set_override("log_file", sys.argv[1])
logs.set_up(conf)
log = logging.getLogger("moorage.scheduler")
log.warning("Host %s is new", "h1\\n\\x1b[2J\\x9b\\u202e\\ud800é")
try:
    raise KeyError("h1")
except KeyError:
    log.exception("Host %s failed", "h1")
"""


def test_control_characters_of_names_are_escaped_and_tracebacks_are_not(
    tmp_path: Path,
) -> None:
    path = tmp_path / "moorage.log"
    command = [sys.executable, "-c", _CODE, str(path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
    first, *others = path.read_text("utf-8").split("\n")
    assert r"Host h1\n\x1b[2J\x9b\u202e\ud800é is new" in first
    assert "Host h1 failed" in others[0]
    assert len(others) > 3
    assert any("KeyError: 'h1'" in line for line in others)
