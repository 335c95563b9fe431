# SPDX-License-Identifier: Apache-2.0
"""Schedulers on bad connections, killed at any step, neither leak nor lose claims.

Each seed is run on virtual time: on the real Placement some seeds, of which a part
follows a replica of its database, and more on the model of Placement. One that fails
prints everything that happened, and happens the same way again:
`MOORAGE_FAULTS_SEEDS=17` runs it on both. `make faults SECONDS=600` runs other seeds
for each commit, for so long on all cores.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from ..fixtures.faulty_placement import FaultKind
from ..fixtures.placement_model import PlacementModel
from ..fixtures.placement_servers import EmbeddedPlacementFixture
from .events import Kind
from .nemesis import RATES
from .simulation import FIRST_WITH_TOPIC, Outcome, failed_seeds, simulate

_FOLDER: Final = Path(__file__).parent
#: How long each share of the commit's own seeds runs; 0: the model's seeds are fixed,
#: so that a commit does not fail for what it did not change.
_SECONDS: Final = float(os.environ.get("MOORAGE_FAULTS_SECONDS", "0"))
_FIXED: Final = 40
#: How many seeds a share runs at most, while something that can happen has not yet.
_AT_MOST: Final = 120
#: The number of shares, which workers run at once.
_SHARES: Final = os.cpu_count() or 1
#: Seeds that are run on both; with none, those of the file and new ones.
_CHOSEN: Final = [int(s) for s in os.environ.get("MOORAGE_FAULTS_SEEDS", "").split()]
#: 18 found a defect that no seed of the model finds.
_OF_REAL: Final = _CHOSEN or [0, 18]

pytestmark = pytest.mark.deep


@pytest.fixture
def placement() -> Iterator[EmbeddedPlacementFixture]:
    with EmbeddedPlacementFixture() as placement:
        yield placement


def _check(outcome: Outcome) -> None:
    if outcome.violations:
        print(outcome)  # pytest shows it for a test that fails
    violations = "; ".join(outcome.violations)
    assert not violations, f"seed {outcome.seed}: {violations}"
    assert outcome.counts.accepted


def _first_new_seed() -> int:
    """Return a number that follows from the commit."""
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"],
        cwd=_FOLDER,
        capture_output=True,
        text=True,
        check=False,
    )
    return int(head.stdout[:8] or "0", 16)


@pytest.mark.parametrize("seed", _OF_REAL, ids="seed{}".format)
def test_answered_instances_hold_their_answers_and_nothing_else_is_held(
    seed: int, placement: EmbeddedPlacementFixture, tmp_path: Path
) -> None:
    _check(simulate(seed, placement.placement, tmp_path))


@pytest.mark.parametrize("seed", _CHOSEN or failed_seeds(), ids="seed{}".format)
def test_seed_that_failed_before_holds(seed: int, tmp_path: Path) -> None:
    _check(simulate(seed, PlacementModel(), tmp_path))


@pytest.mark.skipif(bool(_CHOSEN), reason="MOORAGE_FAULTS_SEEDS chooses seeds")
@pytest.mark.timeout(_SECONDS + 900)
@pytest.mark.parametrize("share", range(_SHARES))
def test_seeds_of_the_model_hold(share: int, tmp_path: Path) -> None:
    first = _first_new_seed() if _SECONDS else FIRST_WITH_TOPIC
    began, n_seeds, n_requests = time.monotonic(), 0, 0
    n_of: Counter[Kind | FaultKind] = Counter()
    missing, failed = {*Kind, *RATES}, list[str]()
    for seed in itertools.count(first + share, _SHARES):
        if _SECONDS:
            is_over = time.monotonic() - began > _SECONDS
        else:
            is_over = seed >= first + _FIXED and (not missing or n_seeds >= _AT_MOST)
        if is_over:
            break
        folder = tmp_path / f"{seed}"
        outcome = simulate(seed, PlacementModel(), folder)
        shutil.rmtree(folder)
        n_seeds, n_requests = n_seeds + 1, n_requests + outcome.counts.requests
        n_of += outcome.log.n_of
        missing -= n_of.keys()
        if outcome.violations:
            if not failed:
                print(outcome)
            failed.append(f"seed {seed}: {'; '.join(outcome.violations)}")
            print(failed[-1])
    elapsed_s = time.monotonic() - began
    print(f"{n_seeds} seeds, {n_requests} requests, {n_requests / elapsed_s:.0f}/s")
    for kind, number in n_of.most_common():
        print(f"{number:7}  {kind.name} {kind.value if isinstance(kind, Kind) else ''}")
    assert n_seeds
    assert not failed, "\n".join(failed)
    assert _SECONDS or not missing, missing


def test_same_seed_gives_the_same_events_whatever_strings_hash_to() -> None:
    histories = [
        subprocess.run(
            [sys.executable, "-m", "tests.simulation", "1", "12"],
            cwd=_FOLDER.parents[1],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert "no violations" in histories[0]
    assert histories[0] == histories[1]
