# SPDX-License-Identifier: Apache-2.0
"""Describe the failure of a part in one line: option, value, cause and remedy.

Brokers, databases, files and options fail in many ways that an operator can correct.
The caller names the option; `Failure.of` finds the cause and the remedy, and masks
secrets.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_HIDDEN: Final = "***"
_URL_WITH_PASSWORD: Final = re.compile(r"(?<=://)\S*@")
_SECRET_IN_QUERY: Final = re.compile(
    r"([?&][^=&\s]*(?:passw|secret|token)[^=&\s]*=)[^&\s]+", re.IGNORECASE
)
#: "password@HOST:PORT,user:" between two servers of one URL.
_NEXT_SERVER: Final = re.compile(r"[^,:/]*(?::\d+)?,[^,:/]*(?=:)")
#: A password in a value whose scheme is mistyped.
_PASSWORD: Final = re.compile(r"(?<!/):(?!//)[^:@/\s][^@\s]*@")
_MAX_CHARACTERS: Final = 1000


@dataclass(frozen=True, slots=True)
class _Rule:
    """A kind of cause, by a pattern of the message, and what an operator can do.

    Attributes
    ----------
    is_refusal : bool
        Whether an operator has to act: a retry alone cannot succeed.
    """

    pattern: re.Pattern[str]
    remedy: str
    is_refusal: bool = True

    @classmethod
    def of(cls, pattern: str, remedy: str, *, is_refusal: bool = True) -> _Rule:
        return cls(re.compile(pattern, re.IGNORECASE), remedy, is_refusal)


#: The first rule whose pattern matches applies.
_RULES: Final = (
    _Rule.of(
        r"login was refused|password authentication failed|authentication mechanism"
        r"|using password|role .* does not exist|no password supplied|pg_hba\.conf"
        r"|is not allowed to connect|authentication plugin",
        "Check user and password, and that the server admits this user from here",
    ),
    _Rule.of(
        r"vhost .* not found",
        "Create the virtual host (rabbitmqctl add_vhost), or correct its name",
    ),
    _Rule.of(
        r"access to \S+ .* refused",
        "Give the user permissions on the virtual host (rabbitmqctl set_permissions)",
    ),
    _Rule.of(
        r"unknown database|database .* does not exist|to database ",
        "Create the database and grant the user access to it, or correct its name",
    ),
    _Rule.of(
        r"permission denied for|command denied|must be owner|readonly database",
        "Grant the user the privileges on the tables that are needed",
    ),
    _Rule.of(
        r"unable to open database file|file is not a database|image is malformed",
        "Check the path, and that this user may read and write the file and its "
        "directory",
    ),
    _Rule.of(
        r"certificate|\bssl\b|\btls\b|wrong version number",
        "Check the TLS options here and those of the server",
    ),
    _Rule.of(
        r"permission denied|read-only file system|operation not permitted",
        "Give the user that runs this access to it",
    ),
    _Rule.of(
        r"no such file|not a directory|is a directory|there is no file",
        "Check the path",
    ),
    _Rule.of(
        r"name or service not known|name resolution|translate host name|nodename nor"
        r"|no address associated",
        "Check the name of the host",
        is_refusal=False,
    ),
    _Rule.of(
        r"refused|timed out|timeout|unreachable|no route|reset by peer|closed",
        "Check that the server runs, and its host and port",
        is_refusal=False,
    ),
)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a part cannot do its work, for an operator; ``str()`` is one line.

    Attributes
    ----------
    option : str
        The option that the part depends on, such as ``[DEFAULT] transport_url``.
    value : str
        The value of the option, without secrets; may be empty.
    is_refusal : bool
        Whether an operator has to act: a retry alone cannot succeed.
    """

    option: str
    value: str
    cause: str
    remedy: str
    is_refusal: bool

    @classmethod
    def of(
        cls, option: str, value: object, error: BaseException | str, remedy: str = ""
    ) -> Failure:
        """Translate an error of a library.

        Parameters
        ----------
        remedy : str
            Used if the kind of error suggests no better one.
        """
        cause = cause_of(error) if isinstance(error, BaseException) else error
        rule = next((rule for rule in _RULES if rule.pattern.search(cause)), None)
        return cls(
            option=option,
            value=_PASSWORD.sub(f":{_HIDDEN}@", without_secrets(str(value or ""))),
            cause=one_line(cause),
            remedy=rule.remedy if rule else remedy,
            is_refusal=rule is not None and rule.is_refusal,
        )

    def __str__(self) -> str:
        setting = f"{self.option} = {self.value}" if self.value else self.option
        return ". ".join(filter(None, (f"{setting}: {self.cause}", self.remedy))) + "."


def without_secrets(text: str) -> str:
    """Return a text in which the passwords and secrets in URLs are masked."""
    text = _URL_WITH_PASSWORD.sub(lambda match: _masked(match[0]), text)
    return _SECRET_IN_QUERY.sub(rf"\1{_HIDDEN}", text)


def _masked(servers: str) -> str:
    """Mask passwords in ``USER:PASSWORD@HOST:PORT,USER:PASSWORD@``."""
    first, *later = servers.removesuffix("@").split("@")
    user, colon, _ = first.partition(":")
    masked = [f"{user}:{_HIDDEN}" if colon else user]
    for server_text in later:
        server = _NEXT_SERVER.match(server_text)
        if server is not None:
            masked.append(f"{server[0]}:{_HIDDEN}")
    return "@".join(masked) + "@"


def one_line(text: object) -> str:
    """Return a text as one line, without secrets and without a full stop at its end."""
    lines = (" ".join(line.split()) for line in str(text).splitlines())
    joined = without_secrets("; ".join(line for line in lines if line)).rstrip(". ")
    if len(joined) <= _MAX_CHARACTERS:
        return joined
    return f"{joined[:_MAX_CHARACTERS]}…"


def cause_of(error: BaseException) -> str:
    """Return the message of a library's error, without wrapping errors and SQL."""
    inner = getattr(error, "inner_exception", None) or error  # oslo.db's
    inner = getattr(inner, "orig", None) or inner  # SQLAlchemy's
    message = getattr(inner, "reply_text", None) or _message(inner)  # amqp's
    first_line = next((line for line in str(message).splitlines() if line.strip()), "")
    return one_line(first_line) or type(inner).__name__


def _message(error: BaseException) -> str:
    match error.args:
        case (int(number), str(text)) if not isinstance(error, OSError):
            return f"{text} (error {number})"  # MariaDB's
    if isinstance(error, OSError) and error.strerror:
        return ": ".join(filter(None, (error.strerror, str(error.filename or ""))))
    if isinstance(error, LookupError | TypeError | AttributeError):
        return f"{type(error).__name__}: {error}"
    return str(error)
