# SPDX-License-Identifier: Apache-2.0
"""moorage-status: what Moorage would do differently with a nova.conf; orphans."""

from __future__ import annotations

import logging
import os
import sys
import warnings

# The report tells all that is to be told; libraries warn of their own insides.
warnings.simplefilter("ignore")

from oslo_service import backend  # noqa: E402 - the filter has to be there first

#: The command that lists suspected orphans; `upgrade check` is oslo.upgradecheck's.
ORPHANS = "orphans"
#: As of a program that SIGPIPE ends: 128 and its number.
_PIPE_CLOSED = 141


def main() -> int:
    """Run with the process's arguments; return the exit status."""
    # Before oslo.messaging is imported, which else takes eventlet for us.
    backend.init_backend(backend.BackendType.THREADING)
    logging.basicConfig(handlers=[logging.NullHandler()])
    try:
        status = _run(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        # Who reads has read enough; at its end Python writes what is left.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _PIPE_CLOSED
    return status


def _run(argv: list[str]) -> int:
    if ORPHANS in argv:
        from .suspected import run

        return run([each for each in argv if each != ORPHANS])
    from .checks_report import run as check

    return check(argv)


if __name__ == "__main__":
    sys.exit(main())
