# SPDX-License-Identifier: Apache-2.0
"""Run seeds on the model of Placement, and print what happens, one line an event.

python -m tests.simulation SEED …
python -m tests.simulation --shrink SEED …      without what it does not need to fail
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Collection
from pathlib import Path

from ..fixtures.faulty_placement import FaultKind
from ..fixtures.placement_model import PlacementModel
from .shrinking import shrink
from .simulation import Outcome, simulate


def _run(seed: int, skipped: Collection[int | FaultKind] = ()) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        return simulate(seed, PlacementModel(), Path(folder), skipped=skipped)


def _shrunk(seed: int, outcome: Outcome) -> Outcome:
    parts = [*FaultKind, *range(outcome.n_parts)]
    skipped = shrink(parts, lambda skipped: bool(_run(seed, skipped).violations))
    return _run(seed, skipped)


arguments = sys.argv[1:]
is_shrinking = "--shrink" in arguments
for argument in arguments:
    if argument == "--shrink":
        continue
    outcome = _run(int(argument))
    if is_shrinking and outcome.violations:
        outcome = _shrunk(int(argument), outcome)
    print(*outcome.log.events, sep="\n")
    print(f"seed {argument}: {outcome.violations or 'no violations'}")
