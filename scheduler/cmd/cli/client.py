# SPDX-License-Identifier: Apache-2.0
"""The client of the HTTP API, whose URL comes from the command line or the options."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

import click
import requests
from requests.adapters import BaseAdapter
from urllib3.exceptions import NameResolutionError

#: Seconds to connect, and to wait for an answer: the API may query Placement for it.
_TIMEOUTS_S: Final = (5.0, 120.0)
_ANY_ADDRESS: Final = frozenset({"0.0.0.0", "::"})
_LOCAL: Final = frozenset({"127.0.0.1", "::1", "localhost"})


class NothingFound(click.ClickException):
    """Raised when the API answers that an object does not exist."""


class _Answer(dict[str, Any]):
    """A JSON object of an answer; without an expected key, it is not from Moorage."""

    def __init__(self, data: Mapping[str, Any], url: str) -> None:
        super().__init__(data)
        self._url = url

    def __missing__(self, key: str) -> Any:
        raise click.ClickException(f"{self._url} is not Moorage's API: no {key!r}")


class ApiClient:
    """Calls one API; a failed call raises a `click.ClickException` with one line.

    Parameters
    ----------
    url : str
        Such as ``http://127.0.0.1:8790``.
    token : str, optional
        Sent as X-Auth-Token.
    now : callable, optional
        Returns the current time, from which ages are computed, seconds since the epoch.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.now = now
        self._url = url.rstrip("/")
        self._session = requests.Session()
        if urlsplit(url).hostname in _LOCAL:
            # A proxy cannot reach this machine's loopback interface.
            self._session.trust_env = False
            self._session.verify = os.environ.get("REQUESTS_CA_BUNDLE") or True
        if token:
            self._session.headers["X-Auth-Token"] = token

    def mount(self, prefix: str, adapter: BaseAdapter) -> None:
        """Send the requests whose URL begins with a prefix through this adapter."""
        self._session.mount(prefix, adapter)

    def get(self, *path: str, **params: object) -> Any:
        """GET a path of segments, with the parameters that are not None."""
        query = {
            name: _query_text(value)
            for name, value in params.items()
            if value is not None
        }
        return self._send("GET", path, params=query)

    def find(self, *path: str) -> Any | None:
        """GET a path of segments; None: the object does not exist."""
        try:
            return self._send("GET", path)
        except NothingFound:
            return None

    def post(self, path: str, body: Mapping[str, object]) -> Any:
        """POST a body to a path, such as plans/drain."""
        return self._send("POST", path.split("/"), json=body)

    def put(self, *path: str, body: Mapping[str, object]) -> Any:
        """PUT a body to a path of segments."""
        return self._send("PUT", path, json=body)

    def _send(self, method: str, path: Sequence[str], **arguments: Any) -> Any:
        if unusable := {"", ".", ".."}.intersection(path):
            raise NothingFound(f"Nothing is stored for {unusable.pop()!r}")
        url = "/".join(
            [self._url, "v1", *(quote(segment, safe="") for segment in path)]
        )
        try:
            response = self._session.request(
                method, url, timeout=_TIMEOUTS_S, allow_redirects=False, **arguments
            )
            data = response.json()
        except requests.JSONDecodeError as e:
            raise click.ClickException(
                _unusable_answer(self._url, response.status_code)
            ) from e
        except requests.RequestException as e:
            raise click.ClickException(f"{self._url}: {_cause(e)}") from e
        status = response.status_code
        text = data.get("error", "") if isinstance(data, dict) else None
        if not isinstance(text, str) or (text == "" and not response.ok):
            raise click.ClickException(_unusable_answer(self._url, status))
        if not response.ok:
            is_missing = status == HTTPStatus.NOT_FOUND
            error = NothingFound if is_missing else click.ClickException
            raise error(_error_text(status, text))
        return _Answer(data, self._url)


def _unusable_answer(url: str, status: int) -> str:
    """Return the message for an answer that is not from the API."""
    # The HTTP server answers these without the API.
    if status in (
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        HTTPStatus.REQUEST_URI_TOO_LONG,
        HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    ):
        return f"The arguments are too long for the API: HTTP {status}"
    return f"{url} is not Moorage's API: HTTP {status}"


def _query_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _cause(error: requests.RequestException) -> str:
    """Return why a request got no answer."""
    if isinstance(error, requests.exceptions.SSLError):
        return f"TLS failed: {error}"
    if isinstance(error, requests.ConnectionError):
        reason = getattr(error.args[0] if error.args else None, "reason", None)
        if isinstance(reason, NameResolutionError):
            return "there is no host of this name; check --url (MOORAGE_URL)"
        return (
            "nothing answers there; is moorage-api running, and is that its address? "
            "--url, MOORAGE_URL or [web] port names it"
        )
    if isinstance(error, requests.Timeout):
        return (
            "it does not answer in time; is moorage-api too busy, or the scheme wrong, "
            "http or https?"
        )
    return str(error) or type(error).__name__


def _error_text(status: int, text: str) -> str:
    """Return the API's error text, with advice if the token was refused."""
    if status == HTTPStatus.UNAUTHORIZED:
        return (
            f"The API refuses the token: {text} Pass a file with it as --token-file "
            "(MOORAGE_TOKEN_FILE)"
        )
    return text


def find_api(
    url: str | None, token_file: str | None, config_files: Sequence[str]
) -> ApiClient:
    """Return a client for a URL; without one, for the API that the options configure.

    Raises
    ------
    click.ClickException
        The URL is invalid, the options have no port, or the token cannot be read.
    """
    if url is not None:
        if not _is_http_url(url):
            raise click.ClickException(f"--url {url!r} is no http or https URL")
        return ApiClient(url, _read_token(token_file))
    options = read_options(config_files).web
    if options.port is None:
        raise click.ClickException(
            "There is no API to ask: pass --url, set MOORAGE_URL, or set [web] port in "
            "moorage.conf"
        )
    address = options.address
    if address in _ANY_ADDRESS:
        address = "::1" if ":" in address else "127.0.0.1"
    host = f"[{address}]" if ":" in address else address
    if options.auth == "token":
        token_file = token_file or options.token_file
    return ApiClient(f"http://{host}:{options.port}", _read_token(token_file))


def _is_http_url(url: str) -> bool:
    """Return whether a URL has no more than scheme, host, port and path."""
    try:
        parts = urlsplit(url)
        has_port_0 = parts.port == 0
    except ValueError:  # a malformed IPv6 address or port
        return False
    has_host = parts.scheme in ("http", "https") and bool(parts.hostname)
    has_more = "@" in parts.netloc or "?" in url or "#" in url
    return has_host and not (has_port_0 or has_more)


def read_options(config_files: Sequence[str]) -> Any:
    """Return the options of these files; without any, of the default files.

    Raises
    ------
    click.ClickException
        A file cannot be read, or a value is invalid.
    """
    from oslo_config import cfg

    from ...conf import load

    try:
        return load([f"--config-file={path}" for path in config_files])
    except (cfg.Error, OSError) as e:
        raise click.ClickException(f"The configuration cannot be read: {e}") from e


def _read_token(path: str | None) -> str | None:
    if path is None:
        return None
    try:
        token = Path(path).read_text("latin-1").strip()
    except OSError as e:
        raise click.ClickException(
            f"--token-file {path} cannot be read: {e.strerror}"
        ) from e
    if not token:
        raise click.ClickException(f"--token-file {path} has no token")
    if not token.isprintable():
        raise click.ClickException(
            f"--token-file {path} must have one line of text: the token"
        )
    return token
