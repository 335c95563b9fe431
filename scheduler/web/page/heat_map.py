# SPDX-License-Identifier: Apache-2.0
"""Hosts as squares, the darker the fuller: arrays to SVG."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from ...display import safe
from ...explain import RESOURCES, FillGroup, HostCondition, ResourceFill
from .formats import percent

#: The used shares of a resource at which the next shade begins.
SHADES: Final = (0.2, 0.4, 0.6, 0.8, 0.95)
#: The width of one map, and the target height of all maps of a resource, pixels.
_WIDTH: Final = 380
_HEIGHT: Final = 640
_MIN_PITCH: Final = 5
_MAX_PITCH: Final = 16
#: Of the few hosts of a plan.
_MAX_PITCH_OF_PLAN: Final = 36
#: From this pitch on squares have a gap of 2 pixels.
_WIDE: Final = 10

LABELS: Final = {"vcpus": "vCPUs", "memory_mb": "Memory", "disk_gb": "Disk"}
_CONDITIONS: Final = tuple(HostCondition)


@dataclasses.dataclass(frozen=True, slots=True)
class HeatLayout:
    """How squares are laid out, in pixels.

    Attributes
    ----------
    pitch : int
        From the left edge of one square to that of the next.
    """

    pitch: int

    @classmethod
    def of(cls, n_hosts: int, max_pitch: int = _MAX_PITCH) -> HeatLayout:
        """Return a layout whose height stays within the limit for so many hosts."""
        fitting = math.isqrt(_WIDTH * _HEIGHT // max(1, n_hosts))
        return cls(min(max_pitch, max(_MIN_PITCH, fitting)))

    @property
    def side(self) -> int:
        """The side of a square."""
        return self.pitch - (2 if self.pitch >= _WIDE else 1)

    @property
    def n_columns(self) -> int:
        """The squares of one row."""
        return _WIDTH // self.pitch


@dataclasses.dataclass(frozen=True, slots=True)
class HeatMap:
    """One resource of one group of hosts, as a picture and in numbers.

    Attributes
    ----------
    label : str
        The name of the resource.
    n_full : int
        The number of hosts in the last shade.
    lowest, median, highest : float
        Shares over its hosts; NaN: no host has the resource.
    """

    label: str
    svg: Markup
    share: float
    n_full: int
    lowest: float
    median: float
    highest: float


def heat_maps(group: FillGroup, layout: HeatLayout) -> list[HeatMap]:
    """Return a map for each resource of a group; a host is the same square of each."""
    conditions = np.array(group.conditions, dtype=object)
    return [
        _heat_map(group.label, LABELS[name], group.resources[name], layout, conditions)
        for name in RESOURCES
    ]


def _heat_map(
    group: str,
    label: str,
    fill: ResourceFill,
    layout: HeatLayout,
    conditions: npt.NDArray[np.object_] | None = None,
) -> HeatMap:
    shares = fill.shares
    finite_shares = shares[np.isfinite(shares)]
    spread = (
        (finite_shares.min(), float(np.median(finite_shares)), finite_shares.max())
        if len(finite_shares)
        else None
    )
    lowest, median, highest = spread or (math.nan,) * 3
    n_full = int((finite_shares >= SHADES[-1]).sum())
    text = (
        f"{label} of {len(shares):,} hosts in {safe(group)}: "
        f"{percent(fill.share)} used, median {percent(median)}, "
        f"{n_full:,} hosts full to {SHADES[-1]:.0%} or more"
    )
    # The CSS class of each host's square.
    shades = np.char.add("s", np.searchsorted(SHADES, shares, "right").astype(str))
    classes = np.where(np.isnan(shares), "none", shades)
    if conditions is not None:
        classes[conditions == HostCondition.DISABLED] = "disabled"
        is_down = (conditions == HostCondition.DOWN) | (
            conditions == HostCondition.FORCED_DOWN
        )
        classes[is_down] = "down"
    svg = _svg(classes, layout, text)
    return HeatMap(label, svg, fill.share, n_full, lowest, median, highest)


def _svg(classes: npt.NDArray[np.str_], layout: HeatLayout, label: str) -> Markup:
    n_hosts, side, pitch = len(classes), layout.side, layout.pitch
    width = min(n_hosts, layout.n_columns) * pitch - (pitch - side)
    height = -(-n_hosts // layout.n_columns) * pitch - (pitch - side)
    lines = _lines(n_hosts, layout)
    # One path a shade: ten thousand elements would take the browser a second.
    paths = Markup("").join(
        Markup('<path class="{}" d="{}"/>').format(
            name, "".join(lines[i] for i in np.flatnonzero(classes == name).tolist())
        )
        for name in np.unique(classes)
    )
    return Markup(
        '<svg class="heat" role="img" aria-label="{}" viewBox="0 0 {} {}" '
        'width="{}" height="{}" stroke-width="{}">{}</svg>'
    ).format(label, width, height, width, height, side, paths)


@functools.lru_cache(maxsize=8)
def _lines(n_hosts: int, layout: HeatLayout) -> Sequence[str]:
    """Return the SVG path of each square: a line as long as its stroke is wide."""
    side, middle = layout.side, layout.side / 2
    squares = (divmod(i, layout.n_columns) for i in range(n_hosts))
    return [
        f"M{column * layout.pitch} {row * layout.pitch + middle:g}h{side}"
        for row, column in squares
    ]


def heat_data(groups: Sequence[FillGroup], layout: HeatLayout) -> Markup:
    """Return the data with which the script names a square, as JSON in an element."""
    group_data = [
        {
            "name": group.label,
            "hosts": group.hosts,
            "conditions": [
                _CONDITIONS.index(condition) for condition in group.conditions
            ],
            "fill": [_percentages(group.resources[name]) for name in RESOURCES],
        }
        for group in groups
    ]
    return _json([LABELS[name] for name in RESOURCES], group_data, layout)


def _json(
    labels: Sequence[str], groups: Sequence[Mapping[str, Any]], layout: HeatLayout
) -> Markup:
    data = {
        "pitch": layout.pitch,
        "side": layout.side,
        "columns": layout.n_columns,
        "labels": labels,
        "conditions": [condition.value for condition in _CONDITIONS],
        "groups": groups,
    }
    text = json.dumps(data, separators=(",", ":"))
    # "</" would end the element, even within a string.
    return Markup(text.replace("<", "\\u003c"))


def _percentages(fill: ResourceFill) -> list[int | None]:
    shares = fill.shares
    rounded = np.rint(np.nan_to_num(shares, nan=-1.0) * 100).astype(int).tolist()
    return [None if share < 0 else share for share in rounded]


@dataclasses.dataclass(frozen=True, slots=True)
class PlanPicture:
    """The memory of the hosts of a plan before and after its moves.

    Attributes
    ----------
    groups : list of (str, list of HeatMap)
        Sources and destinations, each with two maps: before and after.
    data : Markup
        As `heat_data` returns it.
    """

    groups: list[tuple[str, list[HeatMap]]]
    data: Markup

    @classmethod
    def of(
        cls, changes: Sequence[Mapping[str, Any]], sources: Collection[str]
    ) -> PlanPicture:
        """Return the picture of the hosts of a plan.

        Parameters
        ----------
        changes : sequence of mapping
            The hosts in the form in which the API returns them; see `HostChange`.
        sources : collection of str
            Those of them that instances leave.
        """
        layout = HeatLayout.of(len(changes), _MAX_PITCH_OF_PLAN)
        groups, data = [], []
        by_host = sorted(changes, key=lambda change: change["host"])
        for name, is_source in (("sources", True), ("destinations", False)):
            hosts = [each for each in by_host if (each["host"] in sources) is is_source]
            if not hosts:
                continue
            capacity_mb = np.array([each["capacity_mb"] for each in hosts], np.float64)
            fills = {
                f"Memory {time}": ResourceFill(
                    np.array([each[f"used_{time}_mb"] for each in hosts], np.int64),
                    capacity_mb,
                )
                for time in ("before", "after")
            }
            maps = [_heat_map(name, *pair, layout) for pair in fills.items()]
            groups.append((name, maps))
            data.append(
                {
                    "name": name,
                    "hosts": [each["host"] for each in hosts],
                    "conditions": [],  # a picture of the fill, also of disabled hosts
                    "fill": [_percentages(fill) for fill in fills.values()],
                }
            )
        return cls(groups, _json(["Memory before", "after"], data, layout))
