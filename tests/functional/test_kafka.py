# SPDX-License-Identifier: Apache-2.0
"""The files of doc/how-to/kafka.rst: an agent reports, and a scheduler selects."""

from __future__ import annotations

import functools
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from keystoneauth1.adapter import Adapter

from moorage.objects import Selection
from moorage.scheduler.conf import load
from moorage.scheduler.errors import NoValidHost
from moorage.scheduler.kafka_client import claims_topic_settings, topic_settings
from moorage.scheduler.placement.embedded import TOKEN
from moorage.scheduler.rpc import SchedulerAPI, get_transport

from ..fixtures.agent_process import AgentProcess
from ..fixtures.clouds import CONTEXT, new_uuids, request
from ..fixtures.kafka import Kafka
from ..fixtures.placement_servers import EmbeddedPlacementFixture, MisbehavingServer
from ..fixtures.rabbitmq import Broker
from ..fixtures.scheduler_process import SchedulerProcess, has_ended
from ..fixtures.waiting import wait_until

DOC = Path(__file__).parents[2] / "doc"
PAGE = DOC / "how-to/kafka.rst"
EXAMPLES = DOC / "examples/kafka"
#: Values of the examples that a test replaces.
BROKER = "rabbit://guest:guest@127.0.0.1:5672/"
SERVERS = "bootstrap_servers = 127.0.0.1:9092"
PLACEMENT = "http://127.0.0.1:8778"


class Cloud:
    """The brokers, a Placement, and the files of the documentation."""

    def __init__(
        self, broker: Broker, kafka: Kafka, url: str, placement: Adapter, folder: Path
    ) -> None:
        self._placement = placement
        self.conf = load([], config_files=[])
        kafka.configure(self.conf)
        claims = f"{kafka.name}-claims"
        self.conf.set_override("claims_topic", claims, group="kafka")
        kafka.add_topics(claims_topic_settings(self.conf))
        values = {**kafka.options(), "claims_topic": claims}
        options = "\n".join(f"{n} = {v}" for n, v in values.items())
        self.kafka, self.claims = kafka, claims
        for file in EXAMPLES.iterdir():
            text = file.read_text().replace(BROKER, broker.transport_url)
            text = text.replace(SERVERS, options).replace(PLACEMENT, url)
            text = text.replace("token = admin", f"token = {TOKEN}")
            text = text.replace("= node_uuid", f"= {folder}/node_uuid")
            more = "[agent]\ninterval = 0.2\nreserved_memory_mb = 0\n"
            more += "cpu_allocation_ratio = 16\n"
            (folder / file.name).write_text(f"{text}\n{more}")
        self.transport = get_transport(self.conf, broker.transport_url)
        self._api = SchedulerAPI(self.transport, timeout_s=60)

    def announcers(self) -> list[str | None]:
        """Return the name of the scheduler that announced each claim."""
        return [name for name, _ in self.kafka.messages(self.claims)]

    def select(self) -> Selection | None:
        """Return the host of a tiny instance, if any, and delete the instance."""
        spec = request(memory_mb=16, root_gb=0, vcpus=1)
        [uuid] = new_uuids()
        try:
            [[chosen]] = self._api.select_destinations(CONTEXT, spec, [uuid])
        except NoValidHost:
            return None
        gone = self._placement.delete(f"/allocations/{uuid}")
        assert gone.status_code == 204, gone.text
        return chosen


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    with (
        Broker() as broker,
        Kafka() as kafka,
        EmbeddedPlacementFixture() as embedded,
        MisbehavingServer(embedded.placement.wsgi_app) as server,
    ):
        made = Cloud(broker, kafka, server.url, embedded.adapter, tmp_path)
        yield made
        made.transport.cleanup()


@pytest.mark.broker
@pytest.mark.deep
@pytest.mark.kafka
@pytest.mark.xdist_group("kafka")
def test_machine_that_reports_over_kafka_is_selected(
    cloud: Cloud, tmp_path: Path
) -> None:
    file = tmp_path / "scheduler.conf"
    with AgentProcess(tmp_path / "agent.conf") as agent:
        # Two workers, which are forked after the topics are read.
        with SchedulerProcess(file, n_workers=2) as scheduler:
            chosen: Any = wait_until(cloud.select)
            assert chosen.service_host == socket.gethostname()
            # Requests go to the workers in turn; each reads the report by itself.
            wait_until(lambda: all(cloud.select() for _ in range(8)))
            # Each worker has announced its claims under a name of its own.
            wait_until(lambda: len(set(cloud.announcers())) == 2)
            scheduler.send(signal.SIGKILL)
            scheduler.wait()
            # They would take requests of the next one, and end before they answer.
            for worker in scheduler.workers:
                wait_until(functools.partial(has_ended, worker))
        # It reads the topics again; there is no store.
        with SchedulerProcess(file) as scheduler:
            assert cloud.select() is not None
            scheduler.wait_for("1 hosts read from Kafka")
            assert scheduler.stop() == 0
        assert agent.stop() == 0


def test_page_shows_the_files_and_the_settings_of_topics() -> None:
    page = PAGE.read_text()
    for file in EXAMPLES.iterdir():
        assert f"examples/kafka/{file.name}" in page
    conf = load([], config_files=[])
    conf.set_override("claims_topic", "moorage-claims", group="kafka")
    for topic, settings in (topic_settings(conf) | claims_topic_settings(conf)).items():
        [command] = re.findall(rf"--create --topic {topic} (?:.*\\\n)*.*", page)
        assert set(re.findall(r"--config \S+", command)) == set(
            re.findall(r"--config \S+", settings)
        )
