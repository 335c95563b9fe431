# SPDX-License-Identifier: Apache-2.0
"""The real Placement inside this process, on SQLite, without a port."""

from __future__ import annotations

import functools
import io
import logging
import os
import threading
import types
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self
from urllib.parse import unquote, urlsplit
from wsgiref.util import setup_testing_defaults

import requests
import urllib3
from keystoneauth1.adapter import Adapter
from keystoneauth1.session import Session
from requests.adapters import BaseAdapter, HTTPAdapter
from sqlalchemy import Engine

from ..errors import ConfigurationError

WSGIApp = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class InProcessAdapter(BaseAdapter):
    """Send the requests of a requests.Session to a WSGI application in this process."""

    def __init__(self, app: WSGIApp) -> None:
        """Take the application to call."""
        super().__init__()
        self._app = app
        self._builder = HTTPAdapter()

    def send(
        self,
        request: requests.PreparedRequest,
        stream: bool = False,
        timeout: object = None,
        verify: object = True,
        cert: object = None,
        proxies: object = None,
    ) -> requests.Response:
        """Return the application's answer; there is no timeout inside a process."""
        url = urlsplit(request.url or "")
        content = request.body or b""
        content = content.encode() if isinstance(content, str) else bytes(content)
        environ: dict[str, Any] = {
            "REQUEST_METHOD": request.method,
            "PATH_INFO": unquote(url.path, "latin-1"),
            "QUERY_STRING": url.query,
            "CONTENT_LENGTH": str(len(content)),
            "wsgi.input": io.BytesIO(content),
            "REMOTE_ADDR": "127.0.0.1",
        }
        for name, value in request.headers.items():
            key = name.upper().replace("-", "_")
            environ[key if key == "CONTENT_TYPE" else f"HTTP_{key}"] = str(value)
        environ.pop("HTTP_CONTENT_LENGTH", None)
        setup_testing_defaults(environ)
        response_start: list[Any] = []

        def start_response(
            status: str,
            headers: list[tuple[str, str]],
            exc_info: object = None,  # noqa: ARG001 - WSGI's signature
        ) -> Callable[[bytes], object]:
            response_start[:] = [int(status.split()[0]), headers]
            return lambda _data: None

        body = b"".join(self._app(environ, start_response))
        status, headers = response_start
        raw = urllib3.HTTPResponse(
            body=io.BytesIO(body),
            headers=headers,
            status=status,
            preload_content=False,
        )
        return self._builder.build_response(request, raw)

    def close(self) -> None:
        """Do nothing: there are no connections."""


#: The token that noauth2 accepts for an administrator.
TOKEN = "admin"

MEMORY = ":memory:"
_URL = "http://placement.embedded"
_VERBOSE_LOGGERS = ("alembic", "oslo_db", "oslo_policy", "placement")

# placement.db_api is global to the process.
_process_lock = threading.Lock()


class EmbeddedPlacement:
    """Run openstack-placement on an SQLite file, or in memory, in this process.

    Requests are served one at a time: otherwise Placement on SQLite loses writes of
    concurrent threads or fails with "database is locked". A file has all completed
    writes even if the process is killed; a power failure may lose the last ones.

    Parameters
    ----------
    database : str
        Path of a file, created if it is missing, or ":memory:", which starts empty.
    is_reader : bool
        Whether only to read a file, which another process may have open: each write
        then fails.

    Attributes
    ----------
    adapter : keystoneauth1.adapter.Adapter
        The adapter for PlacementClient; thread-safe.
    wsgi_app : callable
        The application, for serving it over HTTP; it takes the token "admin".
    engine : sqlalchemy.Engine
        The engine of Placement's database. Only work passed to `run` may use it.
    run : callable
        Runs work between two requests, in the thread that serves them.

    Raises
    ------
    ConfigurationError
        openstack-placement is not installed, another embedded Placement is open in this
        process, another process has the file open, or the file is not a database of
        Placement. For a reader: the file does not exist.
    """

    adapter: Adapter
    wsgi_app: WSGIApp
    engine: Engine
    run: Callable[[Callable[[], object]], None]

    def __init__(self, database: str = MEMORY, *, is_reader: bool = False) -> None:
        """Open the database: 2 s the first time in a process (imports), then 0.05 s."""
        if not _process_lock.acquire(blocking=False):
            raise ConfigurationError(
                "An embedded Placement is open in this process already, and Placement "
                "allows one. Close it first, or set [placement] endpoint_override."
            )
        self._undo: list[Callable[[], object]] = [_process_lock.release]
        self._guard = threading.Lock()
        try:
            self._quiet_loggers()  # alembic logs each plugin when it is imported
            _require_placement()
            self._open(database, is_reader=is_reader)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        """Return this Placement, which is closed on leaving."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        """Close this Placement."""
        self.close()

    def close(self) -> None:
        """Release the database; a database in memory is lost. Idempotent."""
        with self._guard:
            while self._undo:
                self._undo.pop()()

    def _open(self, database: str, *, is_reader: bool) -> None:
        """Start Placement; `_undo` gets what stops it again, in reverse order."""
        # Imported here because they need openstack-placement.
        from placement import deploy

        from . import embedded_database as files

        connection = "sqlite://"
        if is_reader:
            database = os.path.realpath(database)
            files.check_exists(database)
            connection = files.connection_url(database, files.ReadingConnection)
        elif database != MEMORY:
            database = os.path.realpath(database)
            self._undo.append(files.lock(database).close)
            connection = files.connection_url(database, files.SingleConnection)
        conf = files.make_conf(connection)
        manager = files.patch_database(conf, self._undo)
        remedy = files.READER_REMEDY if is_reader else files.WRITER_REMEDY
        with files.translated_errors(database, remedy):
            files.make_schema()
            app: WSGIApp = deploy.loadapp(conf)
        self._undo.append(files.skip_schema_checks())
        worker = ThreadPoolExecutor(1, thread_name_prefix="embedded-placement")
        self._undo.append(worker.shutdown)
        self.engine = manager.writer.get_engine()
        self.run = functools.partial(_run, worker)
        self.wsgi_app = _serialized(app, worker)
        self.adapter = _adapter(self.wsgi_app)

    def _quiet_loggers(self) -> None:
        for name in _VERBOSE_LOGGERS:
            logger = logging.getLogger(name)
            if logger.level == logging.NOTSET:
                logger.setLevel(logging.WARNING)
                self._undo.append(functools.partial(logger.setLevel, logging.NOTSET))


def _require_placement() -> None:
    try:
        import placement.deploy  # noqa: F401 -- imported for a clear error message
    except ImportError as e:
        raise ConfigurationError(
            f"The embedded Placement is not installed ({e}). Install moorage with its "
            "extra embedded, or set [placement] auth_type or endpoint_override to use "
            "another one."
        ) from e


def _serialized(app: WSGIApp, worker: ThreadPoolExecutor) -> WSGIApp:
    # Placement has its own thread, so that its thread-local data, such as its request
    # context, does not appear in our log lines.
    def one_at_a_time(
        environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> list[bytes]:
        return worker.submit(_respond, app, environ, start_response).result()

    return one_at_a_time


def _run(worker: ThreadPoolExecutor, work: Callable[[], object]) -> None:
    worker.submit(work).result()


def _respond(
    app: WSGIApp, environ: dict[str, Any], start_response: Callable[..., Any]
) -> list[bytes]:
    return [b"".join(app(environ, start_response))]


def _adapter(app: WSGIApp) -> Adapter:
    http = requests.Session()
    http.trust_env = False
    http.mount(_URL, InProcessAdapter(app))
    session = Session(session=http, additional_headers={"X-Auth-Token": TOKEN})
    return Adapter(
        session, service_type="placement", endpoint_override=_URL, raise_exc=False
    )
