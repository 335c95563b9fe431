# SPDX-License-Identifier: Apache-2.0
"""Run seeds on the model of Placement, and print what happens, one line an event.

python -m tests.simulation SEED …
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from ..fixtures.placement_model import PlacementModel
from .simulation import simulate

for argument in sys.argv[1:]:
    with tempfile.TemporaryDirectory() as folder:
        outcome = simulate(int(argument), PlacementModel(), Path(folder))
    print(*outcome.events, sep="\n")
    print(f"seed {argument}: {outcome.violations or 'no violations'}")
