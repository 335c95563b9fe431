# SPDX-License-Identifier: Apache-2.0
"""The plots of the parts filtering and instances, readable on light and dark pages."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from .filtering import WAYS, FilteringRow
from .instances import InstancesRow

#: Contrast enough on white and on black.
_INK: Final = "#7d8590"
_COLORS: Final = ("#bf8700", "#d1242f", "#8250df", "#1a7f37")
_LABELS: Final = {
    "python": "filters in Python",
    "database": "Placement's database",
    "cached": "cached answer",
    "memory": "providers in memory",
}
_PANELS: Final[tuple[tuple[str, Callable[[FilteringRow], float]], ...]] = (
    ("latency, ms (median)", lambda row: row.latency.median),
    (
        "CPU of all processes, ms (mean)",
        lambda row: row.ours + row.placement + row.database,
    ),
)


def draw_filtering(rows: Sequence[FilteringRow], path: Path) -> None:
    """Write latency and CPU by the number of hosts to an SVG file."""
    figure, panels = _two_panels()
    for axes, (title, value) in zip(panels, _PANELS, strict=True):
        for way, color in zip(WAYS, _COLORS, strict=True):
            points = [(row.n_hosts, value(row)) for row in rows if row.way == way]
            _line(axes, points, color, _LABELS[way])
        _style(axes, title, "hosts", {row.n_hosts for row in rows})
    _save(figure, panels, path)


def draw_instances(rows: Sequence[InstancesRow], path: Path) -> None:
    """Write times of plain requests by hosts and by instances to an SVG file.

    The numbers are written to a CSV file beside it.
    """
    plain = [row for row in rows if row.request == "plain"]
    with path.with_suffix(".csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["hosts", "instances", "way", "median_cpu_ms"])
        for row in plain:
            for way, ms in row.medians.items():
                writer.writerow([row.n_hosts, row.n_instances, way, f"{ms:.3f}"])
    # A size that nova has, too, if there is one.
    n_hosts = max(plain, key=lambda row: (len(row.medians), row.n_hosts)).n_hosts
    figure, panels = _two_panels()
    for axes, title, subject, shown, position in (
        (
            panels[0], "one instance, ms of CPU time", "hosts",
            [row for row in plain if row.n_instances == 1], lambda row: row.n_hosts,
        ),
        (
            panels[1], f"{n_hosts:,} hosts, ms of CPU time", "instances in one request",
            [row for row in plain if row.n_hosts == n_hosts],
            lambda row: row.n_instances,
        ),
    ):  # fmt: skip
        ways = dict.fromkeys(way for row in shown for way in row.medians)
        for way, color in zip(sorted(ways), _COLORS, strict=False):
            points = [
                (position(row), row.medians[way]) for row in shown if way in row.medians
            ]
            _line(axes, points, color, way)
        _style(axes, title, subject, {position(row) for row in shown})
    _save(figure, panels, path)


def _two_panels() -> tuple[Any, Any]:
    import matplotlib

    matplotlib.use("svg")
    # The same file for the same numbers; text stays text.
    matplotlib.rcParams.update({"svg.hashsalt": "moorage", "svg.fonttype": "none"})
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(9.6, 3.8))
    return figure, panels


def _line(
    axes: Any,  # noqa: ANN401 - matplotlib
    points: Sequence[tuple[int, float]],
    color: str,
    label: str,
) -> None:
    axes.loglog(*zip(*points, strict=True), "o-", color=color, label=label)


def _style(axes: Any, title: str, subject: str, sizes: set[int]) -> None:  # noqa: ANN401 - matplotlib
    ticks = sorted(sizes)
    axes.set_title(title, color=_INK, fontsize=11)
    axes.set_xlabel(subject, color=_INK)
    axes.set_xticks(ticks, [f"{size:,}" for size in ticks])
    axes.minorticks_off()
    axes.tick_params(colors=_INK, which="both")
    axes.grid(color=_INK, alpha=0.25)
    for spine in axes.spines.values():
        spine.set_color(_INK)


def _save(figure: Any, panels: Any, path: Path) -> None:  # noqa: ANN401 - matplotlib
    from matplotlib import pyplot

    panels[0].legend(frameon=False, labelcolor=_INK, fontsize=9)
    figure.tight_layout()
    figure.savefig(path, transparent=True, metadata={"Date": None})
    pyplot.close(figure)
