# SPDX-License-Identifier: Apache-2.0
"""`moorage hosts disable` and `enable`, with each source of hosts."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import pytest
from click.testing import CliRunner
from oslo_config import cfg

from moorage.agent.reporter import Reporter
from moorage.scheduler.cmd.cli.main import cli
from moorage.scheduler.conf import load
from moorage.scheduler.hosts import HostTable
from moorage.scheduler.sources.file import FileSource
from moorage.scheduler.sources.inventory import read_inventory
from moorage.scheduler.sources.push import PushSource
from moorage.testing import builders

from ....fixtures.clouds import host, write_inventory
from ....fixtures.waiting import wait_until


def _call(config: Path, *args: str, status: int = 0) -> str:
    result = CliRunner().invoke(cli, ["--config-file", str(config), "hosts", *args])
    assert result.exit_code == status, result.output
    return result.output


def _config(folder: Path, *lines: str) -> Path:
    path = folder / "moorage.conf"
    path.write_text("\n".join(("[moorage]", *lines)))
    return path


# -- an inventory file -------------------------------------------------------------

BLOCK = """\
# the cloud
cells: [{name: cell1}]
templates: {small: &small {vcpus: 2, memory_mb: 512, local_gb: 5}}
hosts:
  - host: h1  # rack 1
    <<: *small
    cell: cell1
  - cell: cell1
    host: "h2"
    disabled: false  # since spring
    <<: *small
  - {host: h3, cell: cell1, <<: *small}
"""


def _disabled(path: Path) -> list[str]:
    hosts = read_inventory(path).hosts
    return [each.record.host for each in hosts if each.record.disabled]


@pytest.mark.parametrize("name", ["h1", "h2", "h3"])
def test_a_file_keeps_its_comments_and_its_other_hosts(
    tmp_path: Path, name: str
) -> None:
    path = tmp_path / "hosts.yaml"
    path.write_text(BLOCK)
    path.chmod(0o640)
    config = _config(tmp_path, f"inventory_file = {path}")
    assert "is disabled in" in _call(config, "disable", name, "--reason", "broken fan")
    assert _disabled(path) == [name]
    text = path.read_text()
    for comment in ("# the cloud", "# rack 1", "# since spring"):
        assert comment in text
    assert path.stat().st_mode & 0o777 == 0o640
    assert "already" in _call(config, "disable", name, "--reason", "again")
    assert path.read_text() == text
    _call(config, "enable", name)
    assert _disabled(path) == []
    assert [each.name for each in tmp_path.glob(".hosts*")] == []


def test_a_file_keeps_the_reason_while_a_host_is_disabled(tmp_path: Path) -> None:
    path = tmp_path / "hosts.yaml"
    path.write_text(BLOCK)
    config = _config(tmp_path, f"inventory_file = {path}")
    reason = 'a\nhosts: [] # "é😀\x7f'
    for name, given in (("h1", reason), ("h2", "old"), ("h2", "new"), ("h3", "a: b")):
        _call(config, "enable", name)
        _call(config, "disable", name, "--reason", given)
    reasons = [each.record.disabled_reason for each in read_inventory(path).hosts]
    assert reasons == [reason, "new", "a: b"]
    _call(config, "enable", "h2")
    assert read_inventory(path).hosts[1].record.disabled_reason is None


NODE = "cell: cell1, vcpus: 2, memory_mb: 512, local_gb: 5"
MERGED_NAME = f"""\
templates: {{ironic: &ironic {{host: h1, {NODE}}}}}
cells: [{{name: cell1}}]
hosts:
- {{<<: *ironic, node: n1}}
- {{<<: *ironic, node: n2}}
"""
REPEATED_NAME = f"""\
cells: [{{name: cell1}}]
hosts:
- {{host: &h h1, node: n1, {NODE}}}
- {{host: *h, node: n2, {NODE}}}
"""
SHARED_STATE = f"""\
cells: [{{name: cell1}}]
hosts:
- {{host: h1, disabled: &state false, {NODE}}}
- {{host: h2, disabled: *state, {NODE}}}
"""
REDEFINED_STATE = f"""\
templates: {{state: &state false}}
cells: [{{name: cell1}}]
hosts:
- {{host: h1, disabled: *state, {NODE}}}
"""


@pytest.mark.parametrize(
    "text",
    [MERGED_NAME, REPEATED_NAME, SHARED_STATE, REDEFINED_STATE],
    ids=["merged name", "repeated name", "shared state", "state of a template"],
)
def test_a_state_that_only_a_person_can_edit_is_one_line(
    tmp_path: Path, text: str
) -> None:
    path = tmp_path / "hosts.yaml"
    path.write_text(text)
    config = _config(tmp_path, f"inventory_file = {path}")
    assert _call(config, "disable", "h1", "--reason", "x", status=1) == (
        f"Error: {path}: host 'h1' gets its name or state from an anchor or a merge "
        "key: edit the file by hand\n"
    )
    assert path.read_text() == text


def test_json_stays_json(tmp_path: Path) -> None:
    path = write_inventory(tmp_path, host("h1"), host("h2"))
    config = _config(tmp_path, f"inventory_file = {path}")
    _call(config, "disable", "h2", "--reason", "x")
    hosts = json.loads(path.read_text())["hosts"]
    assert [each.get("disabled") for each in hosts] == [None, True]


def test_a_reload_applies_the_file(tmp_path: Path, conf: cfg.ConfigOpts) -> None:
    path = write_inventory(tmp_path, host("h1"))
    conf.set_override("inventory_file", str(path), group="moorage")
    source, table = FileSource(conf), HostTable()
    source.start(table)
    config = _config(tmp_path, f"inventory_file = {path}")
    _call(config, "disable", "h1", "--reason", "x")
    source.refresh(table)
    assert list(table.batch().disabled) == [True]


def test_a_file_that_cannot_be_written_is_named_with_the_cause(tmp_path: Path) -> None:
    path = write_inventory(tmp_path, host("h1"))
    config = _config(tmp_path, f"inventory_file = {path}")
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limit[1]))
    try:
        output = _call(config, "disable", "h1", "--reason", "x", status=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert output == f"Error: File too large: {path}\n"


def test_a_host_that_the_file_lacks_is_one_line(tmp_path: Path) -> None:
    path = write_inventory(tmp_path, host("h1"))
    config = _config(tmp_path, f"inventory_file = {path}")
    output = _call(config, "disable", "h2", "--reason", "x", status=1)
    assert output == f"Error: {path} has no host 'h2'\n"


def test_without_a_configuration_it_says_so_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    result = CliRunner().invoke(cli, ["hosts", "disable", "h1", "--reason", "x"])
    assert result.exit_code == 1
    assert result.output == (
        "Error: No configuration file is given or found: pass --config-file, whose "
        "[moorage] source says where hosts are disabled\n"
    )


# -- nova --------------------------------------------------------------------------


def test_nova_keeps_it_itself(tmp_path: Path) -> None:
    config = _config(tmp_path, "source = nova_db")
    output = _call(config, "disable", "h1", "--reason", "a fan", status=1)
    command = "openstack compute service set --disable --disable-reason 'a fan' h1 "
    assert f"{command}nova-compute" in output
    assert "--enable h1 nova-compute" in _call(config, "enable", "h1", status=1)


# -- the store of push -------------------------------------------------------------


def _source(url: str) -> tuple[PushSource, HostTable]:
    conf = load([], config_files=[])
    conf.set_override("store_connection", url, group="moorage")
    source, table = PushSource(conf), HostTable()
    source.start(table)
    source.start_polling(table)
    return source, table


def test_the_store_disables_a_host_whatever_it_reports(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/hosts.sqlite"
    config = _config(tmp_path, "source = push", f"store_connection = {url}")
    source, table = _source(url)
    reporter = Reporter(source.apply)
    reporter.report(builders.host(host="h1"), frozenset())
    assert list(table.batch().disabled) == [False]
    wait_until(
        lambda: "is disabled" in CliRunner().invoke(
            cli, [f"--config-file={config}", "hosts", "disable", "h1", "--reason", "x"]
        ).output
    )  # fmt: skip
    wait_until(lambda: list(table.batch().disabled) == [True])
    reporter.report(builders.host(host="h1", free_ram_mb=1), frozenset())
    own = builders.host(host="h1", disabled=True, disabled_reason="its own")
    reporter.report(own, frozenset())
    assert table.batch()[0].disabled_reason == "x"
    reporter.report(builders.host(host="h1", disabled=False), frozenset())
    Reporter(source.apply).report(builders.host(host="h1"), frozenset())
    assert list(table.batch().disabled) == [True]
    source.stop()

    source, table = _source(url)  # a restart
    assert list(table.batch().disabled) == [True]
    assert table.batch()[0].disabled_reason == "x"
    _call(config, "disable", "h1", "--reason", "y")
    wait_until(lambda: table.batch()[0].disabled_reason == "y")
    assert "is enabled" in _call(config, "enable", "h1")
    wait_until(lambda: list(table.batch().disabled) == [False])
    assert table.batch()[0].disabled_reason is None
    source.stop()
    output = _call(config, "disable", "h9", "--reason", "x", status=1)
    assert "has no host 'h9'" in output
