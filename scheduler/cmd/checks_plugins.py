# SPDX-License-Identifier: Apache-2.0
"""Whether each filter and weigher that a configuration names can be had."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator

from oslo_config import cfg

from ..drivers.plugins import REMOVED_FILTERS, load_filters, load_weighers
from ..errors import SchedulerError
from .checks_files import FileOptions
from .checks_finding import Finding

_GROUP = "filter_scheduler"


def available_filters(conf: cfg.ConfigOpts, files: FileOptions) -> Finding | None:
    """Tell which dotted paths cannot be imported, or None."""
    paths = conf.filter_scheduler.available_filters
    wrong = dict(_refused_paths(conf, paths))
    return _finding("available_filters", wrong.values(), files)


def _refused_paths(
    conf: cfg.ConfigOpts, paths: Iterable[str]
) -> Iterator[tuple[str, str]]:
    for path in paths:
        with _instead(conf, available_filters=[path], enabled_filters=[]):
            try:
                load_filters(conf, time.time)
            except SchedulerError as e:
                yield path, str(e)


def enabled_filters(conf: cfg.ConfigOpts, files: FileOptions) -> Finding | None:
    """Tell which names are unknown, refused, broken or left out, or None."""
    paths = conf.filter_scheduler.available_filters
    refused = dict(_refused_paths(conf, paths))
    usable = [path for path in paths if path not in refused]
    wrong: list[str] = []
    removed: list[str] = []
    for name in dict.fromkeys(conf.filter_scheduler.enabled_filters):
        with _instead(conf, available_filters=usable, enabled_filters=[name]):
            try:
                if not load_filters(conf, time.time):
                    does_its_work = REMOVED_FILTERS[name]
                    removed.append(f"{name} (what does its work: {does_its_work})")
            except SchedulerError as e:
                wrong.append(str(e))
    told = f"Left out, as filters of older releases: {', '.join(removed)}."
    if removed and not wrong:
        return Finding.warning(_name("enabled_filters"), told)
    return _finding("enabled_filters", wrong, files, besides=told if removed else "")


def weight_classes(conf: cfg.ConfigOpts, files: FileOptions) -> Finding | None:
    """Tell which names are unknown or broken, or None."""
    wrong: list[str] = []
    for path in conf.filter_scheduler.weight_classes:
        with _instead(conf, weight_classes=[path]):
            try:
                load_weighers(conf, time.time)
            except SchedulerError as e:
                wrong.append(str(e))
    return _finding("weight_classes", wrong, files)


def _finding(
    option: str, wrong: Iterable[str], files: FileOptions, *, besides: str = ""
) -> Finding | None:
    told = [each.removeprefix(f"{_name(option)}: ") for each in wrong]
    if not told:
        return None
    # All that exist are listed once, after the last of those that do not.
    short = [each.partition("; there are ")[0] for each in told[:-1]]
    causes = "; ".join([*short, told[-1]])
    return Finding.failure(
        _name(option), files.scrubbed(f"The start would stop: {causes}. {besides}")
    )


def _name(option: str) -> str:
    return f"[{_GROUP}] {option}"


@contextlib.contextmanager
def _instead(conf: cfg.ConfigOpts, **values: list[str]) -> Iterator[None]:
    """Let options of the group have other values meanwhile."""
    for name, value in values.items():
        conf.set_override(name, value, group=_GROUP)
    try:
        yield
    finally:
        for name in values:
            conf.clear_override(name, group=_GROUP)
