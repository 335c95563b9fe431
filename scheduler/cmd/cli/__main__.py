# SPDX-License-Identifier: Apache-2.0
"""Run the command: python -m moorage.scheduler.cmd.cli."""

from . import main

main()
