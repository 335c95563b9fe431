# SPDX-License-Identifier: Apache-2.0
"""The status of each kind of message, for revision 5 of the incarnation a."""

from __future__ import annotations

import pytest

from moorage.scheduler.sources.reported.revisions import (
    ReportedNode,
    ReportStatus,
    classify_delta,
    classify_report,
)

HELD = ReportedNode("a", 5, {}, set(), 0.0)


@pytest.mark.parametrize(
    ("incarnation", "revision", "status"),
    [
        ("a", 4, ReportStatus.OUTDATED),
        ("a", 5, ReportStatus.UNCHANGED),
        ("a", 6, ReportStatus.NEW),
        ("a", 9, ReportStatus.NEW),
        ("b", 1, ReportStatus.NEW),
        ("b", 9, ReportStatus.NEW),
    ],
)
def test_whole_report(incarnation: str, revision: int, status: ReportStatus) -> None:
    assert classify_report(HELD, incarnation, revision) is status


@pytest.mark.parametrize(
    ("incarnation", "since", "revision", "status"),
    [
        ("a", 5, 6, ReportStatus.NEW),
        ("a", 5, 9, ReportStatus.NEW),
        ("a", 5, 5, ReportStatus.UNCHANGED),
        ("a", 4, 5, ReportStatus.UNCHANGED),
        ("a", 3, 4, ReportStatus.OUTDATED),
        ("a", 4, 4, ReportStatus.OUTDATED),
        # A column may have changed and changed back between 4 and 6.
        ("a", 4, 6, ReportStatus.GAP),
        ("a", 6, 7, ReportStatus.GAP),
        ("a", 6, 6, ReportStatus.GAP),
        ("b", 5, 6, ReportStatus.GAP),
        ("b", 5, 5, ReportStatus.GAP),
    ],
)
def test_delta(
    incarnation: str, since: int, revision: int, status: ReportStatus
) -> None:
    assert classify_delta(HELD, incarnation, since, revision) is status


def test_host_that_is_not_known() -> None:
    assert classify_report(None, "a", 5) is ReportStatus.NEW
    assert classify_delta(None, "a", 5, 5) is ReportStatus.GAP
