# SPDX-License-Identifier: Apache-2.0
"""examples/kafka_broker.py runs a broker from a release, with topics of Moorage."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from moorage.scheduler.conf import load
from moorage.scheduler.hosts import HostTable
from moorage.scheduler.sources.kafka import KafkaSource

from ..fixtures.kafka import kafka_jars
from ..fixtures.ports import free_port

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("kafka")]

PAGE = Path(__file__).parents[2] / "doc/how-to/kafka.rst"
SCRIPT = Path(__file__).parents[2] / "examples/kafka_broker.py"
TOPICS = {
    "moorage-aggregates",
    "moorage-claims",
    "moorage-heartbeats",
    "moorage-hosts",
}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "scheduler.conf"
    server = f"127.0.0.1:{free_port()}"
    file.write_text(
        f"[kafka]\nbootstrap_servers = {server}\nclaims_topic = moorage-claims\n"
    )
    return file


@pytest.fixture
def release(tmp_path: Path) -> str:
    """The URL of an archive that has the jars where Kafka's release has them."""
    path = tmp_path / "kafka_of_tests.tgz"
    with tarfile.open(path, "w:gz", compresslevel=0) as archive:
        archive.add(kafka_jars(), "kafka_of_tests/libs")
    return path.as_uri()


def _command(config: Path, release: str) -> list[str]:
    python = [sys.executable, "-W", "ignore"]
    return [*python, f"{SCRIPT}", f"{config}", "--release", release]


@pytest.fixture
def lines(config: Path, release: str, tmp_path: Path) -> Iterator[list[str]]:
    """The lines that the script prints until it serves."""
    with subprocess.Popen(
        _command(config, release),
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "HOME": f"{tmp_path}"},
    ) as process:
        assert process.stdout is not None
        printed = []
        for line in process.stdout:
            printed.append(line)
            if "serves" in line:
                break
        try:
            yield printed
        finally:
            process.terminate()
    assert process.returncode == 0


@pytest.mark.deep
def test_a_scheduler_reads_the_topics_that_the_script_created(
    lines: list[str], config: Path, release: str
) -> None:
    assert "Downloading" in lines[0]
    conf = load(["--config-file", f"{config}"])
    [server] = conf.kafka.bootstrap_servers
    topics = AdminClient({"bootstrap.servers": server}).list_topics(timeout=30).topics
    assert topics.keys() >= TOPICS
    page = PAGE.read_text()
    assert {line.split()[-1] for line in lines[1:-1]} == TOPICS
    for line in (lines[1], lines[-1]):
        assert line.strip().replace(server, "127.0.0.1:9092") in page
    source = KafkaSource(conf)
    source.start(HostTable())
    source.stop()
    again = subprocess.run(
        _command(config, release),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert again.stdout.count("exists") == len(TOPICS)


@pytest.mark.parametrize(
    ("settings", "release", "path", "message"),
    [
        ("bootstrap_servers = 127.0.0.1:9", "http://127.0.0.1:9/kafka.tgz", None,
         "http://127.0.0.1:9/kafka.tgz cannot be read: "),
        ("bootstrap_servers = 127.0.0.1", "", None,
         "bootstrap_servers: 127.0.0.1 is not HOST:PORT"),
        ("bootstrap_servers = 127.0.0.1:65535", "", None, "PORT below 65535"),
        ("bootstrap_servers = 127.0.0.1:9", "own", "", "java is not installed"),
        (None, "", None, "Failed to find some config files"),
    ],
    ids=["no release", "no port", "last port", "no java", "no file"],
)  # fmt: skip
def test_what_is_missing_is_said_in_one_line(
    tmp_path: Path,
    request: pytest.FixtureRequest,
    settings: str | None,
    release: str,
    path: str | None,
    message: str,
) -> None:
    file = tmp_path / "scheduler.conf"
    if settings is not None:
        file.write_text(f"[kafka]\n{settings}\n")
    if release == "own":
        release = request.getfixturevalue("release")
    result = subprocess.run(
        _command(file, release),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={
            **os.environ,
            "HOME": f"{tmp_path}",
            "PATH": os.environ["PATH"] if path is None else path,
        },
    )
    assert result.returncode == 1
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
