# SPDX-License-Identifier: Apache-2.0
"""A process with workers for test_supervisor.py: `python -m … KIND N_WORKERS`."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time

from moorage.scheduler.cmd.supervisor import Supervisor, Worker
from moorage.scheduler.cmd.systemd import SystemdState

TIMEOUT_S = 1.0


def well_behaved(worker: Worker) -> int:
    """Serve until a signal, and end in good order."""
    worker.report(SystemdState.READY)
    while True:
        received, gone = worker.signals.wait(also=(worker.lifeline,))
        names = [signal.Signals(number).name for number in received]
        logging.info("worker %d: %s", worker.number, "gone" if gone else names)
        if gone or "SIGHUP" not in names:
            return 0


def dies_at_once(worker: Worker) -> int:
    """End before it serves, the first one; its successors kill themselves."""
    if worker.is_first:
        return 3
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def raises(_worker: Worker) -> int:
    """Fail as a bug would."""
    raise LookupError("a bug")


def does_not_end(worker: Worker) -> int:
    """Continue, whichever signals arrive."""
    worker.report(SystemdState.READY)
    while True:
        time.sleep(0.1)


def _reload() -> bool:
    logging.info("options are read")
    return True


def main() -> int:
    """Run until SIGTERM."""
    logging.basicConfig(level="INFO", stream=sys.stdout, format="%(message)s")
    return Supervisor(
        int(sys.argv[2]),
        globals()[sys.argv[1]],
        reload=_reload,
        stop_timeout_s=lambda: TIMEOUT_S,
    ).run()


if __name__ == "__main__":
    sys.exit(main())
