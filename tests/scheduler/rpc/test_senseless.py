# SPDX-License-Identifier: Apache-2.0
"""Messages that make no sense, and requests that cannot be, end in one clear line."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import oslo_messaging
import pytest
from oslo_config import cfg

from moorage.objects import Aggregate, Serializer
from moorage.scheduler import conf as moorage_conf
from moorage.scheduler.errors import InvalidRequest, NoValidHost, SchedulerError
from moorage.scheduler.rpc import SchedulerEndpoint, get_server, get_transport
from moorage.scheduler.service import build

from ...fixtures.clouds import CONTEXT, host, new_uuids, request, write_inventory

Call = Callable[..., Any]
SELECT = "select_destinations"


@contextmanager
def _served(
    conf: cfg.ConfigOpts, *endpoints: object, topic: str = "scheduler"
) -> Iterator[Call]:
    """Serve endpoints, and return what sends a message as it is to them."""
    transport = get_transport(conf, "fake://")
    server = get_server(conf, transport, endpoints, topic)
    server.start()

    def call(context: dict[str, Any] = CONTEXT, **message: Any) -> Any:
        whole = {"method": SELECT, "args": {}, "version": "4.5", **message}
        whole["args"] = Serializer().serialize_entity({}, whole["args"])
        target = oslo_messaging.Target(topic=topic)
        return transport._send(  # noqa: SLF001 - a client cannot send nonsense
            target, context, whole, wait_for_reply=True, timeout=30
        )

    try:
        yield call
    finally:
        server.stop()
        server.wait()
        transport.cleanup()


@pytest.fixture(scope="module")
def call(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Call]:
    """Send a message as it is to a scheduler, and return the answer."""
    folder: Path = tmp_path_factory.mktemp("cloud")
    conf = moorage_conf.load([], config_files=[])
    path = write_inventory(folder, host("h1"), host("h2"))
    conf.set_override("inventory_file", str(path), group="moorage")
    scheduler = build(conf)
    scheduler.start()
    with _served(conf, *scheduler.endpoints) as call:
        yield call
    scheduler.stop()


class _Broken:
    """A scheduler with a defect."""

    table: Any = None

    def select_destinations(self, *_arguments: object) -> Any:
        raise KeyError("a defect")


def _arguments(**changes: Any) -> dict[str, Any]:
    return {"spec_obj": request(), "instance_uuids": new_uuids(), **changes}


def _has_one_line(caplog: pytest.LogCaptureFixture) -> bool:
    lines = [r for r in caplog.records if r.levelno >= logging.INFO]
    assert not [r for r in lines if r.exc_info or r.levelno > logging.WARNING]
    return len(lines) == 1 and "req-test" in lines[0].getMessage()


_VERSIONS: Any = (7, "x", "", [], None, {}, "4", "4.x", "4.5.6.7", "9" * 5000)
_AGGREGATES: Any = [
    Aggregate(id=1, uuid=new_uuids()[0], name="a", hosts=["h1"], metadata={}),
    Aggregate(name="without an id"),
]
_METHODS: Any = (5, None, [], {}, True)


@pytest.mark.parametrize(
    ("message", "error"),
    [
        *[({"version": version}, "version is .* like 4.5") for version in _VERSIONS],
        *[({"method": method}, "method is") for method in _METHODS],
        *[({"args": args}, "args are") for args in (None, [], "x", 5, [["a", 1]])],
        ({"args": {"bogus": 1}}, "select_destinations: .*'bogus'"),
        ({"args": {"context": 1}}, "select_destinations: .*'context'"),
        ({"args": {"self": 1}}, "select_destinations: .*'self'"),
        ({"args": _arguments(return_objects="yes")}, "return_objects: a boolean"),
        ({"args": _arguments(return_alternates=[1])}, "return_alternates: a boolean"),
        ({"args": _arguments(spec_obj=[])}, "spec_obj: a RequestSpec"),
        ({"args": _arguments(instance_uuids=5)}, "instance_uuids: a list"),
        ({"args": _arguments(instance_uuids={"a": 1})}, "instance_uuids: a list"),
        ({"args": _arguments(instance_uuids=[5])}, "5 is not a UUID"),
        ({"args": _arguments(instance_uuids=[[]])}, r"\[\] is not a UUID"),
        ({"args": {"request_spec": request()}}, "request_spec: a dict"),
        ({"args": _arguments(spec_obj=request(vcpus=-1))}, "vcpus is -1"),
        (
            {"method": "ping", "version": "1.1", "namespace": "baseapi"},
            "ping: .*'arg'",
        ),
        ({"method": "update_aggregates"}, "update_aggregates: .*'aggregates'"),
        (
            {"method": "update_aggregates", "args": {"aggregates": _AGGREGATES}},
            "Aggregate.id is not set",
        ),
        (
            {"method": "delete_aggregate", "args": {"aggregate": Aggregate(name="a")}},
            "Aggregate.id is not set",
        ),
        (
            {"context": {**CONTEXT, "global_request_id": "\n"}, "args": _arguments()},
            "id",
        ),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, str) else "",
)
def test_invalid_message_is_refused_in_one_line(
    call: Call, caplog: pytest.LogCaptureFixture, message: dict[str, Any], error: str
) -> None:
    with caplog.at_level(logging.INFO), pytest.raises(InvalidRequest, match=error):
        call(**message)
    if "context" not in message:
        assert _has_one_line(caplog)


@pytest.mark.parametrize("name", ["target", "_scheduler", "__init__", "no_such"])
def test_only_methods_can_be_called(
    call: Call, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    with caplog.at_level(logging.INFO), pytest.raises(AttributeError, match=name):
        call(method=name)
    assert _has_one_line(caplog)


@pytest.mark.parametrize("version", ["4.6", "5.0", "99999.0"])
def test_version_that_is_not_served_is_answered_as_by_nova(
    call: Call, caplog: pytest.LogCaptureFixture, version: str
) -> None:
    with (
        caplog.at_level(logging.INFO),
        pytest.raises(oslo_messaging.UnsupportedVersion, match=version),
    ):
        call(version=version, args=_arguments())
    assert _has_one_line(caplog)


@pytest.mark.parametrize(
    "context",
    [{}, {"request_id": 5}, {"roles": 7, "request_id": "req-1"}, {"user_id": ["x"]}],
    ids=str,
)
def test_invalid_context_is_ignored(call: Call, context: Any) -> None:
    assert call(context=context, args=_arguments())


@pytest.mark.parametrize(
    ("spec_obj", "reason"),
    [
        (request(vcpus=99), "found. Of 2 hosts: 2 lack CPUs.$"),
        (
            request(extra_specs={"trait:CUSTOM_NO_SUCH": "required"}),
            "Placement rejected the query: .*No such trait.*CUSTOM_NO_SUCH",
        ),
        (
            request(extra_specs={"resources:CUSTOM_NO_SUCH": "1"}),
            "Placement rejected the query: .*No such resource class CUSTOM_NO_SUCH",
        ),
        (request(force_hosts=["no-such-host"]), "No such host"),
    ],
    ids=["too large", "unknown trait", "unknown class", "no such host"],
)
def test_request_that_fits_nowhere_leaves_no_traceback(
    call: Call, caplog: pytest.LogCaptureFixture, spec_obj: Any, reason: str
) -> None:
    with caplog.at_level(logging.INFO), pytest.raises(NoValidHost, match=reason):
        call(args=_arguments(spec_obj=spec_obj))
    lines = [r for r in caplog.records if r.levelno >= logging.INFO]
    assert not [r for r in lines if r.exc_info or r.levelno > logging.WARNING]
    assert "req-test" in lines[-1].getMessage()


def test_unexpected_error_leaves_its_traceback(
    conf: cfg.ConfigOpts, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        _served(conf, SchedulerEndpoint(_Broken()), topic="broken") as call,
        pytest.raises(SchedulerError, match="The scheduler failed"),
    ):
        call(args=_arguments())
    assert "Traceback" in caplog.text
    assert "KeyError: 'a defect'" in caplog.text


def test_invalid_request_is_named_once(call: Call) -> None:
    with pytest.raises(InvalidRequest) as raised:
        call(args=_arguments(spec_obj=request(vcpus=-1)))
    message = str(raised.value)
    assert message.count("InvalidRequest") == message.count("No valid host") == 1
    failure: Any = raised.value
    assert "No valid host" not in failure.kwargs["reason"]
