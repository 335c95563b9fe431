# SPDX-License-Identifier: Apache-2.0
"""The real Placement inside this process, on SQLite, without a port."""

from __future__ import annotations

import fcntl
import functools
import io
import logging
import os
import threading
import types
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any, Self
from urllib.parse import unquote, urlsplit
from wsgiref.util import setup_testing_defaults

import jsonschema
import requests
import urllib3
from jsonschema.validators import validator_for
from keystoneauth1.adapter import Adapter
from keystoneauth1.session import Session
from oslo_config import cfg
from requests.adapters import BaseAdapter, HTTPAdapter

from ..errors import ConfigurationError

#: What noauth2 takes for an administrator.
TOKEN = "admin"

_MEMORY = ":memory:"
_URL = "http://placement.embedded"
_TALKATIVE = ("alembic", "oslo_db", "oslo_policy", "placement")

WSGIApp = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

# placement.db_api is one for the whole process, and so is this.
_one_per_process = threading.Lock()


class EmbeddedPlacement:
    """Run openstack-placement on an SQLite file, or in memory, in this process.

    Requests are answered one at a time: without that, Placement on SQLite loses
    writes or fails with "database is locked" when threads meet.

    Parameters
    ----------
    database : str
        Path of a file, made if it is missing, or ":memory:", which starts empty.

    Attributes
    ----------
    adapter : keystoneauth1.adapter.Adapter
        For PlacementClient; it may be used by several threads.
    wsgi_app : callable
        The application, for serving it over HTTP; it takes the token "admin".

    Raises
    ------
    ConfigurationError
        openstack-placement is not installed, another one is open in this process, or
        another process has the file.
    """

    adapter: Adapter
    wsgi_app: WSGIApp

    def __init__(self, database: str = _MEMORY) -> None:
        """Open it: 2 s the first time in a process (imports), 0.05 s after that."""
        _require_placement()
        if not _one_per_process.acquire(blocking=False):
            raise ConfigurationError(
                "An embedded Placement is open in this process already, and Placement "
                "allows one. Close it first, or set [placement] endpoint_override."
            )
        self._undo: list[Callable[[], object]] = [_one_per_process.release]
        self._guard = threading.Lock()
        try:
            self._open(database)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        """Return itself; closed on leaving."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Let go of the database; what was in memory is gone. Twice is fine."""
        with self._guard:
            while self._undo:
                self._undo.pop()()

    def _open(self, database: str) -> None:
        is_new = database == _MEMORY or not os.path.exists(database)
        if database != _MEMORY:
            self._undo.append(_locked(database).close)
        self._hush()
        conf = _conf(database)
        self._patch_database(conf, is_new)
        self._undo.append(_trust_schemas())
        worker = ThreadPoolExecutor(1, thread_name_prefix="embedded-placement")
        self._undo.append(worker.shutdown)
        self.wsgi_app = _serialized(_app(conf), worker)
        self.adapter = _adapter(self.wsgi_app)

    def _hush(self) -> None:
        for name in _TALKATIVE:
            logger = logging.getLogger(name)
            if logger.level == logging.NOTSET:
                logger.setLevel(logging.WARNING)
                self._undo.append(functools.partial(logger.setLevel, logging.NOTSET))

    def _patch_database(self, conf: cfg.ConfigOpts, is_new: bool) -> None:
        from oslo_db.sqlalchemy import enginefacade
        from placement import db_api, policy

        # Placement's own manager is configured once a process; a factory that is
        # patched in can be taken out again, as Placement's own fixtures do.
        manager = enginefacade.transaction_context()
        manager.configure(**_database_options(conf))
        self._undo.append(db_api.placement_context_manager.patch_factory(manager))
        self._undo.append(manager.dispose_pool)
        _forget_what_is_synced()
        policy.reset()
        self._undo.append(policy.reset)
        self._undo.append(_forget_what_is_synced)
        _make_schema(is_new)


def _require_placement() -> None:
    talkative = logging.getLogger("alembic")  # it tells of each plugin when imported
    if talkative.level == logging.NOTSET:
        talkative.setLevel(logging.WARNING)
    try:
        import placement.deploy  # noqa: F401 -- asked here once, for a clear message
    except ImportError as e:
        raise ConfigurationError(
            f"The embedded Placement is not installed ({e}). Install it with `pip "
            "install moorage[embedded]`, or set [placement] auth_type or "
            "endpoint_override to use another one."
        ) from e


def _locked(database: str) -> IO[str]:
    """Return an open file that keeps other processes off `database`."""
    path = f"{database}.lock"
    try:
        lock = open(path, "a")  # noqa: SIM115 -- it stays open as long as we are
    except OSError as e:
        raise ConfigurationError(
            f"[moorage] embedded_placement_database: {path} cannot be written: {e}."
        ) from e
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as e:
        lock.close()
        raise ConfigurationError(
            f"[moorage] embedded_placement_database: {database} is used by another "
            "process. Stop it, name another file, or run a Placement of its own."
        ) from e
    return lock


def _conf(database: str) -> cfg.ConfigOpts:
    import placement.conf
    from oslo_log import log
    from oslo_middleware import cors

    conf = cfg.ConfigOpts()
    placement.conf.register_opts(conf)
    log.register_options(conf)
    conf.register_opts(cors.CORS_OPTS, "cors")
    connection = "sqlite://" if database == _MEMORY else f"sqlite:///{database}"
    conf.set_override("connection", connection, group="placement_database")
    conf.set_override("auth_strategy", "noauth2", group="api")
    # Not "placement": a policy file of a Placement on this host is not ours.
    conf(
        [],
        project="moorage-embedded-placement",
        default_config_files=[],
        default_config_dirs=[],
    )
    return conf


def _database_options(conf: cfg.ConfigOpts) -> dict[str, Any]:
    options: Mapping[str, Any] = dict(conf.placement_database.items())
    return {name: v for name, v in options.items() if name != "sync_on_startup"}


def _forget_what_is_synced() -> None:
    from placement.objects import resource_class, trait

    # A new database has none of what these remember having written.
    trait._TRAITS_SYNCED = False
    resource_class._RESOURCE_CLASSES_SYNCED = False


def _make_schema(is_new: bool) -> None:
    from placement.db.sqlalchemy import migration

    if is_new:  # half a second less than every migration since the first one
        migration.create_schema()
        migration.stamp("head")
    else:
        migration.upgrade("head")


def _trust_schemas() -> Callable[[], None]:
    """Spare Placement the check of its own, constant schemas at every request.

    jsonschema.validate checks the schema before the body: half of what a write costs.
    """
    from placement import util

    original = util.jsonschema
    util.jsonschema = types.SimpleNamespace(
        validate=_validate,
        FormatChecker=jsonschema.FormatChecker,
        ValidationError=jsonschema.ValidationError,
    )
    return functools.partial(setattr, util, "jsonschema", original)


def _validate(
    body: Any,
    schema: dict[str, Any],
    format_checker: jsonschema.FormatChecker | None = None,
) -> None:
    validator = validator_for(schema)(schema, format_checker=format_checker)
    error = jsonschema.exceptions.best_match(validator.iter_errors(body))
    if error is not None:
        raise error


def _app(conf: cfg.ConfigOpts) -> WSGIApp:
    from placement import deploy

    app: WSGIApp = deploy.loadapp(conf)
    return app


def _serialized(app: WSGIApp, worker: ThreadPoolExecutor) -> WSGIApp:
    # One thread of Placement's own, so that what it leaves behind in thread-local
    # variables, its request context for one, never shows in our log lines.
    def one_at_a_time(
        environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> list[bytes]:
        return worker.submit(_answered, app, environ, start_response).result()

    return one_at_a_time


def _answered(
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


class InProcessAdapter(BaseAdapter):
    """Let a requests.Session call a WSGI application instead of a socket."""

    def __init__(self, app: WSGIApp) -> None:
        """Take the application that is to be called."""
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
        started: list[Any] = []

        def start_response(
            status: str, headers: list[tuple[str, str]], exc_info: object = None
        ) -> Callable[[bytes], object]:
            started[:] = [int(status.split()[0]), headers]
            return lambda data: None

        body = b"".join(self._app(_environ(request), start_response))
        status, headers = started
        raw = urllib3.HTTPResponse(
            body=io.BytesIO(body),
            headers=headers,
            status=status,
            preload_content=False,
        )
        return self._builder.build_response(request, raw)

    def close(self) -> None:
        """Nothing is held."""


def _environ(request: requests.PreparedRequest) -> dict[str, Any]:
    url = urlsplit(request.url or "")
    body = request.body or b""
    body = body.encode() if isinstance(body, str) else bytes(body)
    environ: dict[str, Any] = {
        "REQUEST_METHOD": request.method,
        "PATH_INFO": unquote(url.path, "latin-1"),
        "QUERY_STRING": url.query,
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.input": io.BytesIO(body),
        "REMOTE_ADDR": "127.0.0.1",
    }
    for name, value in request.headers.items():
        key = name.upper().replace("-", "_")
        environ[key if key == "CONTENT_TYPE" else f"HTTP_{key}"] = str(value)
    environ.pop("HTTP_CONTENT_LENGTH", None)
    setup_testing_defaults(environ)
    return environ
