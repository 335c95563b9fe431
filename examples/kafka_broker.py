# SPDX-License-Identifier: Apache-2.0
"""Run an Apache Kafka for trials, with the topics that a configuration file names.

    python kafka_broker.py scheduler.conf

It serves ``[kafka] bootstrap_servers``, and uses the next port itself. It needs Java 17
or later, and downloads Kafka's release once. If a broker serves already, such as one in
a container, only the topics are created.
"""

import argparse
import contextlib
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from oslo_config import cfg

from moorage.scheduler.conf import load
from moorage.scheduler.kafka_client import claims_topic_settings, topic_settings

RELEASE = "https://archive.apache.org/dist/kafka/4.1.2/kafka_2.13-4.1.2.tgz"
CACHE = Path.home() / ".cache/moorage-kafka"
START_S = 60
PROPERTIES = """\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
controller.quorum.voters=1@{host}:{controller_port}
log.dirs={folder}/data
auto.create.topics.enable=false
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""


def main() -> None:
    """Create the topics; serve until Ctrl-C if no broker serves yet."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("config_file", help="has [kafka] bootstrap_servers")
    parser.add_argument(
        "--release", default=RELEASE, help=f"a URL; by default {RELEASE}"
    )
    arguments = parser.parse_args()
    try:
        conf = load(["--config-file", arguments.config_file])
    except cfg.Error as e:
        sys.exit(f"{e}")
    if not conf.kafka.bootstrap_servers:
        sys.exit(f"{arguments.config_file}: [kafka] bootstrap_servers is not set")
    server = conf.kafka.bootstrap_servers[0]
    port = server.rpartition(":")[2]
    if ":" not in server or not port.isdecimal() or not 0 < int(port) < 65535:
        sys.exit(
            f"[kafka] bootstrap_servers: {server} is not HOST:PORT with a PORT below "
            "65535"
        )
    topics = topic_settings(conf)
    if conf.kafka.claims_topic:
        topics |= claims_topic_settings(conf)
    admin = AdminClient({"bootstrap.servers": server, "log_level": 0})
    if answers(admin):
        create(admin, topics)
        return
    if shutil.which("java") is None:
        sys.exit("java is not installed: Kafka needs version 17 or later")
    try:
        libs = jars(arguments.release)
    except (OSError, tarfile.TarError, ValueError) as e:
        sys.exit(f"{arguments.release} cannot be read: {e}")
    with broker(server, libs) as process:
        deadline = time.monotonic() + START_S
        while not answers(admin):
            if process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"The broker does not answer at {server}")
        create(admin, topics)
        print(
            f"Kafka serves {server}; Ctrl-C stops it and deletes its data", flush=True
        )
        process.wait()


def answers(admin: AdminClient) -> bool:
    """Return whether a broker answers within a second."""
    with contextlib.suppress(KafkaException):
        return bool(admin.list_topics(timeout=1).brokers)
    return False


def create(admin: AdminClient, topics: Mapping[str, str]) -> None:
    """Create topics with the settings of Moorage's documentation, but one replica."""
    for topic, settings in topics.items():
        config = dict(re.findall(r"--config (\S+)=(\S+)", settings))
        new = NewTopic(topic, num_partitions=12, replication_factor=1, config=config)
        try:
            admin.create_topics([new])[topic].result(START_S)
            print(f"Created the topic {topic}")
        except KafkaException as e:
            if e.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
            print(f"The topic {topic} exists")
    # The broker serves topics a moment after its controller has created them.
    while not topics.keys() <= admin.list_topics(timeout=START_S).topics.keys():
        time.sleep(0.1)


def jars(release: str) -> Path:
    """Return the folder with a release's jars; download it the first time."""
    folder = CACHE / release.rpartition("/")[2].removesuffix(".tgz")
    if not folder.exists():
        print(f"Downloading {release}", flush=True)
        CACHE.mkdir(parents=True, exist_ok=True)
        with (
            tempfile.TemporaryDirectory(dir=CACHE) as temporary,
            urllib.request.urlopen(release, timeout=START_S) as answer,
            tarfile.open(fileobj=answer, mode="r|gz") as archive,
        ):
            archive.extractall(temporary, filter="data")
            [unpacked] = Path(temporary).iterdir()
            unpacked.rename(folder)
    return folder / "libs"


@contextlib.contextmanager
def broker(server: str, libs: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a broker that is its own controller."""
    host, _, port = server.rpartition(":")
    java = ["java", "-Xmx256m", "-cp", f"{libs}/*"]
    folder = Path(tempfile.mkdtemp(prefix="moorage-kafka-"))
    properties, log = folder / "server.properties", folder / "log"
    properties.write_text(
        PROPERTIES.format(
            host=host, port=port, controller_port=int(port) + 1, folder=folder
        )
    )
    storage = ["kafka.tools.StorageTool", "format", "-t", "bW9vcmFnZS1vZi10cmlhbHM"]
    try:
        with log.open("wb") as file:
            subprocess.run(
                [*java, *storage, "-c", properties],
                check=True,
                stdout=file,
                stderr=file,
            )
            with subprocess.Popen(
                [*java, "kafka.Kafka", properties], stdout=file, stderr=file
            ) as process:
                try:
                    yield process
                finally:
                    process.kill()  # its data is deleted anyway
                    process.wait()
    except subprocess.CalledProcessError:
        sys.exit(log.read_text(errors="replace"))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C
    with contextlib.suppress(KeyboardInterrupt):
        main()
