# SPDX-License-Identifier: Apache-2.0
"""Each mutation can be applied, and the simulation finds one that is."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from .mutations import MUTATIONS, Mutation


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda each: each.name)
def test_text_of_a_mutation_stands_once_in_its_module(mutation: Mutation) -> None:
    spec = importlib.util.find_spec(mutation.module)
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).read_text()
    assert mutation.applied(source) != source


@pytest.mark.deep
def test_seed_finds_a_mutation() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation.mutations", "answers-not-recorded"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 of 1 found" in done.stdout
    assert not done.returncode
