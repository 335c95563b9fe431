# SPDX-License-Identifier: Apache-2.0
"""Placements to test against: embedded, misbehaving, and real ones on real databases.

Each is a ``fixtures.Fixture``, and so a context manager too. Run as a script with a
database's URL and a port, this module serves a Placement there, and prints the port
once it does.
"""

from __future__ import annotations

import atexit
import enum
import functools
import io
import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote
from wsgiref.util import setup_testing_defaults

import fixtures
import pytest
import sqlalchemy
from keystoneauth1.adapter import Adapter
from keystoneauth1.session import Session

from moorage.scheduler.placement.client import PlacementClient
from moorage.scheduler.placement.embedded import TOKEN, EmbeddedPlacement

HANG_S = 30.0


def adapter_to(url: str, *, timeout_s: float = 60.0) -> Adapter:
    """An adapter to a Placement that runs with noauth2."""
    session = Session(timeout=timeout_s, additional_headers={"X-Auth-Token": TOKEN})
    return Adapter(session, service_type="placement", endpoint_override=url)


class EmbeddedPlacementFixture(fixtures.Fixture):
    """An embedded Placement, empty; `placement`, `adapter` and `client`."""

    def __init__(self, database: str = ":memory:") -> None:
        super().__init__()
        self._database = database

    def _setUp(self) -> None:
        self.placement = EmbeddedPlacement(self._database)
        self.addCleanup(self.placement.close)
        self.adapter = self.placement.adapter
        self.client = PlacementClient(self.adapter)


class Misbehaviour(enum.Enum):
    """What a server can do wrong."""

    HANG = "never answer"
    ERROR = "500 in Placement's words"
    UNAUTHORIZED = "401"
    FORBIDDEN = "403 without a body, as Placement without a token"
    NOT_ACCEPTABLE = "406 as an old Placement"
    BAD_GATEWAY = "502 and a proxy's page"
    HTML = "200 and a proxy's page"
    TRUNCATED = "less body than Content-Length says"
    GARBAGE = "200 and half a JSON text"
    WRONG_SHAPE = "200 and JSON that is not Placement's"
    LOST = "do it, and break the connection before the answer"
    LATE = "do it once the client has given up"
    CONTENDED = "409, a provider's generation changed"


_JSON = "application/json"
_HTML = b"<html><body>It works! This is a proxy.</body></html>"
_ANSWERS = {
    Misbehaviour.ERROR: (500, _JSON, b'{"errors": [{"status": 500, "detail": "oh"}]}'),
    Misbehaviour.UNAUTHORIZED: (401, "text/plain", b"Authentication required"),
    Misbehaviour.FORBIDDEN: (403, "text/plain", b""),
    Misbehaviour.NOT_ACCEPTABLE: (
        406,
        _JSON,
        b'{"errors": [{"status": 406, "detail": "Unacceptable version", '
        b'"min_version": "1.0", "max_version": "1.30"}]}',
    ),
    Misbehaviour.BAD_GATEWAY: (502, "text/html", _HTML),
    Misbehaviour.HTML: (200, "text/html", _HTML),
    Misbehaviour.GARBAGE: (200, _JSON, b'{"allocation_requests": [{'),
    Misbehaviour.WRONG_SHAPE: (200, _JSON, b'{"servers": []}'),
    Misbehaviour.CONTENDED: (
        409,
        _JSON,
        b'{"errors": [{"status": 409, "code": "placement.concurrent_update", '
        b'"detail": "Inventory and/or allocations changed while attempting to '
        b'allocate: resource provider generation conflict"}]}',
    ),
}


class _Handler(BaseHTTPRequestHandler):
    """Serve a WSGI application over HTTP/1.1 with kept connections."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # one packet an answer: Nagle costs 40 ms otherwise
    disable_nagle_algorithm = True
    app: Any = None

    def log_message(self, format: str, *args: object) -> None:
        pass

    def handle_any(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        self.answer_to(self.rfile.read(length))

    do_GET = do_PUT = do_POST = do_DELETE = handle_any

    def answer_to(self, body: bytes) -> None:
        self.say(*self.ask_app(body))

    def ask_app(self, body: bytes) -> tuple[int, str, bytes]:
        started: list[Any] = []
        environ = self._environ(body)
        answer = b"".join(type(self).app(environ, lambda *a: started.extend(a[:2])))
        headers = {name.lower(): value for name, value in started[1]}
        return int(started[0].split()[0]), headers.get("content-type", ""), answer

    def say(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        if content_type:
            self.send_header("Content-Type", content_type)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _environ(self, body: bytes) -> dict[str, Any]:
        path, _, query = self.path.partition("?")
        environ: dict[str, Any] = {
            "REQUEST_METHOD": self.command,
            "PATH_INFO": unquote(path, "latin-1"),
            "QUERY_STRING": query,
            "CONTENT_LENGTH": str(len(body)),
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "wsgi.input": io.BytesIO(body),
            "REMOTE_ADDR": self.client_address[0],
        }
        for name, value in self.headers.items():
            if name.lower() not in ("content-type", "content-length"):
                environ[f"HTTP_{name.upper().replace('-', '_')}"] = value
        setup_testing_defaults(environ)
        return environ


class MisbehavingServer(fixtures.Fixture):
    """A local HTTP server in front of a Placement that does wrong when told to.

    Parameters
    ----------
    app : WSGI application, optional
        What answers while nothing is to be done wrong.

    Attributes
    ----------
    url : str
    seen : list of (method, path, headers), in the order of their arrival
    """

    def __init__(self, app: Any = None) -> None:
        super().__init__()
        self._app = app

    def _setUp(self) -> None:
        self.seen: list[tuple[str, str, dict[str, str]]] = []
        self._rules: list[tuple[str, Misbehaviour | None]] = []
        self._closing = threading.Event()
        self._late = threading.Event()
        self._late_done: list[threading.Event] = []
        handler = type(
            "_Misbehaving", (_MisbehavingHandler,), {"app": self._app, "owner": self}
        )
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.addCleanup(self._closing.set)
        self.url = f"http://127.0.0.1:{server.server_port}"

    def misbehave(self, what: Misbehaviour, *, verb: str = "", times: int = 1) -> None:
        """Do `what` to the next requests, of `verb` only if that is given."""
        self._rules += [(verb, what)] * times

    def misbehave_second(self, what: Misbehaviour, *, verb: str) -> None:
        """Do `what` to the second request of `verb` from now on, not to the first."""
        self._rules += [(verb, None), (verb, what)]

    def let_late_ones_go(self) -> None:
        """Do what was held up as LATE, and return once it is done."""
        self._late.set()
        for done in self._late_done:
            assert done.wait(HANG_S)

    def be_late(self, do: Callable[[], object]) -> None:
        done = threading.Event()
        self._late_done.append(done)
        self._late.wait(HANG_S)
        do()
        done.set()

    def client(self, *, timeout_s: float = 10.0) -> PlacementClient:
        return PlacementClient(adapter_to(self.url, timeout_s=timeout_s))

    def next_wrong(self, verb: str) -> Misbehaviour | None:
        for rule in self._rules:
            if rule[0] in ("", verb):
                self._rules.remove(rule)
                return rule[1]
        return None

    def hang(self) -> None:
        self._closing.wait(HANG_S)


class _MisbehavingHandler(_Handler):
    owner: MisbehavingServer

    def answer_to(self, body: bytes) -> None:
        self.owner.seen.append((self.command, self.path, dict(self.headers)))
        wrong = self.owner.next_wrong(self.command)
        if wrong is None:
            super().answer_to(body)
        elif wrong in _ANSWERS:
            self.say(*_ANSWERS[wrong])
        else:
            self.break_off(wrong, body)

    def break_off(self, wrong: Misbehaviour, body: bytes) -> None:
        self.close_connection = True
        if wrong is Misbehaviour.TRUNCATED:
            self.wfile.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                b'Content-Length: 1000\r\n\r\n{"allocation_requests": ['
            )
        elif wrong is Misbehaviour.HANG:
            self.owner.hang()
        elif wrong is Misbehaviour.LOST:
            self.ask_app(body)
        elif wrong is Misbehaviour.LATE:
            self.owner.be_late(lambda: self.ask_app(body))


def refusing_url() -> str:
    """A URL where nobody listens."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{s.getsockname()[1]}"


class Database(enum.Enum):
    """Where a real Placement keeps its data."""

    POSTGRESQL = "postgresql+psycopg2://postgres@127.0.0.1:5432"
    MARIADB = "mysql+pymysql://root@127.0.0.1:3306"


class PlacementServer(fixtures.Fixture):
    """A real Placement in a process of its own, on a new database, dropped after.

    Parameters
    ----------
    server_url : str
        Of a database server, without a database: what `database_server` returns.

    Attributes
    ----------
    url, adapter, client
        How to reach it, also after `restart`; it runs with noauth2.
    database_url : str
    """

    def __init__(self, server_url: str) -> None:
        super().__init__()
        self._server_url = server_url

    def _setUp(self) -> None:
        name = f"placement_{uuid.uuid4().hex}"
        self._sql(f"CREATE DATABASE {name}")
        self.addCleanup(self._sql, f"DROP DATABASE {name}")
        self.database_url = f"{self._server_url}/{name}"
        self._port = self._reserved_port()
        self._start()
        self.url = f"http://127.0.0.1:{self._port}"
        self.adapter = adapter_to(self.url)
        self.client = PlacementClient(self.adapter)

    def kill(self) -> None:
        """End it with SIGKILL, whatever it is at."""
        self._process.kill()
        self._process.wait()

    def restart(self) -> None:
        """Serve the same database on the same port again, once it was killed."""
        self._start()

    def _reserved_port(self) -> int:
        """A port that is nobody else's, also while the server is away."""
        reserved = socket.socket()
        self.addCleanup(reserved.close)
        # The server shares it: it sets the same, and this socket never listens.
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        return int(reserved.getsockname()[1])

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, self.database_url, str(self._port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(_stop, self._process)
        told = self._process.stdout.readline().strip()
        assert told, "Placement did not start; its reason is on stderr"

    def _sql(self, statement: str) -> None:
        _execute(self._server_url, statement)


@functools.cache
def database_server(kind: Database) -> str:
    """The URL of a running database server, started here where none is.

    Skips the test with the reason where there is none, or fails it if
    MOORAGE_REQUIRE_ALL is 1.
    """
    try:
        _execute(_url_to_ask(kind), "SELECT 1")
        return _url_to_ask(kind)
    except sqlalchemy.exc.OperationalError as e:
        reason = f"no {kind.name} at {_url_to_ask(kind)} ({str(e.orig).strip()})"
    try:
        return _START[kind]()
    except (OSError, LookupError, subprocess.SubprocessError, TimeoutError) as e:
        reason += f", and none can be started: {type(e).__name__}: {e}"
    if os.environ.get("MOORAGE_REQUIRE_ALL") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


def _url_to_ask(kind: Database) -> str:
    return os.environ.get(f"MOORAGE_TEST_{kind.name}", kind.value)


def _execute(server_url: str, statement: str) -> None:
    url = server_url + ("/postgres" if server_url.startswith("postgresql") else "")
    engine = sqlalchemy.create_engine(url, isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            connection.execute(sqlalchemy.text(statement))
    finally:
        engine.dispose()


def _start_postgresql() -> str:
    folder, user = _folder_of("postgres")
    port = _free_port()
    initdb = [
        _binary("initdb"),
        "-D",
        f"{folder}/data",
        "-U",
        "postgres",
        "-A",
        "trust",
    ]
    _run(user, initdb)
    options = ["-D", f"{folder}/data", "-p", str(port), "-k", folder]
    options += ["-c", "listen_addresses=127.0.0.1", "-c", "fsync=off"]
    _start(user, [_binary("postgres"), *options])
    return _awaited(f"postgresql+psycopg2://postgres@127.0.0.1:{port}")


def _start_mariadb() -> str:
    folder, user = _folder_of("mysql")
    port = _free_port()
    install = [_binary("mariadb-install-db"), "--no-defaults"]
    install += [f"--datadir={folder}/data", "--auth-root-authentication-method=normal"]
    _run(user, [*install, "--skip-test-db"])
    options = ["--no-defaults", f"--datadir={folder}/data", f"--port={port}"]
    options += ["--bind-address=127.0.0.1", f"--socket={folder}/socket"]
    _start(user, [_binary("mariadbd"), *options, f"--pid-file={folder}/pid"])
    return _awaited(f"mysql+pymysql://root@127.0.0.1:{port}")


_START = {Database.POSTGRESQL: _start_postgresql, Database.MARIADB: _start_mariadb}


def _folder_of(service_user: str) -> tuple[str, str | None]:
    """A new folder, and the user that is to run the server where we are root."""
    folder = tempfile.mkdtemp(prefix="moorage-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    if os.getuid() != 0:
        return folder, None
    user = pwd.getpwnam(service_user)  # neither server starts as root
    os.chown(folder, user.pw_uid, user.pw_gid)
    return folder, service_user


def _binary(name: str) -> str:
    places = [os.environ["PATH"], "/usr/sbin", "/usr/local/bin"]
    versions = (
        sorted(os.listdir("/usr/lib/postgresql"), reverse=True)
        if (os.path.isdir("/usr/lib/postgresql"))
        else []
    )
    places += [f"/usr/lib/postgresql/{v}/bin" for v in versions]
    found = shutil.which(name, path=os.pathsep.join(places))
    if found is None:
        raise LookupError(f"{name} is not installed")
    return found


def _as_user(user: str | None, command: list[str]) -> list[str]:
    return ["runuser", "-u", user, "--", *command] if user else command


def _run(user: str | None, command: list[str]) -> None:
    subprocess.run(
        _as_user(user, command), check=True, capture_output=True, cwd="/", timeout=120
    )


def _start(user: str | None, command: list[str]) -> None:
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(
        _as_user(user, command), stdin=quiet, stdout=quiet, stderr=quiet, cwd="/"
    )
    atexit.register(_stop, process)


def _stop(process: subprocess.Popen[Any]) -> None:
    process.terminate()
    process.wait(30)
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def _free_port() -> int:
    return int(refusing_url().rpartition(":")[2])


def _awaited(url: str, *, timeout_s: float = 30.0) -> str:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            _execute(url, "SELECT 1")
        except sqlalchemy.exc.OperationalError:
            time.sleep(0.1)
        else:
            return url
    raise TimeoutError(f"{url} did not answer within {timeout_s} s")


def _placement_app(database_url: str) -> Any:
    import placement.conf
    from oslo_config import cfg
    from oslo_log import log
    from oslo_middleware import cors
    from placement import db_api, deploy

    conf = cfg.ConfigOpts()
    placement.conf.register_opts(conf)
    log.register_options(conf)
    conf.register_opts(cors.CORS_OPTS, "cors")
    conf.set_override("connection", database_url, group="placement_database")
    conf.set_override("sync_on_startup", True, group="placement_database")
    conf.set_override("auth_strategy", "noauth2", group="api")
    # Placement 16 can grant more than there is when it retries by itself: its second
    # try takes the rows of its first for usage that was there before. So it must not;
    # whoever claims tries again (doc/admin.rst).
    conf.set_override("allocation_conflict_retry_count", 1, group="placement")
    conf([], project="moorage-test", default_config_files=[], default_config_dirs=[])
    db_api.configure(conf)
    return deploy.loadapp(conf)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # As WSGI servers have it; with Python's own 5 a burst of claims is reset.
    request_queue_size = 128


def _serve(database_url: str, port: int) -> None:
    app = _placement_app(database_url)
    # As many threads as a WSGI server would have. Each may hold two of the 15
    # connections in SQLAlchemy's pool: with many more they wait for each other.
    slots = threading.BoundedSemaphore(6)

    def bounded(environ: Any, start_response: Any) -> list[bytes]:
        with slots:
            return [b"".join(app(environ, start_response))]

    handler = type("_Placement", (_Handler,), {"app": staticmethod(bounded)})
    server = _Server(("127.0.0.1", port), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()  # ends with the process that started this one


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]))
