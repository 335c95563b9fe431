# SPDX-License-Identifier: Apache-2.0
"""The next candidate of a host is one that was not refused and still fits."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.scheduler.drivers.claims.ledger import Ledger

from ....fixtures.clouds import offer


def _request(**amounts: int) -> dict[str, Any]:
    return {"allocations": {u: {"resources": {"VCPU": n}} for u, n in amounts.items()}}


def _summary(root: str, capacity: int) -> dict[str, Any]:
    resources = {"VCPU": {"capacity": capacity, "used": 1}}
    return {"root_provider_uuid": root, "resources": resources}


@pytest.fixture
def ledger() -> Ledger:
    """Host a has two providers that fit 3 and 2, host b one that fits 2."""
    body = {
        "allocation_requests": [_request(a=2), _request(a2=2), _request(b=2)],
        "provider_summaries": {
            "a": _summary("a", 4),
            "a2": _summary("a", 3),
            "b": _summary("b", 3),
        },
    }
    return Ledger(offer(body))


def test_first_candidate_of_a_host_is_placements_first(ledger: Ledger) -> None:
    assert [ledger.next_candidate(host) for host in ("a", "b", "z")] == [0, 2, None]
    assert ledger.request(2) == _request(b=2)
    assert ledger.version == "1.36"


def test_refused_candidate_is_never_named_again(ledger: Ledger) -> None:
    ledger.mark_refused(0)
    ledger.release(0)
    ledger.release(2)
    assert ledger.next_candidate("a") == 1
    ledger.mark_refused(1)
    assert ledger.next_candidate("a") is None


def test_reserved_amount_is_not_available(ledger: Ledger) -> None:
    ledger.reserve(0)
    assert (ledger.next_candidate("a"), ledger.next_candidate("b")) == (1, 2)
    ledger.reserve(1)
    assert (ledger.next_candidate("a"), ledger.next_candidate("b")) == (None, 2)


def test_returned_amount_can_be_reserved_again(ledger: Ledger) -> None:
    ledger.reserve(0)
    ledger.reserve(2)
    ledger.release(0)
    ledger.release(2)
    assert (ledger.next_candidate("a"), ledger.next_candidate("b")) == (0, 2)
