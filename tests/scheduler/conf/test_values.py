# SPDX-License-Identifier: Apache-2.0
"""A value that cannot be used is named, with its group and file and without secrets."""

from __future__ import annotations

from pathlib import Path

import pytest
from oslo_config import cfg

from moorage.scheduler.conf import load


def _loaded(folder: Path, text: str) -> str:
    file = folder / "moorage.conf"
    file.write_text(text)
    with pytest.raises(cfg.Error) as raised:
        load([], config_files=[str(file)])
    return str(raised.value).replace(str(file), "FILE")


def test_every_wrong_value_is_named_with_its_group_and_file(tmp_path: Path) -> None:
    text = "[scheduler]\nworkers = -3\n[moorage]\nrefresh_interval = often\n"
    assert _loaded(tmp_path, text) == (
        "[scheduler] workers = -3: Should be greater than or equal to 0 (FILE); "
        "[moorage] refresh_interval = often: not a number (FILE)"
    )


def test_file_that_counts_is_named(tmp_path: Path) -> None:
    first, last = tmp_path / "first.conf", tmp_path / "last.conf"
    for file in (first, last):
        file.write_text(f"[scheduler]\nworkers = {file.stem}\n")
    with pytest.raises(cfg.Error, match=r"workers = last: .*last\.conf\)$"):
        load([], config_files=[str(first), str(last)])


def test_secret_that_is_wrong_is_not_written(tmp_path: Path) -> None:
    text = "[moorage]\nstore_connection = my-secret-$nothing\n"
    raised = _loaded(tmp_path, text)
    assert raised == "[moorage] store_connection = ***: the value cannot be used (FILE)"


def test_file_that_is_no_text_is_an_error_of_options(tmp_path: Path) -> None:
    file = tmp_path / "moorage.conf"
    file.write_bytes(b"[DEFAULT]\n\xff\xfe = 1\n")
    with pytest.raises(cfg.Error, match=r"not UTF-8 text: .*moorage\.conf"):
        load([f"--config-file={file}"])


@pytest.mark.parametrize(
    "name",
    ["Rack", "host", "cell", "elsewhere", "a_volume", "a_port", "top-rack", "1r", "é"],
)
def test_name_that_no_level_can_have_is_refused(tmp_path: Path, name: str) -> None:
    assert _loaded(tmp_path, f"[locality]\nlevels = rack, {name}\n").startswith(
        f"[locality] levels = rack, {name}: {name!r} cannot be a level: "
    )


def test_names_of_levels_are_accepted(tmp_path: Path) -> None:
    file = tmp_path / "moorage.conf"
    file.write_text("[locality]\nlevels = rack, row_2, hosts, x\n")
    conf = load([], config_files=[str(file)])
    assert conf.locality.levels == ["rack", "row_2", "hosts", "x"]
