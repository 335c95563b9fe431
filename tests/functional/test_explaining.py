# SPDX-License-Identifier: Apache-2.0
"""moorage-api in a process of its own, beside moorage-scheduler, and the command."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import sqlite3
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moorage.scheduler import conf as moorage_conf
from moorage.scheduler.placement.embedded import TOKEN
from moorage.scheduler.placement.seed import seed
from moorage.scheduler.rpc import SchedulerAPI, get_transport
from moorage.scheduler.seeding import providers
from moorage.scheduler.sources.inventory import read_inventory

from ..fixtures.clouds import CONTEXT, host, new_uuids, request, write_inventory
from ..fixtures.forked_starts import Start, forked_starts
from ..fixtures.placement_servers import EmbeddedPlacementFixture, MisbehavingServer
from ..fixtures.ports import free_port
from ..fixtures.rabbitmq import Broker
from ..fixtures.scheduler_process import SchedulerProcess
from ..fixtures.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.xdist_group("functional")]

API = "moorage.scheduler.cmd.api"
WEB_TOKEN = "0123456789abcdef"


def _moorage(config: Path, *args: str, status: int = 0) -> Any:
    command = [sys.executable, "-m", "moorage.scheduler.cmd.cli"]
    result = subprocess.run(
        [*command, "--config-file", str(config), *args, "--json"],
        capture_output=True,
        check=False,
        text=True,
    )
    assert result.returncode == status, result.stderr
    return json.loads(result.stdout)


@pytest.fixture
def config(tmp_path: Path) -> Iterator[Path]:
    """The configuration of a cloud with two hosts, and a broker."""
    token = tmp_path / "token"
    token.write_text(WEB_TOKEN)
    token.chmod(0o600)
    path = tmp_path / "moorage.conf"
    inventory_file = write_inventory(tmp_path, host("h1"), host("h2", disabled=True))
    with (
        Broker() as broker,
        EmbeddedPlacementFixture() as embedded,
        MisbehavingServer(embedded.placement.wsgi_app) as server,
    ):
        seed(embedded.client, providers(read_inventory(inventory_file)))
        path.write_text(
            "[DEFAULT]\n"
            f"transport_url = {broker.transport_url}\n"
            "[placement]\n"
            "auth_type = admin_token\n"
            f"endpoint = {server.url}\n"
            f"endpoint_override = {server.url}\n"
            f"token = {TOKEN}\n"
            "[moorage]\n"
            f"inventory_file = {inventory_file}\n"
            "[web]\n"
            f"port = {free_port()}\n"
            "auth = token\n"
            f"token_file = {token}\n"
        )
        transport = get_transport(
            moorage_conf.load([], config_files=[]), broker.transport_url
        )
        with contextlib.closing(_Closing(transport.cleanup)):
            yield path


class _Closing:
    def __init__(self, close: Any) -> None:
        self.close = close


def _page(config: Path, path: str, **headers: str) -> tuple[int, str]:
    """Return the status and the text of a page of moorage-api."""
    options = moorage_conf.load([f"--config-file={config}"], config_files=[])
    url = f"http://127.0.0.1:{options.web.port}{path}"
    try:
        answer = urllib.request.urlopen(urllib.request.Request(url, headers=headers))
    except urllib.error.HTTPError as e:
        answer = e
    with answer:
        return answer.status, answer.read().decode()


def _expect_health_and_metrics(config: Path) -> None:
    assert _page(config, "/healthz") == (200, "Alive.\n")
    wait_until(lambda: _page(config, "/readyz") == (200, "Ready.\n"))
    assert _page(config, "/metrics")[0] == 401
    bearer = {"Authorization": f"Bearer {WEB_TOKEN}"}
    status, text = _page(config, "/metrics", **bearer)
    assert status == 200
    assert "moorage_ready 1.0" in text
    lines = text.splitlines()
    for state in ("up", "disabled"):
        [line] = [each for each in lines if f'state="{state}"' in each]
        assert line.endswith(" 1.0")


_COMPONENTS = {"Schedulers", "Broker", "Placement", "Source of hosts"}


def _ready_on_page(config: Path) -> set[str]:
    """Return the components that the first page shows as ready."""
    bearer = {"Authorization": f"Bearer {WEB_TOKEN}"}
    _, text = _page(config, "/", **bearer)
    return set(re.findall(r'<li class="good"><b>([\w ]+)</b> ready', text))


@pytest.mark.deep
def test_the_api_explains_decisions_and_is_monitored_as_a_scheduler_is(
    config: Path,
) -> None:
    [uuid] = new_uuids()
    conf = moorage_conf.load([f"--config-file={config}"], config_files=[])
    transport = get_transport(conf)
    # It takes precedence over the file, and is empty for tests.
    store = f"sqlite:///{config.parent}/decisions.sqlite"
    environment = {"OS_MOORAGE__DECISION_STORE_CONNECTION": store}
    with (
        contextlib.closing(_Closing(transport.cleanup)),
        SchedulerProcess(config, environment=environment),
        SchedulerProcess(
            config, module=API, until="Serving the HTTP API", environment=environment
        ) as api,
    ):
        scheduler = SchedulerAPI(transport, timeout_s=60)
        # A claim that is published before the API listens would be seen only later.
        api.wait_for("Following the schedulers")
        _expect_health_and_metrics(config)
        scheduler.select_destinations(CONTEXT, request(), [uuid])
        wait_until(lambda: bool(_moorage(config, "decisions")["decisions"]))
        [decision] = _moorage(config, "explain", uuid)["decisions"]
        assert decision["instances"][0]["host"] == "h1"
        assert _moorage(config, "replay", uuid)["identical"]
        wait_until(lambda: _ready_on_page(config) >= _COMPONENTS)
        [verdict] = _moorage(config, "why-not", "h2", uuid)["nodes"]
        checks = {each["check"] for each in verdict["reasons"]}
        assert checks == {"COMPUTE_STATUS_DISABLED", "ComputeFilter"}
        wait_until(
            lambda: [
                each["n_claims"] for each in _moorage(config, "hosts")["hosts"]
            ] == [1, 0],
        )  # fmt: skip
        api.send(signal.SIGUSR2)
        api.wait_for("Guru Meditation")
        assert api.stop() == 0


def test_reasons_for_not_being_ready_need_a_token(config: Path) -> None:
    with config.open("a") as more:
        more.write("[DEFAULT]\ntransport_url = rabbit://guest:x@127.0.0.1:1//\n")
    with SchedulerProcess(config, module=API, until="Serving the HTTP API"):
        wait_until(lambda: _page(config, "/readyz") == (503, "Not ready.\n"))


@pytest.fixture
def embedded_config(tmp_path: Path) -> Iterator[Path]:
    """The configuration of a scheduler with the embedded Placement in a file."""
    path = tmp_path / "moorage.conf"
    with Broker() as broker:
        path.write_text(
            "[DEFAULT]\n"
            f"transport_url = {broker.transport_url}\n"
            "[moorage]\n"
            f"inventory_file = {write_inventory(tmp_path, host('h1'))}\n"
            f"embedded_placement_database = {tmp_path}/placement.sqlite\n"
            "[web]\n"
            f"port = {free_port()}\n"
        )
        yield path


def _allocated(folder: Path) -> dict[str, int]:
    """Return what the embedded Placement's file has, by the UUID of consumers."""
    query = "SELECT consumer_id, sum(used) FROM allocations GROUP BY consumer_id"
    with contextlib.closing(sqlite3.connect(folder / "placement.sqlite")) as file:
        return dict(file.execute(query).fetchall())


def _n_stored(store: Path) -> int:
    with contextlib.closing(sqlite3.connect(store)) as file:
        [[number]] = file.execute("SELECT count(*) FROM decisions")
        return int(number)


@pytest.mark.deep
def test_the_api_reads_the_embedded_placement_of_a_running_scheduler(
    embedded_config: Path,
) -> None:
    """It selects, replays and exports the capacity of a flavor, and claims nothing."""
    config, folder = embedded_config, embedded_config.parent
    with config.open("a") as more:
        more.write("[moorage]\ncapacity_flavors = plain\n")
    conf = moorage_conf.load([f"--config-file={config}"], config_files=[])
    transport = get_transport(conf)
    store = folder / "decisions.sqlite"
    environment = {"OS_MOORAGE__DECISION_STORE_CONNECTION": f"sqlite:///{store}"}
    with (
        contextlib.closing(_Closing(transport.cleanup)),
        SchedulerProcess(config, environment=environment),
    ):
        scheduler = SchedulerAPI(transport, timeout_s=60)
        first, second = new_uuids(2)
        scheduler.select_destinations(CONTEXT, request(), [first])
        # The capacity is that of flavors which have been requested.
        wait_until(lambda: _n_stored(store) == 1)
        until = "Following the schedulers"
        with SchedulerProcess(
            config, environment=environment, module=API, until=until
        ) as api:
            line = r'moorage_capacity_instances\{flavor="plain",zone="nova"\} [1-9]'
            wait_until(lambda: bool(re.search(line, _page(config, "/metrics")[1])))
            dry_run = ("schedule", "--dry-run", "--vcpus", "1", "--ram", "512")
            [placed] = _moorage(config, *dry_run)["decision"]["instances"]
            assert placed["host"] == "h1"
            assert _allocated(folder).keys() == {first}
            scheduler.select_destinations(CONTEXT, request(memory_mb=4096), [second])
            claimed = _allocated(folder)
            assert claimed.keys() == {first, second}
            wait_until(lambda: _n_stored(store) == 2)
            whole = ("schedule", "--dry-run", "--request", second, "--count", "100")
            assert _moorage(config, *whole, status=3)["decision"]["outcome"] == (
                "no valid host"
            )
            assert _allocated(folder) == claimed
            assert not api.count("ERROR|Traceback|WARNING")
            assert api.stop() == 0


_AWAY = "[placement]\nauth_type = none\nendpoint_override = http://127.0.0.1:1\n"

#: What is added to a configuration, and words of the line that moorage-api prints.
_REFUSED = {
    "memory": (
        "[web]\nport = 0\n",
        "set [moorage] embedded_placement_database to a file",
    ),
    "missing": (
        "embedded_placement_database = {}/placement.sqlite\n[web]\nport = 0\n",
        "/placement.sqlite. Start moorage-scheduler with the same option first",
    ),
    "port": (_AWAY, "[web] port is not set"),
    "address": (
        f"{_AWAY}[web]\nport = 0\naddress = 0.0.0.0\n",
        "set [web] auth to token or keystone",
    ),
    "token": (f"{_AWAY}[web]\nport = 0\nauth = token\n", "needs [web] token_file"),
}


@pytest.fixture(scope="module")
def start() -> Iterator[Start]:
    with forked_starts("explaining") as start:
        yield start


@pytest.mark.deep
@pytest.mark.parametrize(("lines", "words"), _REFUSED.values(), ids=_REFUSED)
def test_a_start_that_is_refused_is_one_line(
    start: Start, tmp_path: Path, lines: str, words: str
) -> None:
    config = tmp_path / "moorage.conf"
    inventory_file = write_inventory(tmp_path, host("h1"))
    config.write_text(
        f"[moorage]\ninventory_file = {inventory_file}\n{lines.format(tmp_path)}"
    )
    status, printed = start(config)
    assert status == 1
    assert "Traceback" not in printed
    [line] = [li for li in printed.splitlines() if li.startswith("moorage-api: ")]
    assert words in line
