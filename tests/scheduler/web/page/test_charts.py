# SPDX-License-Identifier: Apache-2.0
"""Pictures have the numbers that they are made of."""

from __future__ import annotations

import re
from typing import Any

import pytest
from oslo_config import cfg

from moorage.scheduler.explain import cloud_fill
from moorage.scheduler.web.page import charts
from moorage.scheduler.web.page.heat_map import HeatLayout, heat_data, heat_maps
from moorage.testing.builders import NOW, host, table


def _widths(svg: str, name: str) -> list[float]:
    return [
        float(w) for w in re.findall(rf'class="{name}"[^>]*? width="([\d.]+)"', svg)
    ]


def test_a_funnel_bar_is_as_long_as_its_share() -> None:
    svg = charts.funnel_bar(50, 25, 100)
    assert (_widths(svg, "lost"), _widths(svg, "left")) == ([160.0], [80.0])


def test_few_of_many_can_be_seen() -> None:
    assert _widths(charts.funnel_bar(10_000, 1, 10_000), "left") == [1.5]
    assert _widths(charts.funnel_bar(10_000, 0, 10_000), "left") == [0.0]


def _host(name: str, *parts: tuple[str, float | None]) -> dict[str, Any]:
    made = [{"name": n, "raw": w, "normalized": w, "weighted": w} for n, w in parts]
    return {"host": name, "weight": 1.0, "parts": made}


def test_parts_below_zero_are_left_of_those_above() -> None:
    hosts = [
        _host("a", ("RAM", 3.0), ("IO", -1.0), ("None", 0.0)),
        _host("b", ("RAM", 1.0), ("IO", 0.0), ("None", None)),
    ]
    scores = charts.score_bars(hosts)
    assert scores is not None
    assert scores.weighers == [("RAM", "w0"), ("IO", "w1")]
    assert scores.n_zero == 1
    first = scores.bars[0][1]
    assert (_widths(first, "w0"), _widths(first, "w1")) == ([240.0], [80.0])
    assert 'class="w0" x="80.0"' in first
    assert 'class="w1" x="0.0"' in first


def test_without_parts_there_is_no_picture_of_scores() -> None:
    assert charts.score_bars([_host("a")]) is None


def test_the_longest_of_many_steps_are_shown_in_their_order() -> None:
    times = charts.times_bar({**dict.fromkeys("abcdefg", 2.0), "claim": 90.0})
    assert [name for name, _, _ in times.steps] == [*"abcdef", "claim", "other steps"]
    assert times.steps[-1][2] == pytest.approx(2.0)


def test_times_add_up_to_the_whole() -> None:
    times = charts.times_bar({"filters": 30.0, "claim": 60.0, "x": 0.1, "total": 100.0})
    assert [(n, ms) for n, _, ms in times.steps] == [
        ("filters", 30.0), ("claim", 60.0), ("other steps", pytest.approx(10.0)),
    ]  # fmt: skip
    widths = [w for n in range(8) for w in _widths(times.svg, f"w{n}")]
    assert sum(widths) == pytest.approx(640.0)


def test_claims_stand_where_they_were_answered() -> None:
    svg = charts.claims_line([0.0, None, 50.0], 100.0)
    assert re.findall(r'cx="([\d.]+)"', svg) == ["0.0", "320.0"]


def test_minutes_are_stacked() -> None:
    svg = charts.minutes_bars([(0, 0), (2, 2), (4, 0)])
    assert len(re.findall('class="refused"', svg)) == 1
    assert "6 with a host, 2 without" in svg


# -- the heat map ------------------------------------------------------------------


def test_each_host_is_one_square_of_its_shade(conf: cfg.ConfigOpts) -> None:
    hosts = [host(host=f"h{used}", vcpus_used=used) for used in range(9)]
    hosts.append(host(host="x-off", disabled=True))
    hosts.append(host(host="x-down", last_seen_up=0.0))
    hosts.append(host(host="x-none", vcpus_total=0))
    [group] = cloud_fill(table(*hosts), conf, NOW).groups
    vcpus = heat_maps(group, HeatLayout.of(len(hosts)))[0]
    found = dict(re.findall(r'<path class="(\w+)" d="([^"]*)"', vcpus.svg))
    n_squares = {name: path.count("M") for name, path in found.items()}
    # 0, 1/8 | 2/8, 3/8 | 4/8 | 5/8, 6/8 | 7/8 | 8/8
    assert n_squares == {
        "s0": 2, "s1": 2, "s2": 1, "s3": 2, "s4": 1, "s5": 1,
        "disabled": 1, "down": 1, "none": 1,
    }  # fmt: skip
    assert vcpus.n_full == 1


@pytest.mark.parametrize("n_hosts", [1, 200, 10_000, 50_000])
def test_squares_do_not_overlap(n_hosts: int) -> None:
    layout = HeatLayout.of(n_hosts)
    assert 0 < layout.side < layout.pitch
    assert layout.n_columns * layout.pitch <= 380


def test_the_data_cannot_end_its_element(conf: cfg.ConfigOpts) -> None:
    hosts = table(host(host="</script><b>"))
    data = heat_data(cloud_fill(hosts, conf, NOW).groups, HeatLayout(16))
    assert "<" not in data
