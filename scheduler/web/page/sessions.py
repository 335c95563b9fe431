# SPDX-License-Identifier: Apache-2.0
"""Sign in with a browser, which cannot send X-Auth-Token by itself.

    browser ── cookie ──▶ with_login ── X-Auth-Token ──▶ access control ──▶ page
                              └── 401 ──▶ the sign-in form, at the same URL

The cookie serves the page only: the API under /v1 takes tokens.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Protocol

from itsdangerous import BadSignature, TimestampSigner
from werkzeug.datastructures import Headers
from werkzeug.exceptions import RequestEntityTooLarge
from werkzeug.wrappers import Request, Response

from ...clock import now_s
from .rendering import HEADERS, SIGNED_IN, render

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

COOKIE: Final = "moorage"
#: Maximum number of bytes of the sign-in form.
_MAX_FORM: Final = 16 * 1024
#: A longer cookie is not stored by browsers.
_MAX_COOKIE: Final = 3800
_SESSION_S: Final = 12 * 3600
_REFUSED: Final = "This token is not accepted."


class Session(Protocol):
    """Converts between the token of a user and the cookie of a browser."""

    #: The label of the form's field.
    wanted: str

    def to_cookie(self, token: str) -> str | None:
        """Return the cookie for a token; None: it is not accepted."""

    def to_token(self, cookie: str) -> str | None:
        """Return the token for a cookie; None: it is not valid any more."""


class TokenSession:
    """Sessions of ``[web] auth = token``; a cookie is a signed time, not the token."""

    wanted = "The token of [web] token_file"

    def __init__(self, token: bytes, clock: Callable[[], float] = now_s) -> None:
        self._token = token
        self._signer = _Signer(token, clock)

    def to_cookie(self, token: str) -> str | None:
        """Return a time that is signed with the token."""
        if not hmac.compare_digest(token.encode("utf-8", "replace"), self._token):
            return None
        return self._signer.sign(b"1").decode()

    def to_token(self, cookie: str) -> str | None:
        """Return the token if the signed time is not too old."""
        try:
            self._signer.unsign(cookie, max_age=_SESSION_S)
        except BadSignature:
            return None
        return self._token.decode("latin-1")


class _Signer(TimestampSigner):
    def __init__(self, token: bytes, clock: Callable[[], float]) -> None:
        super().__init__(token, salt="moorage page")
        self._clock = clock

    def get_timestamp(self) -> int:
        """Return the current time, whole seconds since the epoch."""
        return int(self._clock())


class KeystoneSession:
    """Sessions of ``[web] auth = keystone``: Keystone checks the token each time."""

    wanted = "A token of Keystone of a user with the role admin: openstack token issue"

    def to_cookie(self, token: str) -> str | None:
        """Return the token, if a cookie can hold it."""
        can_be_held = token.isascii() and token.isprintable() and " " not in token
        return token if can_be_held and 0 < len(token) <= _MAX_COOKIE else None

    def to_token(self, cookie: str) -> str | None:
        """Return the token, which is the cookie."""
        return self.to_cookie(cookie)


def with_login(
    app: WSGIApplication,
    restrict: Callable[[WSGIApplication], WSGIApplication],
    session: Session,
) -> WSGIApplication:
    """Return a restricted application whose page can be used with a cookie.

    Parameters
    ----------
    restrict : callable
        Returns an application that answers 401 and 403 as its tokens demand.
    """
    restricted = restrict(app)

    def served(environ: WSGIEnvironment, respond: StartResponse) -> Iterable[bytes]:
        request = Request(environ)
        if request.path.startswith("/static/"):
            return app(environ, respond)  # style sheets, without data of the cloud
        if request.path == "/login" and request.method == "POST":
            return _sign_in(request, session)(environ, respond)
        if request.path == "/logout" and request.method == "POST":
            return _sign_out()(environ, respond)
        if request.path.startswith("/v1/") or not _is_browser(request):
            return restricted(environ, respond)
        token = session.to_token(request.cookies.get(COOKIE, ""))
        if token and "HTTP_X_AUTH_TOKEN" not in environ:
            environ["HTTP_X_AUTH_TOKEN"] = token
            environ[SIGNED_IN] = True
        return _explained(restricted, request, session)(environ, respond)

    return served


def _is_browser(request: Request) -> bool:
    return "text/html" in request.accept_mimetypes.values()


def _explained(
    restricted: WSGIApplication, request: Request, session: Session
) -> WSGIApplication:
    """Return the answer, or the sign-in form if the token is missing or refused."""
    answer = Response.from_app(restricted, request.environ)
    if answer.status_code == HTTPStatus.UNAUTHORIZED:
        had_cookie = COOKIE in request.cookies
        return _form(session, request.full_path, _REFUSED if had_cookie else "")
    if answer.status_code == HTTPStatus.FORBIDDEN:
        text = "Your user lacks the role admin."
        return _form(session, request.full_path, text, HTTPStatus.FORBIDDEN)
    return answer


def _form(
    session: Session,
    target: str,
    error: str,
    status: HTTPStatus = HTTPStatus.UNAUTHORIZED,
) -> Response:
    page = render(
        "login.html", wanted=session.wanted, target=_local(target), error=error
    )
    return Response(page, status, Headers(HEADERS), mimetype="text/html")


def _sign_in(request: Request, session: Session) -> Response:
    """Return a redirection to the wanted page with a cookie, or the form again."""
    request.max_content_length = _MAX_FORM
    request.max_form_memory_size = _MAX_FORM
    try:
        token, target = request.form.get("token", ""), request.form.get("target", "/")
    except RequestEntityTooLarge:
        return Response("The form is too large.", HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    origin = request.headers.get("Origin", "")
    # Another site must not sign a browser in, not even as another user.
    if request.headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
        return _form(session, "/", "Sign in on this page.", HTTPStatus.FORBIDDEN)
    cookie = session.to_cookie(token.strip())
    if cookie is None:
        return _form(session, target, _REFUSED)
    headers = Headers({**HEADERS, "Location": _local(target)})
    answer = Response("", HTTPStatus.SEE_OTHER, headers)
    answer.set_cookie(
        COOKIE,
        cookie,
        httponly=True,
        samesite="Strict",
        # The scheme does not tell whether a proxy in front of this server uses TLS.
        secure=request.is_secure or origin.startswith("https:"),
    )
    return answer


def _sign_out() -> Response:
    headers = Headers({**HEADERS, "Location": "/"})
    answer = Response("", HTTPStatus.SEE_OTHER, headers)
    answer.delete_cookie(COOKIE, httponly=True, samesite="Strict")
    return answer


def _local(target: str) -> str:
    """Return the path of a page of this server; another URL in the form is not used."""
    target = target.removesuffix("?")
    is_local = target.startswith("/") and not target.startswith(("//", "/\\", "/login"))
    return target if is_local and target.isprintable() else "/"
