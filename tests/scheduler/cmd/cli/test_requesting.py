# SPDX-License-Identifier: Apache-2.0
"""`moorage request`: what is wrong is one line, and what may be claimed is said."""

from __future__ import annotations

import getpass
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from click.testing import CliRunner, Result

from moorage.scheduler.cmd.cli.main import cli
from moorage.scheduler.conf import load
from moorage.scheduler.rpc import get_transport

_FLAVOR = ("--vcpus", "1", "--ram", "64", "--timeout", "1")


def _request(tmp_path: Path, options: str, *args: str) -> Result:
    path = tmp_path / "moorage.conf"
    path.write_text(options)
    args = ("--config-file", str(path), "request", *_FLAVOR, *args)
    result = CliRunner().invoke(cli, args)
    # No scheduler has taken the request from the bus: the next one in this process
    # would.
    get_transport(load([], config_files=[]), "fake://").cleanup()
    assert isinstance(result.exception, SystemExit), repr(result.exception)
    return result


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("rabbit://a:secret@h:99999/", "port 99999 is out of range 0-65535"),
        ("kafka://h:1/", "oslo.messaging has no RPC over Kafka"),
        ("foo://h", 'Failed to load transport driver "foo"'),
        ("rabbit://a:secret@127.0.0.1:1/", "Check that the server runs, and its host"),
    ],
)
def test_an_unusable_bus_is_one_line(tmp_path: Path, url: str, expected: str) -> None:
    result = _request(tmp_path, f"[DEFAULT]\ntransport_url = {url}\n")
    [error] = result.stderr.splitlines()
    assert error.startswith("Error: [DEFAULT] transport_url = ")
    assert expected in error
    assert "secret" not in error


def test_an_unusable_placement_is_one_line_and_claims_nothing(tmp_path: Path) -> None:
    options = "[DEFAULT]\ntransport_url = fake://\n[placement]\nauth_type = nope\n"
    result = _request(tmp_path, options, "--release")
    [error] = result.stderr.splitlines()
    assert error.startswith("Error: [placement] auth_type = nope: ")


def test_a_placement_that_does_not_answer_is_one_line_and_claims_nothing(
    tmp_path: Path,
) -> None:
    options = (
        "[DEFAULT]\ntransport_url = fake://\n"
        "[placement]\nauth_type = none\nendpoint_override = http://127.0.0.1:1\n"
    )
    result = _request(tmp_path, options, "--release")
    [error] = result.stderr.splitlines()
    assert "of Placement got no answer" in error


def test_a_keystone_that_does_not_answer_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "moorage.conf"
    path.write_text(
        "[placement]\nauth_type = password\nauth_url = http://127.0.0.1:1/v3\n"
        "username = u\npassword = secret\nproject_name = p\n"
        "user_domain_name = Default\nproject_domain_name = Default\n"
    )
    command = [sys.executable, "-W", "ignore", "-m", "moorage.scheduler.cmd.cli"]
    command += ["--config-file", str(path), "request", *_FLAVOR, "--release"]
    run = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=120
    )
    [error] = run.stderr.splitlines()
    assert run.returncode == 1
    assert "http://127.0.0.1:1/v3/auth/tokens" in error
    assert "secret" not in error


def test_a_user_without_a_name_can_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> str:
        raise KeyError("getpwuid(): uid not found: 1000660000")

    monkeypatch.setattr(getpass, "getuser", fail)
    result = _request(tmp_path, "[DEFAULT]\ntransport_url = fake://\n")
    assert "No scheduler answered within 1 s" in result.stderr


def test_a_wait_without_end_is_refused(tmp_path: Path) -> None:
    options = "[DEFAULT]\ntransport_url = fake://\n"
    result = _request(tmp_path, options, "--timeout", str(10**13))
    assert "is not in the range 1<=x<=86400" in result.stderr


@pytest.fixture
def deletions() -> Iterator[tuple[str, list[str]]]:
    """A Placement that only records what is deleted: its URL, and the paths."""
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"allocations": {}}')

        def do_DELETE(self) -> None:
            paths.append(self.path)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", paths
        server.shutdown()


def test_after_ctrl_c_allocations_are_deleted_and_a_later_claim_is_named(
    tmp_path: Path, deletions: tuple[str, list[str]]
) -> None:
    url, paths = deletions
    path = tmp_path / "moorage.conf"
    path.write_text(
        "[DEFAULT]\ntransport_url = fake://\n"
        f"[placement]\nauth_type = none\nendpoint_override = {url}\n"
    )
    command = [sys.executable, "-W", "ignore", "-m", "moorage.scheduler.cmd.cli"]
    command += ["--config-file", str(path), "request", *_FLAVOR[:4], "--release"]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env={**os.environ}
    ) as process:
        assert process.stderr is not None
        claims = process.stderr.readline()
        process.send_signal(signal.SIGINT)
        _, text = process.communicate(timeout=60)
    request_id, _, uuid = claims.strip().partition(" claims for ")
    assert paths == [f"/allocations/{uuid}"]
    assert f"{request_id}: interrupted; a scheduler may still claim" in text
    assert "Traceback" not in text
