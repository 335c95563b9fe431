# SPDX-License-Identifier: Apache-2.0
"""Damaged inputs of each kind are answered, or refused by an error that names them.

Each input is a valid one of a corpus with random damages, and follows from its number:
`MOORAGE_FUZZ_INPUTS="17 18"` repeats inputs, and `MOORAGE_FUZZ_SECONDS=300` has each
test try others for so long, and list all that failed.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import io
import itertools
import json
import logging
import os
import sqlite3
import struct
import time
import traceback
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any, Final
from urllib.parse import quote, urlencode

import msgspec
import oslo_messaging
import pytest
import yaml
from click.testing import CliRunner
from oslo_messaging.rpc.dispatcher import NoSuchMethod, UnsupportedVersion
from werkzeug.test import Client, EnvironBuilder

from moorage.objects import Serializer
from moorage.scheduler import conf as moorage_conf
from moorage.scheduler.cmd.cli.main import cli
from moorage.scheduler.cmd.cli.snapshotting import Snapshot, read_snapshot
from moorage.scheduler.decision_store import StoredDecision
from moorage.scheduler.errors import InventoryError, SchedulerError
from moorage.scheduler.hosts import HostTable
from moorage.scheduler.kafka_client import TopicNames
from moorage.scheduler.placement.seed import seed
from moorage.scheduler.rpc import DeletionEndpoint, PeersEndpoint
from moorage.scheduler.rpc.server import Dispatcher, MethodsOnly
from moorage.scheduler.seeding import providers
from moorage.scheduler.service import Scheduler, build
from moorage.scheduler.sources.inventory import read_inventory
from moorage.scheduler.sources.kafka.messages import MessageApplier, TopicMessage
from moorage.scheduler.sources.kafka.silence import MissingHosts
from moorage.scheduler.sources.reported.hosts import ReportedHosts
from moorage.scheduler.web import make_access
from moorage.simulator.traces import TraceError, read_trace
from moorage.testing.builders import numa_cell, numa_topology, pci_pools

from ..fixtures.clouds import (
    CONTEXT,
    host,
    inventory,
    new_uuids,
    selected,
    started_scheduler,
    write_inventory,
)
from ..fixtures.explained_clouds import NAMES
from ..fixtures.explaining_api import (
    FAILED,
    INSTANCE,
    SELECTED,
    TWO,
    ExplainingAPI,
    explaining_api,
)
from ..fixtures.placement_servers import EmbeddedPlacementFixture
from .damage import MARKER, damaged, damaged_bytes

pytestmark = pytest.mark.deep

_DATA: Final = Path(__file__).parents[1] / "data"
_EXAMPLES: Final = Path(__file__).parents[2] / "doc" / "examples"
#: Seconds that each test tries new inputs; 0: a fixed number of them.
_SECONDS: Final = float(os.environ.get("MOORAGE_FUZZ_SECONDS", "0"))
_CHOSEN: Final = [int(n) for n in os.environ.get("MOORAGE_FUZZ_INPUTS", "").split()]
#: CPU seconds within which an input must be answered.
_MAX_CPU_S: Final = 10.0
#: Failures of a long run that are listed.
_MAX_FAILED: Final = 30


def _fuzz(name: str, n_inputs: int, attempt: Callable[[Random], object]) -> None:
    """Make attempts, each from the numbers that its generator returns."""
    ends_at = time.monotonic() + _SECONDS
    failed: dict[object, Exception] = {}
    numbers: Iterable[int] = _CHOSEN or range(n_inputs)
    if _SECONDS:
        numbers = itertools.takewhile(
            lambda _: time.monotonic() < ends_at and len(failed) < _MAX_FAILED,
            itertools.count(_CHOSEN[0] if _CHOSEN else n_inputs),
        )
    n_attempts, log = 0, _Log()
    for number in numbers:
        n_attempts += 1
        cpu_s = time.process_time()
        try:
            with log.attached():
                attempt(Random(f"{name} {number}"))
            cpu_s = time.process_time() - cpu_s
            assert cpu_s < _MAX_CPU_S, f"It took {cpu_s:.0f} s of CPU time."
        except Exception as e:  # the property: a refusal is none of these
            last = traceback.extract_tb(e.__traceback__)[-1]
            e.add_note(f"MOORAGE_FUZZ_INPUTS={number} repeats it")
            failed.setdefault((type(e), last.filename, last.lineno), e)
    print(f"{name}: {n_attempts} inputs")
    if failed:
        raise ExceptionGroup(f"inputs of {name}", list(failed.values()))


class _Log(logging.Handler):
    """Fails for a line with a traceback."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._failures: list[Exception] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            self._failures.append(RuntimeError(traceback.format_exception(error)[-1]))

    @contextlib.contextmanager
    def attached(self) -> Iterator[None]:
        """Raise the first failure of the block; its lines go nowhere else."""
        logger = logging.getLogger("moorage")
        level = logger.level
        logger.addHandler(self)
        logger.setLevel(logging.INFO)
        logger.propagate = False  # a report of pytest cannot hold each damaged text
        self._failures.clear()
        try:
            yield
        finally:
            logger.propagate = True
            logger.setLevel(level)
            logger.removeHandler(self)
        if self._failures:
            raise self._failures[0]


def _is_one_line(text: str) -> bool:
    return text.count("\n") <= 1 and (not text or text.removesuffix("\n").isprintable())


# -- messages of a broker --------------------------------------------------------------


class _Incoming:
    """A message as oslo.messaging's server passes it to the dispatcher."""

    client_timeout = None

    def __init__(self, context: Any, message: Any) -> None:
        self.ctxt, self.message = context, message


def _dispatch(dispatcher: Dispatcher, message: dict[str, Any], context: Any) -> bool:
    """Dispatch a message; return whether it was answered, or was refused cleanly."""
    try:
        answer = dispatcher.dispatch(_Incoming(context, message))
    except oslo_messaging.ExpectedException as e:
        error = e.exc_info[1]
        is_clean = isinstance(error, SchedulerError) and not error.is_unexpected
        if not is_clean and not isinstance(error, NoSuchMethod | UnsupportedVersion):
            raise error from None
        str(error).encode("utf-8", "backslashreplace")
        return False
    json.dumps(answer)
    return True


def _messages() -> list[dict[str, Any]]:
    """Read the messages that nova 34 sent: of casts, fewer than of requests."""
    with gzip.open(_DATA / "wire" / "corpus.jsonl.gz", "rt") as lines:
        recorded = [json.loads(line)["message"] for line in lines]
    requests = [m for m in recorded if m["method"] == "select_destinations"]
    casts = [m for m in recorded if m["method"] != "select_destinations"]
    scenarios = map(Path.read_text, sorted((_DATA / "wire").glob("*.json")))
    requests += [one["message"] for one in map(json.loads, scenarios) if "call" in one]
    return [*requests, *casts[:60]]


def _large(name: str, **changes: Any) -> dict[str, Any]:
    """A host that is never full, with NUMA cells and devices."""
    cells = numa_topology(*(numa_cell(i, memory=10**6) for i in range(8)))
    amounts = {"vcpus": 10**6, "memory_mb": 10**9, "local_gb": 10**8}
    return host(
        name,
        numa_topology=cells.obj_to_primitive(),
        pci_stats=pci_pools().obj_to_primitive(),
        **{**amounts, **changes},
    )


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[Scheduler]:
    """A scheduler whose hosts have the names in nova's messages, with more filters."""
    conf = moorage_conf.load([], config_files=[])
    more = [
        "JsonFilter", "SameHostFilter", "DifferentHostFilter",
        "SimpleCIDRAffinityFilter", "AggregateInstanceExtraSpecsFilter",
        "AggregateImagePropertiesIsolation",
        "AggregateMultiTenancyIsolation",
    ]  # fmt: skip
    enabled = [*conf.filter_scheduler.enabled_filters, *more]
    names = ("compute", "compute1", "host1", "host2", "test_compute0", "test_compute1")
    with started_scheduler(
        tmp_path,
        *map(_large, names),
        options={"filter_scheduler": {"enabled_filters": enabled}},
    ) as scheduler:
        yield scheduler


def test_damaged_rpc_is_answered_or_refused_and_claims_nothing_then(
    scheduler: Scheduler,
) -> None:
    dispatcher = Dispatcher(scheduler.endpoints, Serializer(), MethodsOnly)
    messages = _messages()

    def attempt(rng: Random) -> None:
        message, context = rng.choice(messages), CONTEXT
        uuids = new_uuids(len(message["args"].get("instance_uuids") or ()))
        if uuids:
            args = {**message["args"], "instance_uuids": uuids}
            message = {**message, "args": args}
        if rng.random() < 0.1:
            context = damaged(rng, {**CONTEXT, "is_admin": True, "roles": ["admin"]})
        else:
            message = damaged(rng, message)
        if not isinstance(message, dict) or not isinstance(context, dict):
            return  # oslo.messaging has them in a message of its own
        if not _dispatch(dispatcher, message, context):
            for uuid in uuids:
                assert not scheduler.placement.allocations(uuid).resources
        if rng.random() < 0.02:
            assert selected(scheduler, *new_uuids(), force_hosts=["host2"])

    _fuzz("rpc", 400, attempt)
    assert selected(scheduler, *new_uuids())


@pytest.fixture
def reported(embedded: EmbeddedPlacementFixture, tmp_path: Path) -> Iterator[Scheduler]:
    """A scheduler to which agents report two hosts; Placement has both."""
    reports = _reports()
    uuid = reports[0]["moorage_object.data"]["uuid"]
    conf = moorage_conf.load([], config_files=[])
    url = f"sqlite:///{tmp_path}/hosts.sqlite"
    conf.set_override("store_connection", url, group="moorage")
    conf.set_override("source", "push", group="moorage")
    path = write_inventory(tmp_path, _large("h1", uuid=uuid), _large("h2"))
    seed(embedded.client, providers(read_inventory(path)))
    scheduler = build(conf, placement=embedded.adapter)
    scheduler.start()
    (endpoint,) = scheduler.source_endpoints
    endpoint.host_reports({}, reports)  # type: ignore[attr-defined]
    yield scheduler
    scheduler.stop()


def _reports() -> list[Any]:
    reports: list[Any] = json.loads((_DATA / "host_reports.json").read_text())
    return reports


def test_damaged_cast_changes_nothing_else(reported: Scheduler) -> None:
    source: Any = reported.parts.source
    endpoints = [
        *reported.source_endpoints,
        DeletionEndpoint(source),
        PeersEndpoint(reported, "origin"),
    ]
    dispatcher = Dispatcher(endpoints, Serializer(), MethodsOnly)
    reports = _reports()
    uuid = reports[0]["moorage_object.data"]["uuid"]
    request = _messages()[0]["args"]["spec_obj"]
    claim = {
        "node_uuid": uuid,
        "instance_uuid": INSTANCE,
        "claimed_at": 1e9,
        "memory_mb": 1,
        "disk_mb": 1,
        "vcpus": 1,
        "image_properties": [["os_type", "linux"]],
        "resources": {uuid: {"VCPU": 1}},
        "spec_obj": request,
        "limits": {},
        "mappings": {"": [uuid]},
        "state": "granted",
    }
    casts: list[tuple[str, str, dict[str, Any]]] = [
        ("host_reports", "1.0", {"reports": reports}),
        ("host_reports", "1.0", {"reports": reports[:1]}),
        ("instances_claimed", "1.0", {"origin": "other", "claims": [claim]}),
        ("instances_reserved", "1.1", {"origin": "other", "claims": [
            {**claim, "state": "reserved"}, {**claim, "state": "withdrawn"}
        ]}),
        ("instances_deleted", "1.2", {"instance_uuids": [INSTANCE]}),
    ]  # fmt: skip
    revision = itertools.count(10)

    def attempt(rng: Random) -> None:
        method, version, args = rng.choice(casts)
        if method == "host_reports":
            for report in args["reports"]:
                report["moorage_object.data"]["revision"] = next(revision)
        message = {
            "method": method,
            "namespace": "moorage",
            "version": version,
            "args": {name: damaged(rng, value) for name, value in args.items()},
        }
        _dispatch(dispatcher, message, {})
        with contextlib.suppress(SchedulerError):  # a report may say that it is down
            reported.select_destinations(
                CONTEXT, Serializer().deserialize_entity({}, request), None
            )

    _fuzz("casts", 300, attempt)


def test_damaged_message_of_kafka_is_applied_or_skipped() -> None:
    topics = TopicNames("hosts", "heartbeats", "aggregates")
    table = HostTable(time.time)
    missing = MissingHosts(time.monotonic)
    hosts = ReportedHosts(table, missing, time.time, lambda _uuids: None)
    applier = MessageApplier(topics, hosts, table)
    whole, delta = _reports()[:2]
    key = whole["moorage_object.data"]["uuid"]
    [aggregates] = [
        message["args"]["aggregates"]
        for message in _messages()
        if message["method"] == "update_aggregates" and message["args"]["aggregates"]
    ][:1]
    aggregate = aggregates[0] if isinstance(aggregates, list) else aggregates
    id_ = str(aggregate["nova_object.data"]["id"])
    kinds = [("hosts", key, whole), ("heartbeats", key, delta)]
    kinds.append(("aggregates", id_, aggregate))

    def attempt(rng: Random) -> None:
        topic, key, document = rng.choice(kinds)
        encoded, value = key.encode(), json.dumps(document).encode()
        if rng.random() < 0.5:
            value = json.dumps(damaged(rng, document)).encode()
        elif rng.random() < 0.8:
            value = damaged_bytes(rng, value)
        else:
            encoded = damaged_bytes(rng, encoded)
        applier.apply([TopicMessage(topic, 0, 0, encoded, value, rng.random() * 2e9)])
        hosts.end_reported_claims()
        hosts.forget_lost()
        table.batch()

    _fuzz("kafka", 1500, attempt)


# -- the HTTP API and the page ---------------------------------------------------------

_SIZES: Final = {"vcpus": 1, "memory_mb": 64, "root_gb": 0}
_REQUEST: Final = {
    "flavor": {**_SIZES, "name": "f", "extra_specs": {"hw:cpu_policy": "dedicated"}},
    "image_properties": {"hw_architecture": "x86_64"},
    "hints": {"group": [INSTANCE], "query": ['["=", "$host", "h0"]']},
    "availability_zone": "zone0",
    "project_id": "project",
}
_STEP: Final = {
    "number": 1, "instance": INSTANCE, "source": "h0", "destination": "h1",
    "destination_node": INSTANCE,
}  # fmt: skip
#: Bodies by path.
_BODIES: Final[dict[str, list[dict[str, Any]]]] = {
    "/v1/why-not": [
        {"host": "h0", "stored": FAILED}, {"host": "h0", "request": _REQUEST}
    ],
    "/v1/dry-run": [{"count": 2, "stored": TWO}, {"request": _REQUEST}],
    "/v1/closest": [{"stored": FAILED}, {"count": 3, "request": _REQUEST}],
    "/v1/capacity": [{"from": "decisions"}, {"flavors": [{**_SIZES, "name": "f"}]}],
    "/v1/plans/drain": [{"hosts": ["h0"], "keep_up": 0, "parallel": 2}],
    "/v1/plans/make-room": [{"flavor": "plain", "count": 1, "seconds": 1}],
    "/v1/plans/defragment": [{"parallel": 2}],
    "/v1/plans/check": [{"steps": [_STEP], "hosts": ["h0"], "left": [INSTANCE]}],
}  # fmt: skip
#: Parameters by path.
_PAGES: Final = {
    "/v1/decisions": {"instance": INSTANCE, "since": "1", "after": "9", "limit": "5"},
    "/v1/failures": {"project": "project", "until": "1e10"},
    f"/v1/decisions/{SELECTED}": {},
    "/v1/records": {"id": TWO, "limit": "5"},
    "/v1/views/now": {},
    "/v1/hosts": {"after": "h0", "limit": "3", "instances": "true"},
    "/v1/hosts/h0": {},
    "/": {"by": "zone", "first": "0"},
    "/decisions": {"outcome": "refused", "since": "1h", "host": "h0", "after": "7"},
    "/failures": {"from": "2026-11-26T14:03", "to": "2027-01-01T00:00"},
    "/search": {"q": "h0"},
    f"/decisions/{SELECTED}": {"n": "1", "host": "h0"},
    "/hosts": {"q": "h", "sort": "host", "state": "up", "zone": "zone0", "after": "h"},
    "/hosts/h0": {"then": SELECTED},
    "/why-not": {"host": "h0", "request": FAILED},
    "/closest": {"request": FAILED, "count": "2"},
    "/capacity": {"from": "decisions", "project": "project"},
    "/dry-run": {"vcpus": "1", "memory_mb": "64", "extra_specs": "a=b", "hints": "c=d"},
    "/plans/drain": {"host": "h0", "parallel": "2"},
    "/plans/make-room": {"flavor": "plain", "count": "2"},
    "/plans/defragment": {"max_moves": "5", "max_gib": "3"},
    "/login": {},
}  # fmt: skip


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExplainingAPI]:
    with explaining_api(tmp_path_factory.mktemp("api")) as made:
        yield made


def _asked(rng: Random) -> EnvironBuilder:
    """Return a damaged request to the API or the page."""
    headers, data = {"Accept": "text/html"}, None
    if rng.random() < 0.5:
        path = rng.choice(list(_BODIES))
        method, query = "POST", ""
        body = rng.choice(_BODIES[path])
        data = json.dumps(damaged(rng, body)).encode()
        if rng.random() < 0.2:
            data = damaged_bytes(rng, json.dumps(body).encode())
        headers["Content-Type"] = "application/json"
    else:
        path, values = rng.choice(list(_PAGES.items()))
        method = "POST" if path == "/login" else "GET"
        values = damaged(rng, values) if values else {MARKER: MARKER}
        pairs = values.items() if isinstance(values, dict) else [("q", values)]
        query = urlencode([(k, str(v)[:20_000]) for k, v in pairs], errors="replace")
    if rng.random() < 0.15:
        path = damaged(rng, path)
        path = quote(path if isinstance(path, str) else "/", "/%", errors="replace")
        path = f"/{path[:8000].lstrip('/')}"
    if rng.random() < 0.1:
        names = ("Cookie", "Authorization", "X-Auth-Token", "Host", "Content-Type",
                 "Content-Length", "Accept", "Sec-Fetch-Site", "Origin")  # fmt: skip
        value = damaged_bytes(rng, b"moorage=a.b.c; localhost, text/html").decode(
            "latin-1"
        )
        headers[rng.choice(names)] = value.translate({10: None, 13: None})
    made = EnvironBuilder(
        path, "http://localhost", query_string=query, method=method, data=data
    )
    for name, value in headers.items():
        made.headers[name] = value
    return made


@pytest.mark.parametrize("auth", ["none", "token"])
def test_damaged_request_of_the_api_is_answered_or_refused(
    api: ExplainingAPI, tmp_path: Path, auth: str
) -> None:
    conf = moorage_conf.load([], config_files=[])
    token = tmp_path / "token"
    token.write_text("0123456789abcdef")
    token.chmod(0o600)
    conf.set_override("auth", auth, group="web")
    conf.set_override("token_file", str(token), group="web")
    client = Client(make_access(conf)(api.app))

    def attempt(rng: Random) -> None:
        made = _asked(rng)
        if auth == "token" and rng.random() < 0.3:
            made.headers["X-Auth-Token"] = token.read_text()
        answer = client.open(made)
        assert answer.status_code < 500, (made.path, made.query_string, answer.data)
        if answer.mimetype == "application/json":
            json.loads(answer.data)
        elif answer.mimetype == "text/html":
            assert b"<x-fuzz" not in answer.data

    _fuzz(f"api {auth}", 250 if auth == "none" else 100, attempt)


# -- files -----------------------------------------------------------------------------


def test_damaged_inventory_is_read_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "inventory.yaml"
    document = inventory(
        _large("h1", traits=["CUSTOM_GOLD"], resources={"VGPU": {"total": 2}}),
        host("h2", instances=[INSTANCE], vcpus_used=2, metrics={"cpu.percent": 0.5}),
        aggregates=[{"name": "a", "hosts": ["h1"], "metadata": {"ssd": "true"}}],
    )
    texts = [
        json.dumps(document).encode(),
        yaml.safe_dump(document).encode(),
        *(file.read_bytes() for file in sorted(_EXAMPLES.glob("*.yaml"))),
    ]

    def attempt(rng: Random) -> None:
        kind = rng.random()
        if kind < 0.5:
            data = json.dumps(damaged(rng, document)).encode()
        elif kind < 0.6:
            data = yaml.dump(damaged(rng, document)).encode("utf-8", "surrogatepass")
        else:
            data = damaged_bytes(rng, rng.choice(texts))
        path.write_bytes(data)
        with contextlib.suppress(InventoryError):
            read_inventory(path)

    _fuzz("inventory", 150, attempt)


def _commands() -> Callable[[Random], list[str]]:
    commands = [
        ["decisions"], ["decisions", "--group"], ["hosts"], ["hosts", NAMES[0]],
        ["explain", SELECTED], ["explain", FAILED], ["why-not", NAMES[1], FAILED],
        ["capacity"], ["replay", SELECTED], ["closest", "--request", FAILED],
        ["schedule", "--dry-run", "--request", TWO], ["plan", "drain", NAMES[0]],
    ]  # fmt: skip
    return lambda rng: rng.choice(commands)


def _run(args: list[str]) -> None:
    """Run a command, which must end with an answer or an error of one line."""
    result = CliRunner().invoke(cli, args, env={"MOORAGE_URL": None})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code in (0, 1, 2), result.output
    if result.exit_code == 1:
        assert _is_one_line(result.stderr), result.stderr
    assert "\x1b" not in result.output


@pytest.fixture
def snapshot(api: ExplainingAPI, tmp_path: Path) -> Path:
    """A snapshot of the cloud."""
    path = tmp_path / "cloud.snapshot"
    client = Client(api.app)
    view = client.get("/v1/views/now").get_json()["data"]
    records = client.get("/v1/records").get_json()["records"]
    stored = [(int(r["id"]), base64.b64decode(r["data"])) for r in records]
    replays = [StoredDecision.read(*record).record.replay for record in stored]
    views = {
        key: base64.b64decode(client.get(f"/v1/views/{key}").get_json()["data"])
        for key in {replay.view for replay in replays if replay is not None}
    }
    content = Snapshot(time.time(), base64.b64decode(view), stored, views)
    _write_snapshot(path, content)
    return path


_SNAPSHOT: Final = b"moorage snapshot \x01"
_VIEW: Final = b"moorage view \x02"


def _write_snapshot(path: Path, content: Any) -> None:
    path.write_bytes(_SNAPSHOT + msgspec.msgpack.encode(content))


def _frames(view: bytes) -> list[Any]:
    """Return the frames of a view, each as kind, name and data."""
    unpacked = io.BytesIO(zlib.decompress(view.removeprefix(_VIEW)))
    frames = []
    while head := unpacked.read(4):
        frames.append(msgspec.msgpack.decode(unpacked.read(*struct.unpack(">I", head))))
    return frames


def _view(frames: Iterable[Any]) -> bytes:
    encoded = [_packed(frame) for frame in frames]
    parts = [struct.pack(">I", len(frame)) + frame for frame in encoded]
    return _VIEW + zlib.compress(b"".join(parts), 1)


def _packed(document: Any) -> bytes:
    """Return msgpack; what it cannot hold, such as 2 ** 64, is a text there."""
    try:
        return msgspec.msgpack.encode(document)
    except (OverflowError, UnicodeEncodeError):
        text = json.dumps(document, default=str, ensure_ascii=False)
        text = text.encode("utf-8", "replace").decode()
        return msgspec.msgpack.encode(json.loads(text, parse_int=_small))


def _small(digits: str) -> int | str:
    return digits if len(digits) > 18 else int(digits)


def test_damaged_snapshot_is_read_or_refused(snapshot: Path, tmp_path: Path) -> None:
    path = tmp_path / "damaged.snapshot"
    whole = read_snapshot(snapshot)
    frames = _frames(whole.view)
    command = _commands()

    def attempt(rng: Random) -> None:
        content = msgspec.structs.replace(whole)
        kind = rng.random()
        if kind < 0.4:
            at = rng.randrange(len(frames))
            changed = damaged(rng, frames[at])
            content.view = _view([*frames[:at], changed, *frames[at + 1 :]])
            _write_snapshot(path, content)
        elif kind < 0.9:
            at = rng.randrange(len(content.records))
            id_, record = content.records[at]
            stored = msgspec.msgpack.decode(zlib.decompress(record[1:]))
            data = record[:1] + zlib.compress(_packed(damaged(rng, stored)))
            content.records = [*content.records]
            content.records[at] = (id_, data)
            _write_snapshot(path, content)
        else:
            path.write_bytes(damaged_bytes(rng, snapshot.read_bytes()))
        _run(["--snapshot", str(path), *command(rng)])

    _fuzz("snapshot", 60, attempt)


def test_damaged_plan_is_checked_or_refused(snapshot: Path, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    args = ["--snapshot", str(snapshot), "plan"]
    plan = CliRunner().invoke(cli, [*args, "drain", NAMES[0], "--json"]).stdout
    document = {**json.loads(plan), "steps": [_STEP]}

    def attempt(rng: Random) -> None:
        if rng.random() < 0.7:
            path.write_text(json.dumps(damaged(rng, document)))
        else:
            path.write_bytes(damaged_bytes(rng, plan.encode()))
        _run([*args, "check", str(path)])

    _fuzz("plan", 40, attempt)


def _traces(folder: Path) -> list[tuple[str, bytes]]:
    """Return a small trace of each format, with the suffix of its file."""
    texts = [
        "vmId,tenantId,cores,ram,vmTypeId,starttime,endtime\n1,10,200.0,28.0,0,-5,inf\n"
        "2,11,400.0,56.0,0,0.5,1.5\n3,10,200.0,28.0,1,0.25,\n",
        "vmid,cpu,memory,time,type\n7,2,4,0,0\n8,1,1,5,0\n7,2,4,60,1\n",
        "name,cpu_milli,memory_mib,creation_time,deletion_time\np0,12000,16384,0,125\n"
        "p1,6000,12288,10,\n",
    ]
    traces = [(".csv", text.encode()) for text in texts]
    traces += [(".csv.gz", gzip.compress(data, mtime=0)) for _, data in traces[:1]]
    azure = folder / "azure"
    with contextlib.closing(sqlite3.connect(azure)) as database:
        database.executescript(
            "PRAGMA page_size = 512;"
            "CREATE TABLE vmType (vmTypeId, machineId, core, memory);"
            "INSERT INTO vmType VALUES (1, 1, 0.5, 0.25), (2, 1, 0.1, '0.1');"
            "CREATE TABLE vm (vmId, tenantId, vmTypeId, starttime, endtime);"
            "INSERT INTO vm VALUES (1, 1, 1, -1.5, NULL), (2, 1, 2, 0.5, 1.5);"
        )
    return [*traces, (".sqlite", azure.read_bytes())]


def test_damaged_trace_is_read_or_refused(tmp_path: Path) -> None:
    traces = _traces(tmp_path)

    def attempt(rng: Random) -> None:
        suffix, data = rng.choice(traces)
        path = tmp_path / f"trace{suffix}"
        path.write_bytes(damaged_bytes(rng, data))
        if rng.random() < 0.03:
            _run(["simulate", str(path), "--hosts", "1"])
        try:
            trace = read_trace(path)
        except TraceError as e:
            refused = str(e)
        else:
            refused = ""
            trace.peak()
        assert _is_one_line(refused), refused

    _fuzz("trace", 400, attempt)
