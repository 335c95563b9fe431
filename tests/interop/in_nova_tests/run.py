# SPDX-License-Identifier: Apache-2.0
"""Run tests of nova's own in nova's environment; print a JSON line for each.

    python run.py [--with-nova-scheduler] nova.tests.functional.test_aggregates …

The line has the test's id, its outcome ("passed", "failed", "skipped"), seconds, and
what it said.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import unittest
from typing import Any

# Before all else of nova: the one forbids eventlet, as the other says.
os.environ["OS_NOVA_DISABLE_EVENTLET_PATCHING"] = "1"
import nova.tests.functional  # noqa: F401

os.environ.setdefault("OS_TEST_TIMEOUT", "160")
import moorage_service


class Printing(unittest.TestResult):
    """Print outcomes; testtools hands details where unittest hands an error."""

    def startTest(self, test: Any) -> None:
        super().startTest(test)
        self._began = time.monotonic()

    def _print(self, test: Any, outcome: str, detail: str = "") -> None:
        # A class or module that cannot be set up fails before any test starts.
        took_s = time.monotonic() - getattr(self, "_began", time.monotonic())
        print(json.dumps([test.id(), outcome, round(took_s, 2), detail]), flush=True)

    def addSuccess(self, test: Any, details: Any = None) -> None:
        self._print(test, "passed")

    def addError(self, test: Any, err: Any = None, details: Any = None) -> None:
        detail = (
            "\n".join(f"{name}:\n{each.as_text()}" for name, each in details.items())
            if details
            else self._exc_info_to_string(err, test)  # type: ignore[attr-defined]  # unittest's
        )
        self._print(test, "failed", detail)

    addFailure = addError

    def addSkip(self, test: Any, reason: Any = None, details: Any = None) -> None:
        self._print(test, "skipped", str(reason))

    def addExpectedFailure(
        self, test: Any, err: Any = None, details: Any = None
    ) -> None:
        self._print(test, "passed")

    def addUnexpectedSuccess(self, test: Any, details: Any = None) -> None:
        self._print(test, "failed", "It was expected to fail.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--with-nova-scheduler", action="store_true")
    arguments = parser.parse_args()
    moorage_service.settle_in()
    if not arguments.with_nova_scheduler:
        moorage_service.install()
    suite = unittest.defaultTestLoader.loadTestsFromNames(arguments.names)
    suite.run(Printing())
    sys.stdout.flush()
    os._exit(0)  # threads of nova's that are never joined


if __name__ == "__main__":
    main()
