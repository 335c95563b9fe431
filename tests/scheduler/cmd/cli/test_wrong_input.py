# SPDX-License-Identifier: Apache-2.0
"""Input that is wrong, empty, hostile or huge is one line that names it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from moorage.scheduler.cmd.cli.main import cli

from ....fixtures.explaining_api import FAILED, SELECTED

Call = Callable[..., Result]


@pytest.fixture
def call(url: str) -> Call:
    def call(*args: str, status: int = 0) -> Result:
        result = CliRunner().invoke(cli, args, env={"MOORAGE_URL": url})
        assert result.exit_code == status, result.output
        assert result.exception is None or isinstance(result.exception, SystemExit)
        return result

    return call


def error(result: Result) -> str:
    """The line of an error, after click's lines on the usage."""
    return result.stderr.splitlines()[-1].removeprefix("Error: ")


# -- ids and ages ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [["explain"], ["why-not", "h1"], ["closest"], ["replay"],
     ["schedule", "--dry-run", "--request"]],
    ids=" ".join,
)  # fmt: skip
@pytest.mark.parametrize("id_", ["", "a" * 100_000], ids=["empty", "huge"])
def test_an_id_that_none_can_have_is_refused(
    call: Call, command: list[str], id_: str
) -> None:
    text = error(call(*command, id_, status=2))
    assert f"{id_[:50]}" in text
    assert "is no id of a request or an instance" in text
    assert len(text) < 250


@pytest.mark.parametrize(
    "command",
    [["hosts"], ["explain"], ["replay"], ["decisions", "--host"],
     ["decisions", "--project"], ["hosts", "disable", "h1", "--reason"]],
    ids=" ".join,
)  # fmt: skip
def test_an_argument_that_is_not_utf_8_is_named(
    call: Call, command: list[str], tmp_path: Path
) -> None:
    config = tmp_path / "moorage.conf"
    config.touch()
    argument = os.fsdecode(b"h\xff")
    text = error(call("--config-file", str(config), *command, argument, status=2))
    assert text == "'h\\udcff' is not UTF-8"


@pytest.mark.parametrize("id_", [".", "..", "a/b", "nope", "a b?c#d%2f☃"])
def test_an_unknown_id_is_named(call: Call, id_: str) -> None:
    assert error(call("explain", id_, status=1)).endswith(f"is stored for {id_!r}")


@pytest.mark.parametrize("age", ["999999999999d", f"{'9' * 400}d"])
def test_an_age_before_all_times_means_all_decisions(call: Call, age: str) -> None:
    found = json.loads(call("decisions", "--since", age, "--json").stdout)
    assert len(found["decisions"]) == 3
    assert "replayed" in call("replay", "--since", age).stdout


@pytest.mark.parametrize("option", ["--from", "--to"])
def test_a_time_after_all_times_is_no_error(call: Call, option: str) -> None:
    found = json.loads(call("decisions", option, "9999-12-31", "--json").stdout)
    assert len(found["decisions"]) == (3 if option == "--to" else 0)


def test_a_long_name_does_not_hide_what_is_wrong(call: Call) -> None:
    text = error(call("decisions", "--instance", "a" * 5000, status=1))
    assert text.startswith("instance: 'aaa")
    assert text.endswith("(5000 characters) has more than 255 characters")


# -- a dry run -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "more",
    [["--vcpus", "3"], ["--disk", "1"], ["--hint", "a=b"], ["--project", "p"]],
    ids=" ".join,
)
def test_a_stored_request_takes_no_other_options(call: Call, more: list[str]) -> None:
    args = ["schedule", "--dry-run", "--request", FAILED, *more]
    text = error(call(*args, status=2))
    assert text == f"Pass --request or {more[0]}, not both"


def test_a_pair_without_a_sign_is_named(call: Call) -> None:
    args = ["schedule", "--dry-run", "--vcpus", "1", "--ram", "1", "--hint", "group"]
    assert error(call(*args, status=2)).endswith("'group' is not KEY=VALUE")


# -- numbers ---------------------------------------------------------------------------


@pytest.mark.parametrize("number", ["nan", "inf"])
@pytest.mark.parametrize(
    "command",
    [["audit", "--pause"], ["audit", "--rate"],
     ["plan", "defragment", "--seconds"], ["plan", "defragment", "--max-gib"],
     ["simulate", "--synthetic", "5", "--hosts", "2", "--rate"],
     ["simulate", "--synthetic", "5", "--hosts", "2", "--lifetime"]],
    ids=" ".join,
)  # fmt: skip
def test_a_number_is_finite(call: Call, command: list[str], number: str) -> None:
    text = error(call(*command, number, status=2))
    assert text.startswith(f"Invalid value for '{command[-1]}': ")
    assert number in text


# -- files of flavors ------------------------------------------------------------------

_SIZES = "vcpus: 1, memory_mb: 512"
#: Each is 9 times the one before: 9 ** 9 texts.
_BOMB = "".join(
    f"- &a{n} [{','.join([f'*a{n - 1}' if n else 'lol'] * 9)}]\n" for n in range(9)
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- {name: big, vcpus: x, memory_mb: 1}", "(named 'big'): 'x' is not of type"),
        ("- {name: big, vcpus: 1}", "flavors.0 (named 'big'): 'memory_mb' is a requ"),
        (f"- {{name: big, {_SIZES}, ram: 1}}", "(named 'big'): Additional properties"),
        (f"- {{name: d, {_SIZES}, extra_specs: {{a: 2026-01-01}}}}", "flavor d has"),
        ("- {vcpus: .nan, memory_mb: 1}", "flavor 1 has what is neither a text nor"),
        ("- &a [*a]", "flavor 1 has what is neither a text nor a number of JSON: Circ"),
        ("[" * 100_000, "exceeded maximum nesting depth"),
        (_BOMB, "is larger than 200 KiB"),
    ],
    ids=["type", "lack", "unknown", "date", "nan", "circular", "deep", "bomb"],
)
def test_a_wrong_flavor_of_a_file_is_named(
    call: Call, tmp_path: Path, text: str, expected: str
) -> None:
    path = tmp_path / "flavors.yaml"
    path.write_text(text)
    result = call("capacity", "--flavors", str(path), status=1)
    assert expected in error(result)
    assert len(result.stderr.splitlines()) == 1


def test_an_error_does_not_control_the_terminal(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "inventory.yaml"
    path.write_text('{"cells": [{"name": "c"}], "hosts": [{"host": "\\u001b[2J"}]}')
    result = call("simulate", "--synthetic", "1", "--inventory", str(path), status=1)
    assert "host '\\x1b[2J'" in result.stderr
    assert "\x1b" not in result.stderr
    assert len(result.stderr.splitlines()) == 4, "one line for each missing key"


# -- configuration files ---------------------------------------------------------------


@pytest.mark.parametrize("args", [["hosts"], ["replay", SELECTED]], ids=" ".join)
def test_a_directory_is_no_configuration_file(
    url: str, tmp_path: Path, args: list[str]
) -> None:
    option = ["--config-file", str(tmp_path)]
    is_replay = args[0] == "replay"
    args = ["--url", url, *args, *option] if is_replay else [*option, *args]
    result = CliRunner().invoke(cli, args, env={"MOORAGE_URL": None})
    assert result.exit_code == 1
    assert "The configuration cannot be read: " in error(result)
    assert str(tmp_path) in error(result)


def test_an_hour_of_which_nothing_can_be_repeated_failed(
    call: Call, tmp_path: Path
) -> None:
    path = tmp_path / "other.conf"
    path.write_text("[filter_scheduler]\nenabled_filters = NoFilter\n")
    args = ["replay", "--since", "1h", "--config-file", str(path)]
    assert "there is no filter 'NoFilter'" in call(*args, status=1).stdout


# -- what a file replaces --------------------------------------------------------------


def test_a_snapshot_replaces_no_device(call: Call, tmp_path: Path) -> None:
    # A FIFO stands for /dev/null, which root could replace by a file.
    path = tmp_path / "fifo"
    os.mkfifo(path)
    (tmp_path / "link").symlink_to(path)
    for name in ("fifo", "link"):
        text = error(call("snapshot", str(tmp_path / name), status=1))
        assert text == f"{tmp_path / name} cannot be written: It is no regular file"
    assert path.is_fifo()
    assert len([*tmp_path.iterdir()]) == 2


# -- what is shown ---------------------------------------------------------------------


def test_a_pipe_gets_no_padding(call: Call) -> None:
    for args in (["decisions"], ["explain", SELECTED], ["hosts"]):
        lines = call(*args).stdout.splitlines()
        assert [line for line in lines if line != line.rstrip()] == []


@pytest.mark.parametrize("command", [[], ["locality"], ["hosts"]])
def test_the_list_of_commands_is_not_cut(call: Call, command: list[str]) -> None:
    assert "..." not in call(*command, "--help").stdout.split("Commands:")[1]


def test_the_example_of_a_table_keeps_its_lines(call: Call) -> None:
    assert "\n  host,rack,row\n" in call("locality", "apply", "--help").stdout
