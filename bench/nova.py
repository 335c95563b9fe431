# SPDX-License-Identifier: Apache-2.0
"""nova 34 in another process, with the same hosts."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fixtures.nova_peer import NOT_NOVAS, Peer, PeerError, peer_python

from .clouds import Cloud
from .requests import BenchRequest
from .timing import Percentiles, Plan

__all__ = ["Nova", "NovaDecision", "PeerError", "missing_peer"]

_SCRIPT = Path(__file__).with_name("nova_side.py")


def missing_peer() -> str:
    """Return why nova is not available; "" if it is."""
    python = peer_python()
    if python.exists():
        return ""
    return f"{python} is missing; run `make peer`, or set MOORAGE_PEER_PYTHON"


@dataclass(frozen=True, slots=True)
class NovaDecision:
    """The times of nova's decisions, milliseconds.

    Attributes
    ----------
    own : Percentiles
        Filters, weighers, the choice and selections, with existing host states.
    cpu : Percentiles
        The CPU time of the same.
    states : Percentiles
        Creating the host states from compute nodes that were read before.
    n_passed : int
        Hosts that pass the filters for the first instance.
    """

    own: Percentiles
    cpu: Percentiles
    states: Percentiles
    n_passed: int


class Nova(Peer):  # type: ignore[misc]  # mypy does not follow imports of tests/
    """The tests' peer, with operations that measure."""

    def __init__(self) -> None:
        # Not the tests' constructor: it starts another script.
        self._process = subprocess.Popen(
            # -P: modules of bench/ must not hide nova's.
            [peer_python(), "-P", str(_SCRIPT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONWARNINGS": "ignore"},
        )

    def load(
        self, cloud: Cloud, filters: Sequence[str], weighers: Sequence[str]
    ) -> None:
        """Give nova the hosts, and enable the filters and weighers that it has."""
        self.ask(
            "load",
            filters=[name for name in filters if name not in NOT_NOVAS],
            weighers=[name for name in weighers if name not in NOT_NOVAS],
            **cloud.as_message(),
        )

    def decisions(self, request: BenchRequest, plan: Plan) -> NovaDecision:
        """Return the times of a decision."""
        runs: list[dict[str, float]] = self.ask("decide", **_measured(request, plan))
        return NovaDecision(
            own=Percentiles.of([run["own"] for run in runs]),
            cpu=Percentiles.of([run["cpu"] for run in runs]),
            states=Percentiles.of([run["states"] for run in runs]),
            n_passed=int(runs[0]["n_passed"]),
        )

    def plugin(
        self, kind: str, name: str, request: BenchRequest, plan: Plan
    ) -> tuple[Percentiles, int] | str:
        """Return a plugin's time and the number of passing hosts, or why it failed."""
        try:
            answer = self.ask(kind, name=name, **_measured(request, plan))
        except PeerError as error:
            return str(error)
        if answer is None:
            return "nova has none"
        return Percentiles.of(answer["ms"]), answer["n_passed"]

    def wire(self, text: str, number: int, plan: Plan) -> dict[str, Percentiles]:
        """Return the times of reading and writing an object, by operation."""
        answer = self.ask("wire", text=text, number=number, **_plan(plan))
        return {name: Percentiles.of(values) for name, values in answer.items()}


def _measured(request: BenchRequest, plan: Plan) -> dict[str, Any]:
    return {
        "spec_obj": request.primitive,
        "instance_uuids": request.instance_uuids,
        "offers": request.offers,
        **_plan(plan),
    }


def _plan(plan: Plan) -> dict[str, Any]:
    return {"runs": plan.runs, "budget_s": plan.budget_s, "warm_ups": plan.warm_ups}
