# SPDX-License-Identifier: Apache-2.0
"""Count what one plain request runs through, from its call to its answer."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

from rich.console import Console

import moorage
from moorage.scheduler.placement.client import PlacementClient
from moorage.scheduler.placement.embedded import EmbeddedPlacement
from moorage.scheduler.placement.seed import seed
from moorage.scheduler.seeding import providers
from moorage.scheduler.service import Scheduler, build

from .clouds import CloudSource, make_cloud, options
from .decisions import decide
from .requests import CONTEXT, BenchRequest, plain
from .tables import make_table

_ROOT: Final = Path(str(moorage.__file__)).parent
#: Beside the package in a checkout.
_NOT_OURS: Final = frozenset(("bench", "tests", ".venv", ".venv-nova"))
#: Decisions that fill the caches before the one that is counted.
_N_BEFORE: Final = 3
#: Stands for the network between Moorage and Placement; not a part of the main path.
_TRANSPORT: Final = "scheduler/placement/embedded.py"
#: The steps that the main path leads to, by the names of their functions.
_STEPS: Final = {
    "scheduler/placement/cache": ("get",),
    "filters": ("passing", "passing_candidates"),
    "weighers": ("weigh_all",),
    "objects/selection.py": ("of_valid",),
    "scheduler/drivers/decision_log.py": ("add",),
}


@dataclass(slots=True)
class PathCounts:
    """What a request ran through; only functions of Moorage are counted.

    Attributes
    ----------
    functions : set of (file, name)
    classes : set of (file, name)
        Those whose methods ran.
    depth : int
        The largest number of frames on the stack.
    n_cross_file : int
        Calls from one file to another.
    n_hops : int
        Calls from the driver's ``select`` to the transport that gets the PUT.
    main_path : dict of str to int
        Lines of the files on the stack as candidates are read, filters and weighers
        run, the claim is sent, a selection is made and the record is stored, in the
        order in which they are called first.
    """

    functions: set[tuple[str, str]] = field(default_factory=set)
    classes: set[tuple[str, str]] = field(default_factory=set)
    depth: int = 0
    n_cross_file: int = 0
    n_hops: int = 0
    main_path: dict[str, int] = field(default_factory=dict)

    @property
    def n_files(self) -> int:
        """The number of files that have these functions."""
        return len({file for file, _ in self.functions})


def count_path(n_hosts: int) -> PathCounts:
    """Return the counts of a request for one instance.

    Candidates come from the cache; the claim is sent to the embedded Placement.
    """
    cloud = make_cloud(n_hosts)
    conf = options(len(cloud))
    request = plain(cloud)
    with EmbeddedPlacement() as placement:
        client = PlacementClient(placement.adapter)
        seed(client, providers(cloud.as_inventory()))
        source = CloudSource(conf, cloud)
        scheduler = build(conf, placement=placement.adapter, source=source)
        scheduler.start()
        try:
            for _ in range(_N_BEFORE):
                decide(scheduler, request)
                for uuid in request.instance_uuids:
                    client.delete_allocations(uuid)
            return _profiled(scheduler, request)
        finally:
            scheduler.stop()


def _profiled(scheduler: Scheduler, request: BenchRequest) -> PathCounts:
    profile = _Profile()
    spec = request.spec()
    sys.setprofile(profile)
    try:
        scheduler.select_destinations(
            CONTEXT,
            spec_obj=spec,
            instance_uuids=request.instance_uuids,
            return_objects=True,
            return_alternates=True,
        )
    finally:
        sys.setprofile(None)
    return profile.counts()


class _Profile:
    """Follows the stack of Moorage's functions of this thread."""

    def __init__(self) -> None:
        self._counts = PathCounts()
        self._stack: list[tuple[str, str]] = []
        self._first_calls: dict[str, None] = {}
        self._on_path: set[str] = set()

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:  # noqa: ANN401 - as sys.setprofile calls it
        if event not in ("call", "return"):
            return
        code = frame.f_code
        if (file := _file_of(code)) is None:
            return
        if event == "return":
            if self._stack:
                self._stack.pop()
            return
        name = code.co_qualname
        stack, counts = self._stack, self._counts
        if stack and stack[-1][0] != file:
            counts.n_cross_file += 1
        stack.append((file, name))
        self._first_calls.setdefault(file)
        counts.depth = max(counts.depth, len(stack))
        counts.functions.add((file, name))
        owner, _, method = name.rpartition(".")
        if owner and "<locals>" not in owner:
            counts.classes.add((file, owner))
        if _is_put(file, frame):
            # The innermost one: a decision has a method of that name, too.
            names = [name.rpartition(".")[2] for _, name in reversed(stack)]
            counts.n_hops = names.index("select")
        elif not any(
            file.startswith(place) and method in names
            for place, names in _STEPS.items()
        ):
            return
        self._on_path.update(
            each for each, _ in stack if each != _TRANSPORT and not _is_plugin(each)
        )

    def counts(self) -> PathCounts:
        """Return the counts of the finished call."""
        self._counts.main_path = {
            file: len((_ROOT / file).read_text("utf-8").splitlines())
            for file in self._first_calls
            if file in self._on_path
        }
        return self._counts


@cache
def _file_of(code: CodeType) -> str | None:
    """Return the file of a function of Moorage, relative to the package."""
    if code.co_name.startswith("<"):
        return None  # comprehensions and lambdas belong to the function around them
    path = Path(code.co_filename)
    if not path.is_relative_to(_ROOT):
        return None
    relative = path.relative_to(_ROOT)
    return None if relative.parts[0] in _NOT_OURS else str(relative)


def _is_put(file: str, frame: FrameType) -> bool:
    """Return whether the embedded Placement gets the claim."""
    sent = frame.f_locals.get("request")
    return file == _TRANSPORT and getattr(sent, "method", "") == "PUT"


def _is_plugin(file: str) -> bool:
    """Return whether a file has some of many filters or weighers."""
    folder, _, name = file.partition("/")
    return folder in ("filters", "weighers") and name != "base.py"


def print_path(console: Console, n_hosts: int) -> None:
    """Print the counts, and the files of the main path with their lines."""
    counts = count_path(n_hosts)
    shown = make_table("The path of a plain request", "what", "number")
    for what, number in (
        ("functions", len(counts.functions)),
        ("files", counts.n_files),
        ("classes", len(counts.classes)),
        ("depth of the stack", counts.depth),
        ("calls from one file to another", counts.n_cross_file),
        ("hops from the driver to Placement's PUT", counts.n_hops),
        ("files of the main path", len(counts.main_path)),
        ("lines of the main path", sum(counts.main_path.values())),
    ):
        shown.add_row(what, f"{number:,}")
    console.print(shown)
    files = make_table("Files of the main path, as they are called", "file", "lines")
    for file, n_lines in counts.main_path.items():
        files.add_row(file, f"{n_lines:,}")
    console.print(files)
