# SPDX-License-Identifier: Apache-2.0
"""Each step whose time is recorded has a meaning, on the page and in the reference."""

from __future__ import annotations

import re
from pathlib import Path

from moorage.scheduler.display import STEP_MEANINGS

_ROOT = Path(__file__).parents[2]
_SUMS = {"total", "other steps"}


def test_each_recorded_step_has_a_meaning() -> None:
    sources = (_ROOT / "scheduler" / "drivers").rglob("*.py")
    recorded = {
        step
        for path in sources
        for step in re.findall(r'timed\("(\w+)"\)', path.read_text("utf-8"))
    }
    assert "claim" in recorded
    assert recorded - _SUMS == set(STEP_MEANINGS) - _SUMS


def test_the_reference_has_the_same_meanings() -> None:
    text = (_ROOT / "doc" / "reference" / "decision-line.rst").read_text("utf-8")
    rows = dict(re.findall(r"\* - ``(\w+)``\n     - (.+)", text))
    for step, meaning in STEP_MEANINGS.items():
        if step not in _SUMS:
            assert rows[step] == meaning
