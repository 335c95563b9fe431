# SPDX-License-Identifier: Apache-2.0
"""A report of what a process does just now, as SIGUSR2 asks for.

It has the name and the place (``[oslo_reports] log_dir``) of the Guru Meditation of
oslo.reports. That one tells the options of the process-wide object, which ours are not
on, collects everything inside a signal handler, and has one set of sections for all
schedulers of a process.
"""

from __future__ import annotations

import datetime
import logging
import os
import signal
import sys
import threading
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from oslo_config import cfg

from ... import __version__
from ..conf import registered_opts
from ..conf.secrets import HIDDEN, is_secret
from ..errors import ConfigurationError
from .seen import Seen

LOG = logging.getLogger(__name__)

SIGNAL: Final = signal.SIGUSR2

_NAME: Final = "moorage-scheduler"
_N_DECISIONS: Final = 20


def write_on_signal(scheduler: Seen) -> Callable[[], None]:
    """Write a report at each SIGUSR2 from now on; called in the main thread.

    Returns
    -------
    callable
        Leaves the signal as it was before.
    """

    def start(_number: int, _frame: object) -> None:
        # In a handler, what the main thread has locked would stay so for good.
        threading.Thread(
            target=_written, args=(scheduler,), name="report", daemon=True
        ).start()

    before = signal.signal(SIGNAL, start)
    return lambda: _restore(before)


def _restore(before: object) -> None:
    signal.signal(SIGNAL, before)  # type: ignore[arg-type]  # as it was given to us


def _written(scheduler: Seen) -> None:
    try:
        write(scheduler)
    except Exception:
        LOG.exception("The report that SIGUSR2 asks for cannot be written")


def write(scheduler: Seen) -> Path | None:
    """Write a report to a file of ``[oslo_reports] log_dir``, or to stderr.

    Returns
    -------
    Path or None
        None: stderr.

    Raises
    ------
    ConfigurationError
        The folder cannot be written to.
    """
    told = report(scheduler)
    folder: str | None = scheduler.conf.oslo_reports.log_dir
    if not folder:
        print(told, file=sys.stderr, flush=True)
        return None
    now = datetime.datetime.now(datetime.UTC).strftime("%Y%m%d%H%M%S")
    path = Path(folder) / f"{_NAME}_gurumeditation_{now}_{os.getpid()}"
    try:
        # It has names of hosts.
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o640)
        with open(fd, "w", encoding="utf-8") as file:
            file.write(told)
    except OSError as e:
        raise ConfigurationError(
            f"[oslo_reports] log_dir cannot be written to: {e}"
        ) from e
    LOG.info("A report of this process is in %s", path)
    return path


def report(scheduler: Seen) -> str:
    """Return the report; it has names of hosts and no secrets."""
    sections: dict[str, Callable[[Seen], Iterator[str]]] = {
        "Package": _package,
        "Readiness": _readiness,
        "Placement's answers": _kept,
        "Decisions, the newest first": _decisions,
        "Threads": _threads,
        "Configuration": _options,
    }
    lines = ["=" * 72, "====" + "Guru Meditation".center(64) + "====", "=" * 72, ""]
    for title, told in sections.items():
        lines += ["=" * 72, "====" + title.center(64) + "====", "=" * 72]
        lines += [*told(scheduler), ""]
    return "\n".join(lines)


def _package(_scheduler: Seen) -> Iterator[str]:
    yield f"product = moorage {__version__}"
    yield f"python = {sys.version.split()[0]}"
    yield f"process = {os.getpid()}"
    yield f"written = {datetime.datetime.now(datetime.UTC).isoformat('T', 'seconds')}"


def _readiness(scheduler: Seen) -> Iterator[str]:
    yield f"is_ready = {scheduler.is_ready}"
    yield f"note = {scheduler.readiness_note or '-'}"
    yield f"hosts = {len(scheduler.table)}"
    yield f"view_age_s = {scheduler.view_age_s}"
    yield f"claims that no report includes = {len(scheduler.table.claims())}"
    yield f"claims in doubt = {scheduler.n_orphans}"


def _kept(scheduler: Seen) -> Iterator[str]:
    yield str(scheduler.kept.stats())


def _decisions(scheduler: Seen) -> Iterator[str]:
    for record in scheduler.decisions.newest(_N_DECISIONS):
        at = datetime.datetime.fromtimestamp(record.started_at, datetime.UTC)
        yield f"{at.isoformat('T', 'milliseconds')} {record.summary()}"


def _threads(_scheduler: Seen) -> Iterator[str]:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = sys._current_frames()  # noqa: SLF001 - documented, for debuggers
    for ident, frame in frames.items():
        yield f"------ {names.get(ident, 'unknown')} ({ident}) ------"
        yield from "".join(traceback.format_stack(frame)).splitlines()
        yield ""


def _options(scheduler: Seen) -> Iterator[str]:
    conf = scheduler.conf
    by_group: defaultdict[str, dict[str, object]] = defaultdict(dict)
    for group, opt, _ in registered_opts(conf):
        values = conf[group] if group else conf
        by_group[group or "DEFAULT"][opt.dest] = _value(values, opt)
    for name, told in sorted(by_group.items()):
        yield f"[{name}]"
        yield from (f"  {dest} = {told[dest]}" for dest in sorted(told))


def _value(values: Mapping[str, object], opt: cfg.Opt) -> object:
    try:
        value = values[opt.dest]
    except (cfg.Error, ValueError) as e:
        return f"cannot be read: {type(e).__name__}"
    return HIDDEN if value and is_secret(opt) else value
