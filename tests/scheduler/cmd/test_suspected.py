# SPDX-License-Identifier: Apache-2.0
"""moorage-status orphans lists what no evidence shows to be in use."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage.scheduler.cmd.suspected import run
from moorage.scheduler.placement.allocations.journal import Journal
from moorage.scheduler.placement.allocations.orphans import Orphans

from ...fixtures.allocations import OWNER, request_of
from ...fixtures.clouds import new_uuids
from ...fixtures.placement_servers import EmbeddedPlacementFixture


def _config(folder: Path, *lines: str) -> list[str]:
    path = folder / "moorage.conf"
    path.write_text("\n".join(["[moorage]", *lines]))
    return ["--config-file", str(path)]


def test_suspected_orphan_is_listed_with_its_providers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    claims = tmp_path / "claims"
    arguments = _config(tmp_path, f"claims_directory = {claims}")
    with EmbeddedPlacementFixture() as placement:
        journal = Journal(Orphans(placement.client, rng=None))  # type: ignore[arg-type]  # it does not wait
        journal.open(claims)
        one, two = new_uuids(2)
        notes = journal.record(
            {one: request_of("host"), two: request_of("other")}, OWNER
        )
        assert run(arguments) == 0
        assert "No suspected orphans." in capsys.readouterr().out
        journal.record_suspicion(notes[one])
        assert run(arguments) == 1
        printed = capsys.readouterr().out
        assert one in printed
        assert "host" in printed
        assert two not in printed
        journal.resolve(notes.values())
        journal.close()


def test_malformed_lines_of_a_journal_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    claims = tmp_path / "claims"
    claims.mkdir()
    (claims / "claims-1-killed").write_bytes(b"{damaged\n{also\n")
    assert run(_config(tmp_path, f"claims_directory = {claims}")) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == (
        f"moorage-status orphans: {claims}/claims-1-killed has 2 malformed lines: the "
        "claims in them are unknown\n"
    )


@pytest.mark.parametrize("line", ["", "claims_directory = /nowhere"])
def test_folder_that_cannot_be_read_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    assert run(_config(tmp_path, line)) == 2
    [printed] = capsys.readouterr().err.splitlines()
    assert printed.startswith("moorage-status orphans: ")
