# SPDX-License-Identifier: Apache-2.0
"""What the HTTP API answers, and what it refuses."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from werkzeug.test import Client

from moorage.scheduler import conf as moorage_conf
from moorage.scheduler.decision_store import DecisionStore
from moorage.scheduler.planner import MAX_INSTANCES
from moorage.scheduler.web import Answers, make_app, make_web_server
from moorage.scheduler.web.openapi import document

from ...fixtures.explained_clouds import N_HOSTS, NAMES
from ...fixtures.explaining_api import (
    FAILED,
    INSTANCE,
    SELECTED,
    TWO,
    ExplainingAPI,
    explaining_api,
)
from ...fixtures.property_tests import examples
from ...fixtures.served_page import served_page
from ...fixtures.stored_decisions import decisions_in


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExplainingAPI]:
    with explaining_api(tmp_path_factory.mktemp("api")) as made:
        yield made


@pytest.fixture
def client(api: ExplainingAPI) -> Client:
    return Client(api.app)


def _get(client: Client, path: str, status: int = 200, **args: object) -> Any:
    answer = client.get(path, query_string={n: str(v) for n, v in args.items()})
    assert answer.status_code == status, answer.data
    assert answer.content_type == "application/json"
    return json.loads(answer.data)


def _post(client: Client, path: str, body: object, status: int = 200) -> Any:
    answer = client.post(path, json=body)
    assert answer.status_code == status, answer.data
    return json.loads(answer.data)


# -- decisions ---------------------------------------------------------------------


def _ids(answer: Any) -> list[str]:
    return [each["request_id"] for each in answer["decisions"]]


def test_decisions_are_listed_newest_first(client: Client) -> None:
    assert _ids(_get(client, "/v1/decisions")) == [FAILED, TWO, SELECTED]


def test_whole_decision_says_what_was_requested(client: Client) -> None:
    [decision] = _get(client, f"/v1/decisions/{SELECTED}")["decisions"]
    asked = decision["request"]
    assert asked["flavor"]["vcpus"] > 0
    assert "force_hosts" not in asked
    page = client.get(f"/decisions/{SELECTED}").text
    assert f"{asked['flavor']['vcpus']} vCPU" in page


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ({"instance": INSTANCE}, [SELECTED]),
        ({"failed": "true"}, [FAILED]),
        ({"failed": "false"}, [TWO, SELECTED]),
        ({"project": "project", "limit": 1}, [FAILED]),
        ({"project": "another"}, []),
        ({"host": "nowhere"}, []),
        ({"since": 4e9}, []),
        ({"after": "9" * 19, "limit": 1}, [FAILED]),
    ],
)
def test_decisions_are_found(
    client: Client, args: dict[str, Any], expected: list[str]
) -> None:
    assert _ids(_get(client, "/v1/decisions", **args)) == expected


def test_pages_follow_each_other(client: Client) -> None:
    first = _get(client, "/v1/decisions", limit=2)
    second = _get(client, "/v1/decisions", limit=2, after=first["next"])
    assert _ids(first) + _ids(second) == [FAILED, TWO, SELECTED]
    assert second["next"] is None


@pytest.mark.parametrize("path", ["decisions", "records"])
def test_an_unreadable_decision_does_not_end_the_pages(
    api: ExplainingAPI, tmp_path: Path, path: str
) -> None:
    file = tmp_path / "decisions.sqlite"
    store = DecisionStore(f"sqlite:///{file}")
    for each in reversed(decisions_in(api.store)):
        store.add(each.record)
    store.flush()
    with contextlib.closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(
            "UPDATE decisions SET record = x'02'"
            " WHERE id = (SELECT max(id) FROM decisions)"
        )
    client = Client(make_app(Answers(api.scheduler.explainer, store)))
    pages: list[int] = []
    after: dict[str, Any] = {}
    for _ in range(4):
        answer = _get(client, f"/v1/{path}", 200, limit=1, **after)
        pages.append(len(answer[path]))
        if answer["next"] is None:
            break
        after = {"after": answer["next"]}
    store.stop()
    assert pages == [0, 1, 1, 0]


@pytest.mark.parametrize("id_", [SELECTED, INSTANCE])
def test_a_decision_has_funnel_scores_and_claims(client: Client, id_: str) -> None:
    [decision] = _get(client, f"/v1/decisions/{id_}")["decisions"]
    assert decision["funnel"][0]["name"] == "Placement"
    [placed] = decision["instances"]
    assert placed["top_hosts"][0]["host"] == placed["host"]
    assert [claim["result"] for claim in decision["claims"]] == ["claimed"]


def test_an_unknown_decision_is_not_found(client: Client) -> None:
    answer = _get(client, "/v1/decisions/nothing", status=404)
    assert answer == {"error": "No decision is stored for 'nothing'"}


# -- questions ---------------------------------------------------------------------


def test_why_not_names_what_a_stored_request_lacks(client: Client) -> None:
    body = {"host": NAMES[0], "stored": FAILED}
    [verdict] = _post(client, "/v1/why-not", body)["nodes"]
    [vcpus] = [each for each in verdict["reasons"] if each["check"] == "VCPU"]
    assert (vcpus["stage"], vcpus["required"]) == ("placement", "512")
    assert not verdict["passes"]


def test_a_request_may_be_made_of_a_flavor(client: Client) -> None:
    request = {
        "flavor": {"vcpus": 1, "memory_mb": 256, "extra_specs": {"hw:numa_nodes": "2"}},
        "image_properties": {"hw_disk_bus": "virtio"},
        "hints": {"group": ["x"]},
    }
    answer = _post(client, "/v1/dry-run", {"request": request, "count": 2})
    assert answer["decision"]["outcome"] == "selected"
    assert len(answer["decision"]["instances"]) == 2
    assert "NUMA cells" in answer["notes"][0]


def test_a_dry_run_of_a_stored_request_fails_as_it_did(client: Client) -> None:
    decision = _post(client, "/v1/dry-run", {"stored": FAILED})["decision"]
    assert decision["outcome"] == "no valid host"


def test_closest_names_what_would_have_to_change(client: Client) -> None:
    request = {"flavor": {"vcpus": 1, "memory_mb": 256, "root_gb": 101}}
    answer = _post(client, "/v1/closest", {"request": request})
    assert answer["n_passing"] == 0
    [change] = answer["groups"][0]["changes"]
    assert (change["check"], change["stage"]) == ("DISK_GB", "placement")
    assert change["text"] == f"{change['less_by']} GB less disk"
    [note] = answer["notes"]
    assert note.startswith("The inventory file has no reports of usage")
    assert answer["n_checked"] == N_HOSTS


def test_capacity_of_given_flavors(client: Client) -> None:
    flavors = [
        {"name": "small", "vcpus": 1, "memory_mb": 128},
        {"name": "huge", "vcpus": 512, "memory_mb": 128},
    ]
    small, huge = _post(client, "/v1/capacity", {"flavors": flavors})["flavors"]
    assert (small["flavor"], huge["n_instances"]) == ("small", 0)
    assert small["n_instances"] == sum(p["n_instances"] for p in small["places"]) > 0
    found = _post(client, "/v1/capacity", {"flavors": flavors, "name": "small"})
    assert found["flavors"] == [small]


def test_capacity_of_the_flavors_of_recent_decisions(client: Client) -> None:
    found = _post(client, "/v1/capacity", {"from": "decisions"})["flavors"]
    assert {each["memory_mb"] for each in found} == {256, 128, 1024}


def test_capacity_of_named_flavors_is_that_of_the_newest_decision(
    api: ExplainingAPI,
) -> None:
    answers = Answers(api.scheduler.explainer, api.store)
    [plain] = answers.capacity_of(["plain", "another"]).flavors
    assert (plain.flavor, plain.vcpus, plain.n_instances) == ("plain", 512, 0)
    assert answers.capacity_of(["another"]).flavors == ()


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        ({}, 400, "is not valid under any of the given schemas"),
        ({"from": "nova"}, 400, "[moorage] source = nova_db only"),
        ({"from": "elsewhere"}, 400, "from: 'elsewhere' is not one of"),
        ({"from": "decisions", "name": "x<"}, 404, "no flavor named 'x<' among plain"),
        ({"flavors": []}, 400, "flavors: [] should be non-empty"),
    ],
)
def test_a_wrong_question_for_capacity_is_refused(
    client: Client, body: object, status: int, error: str
) -> None:
    assert error in _post(client, "/v1/capacity", body, status)["error"]


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({}, "'host' is a required property"),
        ({"host": "h1"}, "is not valid under any of the given schemas"),
        ({"host": "h1", "stored": "a", "more": 1}, "'more' was unexpected"),
        ({"host": 5, "stored": "a"}, "host: 5 is not of type 'string'"),
        ([], "is not of type 'object'"),
    ],
)
def test_a_wrong_body_is_refused(client: Client, body: object, error: str) -> None:
    assert error in _post(client, "/v1/why-not", body, status=400)["error"]


def test_an_invalid_image_property_is_refused(client: Client) -> None:
    flavor = {"vcpus": 1, "memory_mb": 1}
    request = {"flavor": flavor, "image_properties": {"hw_disk_bus": "x"}}
    answer = _post(client, "/v1/dry-run", {"request": request}, status=400)
    assert "hw_disk_bus" in answer["error"]


def test_an_unknown_host_is_not_found(client: Client) -> None:
    body = {"host": "h11", "stored": SELECTED}
    answer = _post(client, "/v1/why-not", body, status=404)
    assert "similar: h1" in answer["error"]


def test_hosts_come_in_pages(client: Client) -> None:
    first = _get(client, "/v1/hosts", limit=2)
    rest = _get(client, "/v1/hosts", after=first["next"])
    names = [each["host"] for each in first["hosts"] + rest["hosts"]]
    assert (names, first["n_hosts"]) == (list(NAMES), N_HOSTS)
    claims = sum(each["n_claims"] for each in first["hosts"] + rest["hosts"])
    assert claims == 3


# -- bounds and errors -------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "args", "error"),
    [
        ("/v1/decisions", {"limit": 201}, "limit: 201 is greater than"),
        ("/v1/decisions", {"limit": "1_0"}, "limit: '1_0' is not a number"),
        ("/v1/decisions", {"since": "nan"}, "since: 'nan' is not a number"),
        ("/v1/decisions", {"failed": "yes"}, "neither true nor false"),
        ("/v1/decisions", {"hosts": "h1"}, "There is no parameter 'hosts'"),
        ("/v1/decisions", {"host": "x" * 256}, "host: "),
        ("/v1/hosts", {"limit": 10_001}, "limit: 10001 is greater than"),
        (f"/v1/decisions/{'x' * 256}", {}, "has more than 255 characters"),
    ],
)
def test_a_wrong_parameter_is_refused(
    client: Client, path: str, args: dict[str, Any], error: str
) -> None:
    assert error in _get(client, path, status=400, **args)["error"]


def test_a_body_is_bounded(client: Client) -> None:
    body = {"host": "h1", "stored": "x" * 3_000_000}
    answer = _post(client, "/v1/why-not", body, status=413)
    assert answer["error"] == "The body has more than 2097152 bytes"


def test_the_largest_plan_can_be_checked(api: ExplainingAPI) -> None:
    step = dict.fromkeys(
        ("instance", "source", "destination", "destination_node"), "x" * 64
    )
    body: dict[str, Any] = {
        "steps": [{**step, "number": n} for n in range(1, MAX_INSTANCES + 1)]
    }
    with served_page(api.app) as url:
        answer = requests.post(f"{url}/v1/plans/check", json=body, timeout=60)
        assert "it is the plan of another cloud" in answer.json()["error"]
        body["left"] = ["x" * 255] * MAX_INSTANCES
        answer = requests.post(f"{url}/v1/plans/check", json=body, timeout=60)
        assert answer.status_code == 413
        assert answer.json() == {"error": "The body has more than 2097152 bytes"}


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", "the body is no JSON: Expecting value"),
        (b"{", "the body is no JSON: Expecting property name"),
        (b'{"host": "h1", "stored": NaN}', "NaN is no number of JSON"),
        (b"[" * 100_000, "the body: it is nested too deeply"),
        (b'{"a":' * 20_000 + b"1" + b"}" * 20_000, "the body: it is nested too deeply"),
        (b'"\xff"', "the body is no JSON: 'utf-8' codec can't decode"),
        (b"[" * 400 + b"]" * 400, "is not of type 'object'"),
    ],
    ids=["empty", "cut", "nan", "deep", "deep and whole", "bytes", "list"],
)
def test_a_body_that_is_no_json_is_refused(
    client: Client, data: bytes, error: str
) -> None:
    answer = client.post("/v1/why-not", data=data, content_type="application/json")
    assert answer.status_code == 400
    assert error in json.loads(answer.data)["error"]


@pytest.mark.parametrize(
    ("method", "path", "status", "error"),
    [
        ("GET", "/v1/decision", 404, "There is no path '/v1/decision'; "),
        ("GET", "/v1/why-not", 405, "'/v1/why-not' takes OPTIONS or POST only"),
        ("DELETE", "/v1/hosts", 405, "'/v1/hosts' takes GET or HEAD or OPTIONS only"),
        ("POST", "/v1/closest", 415, "with the header Content-Type: application/json"),
    ],
)
def test_an_error_names_what_was_asked(
    client: Client, method: str, path: str, status: int, error: str
) -> None:
    answer = client.open(path, method=method, data=b"x" if method == "POST" else None)
    assert answer.status_code == status
    assert error in json.loads(answer.data)["error"]


def test_a_store_that_is_away_is_an_error_of_its_own(api: ExplainingAPI) -> None:
    store = DecisionStore("sqlite:////proc/none/decisions.sqlite")
    client = Client(make_app(Answers(api.scheduler.explainer, store)))
    answer = _get(client, "/v1/decisions", status=503)
    assert "/proc/none/decisions.sqlite" in answer["error"]
    assert _get(client, "/v1/hosts")["n_hosts"] == N_HOSTS


def test_a_store_that_hangs_does_not_block_the_other_paths(api: ExplainingAPI) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        store = DecisionStore(f"mysql+pymysql://u:p@127.0.0.1:{port}/decisions")
        answers = Answers(api.scheduler.explainer, store, max_reads=1)
        client = Client(make_app(answers))
        hanging = threading.Thread(target=client.get, args=("/v1/decisions",))
        hanging.start()
        connection, _ = silent.accept()
        answer = _get(client, "/v1/decisions", status=503)
        assert "is busy" in answer["error"]
        assert client.get("/").status_code == 200
        connection.close()
        hanging.join(30)
    answer = _get(client, "/v1/decisions", status=503)
    assert "is busy" not in answer["error"]


def test_without_a_store_there_are_no_decisions(api: ExplainingAPI) -> None:
    client = Client(make_app(Answers(api.scheduler.explainer, None)))
    answer = _get(client, "/v1/decisions", status=404)
    assert "decision_store_connection is empty" in answer["error"]


# -- the OpenAPI document ----------------------------------------------------------


def test_the_document_names_every_path(client: Client) -> None:
    assert _get(client, "/v1/openapi.json") == document()


schema = schemathesis.openapi.from_dict(document())


@schema.parametrize()
@examples(0.4, suppress_health_check=list(HealthCheck))
def test_the_document_is_true(case: schemathesis.Case, api: ExplainingAPI) -> None:
    checks = [
        not_a_server_error,
        status_code_conformance,
        content_type_conformance,
        response_schema_conformance,
    ]
    case.call_and_validate(app=api.app, checks=checks, base_url="http://localhost")


def _app(_environ: object, respond: Any) -> list[bytes]:
    respond("200 OK", [("Content-Length", "2")])
    return [b"ok"]


def test_it_stops_while_a_browser_keeps_its_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failures: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", failures.append)
    conf = moorage_conf.load([], config_files=[])
    conf.set_override("port", 0, group="web")
    server = make_web_server(conf, _app)
    server.start()
    kept = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    with contextlib.closing(kept):
        kept.request("GET", "/")
        assert kept.getresponse().read() == b"ok"
        server.stop()
        # It would end with the connection, and `stop` would give up waiting for it.
        assert not [t for t in threading.enumerate() if t.name == "moorage web"]
        assert kept.sock.recv(1000) == b""
    assert failures == []
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port))
