# SPDX-License-Identifier: Apache-2.0
"""Records are stored in few bytes, and read again, whatever they contain."""

from __future__ import annotations

import dataclasses
import json
import math
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from moorage.objects import Flavor, MalformedObject, RequestSpec, Serializer
from moorage.scheduler.decision_store import DecisionStore, codec
from moorage.scheduler.drivers.record import (
    ClaimAttempt,
    DecisionRecord,
    FilterStep,
    InstanceRecord,
    WeighedHost,
    WeigherPart,
)
from moorage.testing.builders import group, spec

from ...fixtures.stored_decisions import decisions_in
from .conftest import make_record

HOSTILE = [
    "<script>alert(1)</script>",
    "' OR 1=1; DROP TABLE decisions; --",
    'a"b`c\\',
    "nul \x00 bell \x07 \x1b[31m red \r\n",
    "\u202e right to left, \ufeff, \U0001f4a5",
    "x" * 10_000,
    "",
    "%s %(x)s {0} $PATH",
]
WIRE = Path(__file__).parents[2] / "data" / "wire"
WEIGHERS = ("RAMWeigher", "CPUWeigher", "DiskWeigher", "IoOpsWeigher", "PCIWeigher")


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_stored_found_and_read(store: DecisionStore, text: str) -> None:
    name = f"{text}host"
    record = make_record(
        host=name,
        request_id=f"req {text}",
        project_id=f"project {text}",
        reason=text,
        steps=[FilterStep(text, 1, 0, text)],
        request=spec(
            scheduler_hints={"query": [text]},
            availability_zone=text,
            flavor=Flavor(name=text, extra_specs={f"k{text}": text}),
        ),
    )
    store.add(record)
    store.flush()
    [decision] = decisions_in(store, request_id=f"req {text}")
    assert decision.record == dataclasses.replace(record, request=None)
    assert decision.request is not None
    assert decision.request.scheduler_hints == {"query": [text]}
    assert decision.request.flavor.extra_specs == {f"k{text}": text}
    assert decision.hosts == (name,)


def test_text_that_utf8_cannot_represent_is_changed() -> None:
    record = make_record(host="a\ud800b", reason="\udfff")
    read, request = codec.decode(codec.encode(record))
    assert (read.instances[0].host, read.reason) == ("a?b", "?")
    assert request is not None


def test_numbers_of_numpy_are_stored_as_pythons() -> None:
    part = WeigherPart("W", np.float64(0.5), np.float32(0.25), np.int64(3))  # type: ignore[arg-type] # what a weigher may return
    top = WeighedHost("a", "a", np.float64(1.5), (part,))
    record = make_record(instances=[InstanceRecord("u", "a", 1.0, (top,))])
    read, _ = codec.decode(codec.encode(record))
    assert read.instances[0].top_hosts[0].parts == (WeigherPart("W", 0.5, 0.25, 3.0),)


@pytest.mark.parametrize("hint", ["x" * 10, 1 << 70, "random"])
def test_request_that_cannot_be_stored_is_left_out(
    hint: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codec, "_MAX_BYTES", 10_000)
    if hint == "random":
        hint = "".join(str(uuid.uuid4()) for _ in range(1000))
    request = _Request(spec(), hint)
    read, found = codec.decode(codec.encode(make_record(request=request)))
    assert read.request_id == "req-1"
    assert (found is None) == (hint != "x" * 10)


class _Request:
    """A request with a value in its wire form."""

    def __init__(self, plain: RequestSpec, hint: object) -> None:
        self._plain, self._hint = plain, hint

    def obj_to_primitive(self) -> Any:
        primitive = self._plain.obj_to_primitive()
        primitive["nova_object.data"]["hint"] = self._hint
        return primitive


@pytest.mark.parametrize("data", [b"", b"\x03", b"\x03junk", b"\x02x", b"\xffx"])
def test_bytes_that_are_no_record_are_an_error(data: bytes) -> None:
    with pytest.raises(codec.UnreadableRecord):
        codec.decode(data)


def test_a_record_that_unpacks_to_too_much_is_an_error() -> None:
    data = codec.encode(make_record(request=None, reason="x" * (1 << 25)))
    assert len(data) < 1 << 20
    with pytest.raises(codec.UnreadableRecord, match="has more than"):
        codec.decode(data)


@pytest.mark.parametrize("started_at", [-1.0, 1e11, math.inf, math.nan])
def test_a_record_whose_time_is_no_date_is_an_error(started_at: float) -> None:
    data = codec.encode(make_record(started_at=started_at))
    with pytest.raises(codec.UnreadableRecord, match="started_at is"):
        codec.decode(data)


def _top(rng: np.random.Generator, host: str, n_weighers: int) -> WeighedHost:
    parts = tuple(
        WeigherPart(name, float(rng.integers(1 << 17)), *rng.random(2).tolist())
        for name in WEIGHERS[:n_weighers]
    )
    return WeighedHost(host, host, float(rng.random()), parts)


def _decision(n_instances: int) -> DecisionRecord:
    """A record whose numbers cannot be compressed: no real one has more of them."""
    rng = np.random.default_rng(1)
    uuids = tuple(
        str(uuid.uuid5(uuid.NAMESPACE_DNS, str(n))) for n in range(n_instances)
    )
    hosts = [f"compute-{rng.integers(10_000):05}.example.org" for _ in range(400)]
    instances = [
        InstanceRecord(
            each,
            hosts[n],
            float(rng.random()),
            tuple(_top(rng, hosts[n + i], 3) for i in range(5)) if n < 20 else (),
            tuple(hosts[-3:]),
        )
        for n, each in enumerate(uuids)
    ]
    return make_record(
        instance_uuids=uuids,
        n_instances=n_instances,
        instances=instances,
        claims=[ClaimAttempt(uuids, tuple(hosts[:n_instances]), "claimed", 1, "")],
    )


def _sent(name: str) -> RequestSpec:
    """Return the request of a message that nova's conductor has sent."""
    message = json.loads((WIRE / f"{name}.json").read_text())["message"]
    primitive = message["args"]["spec_obj"]
    request: RequestSpec = Serializer().deserialize_entity({}, primitive)
    return request


def _in_group(request: RequestSpec, n_members: int) -> RequestSpec:
    """Return a request whose server group has that many members, each on a host."""
    rng = np.random.default_rng(2)
    numbers = rng.integers(10_000, size=n_members)
    request.instance_group.hosts = [f"compute-{n:05}.example.org" for n in numbers]
    request.instance_group.members = [
        str(uuid.UUID(bytes=rng.bytes(16))) for _ in numbers
    ]
    return request


@pytest.mark.parametrize("name", ["Aggregate", None])
def test_a_request_that_is_another_object_cannot_be_read(name: str | None) -> None:
    primitive = spec().obj_to_primitive()
    primitive["nova_object.data"] = {}
    if name is None:
        del primitive["nova_object.name"]
    else:
        primitive |= {"nova_object.name": name, "nova_object.version": "1.3"}
    with pytest.raises(MalformedObject, match="expected a RequestSpec"):
        codec.read_request(primitive)


def test_records_are_small() -> None:
    sizes = {n: len(codec.encode(_decision(n))) for n in (1, 2, 10, 20, 50, 100)}
    assert sizes[1] <= 1500
    for n in (2, 10, 20, 50, 100):
        assert (sizes[n] - sizes[1]) / (n - 1) <= 300 - 84, "84 bytes are of its keys"


@pytest.mark.parametrize(
    ("request_", "limit"),
    [
        pytest.param(_sent("plain-boot"), 2000, id="plain"),
        pytest.param(_sent("boot-from-volume"), 2000, id="volume"),
        pytest.param(_sent("numa-pinned"), 2200, id="numa"),
        pytest.param(
            _in_group(_sent("server-group-anti-affinity"), 50), 3700, id="group"
        ),
        pytest.param(
            _in_group(spec(instance_group=group("affinity")), 50), 3700, id="built"
        ),
    ],
)
def test_record_of_one_instance_is_small(request_: RequestSpec, limit: int) -> None:
    record = dataclasses.replace(_decision(1), request=request_)
    data = codec.encode(record)
    assert len(data) <= limit
    assert codec.decode(data)[1] == request_.obj_to_primitive()
