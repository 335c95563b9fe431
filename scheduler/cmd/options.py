# SPDX-License-Identifier: Apache-2.0
"""Options that are read again while the service runs."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar

from oslo_config import cfg

from ..conf import load, registered_opts
from ..conf.secrets import HIDDEN, is_secret
from ..errors import SchedulerError

T = TypeVar("T")

LOG = logging.getLogger(__name__)

#: What oslo.config registers by itself.
_BUILT_IN: Final = frozenset(
    {"config_file", "config_dir", "config_source", "shell_completion"}
)


@dataclasses.dataclass(frozen=True, slots=True)
class _Option:
    """What the files say of an option, or its default."""

    opt: cfg.Opt
    value: Any


_Values: TypeAlias = Mapping[tuple[str, str], _Option]


def copied(argv: Sequence[str], *confs: cfg.ConfigOpts) -> cfg.ConfigOpts:
    """Return all options that some objects have, read of the files as they are now.

    Parameters
    ----------
    argv : sequence of str
        The command line, which names the files.

    Raises
    ------
    oslo_config.cfg.Error
        A file or a value cannot be used; the message names it.
    """
    copy = cfg.ConfigOpts()
    for (group, _), (opt, is_cli) in _registered(*confs).items():
        copy.register_opt(opt, group=group, cli=is_cli)
    return load(argv, conf=copy)


def _registered(
    *confs: cfg.ConfigOpts,
) -> dict[tuple[str | None, str], tuple[cfg.Opt, bool]]:
    return {
        (group, opt.dest): (opt, is_cli)
        for conf in confs
        for group, opt, is_cli in registered_opts(conf)
        if opt.dest not in _BUILT_IN
    }


class Options:
    """The options of a process, and the files that they came from.

    Parameters
    ----------
    argv : sequence of str
        The command line that `conf` was loaded with.
    conf : oslo_config.cfg.ConfigOpts
        The options that the service reads, all of them registered.
    settings : oslo_config.cfg.ConfigOpts
        A copy of `conf` for what decides.

    Attributes
    ----------
    settings : oslo_config.cfg.ConfigOpts
        The options in force. A reload does not change it, but makes another one.

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
        self.settings = settings
        self._at_start = self._now = _values(copied(argv, conf, settings))

    def reload(self, prepare: Callable[[cfg.ConfigOpts], T]) -> T | None:
        """Read the files again; return what was prepared with the new options, or None.

        Options that may change while the service runs take effect. The log tells what
        changed, and what needs a restart. If a file, a value or what is prepared is
        wrong, one error says so, nothing changes, and None is returned.

        Parameters
        ----------
        prepare : callable
            Makes something of the options that would be in force, before they are.
        """
        try:
            return self._reload(prepare)
        except (cfg.Error, SchedulerError, ValueError, OSError) as e:
            refused = e
        # Within "except", oslo.log would repeat the error at the end of the line.
        LOG.error(
            "Reload refused; options, plugins and hosts remain unchanged: %s", refused
        )
        return None

    def _reload(self, prepare: Callable[[cfg.ConfigOpts], T]) -> T:
        # oslo.config itself reads the values only once it has taken the files.
        new = copied(self._argv, self._conf, self.settings)
        values = _values(new)
        self._keep_others(new, values)
        prepared = prepare(new)
        # A plugin may have registered options of its own.
        values = {**_values(new), **values}
        with _quiet(logging.getLogger("oslo_config.cfg")):
            self._conf.mutate_config_files()
        for key, option in values.items():
            self._tell(key, option)
        self._at_start = {**values, **self._at_start}
        self._now, self.settings = values, new
        return prepared

    def _keep_others(self, new: cfg.ConfigOpts, values: _Values) -> None:
        """Give the options that need a restart the value that they have."""
        for (group, name), option in values.items():
            at_start = self._at_start.get((group, name), option)
            if not option.opt.mutable and at_start.value != option.value:
                where = None if group == "DEFAULT" else group
                new.set_override(option.opt.dest, at_start.value, where)

    def _tell(self, key: tuple[str, str], now: _Option) -> None:
        before = (self._now if now.opt.mutable else self._at_start).get(key, now)
        if now.value == before.value:
            return
        values = [HIDDEN] * 2 if is_secret(now.opt) else [before.value, now.value]
        if now.opt.mutable:
            LOG.info("[%s] %s was %s and is %s from now on", *key, *values)
        else:
            LOG.warning(
                "[%s] %s was %s and will be %s after a restart only", *key, *values
            )


def _values(conf: cfg.ConfigOpts) -> _Values:
    return {
        (group or "DEFAULT", opt.name): _Option(
            opt, (conf[group] if group else conf)[dest]
        )
        for (group, dest), (opt, _) in _registered(conf).items()
    }


@contextlib.contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    """Let a logger say nothing meanwhile: it tells no defaults, and any secret."""
    logger.addFilter(_nothing)
    try:
        yield
    finally:
        logger.removeFilter(_nothing)


def _nothing(_record: logging.LogRecord) -> bool:
    return False
