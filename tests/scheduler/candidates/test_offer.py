# SPDX-License-Identifier: Apache-2.0
"""The next candidate of a host is one that was not refused and still fits."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.scheduler.candidates import MICROVERSION, Offer

from ...fixtures.clouds import offer


def _request(**amounts: int) -> dict[str, Any]:
    return {"allocations": {u: {"resources": {"VCPU": n}} for u, n in amounts.items()}}


def _summary(root: str, capacity: int) -> dict[str, Any]:
    resources = {"VCPU": {"capacity": capacity, "used": 1}}
    return {"root_provider_uuid": root, "resources": resources}


@pytest.fixture
def two_hosts() -> Offer:
    """Host a has two providers that fit 3 and 2, host b one that fits 2."""
    body = {
        "allocation_requests": [_request(a=2), _request(a2=2), _request(b=2)],
        "provider_summaries": {
            "a": _summary("a", 4),
            "a2": _summary("a", 3),
            "b": _summary("b", 3),
        },
    }
    return offer(body)


def test_first_candidate_of_a_host_is_placements_first(two_hosts: Offer) -> None:
    assert [two_hosts.next_candidate(host) for host in ("a", "b", "z")] == [0, 2, None]
    assert two_hosts.request(2) == _request(b=2)
    assert MICROVERSION == "1.36"


def test_refused_candidate_is_never_named_again(two_hosts: Offer) -> None:
    two_hosts.mark_refused(0)
    two_hosts.release(0)
    two_hosts.release(2)
    assert two_hosts.next_candidate("a") == 1
    two_hosts.mark_refused(1)
    assert two_hosts.next_candidate("a") is None


def test_reserved_amount_is_not_available(two_hosts: Offer) -> None:
    two_hosts.reserve(0)
    assert (two_hosts.next_candidate("a"), two_hosts.next_candidate("b")) == (1, 2)
    two_hosts.reserve(1)
    assert (two_hosts.next_candidate("a"), two_hosts.next_candidate("b")) == (None, 2)


def test_returned_amount_can_be_reserved_again(two_hosts: Offer) -> None:
    two_hosts.reserve(0)
    two_hosts.reserve(2)
    two_hosts.release(0)
    two_hosts.release(2)
    assert (two_hosts.next_candidate("a"), two_hosts.next_candidate("b")) == (0, 2)
