# SPDX-License-Identifier: Apache-2.0
"""One line for each failure, without secrets."""

from __future__ import annotations

import amqp
import psycopg2
import pymysql
import pytest
import sqlalchemy as sa

from moorage.scheduler.failures import Failure, one_line, without_secrets

URL = "rabbit://moorage:secret@127.0.0.1:5672/cloud"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        (URL, "rabbit://moorage:***@127.0.0.1:5672/cloud"),
        ("rabbit://a:p1@h1:1,b:p2@h2:2/v", "rabbit://a:***@h1:1,b:***@h2:2/v"),
        ("rabbit://a:p1@h1,b:p2@h2/v", "rabbit://a:***@h1,b:***@h2/v"),
        ("mysql://u:p@ss/w:rd@h/d", "mysql://u:***@h/d"),
        ("mysql://u:p,w@h/d", "mysql://u:***@h/d"),
        ("mysql://u@h/d", "mysql://u@h/d"),
        ("mysql://h:3306/d", "mysql://h:3306/d"),
        ("postgresql:///d?password=p&host=h", "postgresql:///d?password=***&host=h"),
        ("GET http://u:p@h/x failed", "GET http://u:***@h/x failed"),
        ("sqlite:////var/lib/x", "sqlite:////var/lib/x"),
    ],
)
def test_passwords_of_urls_are_not_written(text: str, masked: str) -> None:
    assert without_secrets(text) == masked


def _refused_login() -> Exception:
    return amqp.AccessRefused("ACCESS_REFUSED - Login was refused", (0, 0), "", 403)


def _of_postgresql() -> Exception:
    message = 'FATAL:  password authentication failed for user "moorage"\nLINE 2: x\n'
    return sa.exc.OperationalError("SELECT 1", {}, psycopg2.OperationalError(message))


def _of_mariadb() -> Exception:
    message = "Can't connect to MySQL server on 'db' ([Errno 111] Connection refused)"
    return sa.exc.OperationalError("S", {}, pymysql.err.OperationalError(2003, message))


@pytest.mark.parametrize(
    ("error", "words", "is_refusal"),
    [
        (_refused_login(), ["Login was refused", "Check user and password"], True),
        (_of_postgresql(), ["password authentication", "Check user"], True),
        (_of_mariadb(), ["Connection refused", "(error 2003)", "host and port"], False),
        (PermissionError(13, "Permission denied", "/x"), ["/x", "Give the user"], True),
        (ConnectionRefusedError(111, "Connection refused"), ["server runs"], False),
        (RuntimeError(), ["RuntimeError"], False),
    ],
)
def test_failure_has_option_value_cause_and_remedy(
    error: Exception, words: list[str], is_refusal: bool
) -> None:
    failure = Failure.of("[DEFAULT] transport_url", URL, error)
    start = "[DEFAULT] transport_url = rabbit://moorage:***@127.0.0.1:5672/cloud: "
    assert str(failure).startswith(start)
    assert all(word in str(failure) for word in words), str(failure)
    assert "\n" not in str(failure)
    assert failure.is_refusal is is_refusal


def test_several_lines_become_one() -> None:
    assert one_line("a.yaml: first\n  a.yaml:  second.\n") == (
        "a.yaml: first; a.yaml: second"
    )
