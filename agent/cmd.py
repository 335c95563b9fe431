# SPDX-License-Identifier: Apache-2.0
"""moorage-agent: report this machine to the schedulers."""

from __future__ import annotations

import sys
import warnings

# oslo.service imports eventlet even with the threading backend, and eventlet prints a
# deprecation warning to stderr.
warnings.filterwarnings("ignore", message=r"\s*Eventlet is deprecated")

from oslo_service import backend  # noqa: E402 - after the warnings filter


def main() -> int:
    """Run with the process's arguments until SIGTERM; return the exit status."""
    # The backend must be set before oslo.messaging is imported, which otherwise
    # selects eventlet.
    backend.init_backend(backend.BackendType.THREADING)
    from .daemon import run

    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
