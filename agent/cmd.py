# SPDX-License-Identifier: Apache-2.0
"""moorage-agent: report this machine to the schedulers."""

from __future__ import annotations

import sys
import warnings

# oslo.service imports eventlet even where threads are chosen, and eventlet says on
# stderr that it is deprecated.
warnings.filterwarnings("ignore", message=r"\s*Eventlet is deprecated")

from oslo_service import backend  # noqa: E402 - the filter has to be there first


def main() -> int:
    """Run with the process's arguments until SIGTERM; return the exit status."""
    # The choice has to be made before oslo.messaging is imported, which else takes
    # eventlet for us.
    backend.init_backend(backend.BackendType.THREADING)
    from .daemon import run

    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
