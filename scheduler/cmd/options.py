# SPDX-License-Identifier: Apache-2.0
"""Reload options while the service runs."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar

from oslo_config import cfg

from ..conf import load, registered_opts
from ..conf.values import HIDDEN, is_secret
from ..errors import SchedulerError
from ..failures import one_line
from ..reload_result import ReloadResult
from .checks.files import FileOptions
from .checks.option_table import unread_options

T = TypeVar("T")

LOG = logging.getLogger(__name__)

#: Options that oslo.config registers by itself.
_BUILT_IN: Final = frozenset(
    {"config_file", "config_dir", "config_source", "shell_completion"}
)


@dataclasses.dataclass(frozen=True, slots=True)
class _Option:
    """An option and its value in the files, or its default."""

    opt: cfg.Opt
    value: Any


_Values: TypeAlias = Mapping[tuple[str, str], _Option]


def copy_options(argv: Sequence[str], *confs: cfg.ConfigOpts) -> cfg.ConfigOpts:
    """Return a copy of the options of `confs`, with values read again from the files.

    Parameters
    ----------
    argv : sequence of str
        The command line, which names the files.

    Raises
    ------
    oslo_config.cfg.Error
        A file or a value cannot be used; the message names it.
    """
    conf = cfg.ConfigOpts()
    for (group, _), (opt, is_cli) in _registered(*confs).items():
        conf.register_opt(opt, group=group, cli=is_cli)
    return load(argv, conf=conf)


def _registered(
    *confs: cfg.ConfigOpts,
) -> dict[tuple[str | None, str], tuple[cfg.Opt, bool]]:
    """Return each option by group and dest, and whether the command line takes it."""
    return {
        (group, opt.dest): (opt, is_cli)
        for conf in confs
        for group, opt, is_cli in registered_opts(conf)
        if opt.dest not in _BUILT_IN
    }


def warn_of_unread_options(*confs: cfg.ConfigOpts) -> None:
    """Log a warning for each option of Moorage's groups that nothing reads.

    Called after the plugins were created, as they may register their own options.
    """
    registered = {(group or "DEFAULT", dest) for group, dest in _registered(*confs)}
    unread = unread_options(tuple(FileOptions.of(confs[0])), registered)
    for (group, name), why in unread.items():
        LOG.warning("[%s] %s is not read: %s", group, name, why)


class Options:
    """The options of a process, and the files that they were read from.

    Parameters
    ----------
    argv : sequence of str
        The command line that `conf` was loaded with.
    conf : oslo_config.cfg.ConfigOpts
        The options that the service reads, all of them registered.
    settings : oslo_config.cfg.ConfigOpts
        A copy of `conf` for the driver and its plugins.

    Attributes
    ----------
    result : ReloadResult
        The outcome of the last reload.
    settings : oslo_config.cfg.ConfigOpts
        The current options. A reload does not change the object, but replaces it.

    Raises
    ------
    oslo_config.cfg.Error
        A file or a value cannot be used; the message names it.
    """

    def __init__(
        self, argv: Sequence[str], conf: cfg.ConfigOpts, settings: cfg.ConfigOpts
    ) -> None:
        self._argv = argv
        self._conf = conf
        self.result = ReloadResult()
        self.settings = settings
        self._at_start = self._now = _values(copy_options(argv, conf, settings))
        warn_of_unread_options(conf, settings)

    def reload(self, prepare: Callable[[cfg.ConfigOpts], T]) -> T | None:
        """Read the files again; return what was prepared with the new options, or None.

        Mutable options take effect. Each change is logged, and whether it needs a
        restart. If a file or a value is invalid, or `prepare` fails, one error is
        logged, nothing changes, and None is returned.

        Parameters
        ----------
        prepare : callable
            Called with the new options before they take effect.
        """
        try:
            prepared = self._reload(prepare)
            self.result.record("")
            return prepared
        except (cfg.Error, SchedulerError, ValueError, OSError) as e:
            failure = e
        # Inside "except", oslo.log would repeat the error at the end of the line.
        self.result.record(one_line(failure))
        LOG.error(
            "Reload failed; options, plugins and hosts remain unchanged: %s", failure
        )
        return None

    def _reload(self, prepare: Callable[[cfg.ConfigOpts], T]) -> T:
        # oslo.config itself checks the values only after switching to the files.
        new_conf = copy_options(self._argv, self._conf, self.settings)
        values = _values(new_conf)
        self._keep_immutable(new_conf, values)
        prepared = prepare(new_conf)
        # A plugin may have registered its own options.
        values = {**_values(new_conf), **values}
        with _muted(logging.getLogger("oslo_config.cfg")):
            self._conf.mutate_config_files()
        for key, option in values.items():
            self._log_change(key, option)
        if self.result.is_owner:
            warn_of_unread_options(self._conf, new_conf)
        self._at_start = {**values, **self._at_start}
        self._now, self.settings = values, new_conf
        return prepared

    def _keep_immutable(self, new_conf: cfg.ConfigOpts, values: _Values) -> None:
        """Override the options that need a restart with their current values."""
        for (group, name), option in values.items():
            at_start = self._at_start.get((group, name), option)
            if not option.opt.mutable and at_start.value != option.value:
                option_group = None if group == "DEFAULT" else group
                new_conf.set_override(option.opt.dest, at_start.value, option_group)

    def _log_change(self, key: tuple[str, str], current: _Option) -> None:
        """Log the change of an option since the last reload, or since the start."""
        previous = (self._now if current.opt.mutable else self._at_start).get(
            key, current
        )
        if current.value == previous.value:
            return
        level, advice = (
            (logging.INFO, "")
            if current.opt.mutable
            else (logging.WARNING, "; restart to apply")
        )
        change = _describe_change(current.opt, previous.value, current.value)
        LOG.log(level, "[%s] %s changed%s%s", *key, change, advice)


def _describe_change(opt: cfg.Opt, before: object, now: object) -> str:
    """Return a change as text: for a list, its added and removed entries, if any."""
    if is_secret(opt):
        return f" from {HIDDEN} to {HIDDEN}"
    if isinstance(before, list) and isinstance(now, list):
        added = [entry for entry in now if entry not in before]
        removed = [entry for entry in before if entry not in now]
        parts = (("added", added), ("removed", removed))
        changes = [
            f"{verb} {', '.join(map(str, entries))}"
            for verb, entries in parts
            if entries
        ]
        if changes:
            return f": {'; '.join(changes)}"
    return f" from {before} to {now}"


def _values(conf: cfg.ConfigOpts) -> _Values:
    """Return each option with its value, by group and name."""
    return {
        (group or "DEFAULT", opt.name): _Option(
            opt, (conf[group] if group else conf)[dest]
        )
        for (group, dest), (opt, _) in _registered(conf).items()
    }


@contextlib.contextmanager
def _muted(logger: logging.Logger) -> Iterator[None]:
    """Mute a logger: that of oslo.config omits defaults, and logs secrets."""
    logger.addFilter(_reject)
    try:
        yield
    finally:
        logger.removeFilter(_reject)


def _reject(_record: logging.LogRecord) -> bool:
    return False
