# SPDX-License-Identifier: Apache-2.0
"""A missing private part of oslo.messaging is logged once, and requests go on."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator
from typing import Any

import oslo_messaging
import pytest
from oslo_messaging._drivers import amqpdriver, impl_rabbit
from oslo_messaging.rpc.server import RPCServer
from packaging.requirements import Requirement

from moorage.scheduler.conf import load
from moorage.scheduler.rpc import get_server, get_transport
from moorage.scheduler.rpc.private_api import warn_of_missing_api


@pytest.fixture(autouse=True)
def _afresh() -> Iterator[None]:
    warn_of_missing_api.cache_clear()
    yield
    warn_of_missing_api.cache_clear()


def _warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if "oslo.messaging" in r.message]


class Echo:
    target = oslo_messaging.Target(version="1.0")

    def echo(self, _context: object, text: str) -> str:
        return text


def _echoed(text: str) -> str:
    """Return what a server of ours answers over a bus in memory."""
    conf = load([], config_files=[])
    transport = get_transport(conf, "fake://")
    server = get_server(conf, transport, [Echo()], "echoes")
    server.start()
    try:
        target = oslo_messaging.Target(topic="echoes", version="1.0")
        client = oslo_messaging.get_rpc_client(transport, target, timeout=30)
        answer: str = client.call({}, "echo", text=text)
        return answer
    finally:
        server.stop()
        server.wait()
        transport.cleanup()


def test_tested_versions_have_every_part(caplog: pytest.LogCaptureFixture) -> None:
    assert _echoed("here") == "here"
    assert not _warned(caplog)
    requirements = importlib.metadata.requires("moorage") or []
    [ours] = [
        each for each in map(Requirement, requirements) if each.name == "oslo.messaging"
    ]
    operators = {each.operator for each in ours.specifier}
    assert {">=", "<"} <= operators, "the range that was tested has two ends"
    assert ours.specifier.contains(importlib.metadata.version("oslo.messaging"))


@pytest.mark.parametrize(
    ("cls", "name", "lost"),
    [
        (amqpdriver.AMQPIncomingMessage, "_send_reply", "reply was not delivered"),
        (impl_rabbit.Connection, "direct_send", "reply was not delivered"),
        (impl_rabbit.Connection, "_connection_lock", "reply was not delivered"),
        (impl_rabbit.Connection, "_consumers", "not begun"),
        (amqpdriver.AMQPListener, "_shutdown", "not begun"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_missing_part_is_named_once_with_what_is_lost(
    cls: type,
    name: str,
    lost: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _remove(cls, name, monkeypatch)
    for _ in range(2):
        assert _echoed("here") == "here"
    [reported] = [line for line in _warned(caplog) if name in line]
    assert f"{cls.__module__}.{cls.__name__}" in reported
    assert lost in reported
    assert importlib.metadata.version("oslo.messaging") in reported


def _remove(cls: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no method of a class, or of those it comes from, know the name."""
    for base in cls.__mro__[:-1]:
        for attribute, value in list(vars(base).items()):
            code = getattr(value, "__code__", None)
            if attribute == name:
                monkeypatch.delattr(base, attribute)
            elif code is not None and name in code.co_names:
                names = tuple(f"_x{n}" if n == name else n for n in code.co_names)
                monkeypatch.setattr(value, "__code__", code.replace(co_names=names))


def test_server_without_its_private_methods_serves_as_oslo_messagings_does(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    process: Any = vars(RPCServer)["_process_incoming"]
    for base in RPCServer.__mro__:
        if "_process_incoming" in vars(base):
            monkeypatch.delattr(base, "_process_incoming")
    monkeypatch.setattr(RPCServer, "_renamed", process, raising=False)

    def on_incoming(self: Any, incoming: Any) -> None:
        self._work_executor.submit(self._renamed, incoming)

    monkeypatch.setattr(RPCServer, "_on_incoming", on_incoming)
    assert _echoed("here") == "here"
    [reported] = _warned(caplog)
    assert "_process_incoming in oslo_messaging.rpc.server.RPCServer" in reported
    assert "wait for a free thread" in reported
