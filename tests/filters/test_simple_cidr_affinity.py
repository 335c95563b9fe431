# SPDX-License-Identifier: Apache-2.0
"""Hints keep a request near an address."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.filters.simple_cidr_affinity import SimpleCIDRAffinityFilter
from moorage.scheduler.errors import InvalidRequest

from ..conftest import batch, hosts, options, spec

ADDRESSES = ["10.0.0.1", "10.0.0.255", "10.0.1.0", "fd00::1", "fd00::1:1", None, "x"]
ROWS = batch(*hosts("host_ip", ADDRESSES))


def _passing(hints: Any) -> list[str | None]:
    filter_ = SimpleCIDRAffinityFilter(options())
    mask = filter_.passing(ROWS, spec(scheduler_hints=hints))
    return [a for a, passes in zip(ADDRESSES, mask, strict=True) if passes]


@pytest.mark.parametrize(
    ("address", "cidr", "passing"),
    [
        pytest.param("10.0.0.7", None, ADDRESSES[:2], id="/24 by default"),
        pytest.param("10.0.0.7", "/24", ADDRESSES[:2], id="/24"),
        pytest.param("10.0.0.7", "/23", ADDRESSES[:3], id="/23"),
        pytest.param("10.0.0.7", "/25", ADDRESSES[:1], id="/25"),
        pytest.param("10.0.0.1", "/32", ADDRESSES[:1], id="one address"),
        pytest.param("0.0.0.0", "/0", ADDRESSES[:3], id="all of version 4"),
        pytest.param("fd00::7", "/112", ADDRESSES[3:4], id="version 6"),
        pytest.param("fd00::7", "/64", ADDRESSES[3:5], id="more of version 6"),
        pytest.param("192.168.0.1", "/24", [], id="nobody there"),
        pytest.param("10.0.0.7", "24", ADDRESSES[:2], id="without the slash"),
        pytest.param("10.0.0.1", "", ADDRESSES[:1], id="an empty prefix"),
        pytest.param("10.0.0.7", "/255.255.255.0", ADDRESSES[:2], id="a mask"),
    ],
)
def test_network(address: str, cidr: str | None, passing: list[str]) -> None:
    hints = {"build_near_host_ip": [address]}
    if cidr is not None:
        hints["cidr"] = [cidr]
    assert _passing(hints) == passing


@pytest.mark.parametrize(
    "hints",
    [None, {}, {"cidr": ["/24"]}, {"build_near_host_ip": []}, {"cidr": ["nonsense"]}],
    ids=str,
)
def test_no_address_passes_all(hints: Any) -> None:
    assert _passing(hints) == ADDRESSES


@pytest.mark.parametrize(
    "hints",
    [
        pytest.param({"build_near_host_ip": ["10.0.0.256"]}, id="no address"),
        pytest.param({"build_near_host_ip": ["here"]}, id="a word"),
        pytest.param({"build_near_host_ip": ["10.0.0.1", "10.0.0.2"]}, id="two"),
        pytest.param({"build_near_host_ip": ["10.0.0.1/24"]}, id="a prefix twice"),
        pytest.param(
            {"build_near_host_ip": ["10.0.0.1"], "cidr": ["/33"]}, id="too long"
        ),
        pytest.param(
            {"build_near_host_ip": ["10.0.0.1"], "cidr": ["/x"]}, id="no cidr"
        ),
        pytest.param(
            {"build_near_host_ip": ["10.0.0.1"], "cidr": ["/8", "/9"]}, id="two cidrs"
        ),
    ],
)
def test_hints_that_make_no_network_are_a_client_error(hints: Any) -> None:
    with pytest.raises(
        InvalidRequest, match=r"build_near_host_ip .* and cidr "
    ) as raised:
        _passing(hints)
    assert repr(hints["build_near_host_ip"][0]) in str(raised.value)


def test_rejection_names_the_address() -> None:
    spec_obj = spec(scheduler_hints={"build_near_host_ip": ["10.0.0.7"]})
    reason = SimpleCIDRAffinityFilter(options()).explain_rejection(ROWS[2], spec_obj)
    assert reason is not None
    assert (reason.attribute, reason.required, reason.available) == (
        "host_ip",
        "in 10.0.0.7/24",
        "10.0.1.0",
    )
