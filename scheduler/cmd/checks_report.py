# SPDX-License-Identifier: Apache-2.0
"""The findings as oslo.upgradecheck reports them: a table or JSON, and a code."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Sequence
from typing import Final

from oslo_config import cfg
from oslo_log import log as oslo_logging
from oslo_upgradecheck import upgradecheck

from ..conf import explaining, register_opts
from ..failures import one_line
from .checks import examine
from .checks_finding import Finding

#: As of nova-status: no check failed, the command did.
_FAILED: Final = 255


class UpgradeCommands(upgradecheck.UpgradeCommands):
    """The checks of ``moorage-status upgrade check``, one for each finding."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._conf = conf

    def check(self) -> upgradecheck.Code:
        """Look at everything, print the report, and return the worst code."""
        self._upgrade_checks = tuple(
            (finding.name, (_told, {"finding": finding}))
            for finding in examine(self._conf)
        )
        return super().check()


def _told(_commands: UpgradeCommands, finding: Finding) -> upgradecheck.Result:
    return upgradecheck.Result(finding.code, finding.details)


def run(argv: Sequence[str]) -> int:
    """Run with a command line; return the exit status."""
    conf = cfg.ConfigOpts()
    oslo_logging.register_options(conf)
    register_opts(conf)
    report = io.StringIO()
    try:
        # Else oslo.upgradecheck prints a traceback where a pipe is closed meanwhile.
        with explaining(argv), contextlib.redirect_stdout(report):
            code = upgradecheck.main(conf, "moorage", UpgradeCommands(conf), list(argv))
    except (cfg.Error, OSError) as e:
        print(f"moorage-status: {one_line(e)}", file=sys.stderr)
        return _FAILED
    finally:
        sys.stdout.write(report.getvalue())
    return int(code)
