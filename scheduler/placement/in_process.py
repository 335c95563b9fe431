# SPDX-License-Identifier: Apache-2.0
"""A transport adapter for requests.Session that calls a WSGI application directly."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import unquote, urlsplit
from wsgiref.util import setup_testing_defaults

import requests
import urllib3
from requests.adapters import BaseAdapter, HTTPAdapter

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
        started: list[Any] = []

        def start_response(
            status: str,
            headers: list[tuple[str, str]],
            exc_info: object = None,  # noqa: ARG001 - WSGI's signature
        ) -> Callable[[bytes], object]:
            started[:] = [int(status.split()[0]), headers]
            return lambda _data: None

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
        """Do nothing: there are no connections."""


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
