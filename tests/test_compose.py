# SPDX-License-Identifier: Apache-2.0
"""compose.yaml and its files agree with each other and with the options of Moorage."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from oslo_config import cfg

from moorage.scheduler.cmd.checks.files import FileOptions
from moorage.scheduler.cmd.checks.option_table import unread_options
from moorage.scheduler.conf import load, registered_opts
from moorage.scheduler.rpc import register_opts

ROOT = Path(__file__).parents[1]
SERVICES: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())[
    "services"
]
FILES = ROOT / "examples/compose"
#: The ports of images that are not ours.
PORTS = {"rabbitmq": 5672, "mariadb": None, "placement": 8778}


def read(name: str) -> cfg.ConfigOpts:
    conf = cfg.ConfigOpts()
    register_opts(conf)
    return load(conf=conf, config_files=[str(FILES / name)])


@pytest.mark.parametrize("name", ["moorage.conf", "agent.conf"])
def test_every_option_is_read_and_every_server_is_a_service(name: str) -> None:
    conf = read(name)
    registered = {(group or "DEFAULT", o.dest) for group, o, _ in registered_opts(conf)}
    unread = unread_options(tuple(FileOptions.of(conf)), registered)
    # keystoneauth registers the others of its section once it knows auth_type.
    assert {group for group, _ in unread} <= {"placement"}
    text = (FILES / name).read_text()
    for url in re.findall(r"= (\w[\w+]*://\S+)", text):
        server = urlsplit(url)
        assert server.hostname in SERVICES
        assert server.port == PORTS[server.hostname]


def test_mounted_files_exist_and_none_is_left_over() -> None:
    mounted = {
        ROOT / volume.split(":")[0]
        for service in SERVICES.values()
        for volume in service.get("volumes", ())
        if volume.startswith("./")
    }
    assert mounted == set(FILES.iterdir())


def test_health_checks_ask_the_ports_that_the_services_open() -> None:
    conf = read("moorage.conf")
    image = (ROOT / "Containerfile").read_text()
    [by_image] = re.findall(r"MOORAGE_HEALTH_URL=(\S+)", image)
    by_page = SERVICES["page"]["environment"]["MOORAGE_HEALTH_URL"]
    assert urlsplit(by_image).port == conf.telemetry.http_port
    assert urlsplit(by_page).port == conf.web.port
    assert SERVICES["page"]["ports"] == [f"127.0.0.1:{conf.web.port}:{conf.web.port}"]
    # The service writes the token that its own configuration names.
    assert f"> {conf.web.token_file} &&" in SERVICES["page"]["command"][-1]
