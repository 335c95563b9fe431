# SPDX-License-Identifier: Apache-2.0
"""Neutron is called over HTTP, and every failure of that is one typed error."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from moorage.scheduler.errors import ConfigurationError, NetworkError
from moorage.scheduler.prefilters.neutron import NeutronClient, make_network_client

from ...conftest import options

ANSWERS = {
    "/v2.0/ports/p": {"port": {"network_id": "n"}},
    "/v2.0/subnets/s": {"subnet": {"segment_id": "g"}},
    "/v2.0/subnets?network_id=n": {"subnets": [{"segment_id": "g"}]},
    "/v2.0/ports/strange": {"versions": []},
}


class Neutron(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps(ANSWERS.get(self.path, {})).encode()
        self.send_response(200 if self.path in ANSWERS else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Neutron)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def client(url: str) -> NeutronClient:
    conf = options()
    conf.set_override("endpoint_override", url, group="neutron")
    conf.set_override("http_retries", 0, group="neutron")
    made = make_network_client(conf)
    assert made is not None
    return made


def test_three_queries(url: str) -> None:
    network = client(url)
    assert network.show_port("p") == ANSWERS["/v2.0/ports/p"]
    assert network.show_subnet("s") == ANSWERS["/v2.0/subnets/s"]
    assert network.list_subnets(network_id="n") == {"subnets": [{"segment_id": "g"}]}


@pytest.mark.parametrize("port", ["gone", "strange"])
def test_answer_that_is_none_is_one_error(url: str, port: str) -> None:
    with pytest.raises(NetworkError, match=f"GET /v2.0/ports/{port} of Neutron"):
        client(url).show_port(port)


def test_neutron_that_is_away_is_that_error_too() -> None:
    with pytest.raises(NetworkError, match="failed"):
        client("http://127.0.0.1:9").show_port("p")


def test_no_client_unless_configured() -> None:
    assert make_network_client(options()) is None


def test_auth_type_that_does_not_exist_stops_the_start() -> None:
    conf = options()
    conf.set_override("auth_type", "nonsense", group="neutron")
    with pytest.raises(ConfigurationError, match=r"\[neutron\] auth_type = nonsense: "):
        make_network_client(conf)
