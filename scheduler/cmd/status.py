# SPDX-License-Identifier: Apache-2.0
"""moorage-status: check a nova.conf for Moorage, and list suspected orphans."""

from __future__ import annotations

import logging
import sys
import warnings

# The report is complete; warnings of libraries concern their internals.
warnings.simplefilter("ignore")

from oslo_service import backend  # noqa: E402 - the filter has to be there first

from .output import discard_output, explained_output  # noqa: E402 - as above

#: The command that lists suspected orphans; `upgrade check` is oslo.upgradecheck's.
ORPHANS = "orphans"
#: The exit status of a program that SIGPIPE ends: 128 plus the signal's number.
_PIPE_CLOSED = 141
#: The exit status of a check, and of a list of orphans, that is not completed.
_CHECK_FAILED = 255
_ORPHANS_FAILED = 2


def main() -> int:
    """Run with the process's arguments; return the exit status."""
    # Must precede the import of oslo.messaging, which otherwise selects eventlet.
    backend.init_backend(backend.BackendType.THREADING)
    logging.basicConfig(handlers=[logging.NullHandler()])
    failed = _ORPHANS_FAILED if ORPHANS in sys.argv else _CHECK_FAILED
    with explained_output("moorage-status: ", failed):
        try:
            status = _run(sys.argv[1:])
            sys.stdout.flush()
        except BrokenPipeError:  # the reader has closed the pipe
            discard_output()
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
