# SPDX-License-Identifier: Apache-2.0
"""Sign in with a browser: cookies, forms, and what they do not open."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from werkzeug.test import Client, TestResponse

from moorage.scheduler import conf as moorage_conf
from moorage.scheduler.web import make_access
from moorage.scheduler.web.page import KeystoneSession, TokenSession

from ....fixtures.keystone_server import keystone_server

TOKEN = "0123456789abcdef-token"
BROWSER = {"Accept": "text/html,*/*;q=0.8"}


def _client(folder: Path, *lines: str) -> Client:
    """A client of an application that shows each path, behind the access control."""
    app = Flask(__name__, static_folder=None)

    @app.route("/", defaults={"path": ""}, methods=["GET", "POST"])
    @app.route("/<path:path>", methods=["GET", "POST"])
    def granted(path: str) -> str:
        return f"granted {path}"

    path = folder / "moorage.conf"
    path.write_text("\n".join(("[web]", *lines)))
    conf = moorage_conf.load([f"--config-file={path}"])
    return Client(make_access(conf)(app))


@pytest.fixture
def client(tmp_path: Path) -> Client:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    file.chmod(0o600)
    return _client(tmp_path, "auth = token", f"token_file = {file}")


def _sign_in(client: Client, token: str = TOKEN, **changes: Any) -> TestResponse:
    form = {"token": token, "target": changes.pop("target", "/hosts?after=a")}
    return client.post("/login", data=form, headers={**BROWSER, **changes})


def test_without_a_cookie_a_browser_gets_the_form(client: Client) -> None:
    answer = client.get("/hosts?after=a", headers=BROWSER)
    assert (answer.status_code, answer.mimetype) == (401, "text/html")
    assert 'name="target" value="/hosts?after=a"' in answer.text
    assert "granted" not in answer.text
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]


def test_the_token_opens_the_page_that_was_wanted(client: Client) -> None:
    answer = _sign_in(client)
    assert (answer.status_code, answer.headers["Location"]) == (303, "/hosts?after=a")
    cookie = answer.headers["Set-Cookie"]
    assert {"HttpOnly", "SameSite=Strict"} <= set(cookie.split("; "))
    assert TOKEN not in cookie
    assert "Secure" not in cookie
    assert client.get("/hosts", headers=BROWSER).text == "granted hosts"


def test_behind_tls_the_cookie_is_secure(client: Client) -> None:
    answer = _sign_in(client, Origin="https://moorage.example.org")
    assert "Secure" in answer.headers["Set-Cookie"].split("; ")


@pytest.mark.parametrize("token", ["", "wrong", TOKEN[:-1], f"{TOKEN}x", "é" * 20])
def test_another_token_is_refused(client: Client, token: str) -> None:
    answer = _sign_in(client, token)
    assert answer.status_code == 401
    assert "Set-Cookie" not in answer.headers
    assert "not accepted" in answer.text
    assert client.get("/", headers=BROWSER).status_code == 401


@pytest.mark.parametrize(
    "path", ["/v1/hosts", "/v1/decisions/req-1", "/v1/openapi.json"]
)
def test_the_cookie_does_not_open_the_api(client: Client, path: str) -> None:
    _sign_in(client)
    assert client.get(path, headers=BROWSER).status_code == 401
    assert client.post("/v1/dry-run", json={}, headers=BROWSER).status_code == 401


def test_another_site_cannot_sign_a_browser_in(client: Client) -> None:
    answer = _sign_in(client, **{"Sec-Fetch-Site": "cross-site"})
    assert answer.status_code == 403
    assert "Set-Cookie" not in answer.headers


@pytest.mark.parametrize(
    "target", ["//evil.example", "https://evil.example", "/\\evil.example", "/\r\nx: y"]
)
def test_signing_in_leads_to_no_other_site(client: Client, target: str) -> None:
    assert _sign_in(client, target=target).headers["Location"] == "/"


def test_a_large_form_is_refused(client: Client) -> None:
    assert _sign_in(client, "x" * 100_000).status_code in (401, 413)


def test_signing_out_removes_the_cookie(client: Client) -> None:
    _sign_in(client)
    assert client.post("/logout", headers=BROWSER).status_code == 303
    assert client.get("/", headers=BROWSER).status_code == 401


@pytest.mark.parametrize("cookie", ["1", "1.x.y", f"{TOKEN}", "\x00", "x" * 9000])
def test_a_forged_cookie_opens_nothing(client: Client, cookie: str) -> None:
    headers = {**BROWSER, "Cookie": f"moorage={cookie}"}
    assert client.get("/", headers=headers).status_code == 401


def test_a_cookie_expires() -> None:
    now = 1e9
    session = TokenSession(TOKEN.encode(), clock=lambda: now)
    cookie = session.to_cookie(TOKEN)
    assert cookie is not None
    now += 11 * 3600
    assert session.to_token(cookie) == TOKEN
    now += 2 * 3600
    assert session.to_token(cookie) is None
    assert TokenSession(b"another-token-of-16").to_token(cookie) is None


def test_styles_need_no_cookie(client: Client) -> None:
    assert client.get("/static/page.css").text == "granted static/page.css"


# -- Keystone ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def of_keystone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    roles = {"an-admin": ["member", "admin"], "a-member": ["member"]}
    with keystone_server(roles) as url:
        yield _client(
            tmp_path_factory.mktemp("keystone"),
            "auth = keystone",
            "[keystone_authtoken]",
            f"auth_url = {url}",
            f"www_authenticate_uri = {url}",
            "auth_type = password",
            "username = moorage",
            "password = secret",
            "user_domain_name = Default",
            "project_name = service",
            "project_domain_name = Default",
        )


@pytest.mark.parametrize(
    ("token", "status", "text"),
    [
        ("an-admin", 200, "granted"),
        ("a-member", 403, "lacks the role admin"),
        ("unknown", 401, "not accepted"),
    ],
)
def test_keystone_checks_the_token_of_each_request(
    of_keystone: Client, token: str, status: int, text: str
) -> None:
    assert _sign_in(of_keystone, token).status_code == 303
    answer = of_keystone.get("/", headers=BROWSER)
    assert answer.status_code == status
    assert text in answer.text


@pytest.mark.parametrize("token", ["", "a b", "é", "x" * 4000, "a\nb"])
def test_a_text_that_no_cookie_can_hold_is_refused(token: str) -> None:
    assert KeystoneSession().to_cookie(token) is None
