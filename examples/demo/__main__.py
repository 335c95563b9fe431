# SPDX-License-Identifier: Apache-2.0
"""Start the demo: `python -m examples.demo`."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import sys
import time
import warnings

from oslo_service import backend
from rich.console import Console

from .interrupt import Interrupt

_WIDTH = 110  # of the output if it is not a terminal


def main() -> int:
    """Run the demo; return the exit status."""
    options = _options()
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    # Libraries have many objects: collecting garbage often is slow, and finds little.
    gc.set_threshold(50_000)
    # Deprecations in libraries.
    warnings.simplefilter("ignore")
    # amqp warns of each queue that the broker deletes automatically at the end.
    logging.getLogger("amqp").setLevel(logging.ERROR)
    # Placement warns of each claim that another request was faster with.
    logging.getLogger("placement").setLevel(logging.ERROR)
    # The demo ends with one line if the broker does not answer.
    for name in ("oslo.messaging", "moorage.scheduler.rpc.broker"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    backend.init_backend(backend.BackendType.THREADING)
    # These import oslo.messaging, which needs the back-end.
    from .failure import describe
    from .page import show_page
    from .play import play

    interrupt = Interrupt()
    started = time.monotonic()
    try:
        if options.page is not None:
            show_page(
                console,
                interrupt,
                options.transport_url,
                options.page,
                -(-options.events // 5),
            )
        is_consistent = play(console, interrupt, options.transport_url, options.events)
    except KeyboardInterrupt:
        console.print("Interrupted.")
        return 130 if options.page is None else 0
    except Exception as e:
        print(f"demo: {describe(e, options.transport_url)}.", file=sys.stderr)
        return 1
    console.print(f"{time.monotonic() - started:.0f} s")
    return 0 if is_consistent else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m examples.demo",
        description=sys.modules["examples.demo"].__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--events",
        type=_positive,
        default=300,
        metavar="N",
        help="play the first N creations of the trace, and the deletions among them; "
        "with --page, fill the cloud with a fifth as many requests",
    )
    parser.add_argument(
        "--transport-url",
        default=os.environ.get("MOORAGE_TRANSPORT_URL", "fake://"),
        help="message bus; default: MOORAGE_TRANSPORT_URL, or fake:// (in memory)",
    )
    parser.add_argument(
        "--page",
        type=_port,
        nargs="?",
        const=0,
        metavar="PORT",
        help="serve the page with a slow stream of requests until Ctrl-C; any port",
    )
    return parser.parse_args()


def _positive(text: str) -> int:
    if not text.isdecimal() or (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 on")
    return number


def _port(text: str) -> int:
    if not text.isdecimal() or (number := int(text)) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: 0 to 65535")
    return number


if __name__ == "__main__":
    sys.exit(main())
