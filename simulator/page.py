# SPDX-License-Identifier: Apache-2.0
"""A comparison as one HTML page with plots; it loads nothing else."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import jinja2
import numpy as np
from markupsafe import Markup

from ..scheduler.display import safe
from .comparison import FIGURES, Comparison
from .simulation import by_flavor

#: Colours that can be told apart by colour-blind readers (Okabe and Ito), on white and
#: on black.
_COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_INK: Final = "#7d8590"
#: The units of the time axis, in seconds. An axis has the first one of which the
#: longest run lasts two, or else minutes.
_TIME_UNITS: Final = (("days", 86_400), ("hours", 3_600), ("minutes", 60))
_MAX_FLAVORS: Final = 10


def write_page(folder: Path, comparison: Comparison, title: str) -> Path:
    """Write the page, and each plot as an SVG file, to a folder; return the page.

    Equal comparisons give equal files.

    Raises
    ------
    ImportError
        matplotlib is not installed.
    OSError
        A file cannot be written.
    """
    drawn = plots(comparison)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    text = environment.get_template("simulation.html").render(
        title=title,
        comparison=comparison,
        rows=[_row(comparison, figure) for figure in comparison.figures],
        plots=[(heading, Markup(svg)) for heading, svg in drawn],
        runs=[run for runs in comparison.runs.values() for run in runs],
    )
    folder.mkdir(parents=True, exist_ok=True)
    for heading, svg in drawn:
        path = folder / f"{heading.lower().replace(' ', '-')}.svg"
        path.write_text(f'<?xml version="1.0" encoding="utf-8"?>\n{svg}', "utf-8")
    page = folder / "index.html"
    page.write_text(text, "utf-8")
    return page


def _row(comparison: Comparison, figure: str) -> dict[str, Any]:
    text, factor, unit, is_better = FIGURES[figure]
    cells = []
    for settings in comparison.runs:
        mean = f"{factor * comparison.mean(settings, figure):,.1f}{unit}"
        note, mark = "", ""
        if settings != comparison.base:
            difference = comparison.difference(settings, figure)
            note = f"{factor * difference.mean:+,.1f}"
            if not math.isnan(difference.margin):
                note += f" ± {factor * difference.margin:,.1f}"
                if difference.is_certain and is_better is not None:
                    mark = "better" if (difference.mean > 0) == is_better else "worse"
        cells.append({"mean": mean, "difference": note, "mark": mark})
    return {"text": text, "cells": cells}


def plots(comparison: Comparison) -> list[tuple[str, str]]:
    """Return the plots with their headings, as SVG.

    Raises
    ------
    ImportError
        matplotlib is not installed.
    """
    import matplotlib

    matplotlib.use("svg")
    # Equal numbers give equal files; text stays text.
    # Names may have any characters: none of them is a formula.
    matplotlib.rcParams.update(
        {
            "svg.hashsalt": "moorage",
            "svg.fonttype": "none",
            "text.parse_math": False,
        }
    )
    over_time = (
        ("Used share of memory", "memory_used", 100.0, "%"),
        ("Used share of CPUs", "vcpus_used", 100.0, "%"),
        ("Hosts without an instance", "empty_hosts", 100.0, "%"),
        ("Instances refused so far", "refused", 1.0, "instances"),
        ("Instances of the largest flavor that would fit", "room_for_largest", 1.0, ""),
    )
    drawn = [
        (heading, _figure(_draw_series, comparison, name, factor, unit))
        for heading, name, factor, unit in over_time
    ]
    if any(run.n_refused for runs in comparison.runs.values() for run in runs):
        drawn.append(
            ("Refused instances by flavor", _figure(_draw_refused, comparison))
        )
    drawn.append(("Hosts at the end", _figure(_draw_hosts, comparison)))
    return drawn


def _figure(draw: Callable[..., float], *arguments: Any) -> str:  # noqa: ANN401 - draw's
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9.0, 3.0))
    height = draw(axes, *arguments)
    figure.set_figheight(height)
    axes.tick_params(colors=_INK, which="both")
    axes.xaxis.label.set_color(_INK)
    axes.yaxis.label.set_color(_INK)
    for spine in axes.spines.values():
        spine.set_color(_INK)
    figure.tight_layout()
    text = io.StringIO()
    figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    pyplot.close(figure)
    svg = text.getvalue()
    return svg[svg.index("<svg") :]


def _label(settings: str) -> str:
    """Return the text of a legend; matplotlib leaves out those that begin with _."""
    return f" {settings}"


def _legend(axes: Any, n_columns: int) -> None:  # noqa: ANN401 - matplotlib
    axes.legend(frameon=False, labelcolor=_INK, fontsize=9, ncols=n_columns)


def _draw_series(
    axes: Any,  # noqa: ANN401 - matplotlib
    comparison: Comparison,
    measure: str,
    factor: float,
    unit: str,
) -> float:
    """Draw a measure over time: a line for each run, a colour for each settings."""
    sampled_s = [
        t for runs in comparison.runs.values() for run in runs for t in run.times_s
    ]
    last_s = max(sampled_s, default=0.0)
    time_unit, unit_s = next(
        ((name, seconds) for name, seconds in _TIME_UNITS if last_s >= 2 * seconds),
        _TIME_UNITS[-1],
    )
    for number, (settings, runs) in enumerate(comparison.runs.items()):
        for i, run in enumerate(runs):
            times = np.array(run.times_s) / unit_s
            values = np.array(run.series[measure]) * factor
            axes.plot(
                times, values, color=_COLOURS[number % len(_COLOURS)], linewidth=1.2,
                alpha=0.9 if len(runs) == 1 else 0.6,
                label=None if i else _label(settings),
            )  # fmt: skip
    axes.set_xlabel(time_unit)
    axes.set_ylabel(unit)
    axes.set_ylim(bottom=0)
    axes.grid(color=_INK, alpha=0.25)
    _legend(axes, len(comparison.runs))
    return 3.0


def _draw_refused(axes: Any, comparison: Comparison) -> float:  # noqa: ANN401 - matplotlib
    """Draw a bar for each settings and each of the flavors that were refused most."""
    refused = {name: by_flavor(runs) for name, runs in comparison.runs.items()}
    total = by_flavor([run for runs in comparison.runs.values() for run in runs])
    flavors = [name for name, _ in total.most_common(_MAX_FLAVORS)]
    height = 0.8 / len(refused)
    for number, (settings, counts) in enumerate(refused.items()):
        places = np.arange(len(flavors)) + number * height
        amounts = [
            counts[flavor] / len(comparison.runs[settings]) for flavor in flavors
        ]
        color = _COLOURS[number % len(_COLOURS)]
        axes.barh(places, amounts, height, color=color, label=_label(settings))
    names = [safe(flavor) for flavor in flavors]
    axes.set_yticks(np.arange(len(flavors)) + 0.4 - height / 2, names)
    axes.invert_yaxis()
    axes.set_xlabel("instances, mean of the runs")
    _legend(axes, 1)
    return 1.0 + 0.16 * len(flavors) * (1 + len(refused))


def _draw_hosts(axes: Any, comparison: Comparison) -> float:  # noqa: ANN401 - matplotlib
    """Draw each host of the first run of each settings, the fullest first."""
    firsts = [runs[0] for runs in comparison.runs.values()]
    # Also with hosts that were added, or have failed.
    n_hosts = max(max(run.n_hosts, len(run.used_at_end)) for run in firsts)
    n_columns = max(1, min(60, n_hosts))
    n_rows = math.ceil(n_hosts / n_columns)
    images = []
    for run in firsts:
        fills = np.sort(run.used_at_end.max(axis=1))[::-1]
        grid = np.full(n_rows * n_columns, np.nan)
        grid[: len(fills)] = fills
        images += [grid.reshape(n_rows, n_columns), np.full((1, n_columns), np.nan)]
    image = axes.imshow(
        np.concatenate(images[:-1]), vmin=0, vmax=1, cmap="viridis_r", aspect="equal",
        interpolation="none",
    )  # fmt: skip
    steps = np.arange(len(comparison.runs)) * (n_rows + 1) + (n_rows - 1) / 2
    axes.set_yticks(steps, list(comparison.runs))
    axes.set_xticks([])
    bar = axes.figure.colorbar(image, ax=axes, fraction=0.02, pad=0.01)
    bar.set_label("used share of the fuller resource", color=_INK)
    bar.ax.tick_params(colors=_INK)
    return max(2.4, 0.17 * len(comparison.runs) * (n_rows + 1) + 0.4)
