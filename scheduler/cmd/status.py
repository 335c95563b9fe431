# SPDX-License-Identifier: Apache-2.0
"""moorage-status: tell what Moorage would do differently with a nova.conf."""

from __future__ import annotations

import logging
import sys
import warnings

# The report tells all that is to be told; libraries warn of their own insides.
warnings.simplefilter("ignore")

from oslo_service import backend  # noqa: E402 - the filter has to be there first


def main() -> int:
    """Run with the process's arguments; return the exit status."""
    # Before oslo.messaging is imported, which else takes eventlet for us.
    backend.init_backend(backend.BackendType.THREADING)
    logging.basicConfig(handlers=[logging.NullHandler()])
    from .checks_report import run

    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
