# SPDX-License-Identifier: Apache-2.0
"""Restrict the HTTP API: to this machine, to a token, or to Keystone's admins."""

from __future__ import annotations

import hmac
import ipaddress
import json
import stat
from collections.abc import Callable, Iterable
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Final

from oslo_config import cfg

from ..errors import ConfigurationError
from .page import KeystoneSession, TokenSession, with_login

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

Access = Callable[["WSGIApplication"], "WSGIApplication"]

_MIN_TOKEN: Final = 16
_ADMIN: Final = "admin"
#: Paths without authentication, as orchestrators have no token; they show no details.
_PROBES: Final = frozenset({"/healthz", "/readyz"})


def make_access(conf: cfg.ConfigOpts) -> Access:
    """Return the function that restricts an application as ``[web] auth`` says.

    Raises
    ------
    ConfigurationError
        The address needs authentication, or its token or library is missing.
    """
    options = conf.web
    if options.auth == "token":
        token = _read_token(options.token_file)
        session = TokenSession(token)
        return lambda app: _except_probes(
            app, with_login(app, lambda inner: _with_token(inner, token), session)
        )
    if options.auth == "keystone":
        keystone = _keystone(conf)
        return lambda app: _except_probes(app, keystone(app))
    if not is_loopback(options.address):
        raise ConfigurationError(
            f"[web] address = {options.address} is not of the loopback interface: set "
            "[web] auth to token or keystone"
        )
    return _local_only


def is_open(conf: cfg.ConfigOpts) -> bool:
    """Return whether requests need no token."""
    return bool(conf.web.auth == "none")


def _except_probes(app: WSGIApplication, checked: WSGIApplication) -> WSGIApplication:
    """Return an application that answers probes by `app`, the others by `checked`."""

    def served(environ: WSGIEnvironment, respond: StartResponse) -> Iterable[bytes]:
        is_probe = environ["PATH_INFO"] in _PROBES
        return (app if is_probe else checked)(environ, respond)

    return served


def is_loopback(address: str) -> bool:
    """Return whether only this machine can connect to an address or a name."""
    try:
        return ipaddress.ip_address(address.strip("[]")).is_loopback
    except ValueError:
        return address.lower() == "localhost"


def _local_only(app: WSGIApplication) -> WSGIApplication:
    """Refuse requests with a foreign name in the header Host, and those of other sites.

    Otherwise a web page whose host name resolves to 127.0.0.1 (DNS rebinding) could
    read the API, and any web page could make its reader's browser request dry runs.
    Links of other sites still work.
    """

    def checked(environ: WSGIEnvironment, respond: StartResponse) -> Iterable[bytes]:
        host = environ.get("HTTP_HOST", "localhost")
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        text = ""
        if not is_loopback(name):
            text = "The header Host must be a loopback address: [web] auth is none"
        elif _is_embedded(environ):
            text = "Pages of other sites may not use the API: [web] auth is none"
        if text:
            return _refuse(respond, HTTPStatus.FORBIDDEN, text)
        return app(environ, respond)

    return checked


def _is_embedded(environ: WSGIEnvironment) -> bool:
    """Return whether a page of another site sent a request, other than by a link."""
    is_foreign = environ.get("HTTP_SEC_FETCH_SITE") in ("cross-site", "same-site")
    return is_foreign and environ.get("HTTP_SEC_FETCH_DEST") != "document"


# -- a token -----------------------------------------------------------------------


def _read_token(path: str | None) -> bytes:
    if not path:
        raise ConfigurationError("[web] auth = token needs [web] token_file")
    try:
        mode = Path(path).stat().st_mode
        token = Path(path).read_bytes().strip()
    except OSError as e:
        raise ConfigurationError(
            f"[web] token_file {path} cannot be read: {e.strerror}"
        ) from e
    if mode & stat.S_IROTH:
        raise ConfigurationError(
            f"[web] token_file {path} can be read by every user; chmod o-r it"
        )
    if len(token) < _MIN_TOKEN:
        raise ConfigurationError(
            f"[web] token_file {path} has a token of {len(token)} characters; it must "
            f"have at least {_MIN_TOKEN}, such as from `openssl rand -hex 32`"
        )
    if not token.decode("latin-1").isprintable():  # no header can have it
        raise ConfigurationError(
            f"[web] token_file {path} must have one line of text: the token"
        )
    return token


def _with_token(app: WSGIApplication, token: bytes) -> WSGIApplication:
    def checked(environ: WSGIEnvironment, respond: StartResponse) -> Iterable[bytes]:
        sent_token = environ.get("HTTP_X_AUTH_TOKEN") or _bearer(environ)
        # WSGI decodes headers as Latin-1.
        if hmac.compare_digest(sent_token.encode("latin-1", "replace"), token):
            return app(environ, respond)
        text = "X-Auth-Token must have the token of [web] token_file"
        return _refuse(respond, HTTPStatus.UNAUTHORIZED, text)

    return checked


def _bearer(environ: WSGIEnvironment) -> str:
    kind, _, token = environ.get("HTTP_AUTHORIZATION", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


# -- Keystone ----------------------------------------------------------------------


def _keystone(conf: cfg.ConfigOpts) -> Access:
    try:
        from keystonemiddleware import auth_token
    except ImportError as e:
        raise ConfigurationError(
            "[web] auth = keystone needs keystonemiddleware, which Moorage's extra "
            "keystone installs: run pip install '.[keystone]' in a checkout"
        ) from e

    def restrict(app: WSGIApplication) -> WSGIApplication:
        settings = {"oslo_config_config": conf}
        protected: WSGIApplication = auth_token.AuthProtocol(
            _admins_only(app), settings
        )
        return protected

    return lambda app: with_login(app, restrict, KeystoneSession())


def _admins_only(app: WSGIApplication) -> WSGIApplication:
    """Refuse users without the role admin; AuthProtocol has validated the token."""

    def checked(environ: WSGIEnvironment, respond: StartResponse) -> Iterable[bytes]:
        roles = environ.get("HTTP_X_ROLES", "").lower().split(",")
        is_confirmed = environ.get("HTTP_X_IDENTITY_STATUS") == "Confirmed"
        if is_confirmed and _ADMIN in map(str.strip, roles):
            return app(environ, respond)
        return _refuse(respond, HTTPStatus.FORBIDDEN, "The role admin is required")

    return checked


def _refuse(respond: StartResponse, status: HTTPStatus, text: str) -> list[bytes]:
    body = json.dumps({"error": f"{text}."}).encode()
    headers = [
        ("Content-Type", "application/json"),
        ("Content-Length", str(len(body))),
        ("Cache-Control", "no-store"),
    ]
    if status is HTTPStatus.UNAUTHORIZED:
        headers.append(("WWW-Authenticate", 'Bearer realm="moorage"'))
    respond(f"{status.value} {status.phrase}", headers)
    return [body]
