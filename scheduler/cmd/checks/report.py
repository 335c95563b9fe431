# SPDX-License-Identifier: Apache-2.0
"""Report check results with oslo.upgradecheck: a table or JSON, and an exit code."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Sequence
from typing import Any, Final

from oslo_config import cfg
from oslo_log import log as oslo_logging
from oslo_upgradecheck import upgradecheck

from .... import __version__
from ...conf import ProgramOptions, explaining, register_opts
from ...failures import one_line
from .result import CheckResult
from .run import run_checks

#: The exit status of nova-status if the command itself, not a check, failed.
_FAILED: Final = 255


_DESCRIPTION: Final = (
    "Check an installation. Commands: 'upgrade check' reports what Moorage would do "
    "differently with a nova.conf, and tests what it connects to; 'orphans' lists "
    "allocations of which nothing shows that they are in use ('orphans --help')."
)


class _StatusOptions(ProgramOptions):
    """Options whose ``--help`` lists all commands, not only oslo.upgradecheck's."""

    def __call__(self, *args: Any, **keywords: Any) -> None:  # noqa: ANN401 - as its base
        """Parse a command line."""
        keywords |= {"version": __version__, "description": _DESCRIPTION}
        super().__call__(*args, **keywords)


class UpgradeCommands(upgradecheck.UpgradeCommands):
    """The checks of ``moorage-status upgrade check``, one for each result."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._conf = conf

    def check(self) -> upgradecheck.Code:
        """Run all checks, print the report, and return the worst code."""
        self._upgrade_checks = tuple(
            (finding.name, (_to_result, {"finding": finding}))
            for finding in run_checks(self._conf)
        )
        return super().check()


def _to_result(_commands: UpgradeCommands, finding: CheckResult) -> upgradecheck.Result:
    return upgradecheck.Result(finding.code, finding.details)


def run(argv: Sequence[str]) -> int:
    """Run with a command line; return the exit status."""
    conf = _StatusOptions()
    oslo_logging.register_options(conf)
    register_opts(conf)
    report = io.StringIO()
    try:
        # Otherwise oslo.upgradecheck prints a traceback if the pipe is closed.
        with explaining(argv), contextlib.redirect_stdout(report):
            code = upgradecheck.main(conf, "moorage", UpgradeCommands(conf), list(argv))
    except (cfg.Error, OSError) as e:
        print(f"moorage-status: {one_line(e)}", file=sys.stderr)
        return _FAILED
    finally:
        sys.stdout.write(report.getvalue())
    return int(code)
