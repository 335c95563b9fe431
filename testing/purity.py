# SPDX-License-Identifier: Apache-2.0
"""Detect whether a block of code does I/O, or modifies its input."""

from __future__ import annotations

import functools
import importlib.machinery
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from ..objects import RequestSpec
from ..scheduler.hosts import HostBatch


class ForbiddenIO(Exception):
    """Raised in a plugin when it attempts I/O."""


#: Audit events of Python that are I/O: https://docs.python.org/3/library/audit_events
_EVENTS = frozenset(
    {
        "open",
        "os.exec",
        "os.fork",
        "os.posix_spawn",
        "os.system",
        "socket.bind",
        "socket.connect",
        "socket.getaddrinfo",
        "socket.gethostbyname",
        "socket.sendmsg",
        "socket.sendto",
        "sqlite3.connect",
        "subprocess.Popen",
    }
)

#: The methods that use an existing connection, for which there is no audit event.
_SOCKET_IO = ("recv", "recv_into", "send", "sendall")

_MODULES = (*importlib.machinery.all_suffixes(), *importlib.machinery.BYTECODE_SUFFIXES)

_local = threading.local()


@contextmanager
def no_io() -> Iterator[list[str]]:
    """Raise `ForbiddenIO` in this thread if the block opens files or uses the network.

    Yields
    ------
    list of str
        The attempts, including attempts whose error the block caught. The import of
        a module does not count: libraries import modules at their first call.
    """
    _install_hook()
    tried: list[str] = []
    _local.tried = tried
    try:
        with ExitStack() as stack:
            for name in _SOCKET_IO:
                guard = _guarded(name, getattr(socket.socket, name))
                stack.enter_context(mock.patch.object(socket.socket, name, guard))
            yield tried
    finally:
        _local.tried = None


@functools.cache
def _install_hook() -> None:
    # A hook cannot be removed; it does nothing in other threads.
    sys.addaudithook(_hook)


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    tried = getattr(_local, "tried", None)
    if tried is None or event not in _EVENTS:
        return
    if event == "open" and _is_module(arguments[0]):
        return
    _refuse(tried, f"{event} {arguments[:2]}")


def _is_module(path: object) -> bool:
    return isinstance(path, str | bytes) and os.fsdecode(path).endswith(_MODULES)


def _guarded(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def guarded(*arguments: object, **keywords: object) -> object:
        tried = getattr(_local, "tried", None)
        if tried is not None:
            _refuse(tried, f"socket.{name}")
        return original(*arguments, **keywords)

    return guarded


def _refuse(tried: list[str], what: str) -> None:
    tried.append(what)
    raise ForbiddenIO(what)


def snapshot_of(
    plugin: object, hosts: HostBatch, spec_obj: RequestSpec
) -> dict[str, object]:
    """Return a snapshot of all input of a plugin, for later comparison."""
    return {
        "the hosts": _columns(hosts),
        "the request": spec_obj.obj_to_primitive(),
        "itself": _attributes(plugin),
        "its class": _attributes(type(plugin)),
    }


def _columns(hosts: HostBatch) -> list[list[str]]:
    return [
        [repr(value) for value in getattr(hosts, name)] for name in hosts.column_names
    ]


def _attributes(owner: object) -> dict[str, tuple[int, str]]:
    # The text reveals changes inside a container, the id a replaced object.
    return {
        name: (id(value), repr(value))
        for name, value in vars(owner).items()
        if not name.startswith("__")  # copy.copy stores its own attributes in a class
    }
