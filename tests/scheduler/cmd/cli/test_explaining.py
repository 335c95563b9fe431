# SPDX-License-Identifier: Apache-2.0
"""A decision on a screen, with the volumes and ports that it depended on."""

from __future__ import annotations

import io

from rich.console import Console

from moorage.scheduler.cmd.cli.explaining import show
from moorage.scheduler.drivers.record import (
    AttachmentRecord,
    DecisionRecord,
    InstanceRecord,
    Outcome,
    WeighedHost,
    WeigherPart,
)
from moorage.scheduler.web import decision_file

VOLUME = "0c6df2a5-5a3c-4ba3-a4b5-8a9c2f1f1a0e"
NINE = tuple(("rack", f"r{i}") for i in range(9))
FOUND = [
    AttachmentRecord("near_volume", VOLUME, "", (("rack", "r7"), ("host", "h1"))),
    AttachmentRecord("ports", VOLUME, "", (), "cannot be looked up now", "no [answer]"),
    AttachmentRecord("same_rack_volume", VOLUME, "rack", (), "is unknown", "none"),
    AttachmentRecord("boot_volume", VOLUME, "", NINE),
]  # fmt: skip


def _decision() -> dict[str, object]:
    record = DecisionRecord("req-1", (VOLUME,), 1, 0.0, attachments=list(FOUND))
    record.outcome = Outcome.NO_VALID_HOST
    return {**record.to_dict(), "funnel": [], "decided_at": 0.0}


def test_volumes_and_ports_are_shown_with_places_or_cause() -> None:
    console = Console(file=io.StringIO(), width=200)
    show(console, _decision())
    printed = console.file.getvalue().splitlines()  # type: ignore[attr-defined] # StringIO
    assert f"near_volume {VOLUME}: rack r7, host h1" in printed
    assert f"ports {VOLUME} dropped: no [answer]" in printed
    assert f"same_rack_volume {VOLUME} failed: none" in printed
    [boot] = [line for line in printed if line.startswith("boot_volume")]
    assert boot.endswith("rack r7 and 1 more")


def test_extra_specs_are_whole() -> None:
    specs = {f"hw:setting_{i:02}": "large" for i in range(40)}
    request = {"flavor": {"name": "m1", "extra_specs": specs}}
    console = Console(file=io.StringIO(), width=100_000)
    show(console, {**_decision(), "request": request})
    printed = console.file.getvalue()  # type: ignore[attr-defined] # StringIO
    assert ", ".join(f"{name}=large" for name in specs) in printed


def test_scores_say_which_multipliers_come_from_a_preset() -> None:
    top = WeighedHost("h1", "h1", -1.0, (WeigherPart("RAMWeigher", 5.0, 1.0, -1.0),))
    record = DecisionRecord("req-1", (VOLUME,), 1, 0.0)
    record.instances = [InstanceRecord(VOLUME, "h1", -1.0, (top,), node="h1")]
    record.outcome = Outcome.SELECTED
    record.origins = {"RAMWeigher": "-1 by preset pack"}
    decision = {**record.to_dict(), "funnel": [], "decided_at": 0.0}
    console = Console(file=io.StringIO(), width=200)
    show(console, decision)
    printed = console.file.getvalue()  # type: ignore[attr-defined] # StringIO
    assert "RAMWeigher: -1 by preset pack" in " ".join(printed.split())
    page = decision_file("req-1", [decision])
    assert "RAMWeigher -1 by preset pack" in page
    # A server of an earlier release sends no origins.
    del decision["origins"]
    show(console, decision)
    decision_file("req-1", [decision])


def test_page_shows_them_too() -> None:
    page = decision_file("req-1", [_decision()])
    assert "Volumes and ports" in page
    assert "rack r7, host h1" in page
    assert "no [answer]" in page
