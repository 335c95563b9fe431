# SPDX-License-Identifier: Apache-2.0
"""The page on the demo's cloud, with a slow stream of requests, until Ctrl-C."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console

from ..conductor import Computes, Conductor
from .cloud import DemoCloud, running
from .commands import DATA
from .interrupt import Interrupt
from .play import progress_bar
from .stream import RequestStream

_PAUSE_S: Final = 1.5
_SEED: Final = 21


@contextmanager
def opened(
    console: Console, interrupt: Interrupt, transport_url: str, port: int = 0
) -> Iterator[tuple[DemoCloud, RequestStream]]:
    """Start an empty cloud, and stop it on leaving."""
    with progress_bar(console) as progress:
        seeding = progress.add_task("hosts written to Placement", total=None)

        def seeded(n: int, total: int) -> None:
            interrupt.check()
            progress.update(seeding, completed=n, total=total)

        files = DATA / "inventory.yaml", DATA / "rows.csv"
        with running(
            *files, transport_url, seeded, port=port, interrupt=interrupt
        ) as cloud:
            conductor = Conductor(cloud.api, cloud.placement, Computes())
            progress.stop()
            yield cloud, RequestStream(conductor, random.Random(_SEED), console.print)


def fill(
    console: Console, interrupt: Interrupt, stream: RequestStream, n_requests: int
) -> None:
    """Send requests for many instances each."""
    with progress_bar(console) as progress:
        filling = progress.add_task("requests for many instances", total=None)
        for done, total in interrupt.checking(stream.fill(n_requests)):
            progress.update(filling, completed=done, total=total)


def show_page(
    console: Console,
    interrupt: Interrupt,
    transport_url: str,
    port: int,
    n_requests: int,
) -> None:
    """Serve the page while the cloud fills; ends with KeyboardInterrupt."""
    pause = threading.Event()
    with opened(console, interrupt, transport_url, port) as (cloud, stream):
        console.print(f"The page is at {cloud.url}/ (Ctrl-C ends the demo).")
        fill(console, interrupt, stream, n_requests)
        while True:
            interrupt.check()
            stream.step()
            # SIGINT is only noted: see Interrupt.
            for _ in range(10):
                interrupt.check()
                pause.wait(_PAUSE_S / 10)
