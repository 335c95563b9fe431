# SPDX-License-Identifier: Apache-2.0
"""moorage-status: what Moorage would do differently with a nova.conf; orphans."""

from __future__ import annotations

import logging
import sys
import warnings

# The report tells all that is to be told; libraries warn of their own insides.
warnings.simplefilter("ignore")

from oslo_service import backend  # noqa: E402 - the filter has to be there first

#: The command that lists suspected orphans; `upgrade check` is oslo.upgradecheck's.
ORPHANS = "orphans"


def main() -> int:
    """Run with the process's arguments; return the exit status."""
    # Before oslo.messaging is imported, which else takes eventlet for us.
    backend.init_backend(backend.BackendType.THREADING)
    logging.basicConfig(handlers=[logging.NullHandler()])
    if ORPHANS in sys.argv[1:]:
        from .suspected import run

        return run([each for each in sys.argv[1:] if each != ORPHANS])
    from .checks_report import run as check

    return check(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
