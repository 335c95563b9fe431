# SPDX-License-Identifier: Apache-2.0
"""Bars of decisions and hosts: numbers to SVG. A table beside each has the numbers."""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Mapping, Sequence
from typing import Any, Final

from markupsafe import Markup

from ...display import number, safe
from .formats import milliseconds

#: The number of colors; all further weighers share the last one.
N_COLORS: Final = 8
_WIDTH: Final = 320
_HEIGHT: Final = 14
#: The share of a decision's time from which on a step is shown separately.
_MIN_SHOWN: Final = 0.01
#: Steps of a decision that contain others, or are its sum.
_SUMS: Final = frozenset({"total"})


def _svg(content: Markup, width: float, height: float, label: str) -> Markup:
    """Return a picture; without a label it repeats the numbers beside it."""
    name = (
        Markup('role="img" aria-label="{}"').format(label)
        if label
        else Markup('aria-hidden="true"')
    )
    return Markup(
        '<svg class="bars" {} viewBox="0 0 {} {}" width="{}" height="{}" '
        'preserveAspectRatio="none">{}</svg>'
    ).format(name, f"{width:g}", f"{height:g}", f"{width:g}", f"{height:g}", content)


def _rect(name: str, x: float, width: float, title: str = "") -> Markup:
    inner = Markup("<title>{}</title>").format(title) if title else Markup("")
    return Markup('<rect class="{}" x="{}" width="{}" height="{}">{}</rect>').format(
        name, f"{x:.1f}", f"{max(width, 0.0):.1f}", _HEIGHT, inner
    )


def _visible(width: float) -> float:
    """Return a width that is large enough to be visible, or 0."""
    return max(width, 1.5) if width > 0 else 0.0


def funnel_bar(n_in: int | None, n_out: int, n_most: int) -> Markup:
    """Return a bar of the hosts that a step left, in front of those that entered."""
    scale = _WIDTH / max(1, n_most)
    entered = _rect("lost", 0, _visible((n_in or 0) * scale))
    remaining = _rect("left", 0, _visible(n_out * scale))
    return _svg(entered + remaining, _WIDTH, _HEIGHT, "")


def share_bar(share: float | None, width: int = 120) -> Markup:
    """Return a bar that is filled to a share."""
    filled = min(1.0, max(0.0, share or 0.0)) * width
    content = _rect("lost", 0, width) + _rect("left", 0, _visible(filled))
    return _svg(content, width, _HEIGHT, "")


# -- scores ------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class ScoreBars:
    """The weights of the best hosts as stacked bars.

    Attributes
    ----------
    weighers : list of (str, str)
        The name and the CSS class of each weigher that is not 0 for all hosts.
    bars : list of (mapping, Markup)
        Each host, as the API has it, and its bar: parts below 0 to the left.
    n_zero : int
        Weighers that are 0 for all hosts.
    """

    weighers: list[tuple[str, str]]
    bars: list[tuple[Mapping[str, Any], Markup]]
    n_zero: int


def score_bars(hosts: Sequence[Mapping[str, Any]]) -> ScoreBars | None:
    """Return the bars of hosts with parts, as the API has them; None: there are none.

    Hosts of one decision have the same weighers in the same order.
    """
    shown_hosts = [host for host in hosts if host["parts"]]
    if not shown_hosts:
        return None
    indices = range(len(shown_hosts[0]["parts"]))
    used_indices = [
        i for i in indices if any(_weighted(host, i) for host in shown_hosts)
    ]
    colors = {i: f"w{min(color, N_COLORS - 1)}" for color, i in enumerate(used_indices)}
    most_above = max((_sum(host, used_indices, 1) for host in shown_hosts), default=0.0)
    most_below = max(
        (_sum(host, used_indices, -1) for host in shown_hosts), default=0.0
    )
    bars = [
        (host, _score_bar(host, colors, most_below, most_above)) for host in shown_hosts
    ]
    names = [(shown_hosts[0]["parts"][i]["name"], color) for i, color in colors.items()]
    return ScoreBars(names, bars, len(indices) - len(used_indices))


def _weighted(host: Mapping[str, Any], i: int) -> float:
    """Return the part of a host's weight that weigher `i` gave."""
    return float(host["parts"][i]["weighted"] or 0.0)


def _sum(host: Mapping[str, Any], used_indices: Sequence[int], sign: int) -> float:
    """Return the sum of a host's parts above 0 or, if `sign` is -1, below 0."""
    return sum(max(0.0, sign * _weighted(host, i)) for i in used_indices)


def _score_bar(
    host: Mapping[str, Any],
    colors: Mapping[int, str],
    most_below: float,
    most_above: float,
) -> Markup:
    scale = _WIDTH / (most_below + most_above or 1.0)
    zero = most_below * scale
    content, below, above = Markup(""), zero, zero
    for i, color in colors.items():
        value = _weighted(host, i)
        width = abs(value) * scale
        x = above if value > 0 else below - width
        above, below = (above + width, below) if value > 0 else (above, x)
        title = f"{safe(host['parts'][i]['name'])}: {number(value)}"
        content += _rect(color, x, width, title)
    if most_below:
        content += _rect("zero", zero - 0.5, 1)
    return _svg(content, _WIDTH, _HEIGHT, "")


# -- times -------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class TimesBar:
    """The steps of a decision side by side, as long as they took.

    Attributes
    ----------
    steps : list of (str, str, float)
        The name, the CSS class and the milliseconds of each step that is long enough
        to be visible; the last one is the sum of the other steps.
    """

    steps: list[tuple[str, str, float]]
    svg: Markup


def times_bar(times_ms: Mapping[str, float]) -> TimesBar:
    """Return the picture of the times of a decision."""
    step_times = {name: ms for name, ms in times_ms.items() if name not in _SUMS}
    total = max(times_ms.get("total", 0.0), sum(step_times.values()))
    longest = heapq.nlargest(N_COLORS - 1, step_times, key=step_times.__getitem__)
    shown = [
        (name, ms)
        for name, ms in step_times.items()
        if name in longest and ms > total * _MIN_SHOWN
    ]
    steps = [(name, f"w{color}", ms) for color, (name, ms) in enumerate(shown)]
    other_ms = total - sum(ms for _, ms in shown)
    if other_ms > 0:
        steps.append(("other steps", f"w{N_COLORS - 1}", other_ms))
    content, x = Markup(""), 0.0
    for name, color, ms in steps:
        width = ms / (total or 1.0) * 2 * _WIDTH
        content += _rect(color, x, width, f"{safe(name)}: {milliseconds(ms)}")
        x += width
    return TimesBar(steps, _svg(content, 2 * _WIDTH, _HEIGHT, ""))


def claims_line(at_ms: Sequence[float | None], total_ms: float) -> Markup:
    """Return the moments at which claims were answered, numbered from 1."""
    # As wide as `times_bar`, with room for half a circle on each side.
    width, height, room = 2 * _WIDTH, 28, 8
    content = Markup('<path class="axis" d="M0 14H{}"/>').format(width)
    for order, answered_ms in enumerate(at_ms, start=1):
        if answered_ms is None:
            continue
        x = min(1.0, max(0.0, answered_ms / (total_ms or 1.0))) * width
        content += Markup(
            '<circle class="moment" cx="{x}" cy="14" r="8"/>'
            '<text x="{x}" y="18" text-anchor="middle">{order}</text>'
        ).format(x=f"{x:.1f}", order=order)
    return Markup(
        '<svg class="claims" aria-hidden="true" viewBox="-{} 0 {} {}" width="{}" '
        'height="{}">{}</svg>'
    ).format(room, width + 2 * room, height, width + 2 * room, height, content)


def minutes_bars(counts: Sequence[tuple[int, int]]) -> Markup:
    """Return decisions by minute as columns.

    Parameters
    ----------
    counts : sequence of (int, int)
        The decisions with and without a host by minute, the oldest first.
    """
    most = (
        max((n_selected + n_refused for n_selected, n_refused in counts), default=0)
        or 1
    )
    height, pitch = 48, 5
    content = Markup('<rect class="lost" y="{}" width="{}" height="1"/>').format(
        height - 1, len(counts) * pitch
    )
    for minute, (n_selected, n_refused) in enumerate(counts):
        y = height - 1.0
        for name, count in (("left", n_selected), ("refused", n_refused)):
            bar_height = _visible(count / most * (height - 3))
            y -= bar_height
            if bar_height:
                content += Markup(
                    '<rect class="{}" x="{}" y="{}" width="{}" height="{}"/>'
                ).format(
                    name, minute * pitch, f"{y:.1f}", pitch - 2, f"{bar_height:.1f}"
                )
    n_selected, n_refused = (
        sum(pair[0] for pair in counts),
        sum(pair[1] for pair in counts),
    )
    label = f"Decisions by minute: {n_selected:,} with a host, {n_refused:,} without"
    return _svg(content, len(counts) * pitch, height, label)
