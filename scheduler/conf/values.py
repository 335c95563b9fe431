# SPDX-License-Identifier: Apache-2.0
"""Find invalid option values, with their files and causes, and secret or local ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from oslo_config import cfg, types

from ..failures import one_line, without_secrets

#: The replacement for a secret value.
HIDDEN: Final = "***"

#: Parts of the names of secret options. Not all libraries mark them: keystoneauth1 does
#: not mark idp_otp_key, nor oslo.messaging ssl_client_key_password.
_NAMES: Final = (
    "passw", "passphrase", "secret", "token", "otp_key", "api_key", "apikey",
    "private_key", "credential",
)  # fmt: skip

#: How Python begins the errors of int() and float(), which oslo.config passes on.
_NOT_NUMBERS: Final = ("invalid literal for int()", "could not convert string to float")


class PluginFile(types.String):
    """The type of an option with the path of a file that a filter or weigher reads.

    A snapshot has the path, and not the file. On a machine without the file, such an
    option of a snapshot is left out.

    Parameters
    ----------
    needed_by : sequence of str
        The options of the same group that cannot be used without the file: they are
        left out, too.
    """

    def __init__(self, needed_by: Sequence[str] = ()) -> None:
        super().__init__()
        self.needed_by = needed_by


def check_values(conf: cfg.ConfigOpts) -> None:
    """Read every registered option once.

    Raises
    ------
    oslo_config.cfg.ConfigFileValueError
        Some values are invalid; the message has each one's group, option and file.
    """
    if errors := list(_wrong_values(conf)):
        raise cfg.ConfigFileValueError("; ".join(errors))


def _wrong_values(conf: cfg.ConfigOpts) -> Iterator[str]:
    for group, opt, _ in registered_opts(conf):
        if error := wrong_value(conf, group, opt):
            yield error


def registered_opts(
    conf: cfg.ConfigOpts,
) -> Iterator[tuple[str | None, cfg.Opt, bool]]:
    """Yield the group (None: DEFAULT), option and whether it is also a CLI option."""
    for info, group in conf._all_opt_infos():  # noqa: SLF001 - no public name lists them
        yield group.name if group else None, info["opt"], info["cli"]


def wrong_value(conf: cfg.ConfigOpts, group: str | None, opt: cfg.Opt) -> str | None:
    """Return the error of an option's invalid value, on one line, or None."""
    try:
        (conf[group] if group else conf)[opt.dest]
    except (cfg.Error, ValueError) as e:
        return _described(conf, group, opt, e)
    return None


def config_files(conf: cfg.ConfigOpts) -> list[str]:
    """Return the files that options were loaded from; later files win."""
    files, folders = conf.config_file or (), conf.config_dir or ()
    paths = [files] if isinstance(files, str) else list(files)
    for folder in [folders] if isinstance(folders, str) else folders:
        paths += sorted(map(str, Path(folder).expanduser().glob("*.conf")))
    return paths


def _described(
    conf: cfg.ConfigOpts, group: str | None, opt: cfg.Opt, error: Exception
) -> str:
    """Return the error of an option, with its value, unless secret, and its file."""
    group = group or "DEFAULT"
    file_values = (
        (path, _written(path, group, opt)) for path in reversed(config_files(conf))
    )
    file, value = next(
        (pair for pair in file_values if pair[1] is not None), ("", None)
    )
    cause = one_line(error.__context__ or error)
    if cause.startswith(_NOT_NUMBERS):
        cause = "not a number"
    if is_secret(opt):
        value, cause = HIDDEN, "the value cannot be used"
    setting = f"[{group}] {opt.name}"
    if value is not None:
        setting += f" = {without_secrets(value)}"
    return f"{setting}: {cause}" + (f" ({file})" if file else "")


def _written(file: str, group: str, opt: cfg.Opt) -> str | None:
    """Return the text of an option's value in a file; None: the file has none."""
    sections: dict[str, dict[str, list[str]]] = {}
    try:
        cfg.ConfigParser(file, sections).parse()
    except (cfg.ParseError, OSError, ValueError):
        return None
    values = sections.get(group, {})
    texts = values.get(opt.name) or values.get(opt.dest)
    return texts[-1] if texts else None


def is_secret(opt: cfg.Opt) -> bool:
    """Return whether the value of an option may be a secret."""
    return bool(opt.secret) or is_secret_name(opt.dest)


def is_secret_name(name: str) -> bool:
    """Return whether an option of that name may be secret, even if not marked."""
    return any(part in name for part in _NAMES)
