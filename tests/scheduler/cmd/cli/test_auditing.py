# SPDX-License-Identifier: Apache-2.0
"""The command audit: formats, exit status, and what cannot be read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from moorage.scheduler.cmd.cli.main import cli

from ....fixtures.audited_clouds import AuditedCloud, audited_cloud


def _run(config_file: Path, *args: str, status: int) -> Result:
    before = ["--config-file", str(config_file), "audit", "--pause", "0"]
    result = CliRunner().invoke(cli, [*before, *args], env={"MOORAGE_URL": None})
    assert result.exit_code == status, result.output
    return result


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuditedCloud]:
    with audited_cloud(tmp_path_factory.mktemp("cloud"), 5, follows=True) as made:
        yield made


@pytest.fixture(scope="module")
def missing(cloud: AuditedCloud) -> str:
    return cloud.add_instance("node1", is_held=False)


def test_finding_has_evidence_and_repair(cloud: AuditedCloud, missing: str) -> None:
    heal = f"nova-manage placement heal_allocations --instance {missing}"
    text = _run(cloud.config_file, "--older-than", "0s", status=1).stdout
    assert "instance on node1 holds nothing" in text
    assert heal in text
    answer = json.loads(_run(cloud.config_file, "--format", "json", status=1).stdout)
    [finding] = answer["findings"]
    assert finding["subject"] == missing
    assert finding["repair"] == [heal]
    assert answer["counts"]["missing_allocation"] == 1


def test_counts_of_all_kinds_are_metrics(cloud: AuditedCloud, missing: str) -> None:
    assert missing
    lines = _run(cloud.config_file, "--format", "prometheus", status=1).stdout
    assert 'moorage_audit_findings{kind="missing_allocation"} 1.0' in lines
    assert 'moorage_audit_findings{kind="leftover_allocation"} 0.0' in lines
    assert "moorage_audit_timestamp_seconds " in lines


def test_what_began_just_now_is_reported_once_it_is_older(cloud: AuditedCloud) -> None:
    consumer = cloud.uuid()
    cloud.hold(consumer, {cloud.hosts["node0"]: {"VCPU": 1}})
    young = _run(cloud.config_file, "--older-than", "1h", status=1).stdout
    assert consumer not in young
    old = _run(cloud.config_file, "--older-than", "0s", status=1).stdout
    assert f"openstack resource provider allocation delete {consumer}" in old
    cloud.hold(consumer, {})


def test_cell_that_does_not_answer_is_no_finding(
    cloud: AuditedCloud, tmp_path: Path
) -> None:
    broken = tmp_path / "moorage.conf"
    text = cloud.config_file.read_text()
    broken.write_text(text.replace(cloud.nova.connections["api"], "sqlite:////no/api"))
    result = _run(broken, status=2)
    [line] = result.stderr.splitlines()
    assert line.startswith("Error: The audit failed: [api_database] connection")
    assert result.stdout == ""


@pytest.mark.parametrize("option", [["--url", "http://h"], ["--snapshot", "file"]])
def test_api_and_snapshot_are_refused(option: list[str]) -> None:
    result = CliRunner().invoke(cli, [*option, "audit"])
    assert result.exit_code == 2
    assert "pass --config-file instead" in result.stderr.splitlines()[-1]


def test_source_without_hosts_cannot_be_compared(tmp_path: Path) -> None:
    config = tmp_path / "moorage.conf"
    config.write_text(
        f"[moorage]\nsource = push\nstore_connection = sqlite:///{tmp_path}/hosts.sqlite\n"
        "claims_directory =\n[placement]\nauth_type = none\n"
        "endpoint_override = http://127.0.0.1:1\n"
    )
    result = _run(config, status=2)
    [line] = result.stderr.splitlines()
    assert "The source has no hosts" in line
