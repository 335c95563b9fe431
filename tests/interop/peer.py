# SPDX-License-Identifier: Apache-2.0
"""nova 34 beside us, asked over its standard input and output."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

_ROOT = Path(__file__).parents[2]
_SCRIPT = Path(__file__).with_name("nova_side.py")


class PeerError(Exception):
    """Repeat what nova raised: the exception's name and message."""


def peer_python() -> Path:
    """Return the Python of the environment that holds nova 34, made by `make peer`."""
    default = _ROOT / ".venv-nova" / "bin" / "python"
    return Path(os.environ.get("MOORAGE_PEER_PYTHON", default))


def peer_or_skip(name: str = "python") -> Path:
    """Return a program beside it; where it is missing, skip the test, or fail it."""
    python = peer_python()
    program = python if name == "python" else python.with_name(name)
    if not program.exists():
        reason = f"no nova 34: {program} is missing; run `make peer`"
        if os.environ.get("MOORAGE_REQUIRE_ALL") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return program


class Peer:
    """A process with nova 34 in it, for a `with` statement.

    What nova logs goes to the standard error, where pytest shows it on a failure.
    """

    def __init__(self, python: Path) -> None:
        self._process = subprocess.Popen(
            [python, str(_SCRIPT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._process.communicate(timeout=30)

    def ask(self, op: str, **message: Any) -> Any:
        """Return what an operation of nova_side.py gives; PeerError if it raises."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(
            json.dumps({"op": op, **message}),
            file=self._process.stdin,
            flush=True,
        )
        line = self._process.stdout.readline()
        if not line:
            raise PeerError(f"nova's process ended with {self._process.wait(30)}")
        answer = json.loads(line)
        if "error" in answer:
            raise PeerError(answer["error"])
        return answer["result"]
