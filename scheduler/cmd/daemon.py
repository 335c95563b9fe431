# SPDX-License-Identifier: Apache-2.0
"""The scheduler as a service on the message bus: one process, or several."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc
import logging
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from oslo_config import cfg

from .. import logs
from ..conf import ProgramOptions, load
from ..errors import SchedulerError
from ..failures import one_line
from ..placement.allocations.journal_file import make_folder
from ..rpc import get_transport, register_opts, warn_of_missing_api
from ..service import Scheduler, build
from ..telemetry.serving import Telemetry
from .options import Options, copy_options
from .serving import Serving, serve
from .signals import RELOADING, STOPPING, Signals
from .supervisor import Supervisor, Worker, end
from .systemd import SystemdState, notify

LOG = logging.getLogger(__name__)

_DESCRIPTION: Final = (
    "Select hosts for the requests of nova's conductors, which arrive on the message "
    "bus. SIGHUP reloads options, plugins and hosts; SIGTERM stops after the requests "
    "in progress."
)
#: Thresholds of the cyclic collector: new containers before a collection of the
#: youngest generation, and collections before one of the next older generation.
_GC_THRESHOLDS = (10_000, 20, 100)

#: Errors that an operator can correct: logged in one line, without a traceback.
OPERATOR_ERRORS = (cfg.Error, SchedulerError, OSError)


def run(argv: Sequence[str]) -> int:
    """Run until SIGTERM or SIGINT; return the exit status.

    SIGHUP reloads options, plugins and hosts.
    """
    try:
        conf = configure(argv, _DESCRIPTION)
        with Telemetry(conf) as telemetry:
            settings = copy_options(argv, conf)
            scheduler = build(conf, settings=settings)
            try:
                # Does not connect yet, but checks the options.
                get_transport(conf).cleanup()
                warn_of_missing_api()
                options = Options(argv, conf, settings)
                return _Daemon(conf, scheduler, options, telemetry).run()
            finally:
                scheduler.stop()
    except OPERATOR_ERRORS as e:
        print(f"moorage-scheduler: {one_line(e)}", file=sys.stderr)
        return 1


@dataclasses.dataclass(frozen=True, slots=True)
class _Daemon:
    """A scheduler that serves in this process, or in workers that it forks."""

    conf: cfg.ConfigOpts
    scheduler: Scheduler
    options: Options
    telemetry: Telemetry

    def run(self) -> int:
        """Run until a signal to stop; return the exit status."""
        n_workers: int = self.conf.scheduler.workers or os.cpu_count() or 1
        if n_workers > 1 and self.scheduler.lifecycle.must_not_fork:
            LOG.warning(
                "Starting one worker instead of %d ([scheduler] workers): the embedded "
                "Placement runs inside one process", n_workers,
            )  # fmt: skip
            n_workers = 1
        return self._run_alone() if n_workers == 1 else self._run_workers(n_workers)

    def _run_alone(self) -> int:
        signals = Signals((*STOPPING, RELOADING))
        self.scheduler.start()
        tune_garbage_collector()
        is_finished = self._serve(self.scheduler, signals, notify)
        if not is_finished:
            self.scheduler.stop()
            self.telemetry.close()
            end(1)  # otherwise Python would wait for the running threads
        return 0

    def _run_workers(self, n_workers: int) -> int:
        lifecycle = self.scheduler.lifecycle
        lifecycle.load()
        lifecycle.check()
        tune_garbage_collector()
        with _claims_directory(self.conf) as folder:
            supervisor = Supervisor(
                n_workers,
                functools.partial(self._work, folder),
                # An error is logged once, in this process; no worker reloads then.
                reload=lambda: self.options.reload(lifecycle.load_plugins) is not None,
                stop_timeout_s=lambda: self.conf.graceful_shutdown_timeout,
            )
            status = supervisor.run()
            if any(folder.iterdir()):
                lifecycle.release_leftover_claims(folder)
            return status

    def _work(self, folder: Path, worker: Worker) -> int:
        """Serve in a worker process; return its exit status."""
        try:
            scheduler = self._scheduler_of(worker)
            scheduler.lifecycle.follow(claims_directory=folder)
            is_finished = self._serve(
                scheduler, worker.signals, worker.report, lifeline=worker.lifeline
            )
            scheduler.stop()
            return 0 if is_finished else 1
        except OPERATOR_ERRORS as e:
            why = one_line(e)
        LOG.error("Worker %d cannot start: %s", worker.number, why)
        return 1

    def _scheduler_of(self, worker: Worker) -> Scheduler:
        if worker.is_first:
            self.scheduler.reseed_for_worker(worker.number)
            return self.scheduler
        # The hosts that the parent process read at the start are stale by now.
        scheduler = build(self.conf, settings=self.options.settings)
        scheduler.lifecycle.load()
        tune_garbage_collector()
        return scheduler

    def _serve(
        self,
        scheduler: Scheduler,
        signals: Signals,
        report_state: Callable[[SystemdState], None],
        *,
        lifeline: int | None = None,
    ) -> bool:
        """Serve with telemetry until a signal to stop; `serve` has the parameters."""
        serving = Serving(self.conf, scheduler)
        with self.telemetry.serve(scheduler.status) as telemetry:
            return serve(
                serving,
                scheduler,
                self.options,
                signals,
                report_state,
                telemetry=telemetry,
                lifeline=lifeline,
            )


@contextlib.contextmanager
def _claims_directory(conf: cfg.ConfigOpts) -> Iterator[Path]:
    """Yield the folder for the workers' journals of claims.

    A claim is unsettled until it is refused or released, or its request is answered.
    Without ``[moorage] claims_directory`` the folder is a temporary one, which is
    removed at the end unless it still has journals of unsettled claims.
    """
    if option := conf.moorage.claims_directory:
        folder = Path(option)
        make_folder(folder)
        yield folder
        return
    folder = Path(tempfile.mkdtemp(prefix="moorage-claims-"))
    LOG.info("Recording unsettled claims in %s", folder)
    try:
        yield folder
    finally:
        try:
            folder.rmdir()
        except OSError as e:
            LOG.error(
                "%s has consumers that may hold orphaned allocations: %s", folder, e
            )


def configure(argv: Sequence[str], description: str) -> cfg.ConfigOpts:
    """Load the options of a daemon, and set up logging according to them.

    Parameters
    ----------
    description : str
        What the daemon does, for ``--help``.

    Raises
    ------
    cfg.Error, ConfigurationError
        An option or a file is invalid.
    """
    conf = ProgramOptions()
    logs.register_opts(conf)
    register_opts(conf)
    load(argv, conf=conf, description=description)
    _configure_oslo(conf)
    logs.set_up(conf)
    return conf


def _configure_oslo(conf: cfg.ConfigOpts) -> None:
    """Load the files into oslo.config's global object, too.

    oslo's libraries read some options only from there. Moorage's options are not
    registered there: a plugin that imports nova registers nova's of the same names.
    """
    files = [f"--config-file={path}" for path in conf.config_file]
    cfg.CONF(files, project="moorage")


def tune_garbage_collector() -> None:
    """Freeze the existing objects, and collect cyclic garbage less often.

    Decoding Placement's answer for 10,000 hosts creates 100,000 containers, none of
    them in a cycle: with Python's default thresholds each answer triggers several
    collections over all hosts, which take longer than the decoding.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
