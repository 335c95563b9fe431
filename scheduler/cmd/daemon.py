# SPDX-License-Identifier: Apache-2.0
"""The scheduler as a service on the message bus: one process, or several."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from oslo_config import cfg

from .. import logs
from ..conf import load
from ..errors import SchedulerError
from ..failures import one_line
from ..placement.allocations.journal import make_folder
from ..rpc import get_transport, register_opts, warn_of_missing_parts
from ..service import Scheduler, build
from ..telemetry.serving import ProcessTelemetry, Telemetry
from .options import Options, copied
from .pid_file import pid_file
from .serving import Serving, serve
from .signals import RELOADING, STOPPING, Signals
from .supervisor import Supervisor, Worker, end
from .systemd import State, notify

LOG = logging.getLogger(__name__)

#: New containers before the youngest are searched for cycles, and how many searches
#: go before one of the next older ones.
_GC_THRESHOLDS = (50_000, 20, 100)

#: glibc's name for how many places memory is given out from.
_M_ARENA_MAX = -8

#: What an operator can correct: one line, without a traceback.
_STOPS_THE_START = (cfg.Error, SchedulerError, OSError)


def run(argv: Sequence[str]) -> int:
    """Run until SIGTERM or SIGINT; return the exit status.

    SIGHUP reads options, plugins and hosts again.
    """
    _keep_memory_together()
    conf = cfg.ConfigOpts()
    logs.register_opts(conf)
    try:
        register_opts(conf)
        load(argv, conf=conf)
        _configure_oslo(conf)
        logs.set_up(conf)
        with Telemetry(conf) as telemetry:
            settings = copied(argv, conf)
            scheduler = build(conf, settings=settings)
            try:
                # It connects to nothing yet, and says what is wrong with the options.
                get_transport(conf).cleanup()
                warn_of_missing_parts()
                options = Options(argv, conf, settings)
                n_workers = _n_workers(conf, scheduler)
                if n_workers == 1:
                    return _run_alone(conf, scheduler, options, telemetry)
                return _run_workers(n_workers, conf, scheduler, options, telemetry)
            finally:
                scheduler.stop()
    except _STOPS_THE_START as e:
        print(f"moorage-scheduler: {one_line(e)}", file=sys.stderr)
        return 1


def _n_workers(conf: cfg.ConfigOpts, scheduler: Scheduler) -> int:
    n_workers: int = conf.scheduler.workers or os.cpu_count() or 1
    if n_workers > 1 and scheduler.must_not_fork:
        LOG.warning(
            "The embedded Placement runs inside one process: there is one worker, not "
            "%d as [scheduler] workers has it", n_workers,
        )  # fmt: skip
        return 1
    return n_workers


def _run_alone(
    conf: cfg.ConfigOpts,
    scheduler: Scheduler,
    options: Options,
    telemetry: Telemetry,
) -> int:
    signals = Signals((*STOPPING, RELOADING))
    with pid_file(conf.moorage.pid_file):
        scheduler.start()
        spare_the_collector()
        serving = Serving(conf, scheduler)
        with telemetry.serve(scheduler) as seen:
            is_finished = serve(
                serving,
                scheduler,
                options,
                signals,
                _telling(seen, notify),
            )
    if not is_finished:
        scheduler.stop()
        telemetry.close()
        end(1)  # threads that go on would be waited for
    return 0


def _run_workers(
    n_workers: int,
    conf: cfg.ConfigOpts,
    scheduler: Scheduler,
    options: Options,
    telemetry: Telemetry,
) -> int:
    scheduler.load()
    scheduler.check()
    spare_the_collector()
    with _claims_directory(conf) as folder:
        status = _supervised(n_workers, conf, scheduler, options, telemetry, folder)
        if any(folder.iterdir()):
            scheduler.release_leftover_claims(folder)
        return status


@contextlib.contextmanager
def _claims_directory(conf: cfg.ConfigOpts) -> Iterator[Path]:
    """Return the folder for the workers' notes of claims.

    Where no option names one, it is made, and removed in the end, but for what nobody
    could look after.
    """
    if option := conf.moorage.claims_directory:
        folder = Path(option)
        make_folder(folder)
        yield folder
        return
    folder = Path(tempfile.mkdtemp(prefix="moorage-claims-"))
    LOG.info("Claims under way are noted in %s", folder)
    try:
        yield folder
    finally:
        try:
            folder.rmdir()
        except OSError as e:
            LOG.error(
                "%s names consumers that may hold what is nobody's: %s", folder, e
            )


def _supervised(
    n_workers: int,
    conf: cfg.ConfigOpts,
    scheduler: Scheduler,
    options: Options,
    telemetry: Telemetry,
    folder: Path,
) -> int:
    def work(worker: Worker) -> int:
        try:
            return _work(worker, conf, scheduler, options, telemetry, folder)
        except _STOPS_THE_START as e:
            why = one_line(e)
        LOG.error("Worker %d cannot start: %s", worker.number, why)
        return 1

    supervisor = Supervisor(
        n_workers,
        work,
        # What is wrong is said once here, and no worker tries it.
        reload=lambda: options.reload(scheduler.load_plugins) is not None,
        stop_timeout_s=lambda: conf.graceful_shutdown_timeout,
    )
    with pid_file(conf.moorage.pid_file):
        return supervisor.run()


def _work(
    worker: Worker,
    conf: cfg.ConfigOpts,
    inherited: Scheduler,
    options: Options,
    telemetry: Telemetry,
    folder: Path,
) -> int:
    scheduler = inherited
    if worker.is_first:
        scheduler.reseed_for_worker(worker.number)
    else:
        # What was read at the start is out of date by now.
        scheduler = build(conf, settings=options.settings)
        scheduler.load()
        spare_the_collector()
    scheduler.follow(claims_directory=folder)
    serving = Serving(conf, scheduler)
    with telemetry.serve(scheduler) as seen:
        is_finished = serve(
            serving,
            scheduler,
            options,
            worker.signals,
            _telling(seen, worker.tell),
            lifeline=worker.lifeline,
        )
    scheduler.stop()
    return 0 if is_finished else 1


def _telling(
    seen: ProcessTelemetry, tell: Callable[[State], None]
) -> Callable[[State], None]:
    """Have probes see, too, that a process is about to end."""

    def told(state: State) -> None:
        seen.is_stopping = seen.is_stopping or state is State.STOPPING
        tell(state)

    return told


def _configure_oslo(conf: cfg.ConfigOpts) -> None:
    """Let oslo's libraries read our files, too.

    Some of their options are read of the process-wide object only. Ours are not
    registered there: a plugin that imports nova registers nova's of the same names.
    """
    files = [f"--config-file={path}" for path in conf.config_file]
    cfg.CONF(files, project="moorage")


def _keep_memory_together() -> None:
    """Let all threads take memory from one place, and give it back there.

    glibc has up to eight places a CPU, and a thread's own keeps what it was given once:
    with many candidates, several times what a decision needs. The GIL lets one thread
    at a time ask, so they are not in each other's way.
    """
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        mallopt(_M_ARENA_MAX, 1)


def spare_the_collector() -> None:
    """Let the cyclic collector look at what is new, and less often.

    Decoding Placement's answer for 10,000 hosts makes 100,000 containers, none of
    them in a cycle: with Python's own thresholds each answer has all hosts searched
    for garbage, several times, which takes longer than the decoding.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
