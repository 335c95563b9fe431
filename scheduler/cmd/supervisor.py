# SPDX-License-Identifier: Apache-2.0
"""Supervise several worker processes, forked by this one.

oslo.service's threading back-end is unsuitable: on SIGHUP it ends its workers without
calling `reset`; SIGINT kills them, with their unsettled claims; systemd is notified of
readiness before any worker is ready. cotyledon, below it, forks from a thread.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Final, NoReturn

from .signals import RELOADING, REPORTING, STOPPING, Signals, signals_blocked
from .systemd import SystemdState, notify

LOG = logging.getLogger(__name__)

#: A worker that dies within so many seconds of its start is replaced after a delay,
#: which doubles each time.
_QUICK_S: Final = 10.0
_LONGEST_DELAY_S: Final = 30.0

_WORKER_SIGNALS: Final = (*STOPPING, RELOADING)


@dataclasses.dataclass(frozen=True, slots=True)
class Worker:
    """The identity and the channels of a worker.

    Attributes
    ----------
    number : int
        0 for the first worker, 1 for the second, and so on; a worker that replaces
        another has the other's number.
    is_first : bool
        Whether the worker replaces no earlier process.
    signals : Signals
        The signals of the worker.
    lifeline : int
        A file descriptor that becomes readable when the supervisor has ended.
    report : callable
        With READY, notifies the supervisor that the worker serves; call it once.
    """

    number: int
    is_first: bool
    signals: Signals
    lifeline: int
    report: Callable[[SystemdState], None]


@dataclasses.dataclass(slots=True)
class _WorkerSlot:
    """The process of one worker, or the time at which it is replaced."""

    number: int
    pid: int = 0
    ready_fd: int = -1
    is_ready: bool = False
    began_at: float = 0.0
    due_at: float = 0.0
    n_begun: int = 0
    n_quick: int = 0


class Supervisor:
    """Forks workers, replaces those that die, and forwards signals.

    The workers share the pages of the parent process's memory that nobody writes to.
    The parent must have no threads and no connections.

    Parameters
    ----------
    n_workers : int
    work : callable
        The main function of a worker; returns the exit status.
    reload : callable
        Reloads options, for later workers; returns whether running workers should
        reload, too.
    stop_timeout_s : callable
        Returns the seconds after which workers that do not end are killed; 0: never.
    """

    def __init__(
        self,
        n_workers: int,
        work: Callable[[Worker], int],
        *,
        reload: Callable[[], bool],
        stop_timeout_s: Callable[[], float],
    ) -> None:
        self._work = work
        self._reload = reload
        self._stop_timeout_s = stop_timeout_s
        self._slots = [_WorkerSlot(number) for number in range(n_workers)]
        self._signals = Signals((*_WORKER_SIGNALS, REPORTING, signal.SIGCHLD))
        # `_alive` is closed when this process ends: `_lifeline`, the other end, becomes
        # readable in the workers.
        self._lifeline, self._alive = os.pipe()
        self._was_ready = False

    def run(self) -> int:
        """Supervise until a signal to stop; return the exit status.

        The status is 1 if a worker had to be killed, or failed; otherwise 0.
        """
        while True:
            self._fork_due()
            fds = [slot.ready_fd for slot in self._slots if slot.ready_fd >= 0]
            received, readable = self._signals.wait(self._until_due_s(), also=fds)
            self._record_ready(readable)
            self._replace_dead()
            if received & STOPPING:
                return self._stop()
            if REPORTING in received:
                self._send(REPORTING)
            if RELOADING in received:
                notify(SystemdState.RELOADING)
                if self._reload():
                    self._send(signal.SIGHUP)
                notify(SystemdState.READY, self._state())

    def _fork_due(self) -> None:
        """Fork each worker that has no process and need not wait any longer."""
        now = time.monotonic()
        for slot in self._slots:
            if not slot.pid and slot.due_at <= now:
                self._fork(slot)

    def _until_due_s(self) -> float | None:
        """Return the seconds until a worker must be forked; None: none must be."""
        due_times = [slot.due_at for slot in self._slots if not slot.pid]
        return max(0.0, min(due_times) - time.monotonic()) if due_times else None

    def _fork(self, slot: _WorkerSlot) -> None:
        slot.n_begun += 1
        ready_fd, report_fd = os.pipe()
        # Until the worker has its own pipe, its signals would arrive here.
        with signals_blocked():
            pid = os.fork()
            if not pid:
                self._become_worker(slot, ready_fd, report_fd)
        os.close(report_fd)
        slot.pid, slot.ready_fd, slot.is_ready = pid, ready_fd, False
        slot.began_at = time.monotonic()
        LOG.info("Worker %d is process %d", slot.number, pid)

    def _become_worker(
        self, slot: _WorkerSlot, ready_fd: int, report_fd: int
    ) -> NoReturn:
        """Run as a worker in the forked process, and end it."""
        status = 1
        try:
            for fd in (
                self._alive,
                ready_fd,
                *(other.ready_fd for other in self._slots),
            ):
                if fd >= 0:
                    os.close(fd)
            self._signals.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signals = Signals(_WORKER_SIGNALS)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            worker = Worker(
                number=slot.number,
                is_first=slot.n_begun == 1,
                signals=signals,
                lifeline=self._lifeline,
                report=functools.cache(functools.partial(_report_ready, report_fd)),
            )
            status = self._work(worker)
        except BaseException:
            LOG.exception("Worker %d ends", slot.number)
        finally:
            end(status)

    def _record_ready(self, readable: set[int]) -> None:
        """Record which workers serve; notify systemd once all of them do."""
        for slot in self._slots:
            if slot.ready_fd in readable:
                slot.is_ready = bool(os.read(slot.ready_fd, 1))
                self._close_ready(slot)
        if not self._was_ready and all(slot.is_ready for slot in self._slots):
            self._was_ready = True
            LOG.info("All %s", self._state())
            notify(SystemdState.READY, self._state())

    def _state(self) -> str:
        return f"{len(self._slots)} workers serve"

    def _replace_dead(self) -> None:
        """Set the time at which each worker that has died is replaced."""
        now = time.monotonic()
        for slot, pid, status in self._reap():
            is_quick = now - slot.began_at < _QUICK_S
            slot.n_quick = slot.n_quick + 1 if is_quick else 0
            delay_s = min(2.0 ** (slot.n_quick - 1), _LONGEST_DELAY_S)
            slot.due_at = now + (delay_s if is_quick else 0.0)
            LOG.error(
                "Worker %d, process %d, %s: replacing it %s",
                slot.number, pid, _describe_exit(status),
                f"in {delay_s:.0f} s" if is_quick else "now",
            )  # fmt: skip

    def _reap(self) -> Iterator[tuple[_WorkerSlot, int, int]]:
        """Yield slot, process and status of the workers that have died."""
        for slot in self._slots:
            if not (pid := slot.pid):
                continue
            dead_pid, status = os.waitpid(pid, os.WNOHANG)
            if dead_pid:
                self._close_ready(slot)
                slot.pid = 0
                yield slot, pid, os.waitstatus_to_exitcode(status)

    @staticmethod
    def _close_ready(slot: _WorkerSlot) -> None:
        if slot.ready_fd >= 0:
            os.close(slot.ready_fd)
        slot.ready_fd = -1

    def _send(self, number: signal.Signals) -> None:
        for slot in self._slots:
            if slot.pid:  # not reaped yet, so the PID is still valid
                os.kill(slot.pid, number)

    def _stop(self) -> int:
        """Stop the workers, kill them after the timeout, and return the exit status."""
        notify(SystemdState.STOPPING)
        LOG.info("Stopping; workers finish the requests in progress")
        self._send(signal.SIGTERM)
        limit_s = self._stop_timeout_s()
        deadline = time.monotonic() + limit_s if limit_s else None
        statuses: list[int] = []
        while any(slot.pid for slot in self._slots):
            remaining_s = deadline - time.monotonic() if deadline else None
            if remaining_s is not None and remaining_s <= 0:
                self._kill(limit_s)
                deadline = remaining_s = None
            self._signals.wait(remaining_s)
            statuses += [status for _, _, status in self._reap()]
        return 1 if any(statuses) else 0

    def _kill(self, limit_s: float) -> None:
        for slot in self._slots:
            if slot.pid:
                LOG.error(
                    "Worker %d, process %d, has not ended within "
                    "graceful_shutdown_timeout, %d s, and is killed: its requests in "
                    "progress are lost",
                    slot.number, slot.pid, limit_s,
                )  # fmt: skip
        self._send(signal.SIGKILL)


def _report_ready(fd: int, state: SystemdState) -> None:
    if state is SystemdState.READY:
        os.write(fd, b"1")
        os.close(fd)


def _describe_exit(status: int) -> str:
    """Describe an exit status, or, if negative, a signal."""
    if status < 0:
        return f"was killed by {signal.Signals(-status).name}"
    return f"ended with status {status}"


def end(status: int) -> NoReturn:
    """End this process at once, without waiting for its threads."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
