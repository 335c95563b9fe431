# SPDX-License-Identifier: Apache-2.0
"""Check that each filter and weigher that a configuration names can be loaded."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator

from oslo_config import cfg

from ...drivers.plugins import REMOVED_FILTERS, load_filters, load_weighers
from ...errors import SchedulerError
from .files import FileOptions
from .result import CheckResult

_GROUP = "filter_scheduler"


def available_filters(conf: cfg.ConfigOpts, files: FileOptions) -> CheckResult | None:
    """Return a failure that names the dotted paths that cannot be imported, or None."""
    paths = conf.filter_scheduler.available_filters
    refused = dict(_refused_paths(conf, paths))
    return _option_result("available_filters", refused.values(), files)


def _refused_paths(
    conf: cfg.ConfigOpts, paths: Iterable[str]
) -> Iterator[tuple[str, str]]:
    """Yield each dotted path that cannot be imported, and the error."""
    for path in paths:
        with _overridden(conf, available_filters=[path], enabled_filters=[]):
            try:
                load_filters(conf, time.time)
            except SchedulerError as e:
                yield path, str(e)


def enabled_filters(conf: cfg.ConfigOpts, files: FileOptions) -> CheckResult | None:
    """Return a result that names unknown, broken and removed filters, or None."""
    paths = conf.filter_scheduler.available_filters
    refused = dict(_refused_paths(conf, paths))
    usable = [path for path in paths if path not in refused]
    errors: list[str] = []
    removed: list[str] = []
    for name in dict.fromkeys(conf.filter_scheduler.enabled_filters):
        with _overridden(conf, available_filters=usable, enabled_filters=[name]):
            try:
                if not load_filters(conf, time.time):
                    replacement = REMOVED_FILTERS[name]
                    removed.append(f"{name} (replacement: {replacement})")
            except SchedulerError as e:
                errors.append(str(e))
    note = f"Ignored, as filters of older releases: {', '.join(removed)}."
    if removed and not errors:
        return CheckResult.warning(_name("enabled_filters"), note)
    return _option_result(
        "enabled_filters", errors, files, note=note if removed else ""
    )


def weight_classes(conf: cfg.ConfigOpts, files: FileOptions) -> CheckResult | None:
    """Return a failure that names unknown or broken weighers, or None."""
    errors: list[str] = []
    for path in conf.filter_scheduler.weight_classes:
        with _overridden(conf, weight_classes=[path]):
            try:
                load_weighers(conf, time.time)
            except SchedulerError as e:
                errors.append(str(e))
    return _option_result("weight_classes", errors, files)


def _option_result(
    option: str, messages: Iterable[str], files: FileOptions, *, note: str = ""
) -> CheckResult | None:
    """Return a failure with the errors of an option; None: there is no error."""
    errors = [error.removeprefix(f"{_name(option)}: ") for error in messages]
    if not errors:
        return None
    # The list of existing plugins is shown once, after the last error.
    shortened = [error.partition("; there are ")[0] for error in errors[:-1]]
    causes = "; ".join([*shortened, errors[-1]])
    return CheckResult.failure(
        _name(option),
        files.redacted(f"The scheduler would not start: {causes}. {note}"),
    )


def _name(option: str) -> str:
    return f"[{_GROUP}] {option}"


@contextlib.contextmanager
def _overridden(conf: cfg.ConfigOpts, **values: list[str]) -> Iterator[None]:
    """Override options of [filter_scheduler] temporarily."""
    for name, value in values.items():
        conf.set_override(name, value, group=_GROUP)
    try:
        yield
    finally:
        for name in values:
            conf.clear_override(name, group=_GROUP)
