# SPDX-License-Identifier: Apache-2.0
"""The plot of the part filtering, readable on light and on dark pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from .filtering import WAYS, FilteringRow

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
    import matplotlib

    matplotlib.use("svg")
    # The same file for the same numbers; text stays text.
    matplotlib.rcParams.update({"svg.hashsalt": "moorage", "svg.fonttype": "none"})
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(9.6, 3.8), sharex=True)
    for axes, (title, value) in zip(panels, _PANELS, strict=True):
        for way, color in zip(WAYS, _COLORS, strict=True):
            points = [(row.n_hosts, value(row)) for row in rows if row.way == way]
            axes.loglog(*zip(*points, strict=True), "o-", color=color, label=way)
            axes.lines[-1].set_label(_LABELS[way])
        _style(axes, title, sorted({row.n_hosts for row in rows}))
    panels[0].legend(frameon=False, labelcolor=_INK, fontsize=9)
    figure.tight_layout()
    figure.savefig(path, transparent=True, metadata={"Date": None})
    pyplot.close(figure)


def _style(axes: Any, title: str, sizes: Sequence[int]) -> None:  # noqa: ANN401 - matplotlib
    axes.set_title(title, color=_INK, fontsize=11)
    axes.set_xlabel("hosts", color=_INK)
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axes.minorticks_off()
    axes.tick_params(colors=_INK, which="both")
    axes.grid(color=_INK, alpha=0.25)
    for spine in axes.spines.values():
        spine.set_color(_INK)
