# SPDX-License-Identifier: Apache-2.0
"""A real RabbitMQ to test against: one that runs, or one started here."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from pathlib import Path

import fixtures
import kombu
import pytest

RUNNING = "amqp://guest:guest@127.0.0.1:5672/"
START_S = 60.0


class Broker(fixtures.Fixture):
    """A virtual host of its own on a real RabbitMQ, deleted after.

    Queues are named by their topic: tests that run at a time must not share them.

    Attributes
    ----------
    transport_url : str
        As oslo.messaging has it.
    """

    def _setUp(self) -> None:
        url, environment = _server()
        name = f"moorage-{uuid.uuid4().hex[:12]}"
        _control(environment, "add_vhost", name)
        self.addCleanup(_control, environment, "delete_vhost", name)
        everything = (".*", ".*", ".*")
        _control(environment, "set_permissions", "-p", name, "guest", *everything)
        self.transport_url = url.replace("amqp:", "rabbit:") + name


class MortalBroker(fixtures.Fixture):
    """A RabbitMQ of one's own that may be killed, and comes back where it was.

    It forgets what is not durable: all queues of RPC, and what is in them.
    """

    def _setUp(self) -> None:
        if not shutil.which("rabbitmqctl"):
            pytest.skip("no rabbitmqctl on the PATH")
        url, self._environment = _start()
        self._url = url
        self.transport_url = url.replace("amqp:", "rabbit:")

    def kill(self) -> None:
        """End it with SIGKILL, whatever it is at."""
        pid = int(Path(self._environment["RABBITMQ_PID_FILE"]).read_text())
        os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + START_S
        while Path(f"/proc/{pid}/exe").exists():
            if time.monotonic() > deadline:
                raise TimeoutError(f"it lives on as process {pid}")
            time.sleep(0.05)

    def restart(self) -> None:
        """Serve on the same port again, once it was killed."""
        process = _launched(self._environment)
        atexit.register(_stop, process, self._environment)
        _wait_until_answers(self._url, process)


@functools.cache
def _server() -> tuple[str, dict[str, str]]:
    """Return a broker's URL, and what rabbitmqctl needs to know to reach it.

    Skips the test with the reason where there is none, or fails it if
    MOORAGE_REQUIRE_ALL is 1.
    """
    reason = "no rabbitmqctl on the PATH"
    if shutil.which("rabbitmqctl"):
        if _answers(RUNNING):
            return RUNNING, {}
        try:
            return _start()
        except (OSError, subprocess.SubprocessError, TimeoutError) as e:
            reason = f"no RabbitMQ at {RUNNING}, and none can be started: {e}"
    if os.environ.get("MOORAGE_REQUIRE_ALL") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


def _answers(url: str) -> bool:
    try:
        with kombu.Connection(url, connect_timeout=5) as connection:
            connection.connect()
    except OSError:
        return False
    return True


def _start() -> tuple[str, dict[str, str]]:
    folder = tempfile.mkdtemp(prefix="moorage-rabbit-")
    port = _free_port()
    environment = {
        "RABBITMQ_NODENAME": f"moorage{port}@localhost",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_DIST_PORT": str(_free_port()),
        "RABBITMQ_MNESIA_BASE": f"{folder}/data",
        "RABBITMQ_LOG_BASE": f"{folder}/log",
        "RABBITMQ_PID_FILE": f"{folder}/pid",
        # Not the machine's, which may name the port of a broker that runs.
        "RABBITMQ_CONF_ENV_FILE": f"{folder}/rabbitmq-env.conf",
        "RABBITMQ_CONFIG_FILE": f"{folder}/rabbitmq.conf",
        "HOME": folder,
    }
    for of_all in ("data", "log", ""):  # the server runs as a user of its own
        os.makedirs(f"{folder}/{of_all}", exist_ok=True)
        os.chmod(f"{folder}/{of_all}", 0o777)
    for empty in ("rabbitmq-env.conf", "rabbitmq.conf"):
        Path(folder, empty).touch()
    process = _launched(environment)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(_stop, process, environment)
    url = f"amqp://guest:guest@127.0.0.1:{port}/"
    _wait_until_answers(url, process)
    return url, environment


def _launched(environment: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["rabbitmq-server"],
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _wait_until_answers(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_S
    while not _answers(url):
        if process.poll() is not None or time.monotonic() > deadline:
            raise TimeoutError(f"it did not answer within {START_S:.0f} s")
        time.sleep(0.5)


def _stop(process: subprocess.Popen[bytes], environment: dict[str, str]) -> None:
    if process.poll() is not None:
        return  # it was killed
    _control(environment, "stop")
    process.wait(START_S)


def _control(environment: dict[str, str], *command: str) -> None:
    subprocess.run(
        ["rabbitmqctl", "-q", *command],
        env={**os.environ, **environment},
        check=True,
        capture_output=True,
        timeout=START_S,
    )


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port
