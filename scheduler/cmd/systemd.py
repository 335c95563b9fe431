# SPDX-License-Identifier: Apache-2.0
"""Notify systemd of the state of the service; see sd_notify(3).

oslo.service's module ``systemd`` supports only READY=1.
"""

from __future__ import annotations

import enum
import logging
import os
import socket
import time

LOG = logging.getLogger(__name__)


class SystemdState(enum.Enum):
    """The state of a service."""

    READY = "READY=1"
    RELOADING = "RELOADING=1"
    STOPPING = "STOPPING=1"


def notify(state: SystemdState, status: str = "") -> None:
    """Notify systemd of a state and a status line; without systemd, do nothing."""
    lines = [state.value, f"STATUS={status}"]
    if state is SystemdState.RELOADING:
        microseconds = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        lines.append(f"MONOTONIC_USEC={microseconds}")
    _notify(*lines)


def _notify(*lines: str) -> None:
    path = os.environ.get("NOTIFY_SOCKET")
    if not path:
        return
    # "@" stands for the first byte of an abstract socket's name.
    address = f"\0{path[1:]}" if path.startswith("@") else path
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify_socket:
            notify_socket.sendto("\n".join(lines).encode(), address)
    except OSError as e:
        LOG.warning("Notifying systemd of %s failed: %s", lines[0], e)
