# SPDX-License-Identifier: Apache-2.0
"""Options that are read again while the service runs."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from oslo_config import cfg

from ..conf import load, registered_opts
from ..conf.secrets import HIDDEN, is_secret

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


class Options:
    """The options of a process, and the files that they came from.

    Parameters
    ----------
    argv : sequence of str
        The command line that `conf` was loaded with.
    conf : oslo_config.cfg.ConfigOpts
        The options that the service reads, all of them registered.

    Raises
    ------
    oslo_config.cfg.Error
        A file or a value cannot be used; the message names it.
    """

    def __init__(self, argv: Sequence[str], conf: cfg.ConfigOpts) -> None:
        self._argv = argv
        self._conf = conf
        self._at_start = self._now = self._read()

    def reload(self) -> bool:
        """Read the files again; return whether they could be read.

        What may change while the service runs takes effect. The log tells what changed,
        and what needs a restart for it. A file or a value that cannot be used leaves
        everything as it was, and an error names it.
        """
        try:
            # oslo.config itself reads the values only once it has taken the files.
            read = self._read()
            with _quiet(logging.getLogger("oslo_config.cfg")):
                self._conf.mutate_config_files()
        except (cfg.Error, ValueError, OSError) as e:
            LOG.error("All options and hosts stay as they were: %s", e)
            return False
        for key, option in read.items():
            self._tell(key, option)
        self._now = read
        return True

    def _read(self) -> Mapping[tuple[str, str], _Option]:
        scratch = cfg.ConfigOpts()
        every = registered_opts(self._conf)
        known = [each for each in every if each[1].dest not in _BUILT_IN]
        for group, opt, is_cli in known:
            scratch.register_opt(opt, group=group, cli=is_cli)
        load(self._argv, conf=scratch)
        return {
            (group or "DEFAULT", opt.name): _Option(
                opt, (scratch[group] if group else scratch)[opt.dest]
            )
            for group, opt, _ in known
        }

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
