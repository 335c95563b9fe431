# SPDX-License-Identifier: Apache-2.0
"""Claims, and what watches them, get time, threads and chance injected.

So several schedulers run on one virtual time. What is used directly all the same is
listed here, with its reason.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SCHEDULER = Path(__file__).parents[1] / "scheduler"
FILES = [
    *sorted((SCHEDULER / "placement" / "allocations").glob("*.py")),
    *sorted((SCHEDULER / "drivers" / "claims").glob("*.py")),
    SCHEDULER / "placement" / "health.py",
    *sorted((SCHEDULER / "placement" / "cache").glob("*.py")),
    SCHEDULER / "rpc" / "peers.py",
    SCHEDULER / "claim_publisher.py",
    SCHEDULER / "claim_reconciler.py",
]
DIRECT = {
    "time": {"time", "monotonic", "sleep", "perf_counter"},
    "threading": {"Thread", "Lock", "RLock", "Event", "Condition", "Timer", "local"},
    "uuid": {"uuid1", "uuid4"},
    "os": {"urandom"},
    "random": {"Random", "random", "uniform", "choice"},
    "datetime": {"now", "utcnow"},
}

#: What remains.
ALLOWED = {
    # Held while a share is updated; no one waits under it.
    "drivers/claims/contention.py": {"threading.Lock"},
    # Defaults of a client that is made without a scheduler; the time in a message.
    "placement/health.py": {"time.monotonic", "random.Random", "datetime.now"},
    # The name of this process among the schedulers of a cloud.
    "rpc/peers.py": {"uuid.uuid4"},
}


def _direct_uses(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.attr in DIRECT.get(node.value.id, ()):
                yield f"{node.value.id}.{node.attr}"
        elif isinstance(node, ast.ImportFrom) and node.module in DIRECT:
            names = {alias.name for alias in node.names} & DIRECT[node.module]
            yield from (f"{node.module}.{name}" for name in names)


def test_direct_uses_of_time_threads_and_chance_are_listed() -> None:
    found = {
        str(path.relative_to(SCHEDULER)): set(_direct_uses(path)) for path in FILES
    }
    assert {name: uses for name, uses in found.items() if uses} == ALLOWED


def test_such_a_use_is_found(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text("import time\nfrom threading import Lock\ntime.sleep(1)\n")
    assert set(_direct_uses(module)) == {"time.sleep", "threading.Lock"}
