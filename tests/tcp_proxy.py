# SPDX-License-Identifier: Apache-2.0
"""A TCP proxy before a database that breaks off, hangs, dawdles or talks garbage."""

from __future__ import annotations

import contextlib
import enum
import random
import socket
import threading
from collections.abc import Callable

import fixtures

_CHUNK = 65536
_CONNECT_S = 10.0


class Wrong(enum.Enum):
    """What the proxy does to all connections, those that are open included."""

    NOTHING = "forward"
    STOP = "close them, and listen no more, as a server that was stopped"
    CUT = "close them, and every new one"
    HANG = "keep them open, and let nothing through"
    GARBAGE = "answer whatever comes with random bytes"
    SLOW = "hold back each answer for a while"


class TcpProxy(fixtures.Fixture):
    """Forward connections to a server, or spoil them.

    Parameters
    ----------
    port : int
        Of the server, on 127.0.0.1.
    slow_s : float
        How long each piece of an answer is held back by SLOW.

    Attributes
    ----------
    port : int
        Where the proxy listens, on 127.0.0.1.
    n_opened : int
        Connections that were accepted so far.
    """

    def __init__(self, port: int, *, slow_s: float = 0.2) -> None:
        super().__init__()
        self._target = ("127.0.0.1", port)
        self._slow_s = slow_s

    def _setUp(self) -> None:
        self._rng = random.Random(0)
        self._lock = threading.Lock()
        self._wrong = Wrong.NOTHING
        self._is_closed = threading.Event()
        self._open: set[socket.socket] = set()
        self.n_opened = 0
        self.port = 0
        self._listen()
        self.addCleanup(self._close)

    def do(self, wrong: Wrong) -> None:
        """Do this from now on."""
        with self._lock:
            was_stopped = self._wrong is Wrong.STOP
            self._wrong = wrong
            if wrong is Wrong.STOP:
                self._shut(self._listener)
            # What was held back would come late, and be taken for something else.
            if wrong in (Wrong.STOP, Wrong.CUT, Wrong.NOTHING):
                self._shut_all()
        if was_stopped and wrong is not Wrong.STOP:
            self._listen()

    def _listen(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self.port), backlog=128)
        self.port = self._listener.getsockname()[1]
        self._run(self._accept, self._listener)

    def _run(self, target: Callable[..., None], *args: object) -> None:
        threading.Thread(target=target, args=args, daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        while not self._is_closed.is_set():
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with self._lock:
                self.n_opened += 1
                is_cut = self._wrong is Wrong.CUT
                if not is_cut:
                    self._open.add(client)
            if is_cut:
                client.close()
            else:
                self._run(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(self._target, timeout=_CONNECT_S)
        except OSError:
            self._end(client)
            return
        server.settimeout(None)
        with self._lock:
            self._open.add(server)
        self._run(self._forward, server, client, True)
        if self._wrong is Wrong.GARBAGE:  # PostgreSQL's clients speak first
            self._send(client, self._garbage())
        self._forward(client, server, False)

    def _forward(
        self, source: socket.socket, to: socket.socket, is_answer: bool
    ) -> None:
        while data := self._received(source):
            wrong = self._wrong
            if wrong is Wrong.HANG:
                continue
            if wrong is Wrong.GARBAGE:
                if is_answer:
                    data = self._garbage()
                else:
                    self._send(source, self._garbage())
                    continue
            if wrong is Wrong.SLOW and is_answer:
                self._is_closed.wait(self._slow_s)
            if not self._send(to, data):
                break
        self._end(source, to)

    def _received(self, source: socket.socket) -> bytes:
        try:
            return source.recv(_CHUNK)
        except OSError:
            return b""

    def _send(self, to: socket.socket, data: bytes) -> bool:
        try:
            to.sendall(data)
        except OSError:
            return False
        return True

    def _garbage(self) -> bytes:
        return self._rng.randbytes(self._rng.randint(20, 400))

    def _end(self, *sockets: socket.socket) -> None:
        with self._lock:
            for each in sockets:
                self._shut(each)
                self._open.discard(each)

    def _shut_all(self) -> None:
        for each in self._open:
            self._shut(each)
        self._open.clear()

    def _shut(self, each: socket.socket) -> None:
        # Closing alone would not wake up who waits for data.
        with contextlib.suppress(OSError):  # the other side was first
            each.shutdown(socket.SHUT_RDWR)
        each.close()

    def _close(self) -> None:
        self._is_closed.set()
        with self._lock:
            self._shut(self._listener)
            self._shut_all()
