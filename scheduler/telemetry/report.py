# SPDX-License-Identifier: Apache-2.0
"""A report of the state of a process, on SIGUSR2.

Its file has the name and the folder (``[oslo_reports] log_dir``) of oslo.reports' Guru
Meditation Report. oslo.reports is not used: it shows the options of the process-wide
object, in which Moorage's are not registered, collects everything inside a signal
handler, and has one set of sections for all schedulers of a process.
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
from ..conf.values import HIDDEN, is_secret
from ..display import safe
from ..errors import ConfigurationError
from ..status import SchedulerStatus
from ..views.options import masked

LOG = logging.getLogger(__name__)

SIGNAL: Final = signal.SIGUSR2

SCHEDULER: Final = "moorage-scheduler"
_N_DECISIONS: Final = 20


def write_on_signal(
    status: SchedulerStatus, program: str = SCHEDULER
) -> Callable[[], None]:
    """Write a report at each SIGUSR2; called in the main thread.

    Returns
    -------
    callable
        Restores the previous signal handler.
    """

    def start(_number: int, _frame: object) -> None:
        # A handler interrupts the main thread, whose locks it could never get.
        threading.Thread(
            target=_write_or_log, args=(status, program), name="report", daemon=True
        ).start()

    previous = signal.signal(SIGNAL, start)
    return lambda: _restore(previous)


def _restore(previous: object) -> None:
    signal.signal(SIGNAL, previous)  # type: ignore[arg-type]  # as signal() returned it


def _write_or_log(status: SchedulerStatus, program: str) -> None:
    try:
        write(status, program)
    except Exception:
        LOG.exception("Writing the report for SIGUSR2 failed")


def write(status: SchedulerStatus, program: str = SCHEDULER) -> Path | None:
    """Write a report to a file of ``[oslo_reports] log_dir``, or to stderr.

    Returns
    -------
    Path or None
        The file; None: the report went to stderr.

    Raises
    ------
    ConfigurationError
        The folder cannot be written to.
    """
    text = report(status)
    folder: str | None = status.conf.oslo_reports.log_dir
    if not folder:
        print(text, file=sys.stderr, flush=True)
        return None
    now = datetime.datetime.now(datetime.UTC).strftime("%Y%m%d%H%M%S")
    path = Path(folder) / f"{program}_gurumeditation_{now}_{os.getpid()}"
    try:
        # Other users must not read it, as it contains host names: a file of that name,
        # or a link, is not used.
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640)
        with open(fd, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as e:
        raise ConfigurationError(
            f"[oslo_reports] log_dir cannot be written to: {e}"
        ) from e
    LOG.info("Wrote a report of this process to %s", path)
    return path


def report(status: SchedulerStatus) -> str:
    """Return the report; it contains host names and no secrets."""
    sections: dict[str, Callable[[SchedulerStatus], Iterator[str]]] = {
        "Package": _package,
        "Readiness": _readiness,
        "Candidates cache": _cache,
        "Decisions, newest first": _decisions,
        "Threads": _threads,
        "Configuration": _options,
    }
    lines = ["=" * 72, "====" + "Guru Meditation".center(64) + "====", "=" * 72, ""]
    for title, section in sections.items():
        lines += ["=" * 72, "====" + title.center(64) + "====", "=" * 72]
        # Names must not control the terminal that shows the report.
        lines += [*(safe(line, len(line)) for line in section(status)), ""]
    return "\n".join(lines)


def _package(_status: SchedulerStatus) -> Iterator[str]:
    yield f"product = moorage {__version__}"
    yield f"python = {sys.version.split()[0]}"
    yield f"process = {os.getpid()}"
    yield f"written = {datetime.datetime.now(datetime.UTC).isoformat('T', 'seconds')}"


def _readiness(status: SchedulerStatus) -> Iterator[str]:
    yield f"is_ready = {status.is_ready}"
    yield f"note = {status.readiness_note or '-'}"
    yield f"hosts = {len(status.table)}"
    yield f"view_age_s = {status.view_age_s}"
    yield f"claims not in any report yet = {len(status.table.claims.unreported())}"
    yield f"orphaned claims = {status.n_orphans}"


def _cache(status: SchedulerStatus) -> Iterator[str]:
    yield str(status.candidates.stats())


def _decisions(status: SchedulerStatus) -> Iterator[str]:
    for record in status.decisions.newest(_N_DECISIONS):
        started_at = datetime.datetime.fromtimestamp(record.started_at, datetime.UTC)
        yield f"{started_at.isoformat('T', 'milliseconds')} {record.summary()}"


def _threads(_status: SchedulerStatus) -> Iterator[str]:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = sys._current_frames()  # noqa: SLF001 - documented, for debuggers
    for ident, frame in frames.items():
        yield f"------ {names.get(ident, 'unknown')} ({ident}) ------"
        yield from "".join(traceback.format_stack(frame)).splitlines()
        yield ""


def _options(status: SchedulerStatus) -> Iterator[str]:
    conf = status.conf
    by_group: defaultdict[str, dict[str, object]] = defaultdict(dict)
    for group, opt, _ in registered_opts(conf):
        values = conf[group] if group else conf
        by_group[group or "DEFAULT"][opt.dest] = _value(values, opt)
    for name, group_values in sorted(by_group.items()):
        yield f"[{name}]"
        yield from (f"  {dest} = {group_values[dest]}" for dest in sorted(group_values))


def _value(values: Mapping[str, object], opt: cfg.Opt) -> object:
    try:
        value = values[opt.dest]
    except (cfg.Error, ValueError) as e:
        return f"cannot be read: {type(e).__name__}"
    return HIDDEN if value and is_secret(opt) else masked(value)
