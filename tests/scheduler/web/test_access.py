# SPDX-License-Identifier: Apache-2.0
"""Who may use the HTTP API: every path, with all kinds of credentials."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from oslo_config import cfg
from werkzeug.test import Client

from moorage.scheduler import conf as moorage_conf
from moorage.scheduler.errors import ConfigurationError
from moorage.scheduler.web import make_access
from moorage.scheduler.web.openapi import document

from ...fixtures.keystone_server import keystone_server

TOKEN = "0123456789abcdef-token"
OPERATIONS = [
    (method.upper(), path.replace("{id}", "req-1").replace("{host}", "h1"))
    for path, methods in document()["paths"].items()
    for method in methods
]
every_path = pytest.mark.parametrize(
    ("method", "path"),
    [
        *OPERATIONS,
        ("GET", "/metrics"),
        ("GET", "//readyz"),
        ("GET", "/"),
        ("GET", "/v1/nothing"),
        ("DELETE", "/v1/hosts"),
    ],
)


def _served(_environ: object, respond: object) -> list[bytes]:
    """What is behind the access, if it is granted."""
    respond("200 OK", [("Content-Type", "text/plain")])  # type: ignore[operator]
    return [b"granted"]


def _conf(*lines: str, folder: Path) -> cfg.ConfigOpts:
    path = folder / "moorage.conf"
    path.write_text("\n".join(("[web]", *lines)))
    return moorage_conf.load([f"--config-file={path}"])


def _token_file(folder: Path, token: str = TOKEN, mode: int = 0o600) -> Path:
    path = folder / "token"
    path.write_text(f"{token}\n")
    path.chmod(mode)
    return path


# -- a token -----------------------------------------------------------------------


@pytest.fixture
def of_token(tmp_path: Path) -> Client:
    lines = "auth = token", f"token_file = {_token_file(tmp_path)}", "address = ::"
    return Client(make_access(_conf(*lines, folder=tmp_path))(_served))


@every_path
@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({}, id="none"),
        pytest.param({"X-Auth-Token": ""}, id="empty"),
        pytest.param({"X-Auth-Token": "wrong"}, id="wrong"),
        pytest.param({"X-Auth-Token": TOKEN[:-1]}, id="shorter"),
        pytest.param({"X-Auth-Token": f"{TOKEN}é"}, id="not-ascii"),
        pytest.param({"Authorization": f"Basic {TOKEN}"}, id="basic"),
        pytest.param({"Authorization": "Bearer wrong"}, id="bearer"),
    ],
)
def test_no_path_is_served_without_the_token(
    of_token: Client, method: str, path: str, headers: dict[str, str]
) -> None:
    answer = of_token.open(path, method=method, headers=headers)
    assert answer.status_code == 401
    assert "token" in json.loads(answer.data)["error"]


@pytest.mark.parametrize(
    "headers", [{"X-Auth-Token": TOKEN}, {"Authorization": f"Bearer {TOKEN}"}]
)
def test_the_token_is_accepted(of_token: Client, headers: dict[str, str]) -> None:
    assert of_token.get("/v1/hosts", headers=headers).data == b"granted"


# -- Keystone ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def of_keystone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    roles = {"an-admin": ["member", "admin"], "a-member": ["member", "administrator"]}
    with keystone_server(roles) as url:
        conf = _conf(
            "auth = keystone",
            "address = 0.0.0.0",
            "[keystone_authtoken]",
            f"auth_url = {url}",
            f"www_authenticate_uri = {url}",
            "auth_type = password",
            "username = moorage",
            "password = secret",
            "user_domain_name = Default",
            "project_name = service",
            "project_domain_name = Default",
            folder=tmp_path_factory.mktemp("keystone"),
        )
        yield Client(make_access(conf)(_served))


@every_path
@pytest.mark.parametrize(
    ("token", "status"),
    [
        pytest.param(None, 401, id="none"),
        pytest.param("unknown-token", 401, id="wrong"),
        pytest.param("a-member", 403, id="no-admin"),
    ],
)
def test_no_path_is_served_without_an_admins_token(
    of_keystone: Client, method: str, path: str, token: str | None, status: int
) -> None:
    # A client that claims to have been authenticated is not believed.
    headers = {"X-Roles": "admin", "X-Identity-Status": "Confirmed"}
    if token is not None:
        headers["X-Auth-Token"] = token
    answer = of_keystone.open(path, method=method, headers=headers)
    assert answer.status_code == status


def test_an_admins_token_is_accepted(of_keystone: Client) -> None:
    answer = of_keystone.get("/v1/hosts", headers={"X-Auth-Token": "an-admin"})
    assert answer.data == b"granted"


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
@pytest.mark.parametrize("kind", ["of_token", "of_keystone"])
def test_a_probe_needs_no_token(
    request: pytest.FixtureRequest, kind: str, path: str
) -> None:
    client: Client = request.getfixturevalue(kind)
    assert client.get(path).data == b"granted"


# -- none --------------------------------------------------------------------------


@every_path
@pytest.mark.parametrize(
    "host", ["attacker.example", "attacker.example:8790", "1.1.1.1"]
)
def test_a_page_whose_name_was_rebound_is_refused(
    tmp_path: Path, method: str, path: str, host: str
) -> None:
    client = Client(make_access(_conf(folder=tmp_path))(_served))
    answer = client.open(path, method=method, headers={"Host": host})
    assert answer.status_code == 403


def test_a_page_whose_name_was_rebound_gets_no_probe_with_reasons(
    tmp_path: Path,
) -> None:
    client = Client(make_access(_conf(folder=tmp_path))(_served))
    assert client.get("/readyz", headers={"Host": "attacker"}).status_code == 403


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8790", "127.0.0.1:8790", "[::1]", "[::1]:8790"]
)
def test_the_loopback_interface_needs_no_token(tmp_path: Path, host: str) -> None:
    client = Client(make_access(_conf(folder=tmp_path))(_served))
    assert client.get("/v1/hosts", headers={"Host": host}).data == b"granted"


@pytest.mark.parametrize(
    ("site", "dest", "status"),
    [
        ("cross-site", "image", 403),
        ("cross-site", "empty", 403),
        ("cross-site", "iframe", 403),
        ("same-site", "script", 403),
        ("cross-site", "document", 200),
        ("same-origin", "empty", 200),
        ("none", "document", 200),
    ],
)
def test_pages_of_other_sites_may_only_link(
    tmp_path: Path, site: str, dest: str, status: int
) -> None:
    client = Client(make_access(_conf(folder=tmp_path))(_served))
    headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Dest": dest}
    answer = client.get("/dry-run?vcpus=1", headers=headers)
    assert answer.status_code == status


# -- what is refused at the start --------------------------------------------------


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_another_address_needs_authentication(tmp_path: Path, address: str) -> None:
    conf = _conf(f"address = {address}", folder=tmp_path)
    with pytest.raises(
        ConfigurationError, match=r"set \[web\] auth to token or keystone"
    ):
        make_access(conf)


@pytest.mark.parametrize(
    ("token", "mode", "match"),
    [
        pytest.param("short", 0o600, "has a token of 5 characters", id="short"),
        pytest.param("", 0o600, "has a token of 0 characters", id="empty"),
        pytest.param(f"{TOKEN}\nx", 0o600, "must have one line", id="lines"),
        pytest.param(TOKEN, 0o644, "can be read by every user", id="readable"),
    ],
)
def test_an_unsafe_token_file_is_refused(
    tmp_path: Path, token: str, mode: int, match: str
) -> None:
    path = _token_file(tmp_path, token, mode)
    conf = _conf("auth = token", f"token_file = {path}", folder=tmp_path)
    with pytest.raises(ConfigurationError, match=match):
        make_access(conf)


@pytest.mark.parametrize(
    ("line", "match"),
    [
        ("", "needs .web. token_file"),
        ("token_file = /nowhere/token", "cannot be read: No such file"),
    ],
)
def test_a_missing_token_file_is_refused(tmp_path: Path, line: str, match: str) -> None:
    with pytest.raises(ConfigurationError, match=match):
        make_access(_conf("auth = token", line, folder=tmp_path))
