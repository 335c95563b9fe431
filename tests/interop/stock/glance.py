# SPDX-License-Identifier: Apache-2.0
"""A Glance that has every image."""

from __future__ import annotations

import json
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import fixtures


class GlanceServer(fixtures.Fixture):
    """Glance on a local port.

    Attributes
    ----------
    url : str
    """

    def _setUp(self) -> None:
        server = ThreadingHTTPServer(("127.0.0.1", 0), _GlanceHandler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.url = f"http://127.0.0.1:{server.server_port}"


class _GlanceHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        match self._parts():
            case ["v2", "schemas", name]:
                self._reply(200, {"name": name, "properties": _PROPERTIES})
            case ["v2", "images", image]:
                self._reply(200, _image(image))
            case ["v2", "images"]:
                self._reply(200, {"images": []})
            case _:
                self._reply(404, {})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self._parts() == ["v2", "images"]:
            self._reply(201, _image(str(uuid.uuid4())))
        else:
            self._reply(404, {})

    def do_DELETE(self) -> None:
        self._reply(204, None)

    def _parts(self) -> list[str]:
        return self.path.partition("?")[0].strip("/").split("/")

    def _reply(self, status: int, body: Any) -> None:
        encoded = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(encoded)))
        self.end_headers()
        self.wfile.write(encoded)

    def log_message(self, format: str, *args: object) -> None:
        pass


def _image(image: str) -> dict[str, Any]:
    return {
        "id": image,
        "name": "image",
        "status": "active",
        "visibility": "public",
        "size": 1,
        "min_ram": 0,
        "min_disk": 0,
        "disk_format": "raw",
        "container_format": "bare",
        "protected": False,
        "tags": [],
        "owner": "owner",
        "created_at": "2026-01-01T00:00:00Z",
        "updated_at": "2026-01-01T00:00:00Z",
    }


_PROPERTIES: dict[str, Any] = {name: {} for name in _image("")}
