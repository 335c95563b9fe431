# SPDX-License-Identifier: Apache-2.0
"""Servers that a database driver can connect to, and that are no databases."""

from __future__ import annotations

import socket
import threading

import fixtures


class NoDatabase(fixtures.Fixture):
    """Accept connections; send `answer`, if any, and never anything else.

    Attributes
    ----------
    n_connections : int
        How many were made so far.
    """

    def __init__(self, answer: bytes = b"") -> None:
        super().__init__()
        self._answer = answer

    def _setUp(self) -> None:
        self.n_connections = 0
        self._open: list[socket.socket] = []
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        threading.Thread(target=self._serve, args=(listener,), daemon=True).start()
        self.addCleanup(self._close)
        self.addCleanup(listener.close)
        self.addCleanup(listener.shutdown, socket.SHUT_RDWR)

    def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:  # it was closed
                return
            self._open.append(connection)
            self.n_connections += 1
            if self._answer:
                connection.sendall(self._answer)

    def _close(self) -> None:
        for connection in self._open:
            connection.close()

    def url(self, driver: str = "mysql+pymysql") -> str:
        return f"{driver}://nova:secret@127.0.0.1:{self.port}/nova"
