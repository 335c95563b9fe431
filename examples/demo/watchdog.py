# SPDX-License-Identifier: Apache-2.0
"""End the demo at once where it cannot stop in order."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rich.console import Console

from moorage.scheduler.errors import ConfigurationError
from moorage.scheduler.rpc.broker import BrokerWatch

from .failure import describe
from .interrupt import Interrupt

_POLL_S: Final = 0.5
#: Seconds within which the demo stops after Ctrl-C, on a machine that is not too busy.
_STOP_S: Final = 4.0


@contextmanager
def watched(
    broker: BrokerWatch, interrupt: Interrupt, transport_url: str, folder: Path
) -> Iterator[None]:
    """End the process if the broker fails, or if it still runs some time after Ctrl-C.

    The client of a broker that has frozen waits for it without an end, even to close
    its connection.

    Parameters
    ----------
    folder : Path
        Deleted before the process ends.
    """
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(_POLL_S):
            requested_at = interrupt.requested_at
            if requested_at is not None and time.monotonic() > requested_at + _STOP_S:
                end("Interrupted.", 130)
            if problem := broker.problem:
                end(f"demo: {describe(ConfigurationError(problem), transport_url)}.", 1)

    def end(line: str, status: int) -> None:
        Console().show_cursor()  # a progress bar hides it
        print(line, file=sys.stderr, flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(status)

    threading.Thread(target=watch, daemon=True, name="watchdog").start()
    try:
        yield
    finally:
        is_over.set()
