# SPDX-License-Identifier: Apache-2.0
"""moorage-relay: write the hosts of a source to Kafka, for many schedulers."""

from __future__ import annotations

import sys

from oslo_service import backend


def main() -> int:
    """Run with the process's arguments until SIGTERM; return the exit status."""
    # Must precede the import of oslo.messaging, which otherwise selects eventlet.
    backend.init_backend(backend.BackendType.THREADING)
    from .relaying import run

    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
