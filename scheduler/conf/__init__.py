# SPDX-License-Identifier: Apache-2.0
"""Options, one module a group; with nova's groups, names and defaults.

A ``nova.conf`` can be passed to ``moorage-scheduler --config-file``. Moorage's own
options are in the groups ``[moorage]``, ``[telemetry]``, ``[web]``, ``[kafka]``,
``[relay]`` and ``[agent]``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from oslo_config import cfg

from ... import __version__
from . import (
    agent,
    api_database,
    cinder,
    compute,
    database,
    default,
    filter_scheduler,
    kafka,
    locality,
    metrics,
    moorage,
    neutron,
    notifications,
    nova,
    oslo_reports,
    placement,
    placement_database,
    relay,
    scheduler,
    solver,
    telemetry,
    web,
    workarounds,
)
from .keystoneauth import auth_opts
from .values import check_values, registered_opts

__all__ = [
    "ProgramOptions",
    "explaining",
    "list_opts",
    "load",
    "register_opts",
    "registered_opts",
]

_GROUPS = (
    default,
    scheduler,
    filter_scheduler,
    locality,
    solver,
    metrics,
    compute,
    placement,
    placement_database,
    neutron,
    nova,
    cinder,
    notifications,
    workarounds,
    moorage,
    database,
    api_database,
    kafka,
    relay,
    agent,
    telemetry,
    web,
    oslo_reports,
)

#: Help texts in the format of argparse; those of oslo have "None" as the default.
_HELP: Final[Mapping[str, str]] = MappingProxyType(
    {
        "config_file": (
            "A configuration file. May be repeated: values in later files take "
            "precedence. Without it, moorage.conf and %(prog)s.conf are read, each "
            "from the first of ~/.moorage, ~, /etc/moorage and /etc that has it."
        ),
        "log_date_format": (
            "The format of %%(asctime)s in log records; without it, "
            "%%Y-%%m-%%d %%H:%%M:%%S. Ignored if log_config_append is set."
        ),
    }
)


class ProgramOptions(cfg.ConfigOpts):
    """Options whose ``--help`` says what happens without an option."""

    def register_cli_opts(
        self, opts: list[cfg.Opt], group: str | cfg.OptGroup | None = None
    ) -> None:
        """Register options for the command line."""
        for opt in opts:
            opt.help = _HELP.get(opt.dest, opt.help)
        super().register_cli_opts(opts, group)


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register every option on `conf` that it does not have yet.

    `conf` may be nova's own: an option that is already registered keeps its default.
    """
    for module in _GROUPS:
        for opt in module.OPTS:
            try:
                conf.register_opt(opt, group=module.GROUP)
            except cfg.DuplicateOptError:  # its owner's registration takes precedence
                continue


@contextlib.contextmanager
def explaining(argv: Sequence[str]) -> Iterator[None]:
    """Convert exceptions of oslo.config that are no oslo_config.cfg.Error to one."""
    try:
        yield
    except UnicodeDecodeError as e:
        raise cfg.Error(
            f"A configuration file is not UTF-8 text: {e.reason} at byte {e.start}. "
            f"The arguments are {' '.join(argv) or 'none, so default files are read'}"
        ) from e
    except FileNotFoundError as e:
        if "--shell_completion" not in argv:
            raise
        raise cfg.Error(
            "--shell_completion cannot be used: the installed oslo.config lacks its "
            f"template {e.filename}"
        ) from e


def load(
    argv: Sequence[str] = (),
    *,
    conf: cfg.ConfigOpts | None = None,
    config_files: Sequence[str] | None = None,
    description: str | None = None,
) -> cfg.ConfigOpts:
    """Load options from a command line and files.

    Parameters
    ----------
    argv : sequence of str
        Arguments without the program's name, for example ``--config-file F``.
    conf : oslo_config.cfg.ConfigOpts, optional
        The object to load the options into; a new one by default.
    config_files : sequence of str, optional
        Files to read if `argv` names none; by default those that oslo.config finds
        for "moorage".
    description : str, optional
        What the program does, for ``--help``.

    Raises
    ------
    oslo_config.cfg.Error
        A file or a value is invalid; the message names it.
    """
    conf = ProgramOptions() if conf is None else conf
    register_opts(conf)
    with explaining(argv):
        conf(
            list(argv),
            project="moorage",
            version=__version__,
            description=description,
            default_config_files=None if config_files is None else list(config_files),
        )
    check_values(conf)
    return conf


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """Return (group, options) for oslo-config-generator."""
    options_by_group = [
        (module.GROUP or "DEFAULT", list(module.OPTS)) for module in _GROUPS
    ]
    auth_groups = (placement, neutron, nova, cinder)
    return [*options_by_group, *((module.GROUP, auth_opts()) for module in auth_groups)]
