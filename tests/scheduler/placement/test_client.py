# SPDX-License-Identifier: Apache-2.0
"""Every failure of Placement is one typed error that names the call."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from moorage.scheduler import conf as moorage_conf
from moorage.scheduler.candidates import CandidatesQuery
from moorage.scheduler.errors import (
    InvalidRequest,
    PlacementError,
    PlacementIncompatible,
    PlacementRejected,
    PlacementUnauthorized,
    PlacementUnavailable,
)
from moorage.scheduler.placement.adapter import AnswerLost, make_adapter
from moorage.scheduler.placement.allocations.limits import CIRCUIT_MAX_FAILURES
from moorage.scheduler.placement.client import PlacementClient

from ...fixtures.placement_servers import (
    MisbehavingServer,
    Misbehaviour,
    adapter_to,
)
from ...fixtures.ports import refusing_url

CONSUMER = "7f1d7d0a-41a9-4e2b-8f6b-2f0c9d3b6a10"
EMPTY = {"allocations": {}, "project_id": "p", "user_id": "u"}


QUERY = CandidatesQuery((("limit", "5"), ("resources", "VCPU:1")), 5)


@pytest.fixture
def server():
    with MisbehavingServer() as server:
        yield server


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (Misbehaviour.ERROR, PlacementUnavailable, "answered 500"),
        (Misbehaviour.UNAUTHORIZED, PlacementUnauthorized, "answered 401"),
        (Misbehaviour.FORBIDDEN, PlacementUnauthorized, "403 with an empty body"),
        (Misbehaviour.NOT_ACCEPTABLE, PlacementIncompatible, "1.0 to 1.30"),
        (Misbehaviour.BAD_GATEWAY, PlacementUnavailable, "It works! This is a proxy"),
        (Misbehaviour.HTML, PlacementUnavailable, "not JSON"),
        (Misbehaviour.TRUNCATED, PlacementUnavailable, "got no answer"),
        (Misbehaviour.GARBAGE, PlacementUnavailable, "not JSON"),
        (Misbehaviour.WRONG_SHAPE, PlacementUnavailable, "no allocation_requests"),
    ],
)
def test_wrong_answer_to_a_query_is_typed(server, wrong, error, message):
    server.misbehave(wrong)
    with pytest.raises(error, match=message) as raised:
        server.client().allocation_candidates(QUERY)
    assert "/allocation_candidates" in str(raised.value)
    assert not isinstance(raised.value, AnswerLost)


def _timeout_s(wrong: Misbehaviour) -> float:
    """Of a client: short only where a server does not answer."""
    return 0.2 if wrong is Misbehaviour.HANG else 60.0


def test_hanging_placement_is_unavailable_after_the_timeout(server):
    server.misbehave(Misbehaviour.HANG)
    with pytest.raises(PlacementUnavailable, match="timed out"):
        server.client(timeout_s=0.2).allocation_candidates(QUERY)


def test_refused_connection_is_unavailable():
    client = PlacementClient(adapter_to(refusing_url()))
    with pytest.raises(PlacementUnavailable, match="got no answer"):
        client.allocations(CONSUMER)


def test_refused_connection_loses_no_write():
    client = PlacementClient(adapter_to(refusing_url()))
    with pytest.raises(PlacementUnavailable) as raised:
        client.put_allocations(CONSUMER, EMPTY)
    assert not isinstance(raised.value, AnswerLost)


@pytest.mark.parametrize(
    ("wrong", "is_in_flight"),
    [
        (Misbehaviour.ERROR, False),
        (Misbehaviour.BAD_GATEWAY, True),
        (Misbehaviour.HTML, True),
        (Misbehaviour.TRUNCATED, True),
        (Misbehaviour.GARBAGE, True),
        (Misbehaviour.HANG, True),
    ],
)
def test_write_without_a_clear_answer_is_lost(server, wrong, is_in_flight):
    server.misbehave(wrong)
    with pytest.raises(AnswerLost) as raised:
        server.client(timeout_s=_timeout_s(wrong)).put_allocations(CONSUMER, EMPTY)
    assert raised.value.is_in_flight is is_in_flight
    assert f"PUT /allocations/{CONSUMER}" in str(raised.value)


def test_wrong_shape_of_allocations_is_unavailable(server):
    server.misbehave(Misbehaviour.WRONG_SHAPE)
    with pytest.raises(PlacementUnavailable, match="not Placement's: KeyError"):
        server.client().allocations(CONSUMER)


def test_wrong_shape_of_versions_is_unavailable(server):
    server.misbehave(Misbehaviour.WRONG_SHAPE)
    with pytest.raises(PlacementUnavailable, match="it has no versions"):
        server.client().check()


def test_global_request_id_and_microversion_travel(embedded):
    with MisbehavingServer(embedded.placement.wsgi_app) as server:
        server.client().allocations(CONSUMER, global_request_id="req-1")
        _, _, headers = server.seen[-1]
    assert headers["X-Openstack-Request-Id"] == "req-1"
    assert headers["OpenStack-API-Version"] == "placement 1.36"


def test_versions_are_placements(embedded):
    assert embedded.client.version_range() == ("1.0", "1.39")
    embedded.client.check()


def test_too_old_a_placement_is_incompatible_with_both_ranges():
    def old(_environ, start_response):
        start_response("200 OK", [("Content-Type", "application/json")])
        return [b'{"versions": [{"min_version": "1.0", "max_version": "1.30"}]}']

    with (
        MisbehavingServer(old) as server,
        pytest.raises(PlacementIncompatible, match=r"1\.0 to 1\.30; 1\.36 to 1\.36"),
    ):
        server.client().check()


def test_malformed_query_is_rejected_in_placements_words(embedded):
    query = CandidatesQuery((("resources", "NO_SUCH_CLASS:1"),))
    with pytest.raises(PlacementRejected, match="NO_SUCH_CLASS"):
        embedded.client.allocation_candidates(query)


def test_provider_that_is_gone_is_no_failure_of_placement(embedded):
    url = f"/resource_providers/{CONSUMER}/aggregates"
    for _ in range(CIRCUIT_MAX_FAILURES):
        with pytest.raises(PlacementRejected, match="No resource provider with uuid"):
            embedded.client.read(url)
    assert not embedded.client.health.is_down


def test_unknown_consumer_holds_nothing(embedded):
    assert embedded.client.allocations(CONSUMER).resources == {}
    assert embedded.client.delete_allocations(CONSUMER) is False


def _answering(status, content_type="text/html", body=b"<h1>Too long</h1>"):
    def app(_environ, start_response):
        start_response(f"{status} Refused", [("Content-Type", content_type)])
        return [body]

    return app


#: 400 and 431 are also sent by web servers because of headers and request lines.
@pytest.mark.parametrize("status", [400, 409, 410, 413, 414, 422, 431, 451])
def test_refusal_of_a_server_in_front_is_an_answer_to_this_request(status):
    with MisbehavingServer(_answering(status)) as server:
        client = server.client()
        for _ in range(CIRCUIT_MAX_FAILURES):
            with pytest.raises(PlacementRejected, match=f"{status} .*Too long"):
                client.allocation_candidates(QUERY)
            written = client.put_allocations(CONSUMER, EMPTY)
            assert (written.status, written.is_done) == (status, False)
            assert "Too long" in written.detail
        assert not client.health.is_down


@pytest.mark.parametrize("status", [401, 403, 404, 406, 408, 429, 500, 503])
def test_status_of_an_absent_placement_counts_as_unavailable(status):
    with MisbehavingServer(_answering(status)) as server:
        client = server.client()
        for _ in range(CIRCUIT_MAX_FAILURES):
            with pytest.raises(PlacementError):
                client.allocation_candidates(QUERY)
        assert client.health.is_down


@pytest.mark.parametrize("request_id", ["req-\r\nX-Evil: 1", "req-\N{SNOWMAN}"])
def test_request_that_cannot_be_built_is_invalid(server, request_id):
    client = server.client()
    for _ in range(CIRCUIT_MAX_FAILURES):
        with pytest.raises(InvalidRequest, match=r"GET .* cannot be sent"):
            client.allocations(CONSUMER, global_request_id=request_id)
        with pytest.raises(InvalidRequest, match=r"PUT .* cannot be sent"):
            client.put_allocations(CONSUMER, EMPTY, global_request_id=request_id)
    assert not server.seen
    assert not client.health.is_down


def test_refusal_repeats_no_more_than_the_start_of_a_long_url(embedded):
    query = CandidatesQuery((("resources", "VCPU:1"), ("required", "A" * 100_000)))
    with pytest.raises(PlacementRejected) as raised:
        embedded.client.allocation_candidates(query)
    assert len(str(raised.value)) < 5_000


def _conf(tmp_path, text):
    file = tmp_path / "moorage.conf"
    file.write_text(f"[placement]\n{text}")
    return moorage_conf.load(config_files=[str(file)])


def test_endpoint_alone_sends_no_token(tmp_path, server):
    adapter = make_adapter(_conf(tmp_path, f"endpoint_override = {server.url}"))
    server.misbehave(Misbehaviour.FORBIDDEN)
    with pytest.raises(PlacementUnauthorized):
        PlacementClient(adapter).allocations(CONSUMER)
    assert "X-Auth-Token" not in server.seen[0][2]


def test_each_thread_keeps_a_connection(tmp_path, caplog):
    n_threads = 32
    together = threading.Barrier(n_threads, timeout=60.0)

    def app(_environ, start_response):
        together.wait()
        start_response("200 OK", [("Content-Type", "application/json")])
        return [b'{"allocations": {}}']

    with MisbehavingServer(app) as server, ThreadPoolExecutor(n_threads) as pool:
        client = PlacementClient(
            make_adapter(_conf(tmp_path, f"endpoint_override = {server.url}"))
        )
        for _ in range(2):
            list(pool.map(client.allocations, [CONSUMER] * n_threads))
    assert not [r for r in caplog.records if "pool is full" in r.getMessage()]


def test_admin_token_is_sent(tmp_path, embedded):
    with MisbehavingServer(embedded.placement.wsgi_app) as server:
        text = f"auth_type = admin_token\nendpoint = {server.url}\ntoken = admin"
        PlacementClient(make_adapter(_conf(tmp_path, text))).check()
        PlacementClient(make_adapter(_conf(tmp_path, text))).allocations(CONSUMER)
        assert server.seen[-1][2]["X-Auth-Token"] == "admin"


def test_password_authentication_calls_keystone_first(tmp_path, server):
    text = (
        f"auth_type = password\nauth_url = {server.url}/v3\nusername = nova\n"
        "password = x\nproject_name = service\nuser_domain_name = Default\n"
        "project_domain_name = Default\n"
    )
    server.misbehave(Misbehaviour.WRONG_SHAPE, verb="GET", times=9)
    server.misbehave(Misbehaviour.UNAUTHORIZED, verb="POST", times=9)
    with pytest.raises(PlacementUnauthorized):
        PlacementClient(make_adapter(_conf(tmp_path, text))).allocations(CONSUMER)
    assert any("/v3/auth/tokens" in path for _, path, _ in server.seen)


def test_unknown_auth_type_is_unauthorized(tmp_path):
    with pytest.raises(PlacementUnauthorized, match="auth_type"):
        make_adapter(_conf(tmp_path, "auth_type = no_such_plugin"))


def test_no_endpoint_is_unauthorized(tmp_path):
    with pytest.raises(PlacementUnauthorized, match="endpoint"):
        PlacementClient(make_adapter(_conf(tmp_path, ""))).allocations(CONSUMER)


@pytest.mark.parametrize(
    ("text", "timeout_s"), [("", 30.0), ("timeout = 7", 7.0)], ids=["ours", "theirs"]
)
def test_timeout_is_theirs_or_else_ours(tmp_path, text, timeout_s):
    adapter = make_adapter(_conf(tmp_path, text))
    assert adapter.session.timeout == timeout_s
    assert not adapter.connect_retries
    assert not adapter.status_code_retries


def test_auth_section_names_the_group_of_the_credentials(tmp_path: Path) -> None:
    file = tmp_path / "moorage.conf"
    text = "[placement]\nauth_section = service\n[service]\nauth_type = none\n"
    file.write_text(f"{text}endpoint = http://127.0.0.1:1\n")
    adapter = make_adapter(moorage_conf.load([], config_files=[str(file)]))
    assert adapter.get_endpoint() == "http://127.0.0.1:1"


def test_auth_section_without_credentials_is_named(tmp_path: Path) -> None:
    file = tmp_path / "moorage.conf"
    file.write_text("[placement]\nauth_section = nowhere\n")
    with pytest.raises(PlacementUnauthorized, match=r"no auth_type in \[nowhere\]"):
        make_adapter(moorage_conf.load([], config_files=[str(file)]))


def test_server_that_refuses_connections_is_named_with_its_port() -> None:
    url = refusing_url()
    with pytest.raises(PlacementUnavailable) as raised:
        PlacementClient(adapter_to(url)).probe()
    assert f"connection to {url}/allocations/" in str(raised.value)
    assert "Connection refused. Check that it runs" in str(raised.value)
    assert "ConnectionPool" not in str(raised.value)
