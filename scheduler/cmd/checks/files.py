# SPDX-License-Identifier: Apache-2.0
"""The raw options of configuration files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import unquote

from oslo_config import cfg

from ...conf.values import HIDDEN, config_files, is_secret_name
from .option_table import Key

#: Parts of the names of options whose values are URLs that may have passwords.
_URL_PARTS: Final = ("connection", "transport_url")
#: A secret with fewer characters is not replaced: it would match parts of other words.
_MIN_LENGTH: Final = 4


class FileOptions:
    """The options that some files set, as texts; later files take precedence.

    Raises
    ------
    oslo_config.cfg.Error
        A file cannot be read or parsed; the message names it.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        self._values: dict[Key, list[str]] = {}
        for path in paths:
            for key, values in _read(path).items():
                self._values.setdefault(key, []).extend(values)

    @classmethod
    def of(cls, conf: cfg.ConfigOpts) -> FileOptions:
        """Read the files that `conf` was loaded from."""
        return cls(config_files(conf))

    def __iter__(self) -> Iterator[Key]:
        """Yield the options that are set, sorted, [DEFAULT] first."""
        return iter(sorted(self._values, key=lambda key: (key[0] != "DEFAULT", key)))

    def __contains__(self, key: Key) -> bool:
        return key in self._values

    def get(self, group: str, name: str) -> str | None:
        """Return the effective text of an option that has a single value."""
        values = self._values.get((group, name))
        return values[-1] if values else None

    def redacted(self, text: object) -> str:
        """Return a message on one line, with the secrets of all files replaced."""
        redacted = " ".join(str(text).split())
        for secret in sorted(self._secrets(), key=len, reverse=True):
            redacted = redacted.replace(secret, HIDDEN)
        return redacted

    def _secrets(self) -> set[str]:
        secrets: set[str] = set()
        for (_, name), values in self._values.items():
            if is_secret(name):
                for value in values:
                    secrets |= {value, *_passwords(value)}
        return {text for text in secrets if len(text) >= _MIN_LENGTH}


def is_secret(name: str) -> bool:
    """Return whether the value of an option may hold a password."""
    return is_secret_name(name) or any(part in name for part in _URL_PARTS)


def _passwords(value: str) -> Iterator[str]:
    """Yield the possible passwords in a URL, which may name several servers."""
    _, _, address = value.partition("://")
    for server in address.split("/")[0].split(","):
        userinfo, at_sign, _ = server.rpartition("@")
        _, colon, password = userinfo.partition(":")
        if at_sign and colon:
            yield from (password, unquote(password))


def _read(path: str) -> Mapping[Key, list[str]]:
    """Return the texts of each option of a file, in the order of the file."""
    sections: dict[str, dict[str, list[str]]] = {}
    try:
        cfg.ConfigParser(path, sections).parse()
    except OSError as e:
        raise cfg.ConfigFilesNotFoundError([path]) from e
    except cfg.ParseError as e:
        raise cfg.ConfigFileParseError(path, str(e)) from e
    return {
        (group if group == "DEFAULT" else group.lower(), name.replace("-", "_")): values
        for group, options in sections.items()
        for name, values in options.items()
    }
