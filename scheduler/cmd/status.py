# SPDX-License-Identifier: Apache-2.0
"""moorage-status: check a nova.conf for Moorage, and list suspected orphans."""

from __future__ import annotations

import logging
import os
import sys
import warnings

# The report is complete; warnings of libraries concern their internals.
warnings.simplefilter("ignore")

from oslo_service import backend  # noqa: E402 - the filter has to be there first

#: The command that lists suspected orphans; `upgrade check` is oslo.upgradecheck's.
ORPHANS = "orphans"
#: The exit status of a program that SIGPIPE ends: 128 plus the signal's number.
_PIPE_CLOSED = 141


def main() -> int:
    """Run with the process's arguments; return the exit status."""
    # Must precede the import of oslo.messaging, which otherwise selects eventlet.
    backend.init_backend(backend.BackendType.THREADING)
    logging.basicConfig(handlers=[logging.NullHandler()])
    try:
        status = _run(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has closed the pipe; Python flushes the rest at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _PIPE_CLOSED
    return status


def _run(argv: list[str]) -> int:
    if ORPHANS in argv:
        from .suspected import run

        return run([argument for argument in argv if argument != ORPHANS])
    from .checks.report import run as check

    return check(argv)


if __name__ == "__main__":
    sys.exit(main())
