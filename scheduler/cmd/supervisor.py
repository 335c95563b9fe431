# SPDX-License-Identifier: Apache-2.0
"""Several worker processes, kept alive by the one that forked them.

oslo.service's back-end for threads does not do: at SIGHUP it ends its workers and calls
no `reset`; SIGINT kills them, claims under way and all; systemd is told that the
service is ready before any worker is. cotyledon, below it, forks from a thread.
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

from .signals import RELOADING, REPORTING, STOPPING, Signals, held_back
from .systemd import State, notify

LOG = logging.getLogger(__name__)

#: A worker that dies sooner is replaced with a delay, which doubles each time.
_QUICK_S: Final = 10.0
_LONGEST_DELAY_S: Final = 30.0

_OF_WORKERS: Final = (*STOPPING, RELOADING)


@dataclasses.dataclass(frozen=True, slots=True)
class Worker:
    """What a worker knows of itself.

    Attributes
    ----------
    number : int
        0 for the first worker, and so on; a replacement has its predecessor's.
    is_first : bool
        Whether it has no predecessor.
    signals : Signals
        Its own.
    lifeline : int
        A file that can be read once the supervisor is gone.
    tell : callable
        Tells the supervisor, with READY, that it serves; once is enough.
    """

    number: int
    is_first: bool
    signals: Signals
    lifeline: int
    tell: Callable[[State], None]


@dataclasses.dataclass(slots=True)
class _Place:
    """One worker's place: who holds it, or when it is filled again."""

    number: int
    pid: int = 0
    ready_fd: int = -1
    is_ready: bool = False
    began_at: float = 0.0
    due_at: float = 0.0
    n_begun: int = 0
    n_quick: int = 0


class Supervisor:
    """Fork workers, replace those that die, pass signals on.

    The memory of the process that makes it is shared by the workers, as far as nobody
    writes to it. It must have no threads and no connections.

    Parameters
    ----------
    n_workers : int
    work : callable
        What a worker does; it returns the exit status.
    reload : callable
        Reads options again, for the sake of workers that come later; returns whether
        workers shall do so, too.
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
        self._places = [_Place(number) for number in range(n_workers)]
        self._signals = Signals((*_OF_WORKERS, REPORTING, signal.SIGCHLD))
        # Its other end is closed, and so can be read, once this process is gone.
        self._lifeline, self._alive = os.pipe()
        self._was_ready = False

    def run(self) -> int:
        """Work until a signal asks for the end; return the exit status.

        1 if a worker had to be killed, or did not end well.
        """
        while True:
            self._fill()
            fds = [place.ready_fd for place in self._places if place.ready_fd >= 0]
            came, readable = self._signals.wait(self._until_due_s(), also=fds)
            self._note_ready(readable)
            self._replace_dead()
            if came & STOPPING:
                return self._stop()
            if REPORTING in came:
                self._send(REPORTING)
            if RELOADING in came:
                notify(State.RELOADING)
                if self._reload():
                    self._send(signal.SIGHUP)
                notify(State.READY, self._state())

    def _fill(self) -> None:
        now = time.monotonic()
        for place in self._places:
            if not place.pid and place.due_at <= now:
                self._fork(place)

    def _until_due_s(self) -> float | None:
        due = [place.due_at for place in self._places if not place.pid]
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _fork(self, place: _Place) -> None:
        place.n_begun += 1
        ready_fd, tell_fd = os.pipe()
        # Until it has its own, a signal to the worker would be taken for one to us.
        with held_back():
            pid = os.fork()
            if not pid:
                self._become_worker(place, ready_fd, tell_fd)
        os.close(tell_fd)
        place.pid, place.ready_fd, place.is_ready = pid, ready_fd, False
        place.began_at = time.monotonic()
        LOG.info("Worker %d is process %d", place.number, pid)

    def _become_worker(self, place: _Place, ready_fd: int, tell_fd: int) -> NoReturn:
        status = 1
        try:
            for fd in (self._alive, ready_fd, *(p.ready_fd for p in self._places)):
                if fd >= 0:
                    os.close(fd)
            self._signals.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signals = Signals(_OF_WORKERS)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            worker = Worker(
                number=place.number,
                is_first=place.n_begun == 1,
                signals=signals,
                lifeline=self._lifeline,
                tell=functools.cache(functools.partial(_tell, tell_fd)),
            )
            status = self._work(worker)
        except BaseException:
            LOG.exception("Worker %d ends", place.number)
        finally:
            end(status)

    def _note_ready(self, readable: set[int]) -> None:
        for place in self._places:
            if place.ready_fd in readable:
                place.is_ready = bool(os.read(place.ready_fd, 1))
                self._close_ready(place)
        if not self._was_ready and all(place.is_ready for place in self._places):
            self._was_ready = True
            LOG.info("All %s", self._state())
            notify(State.READY, self._state())

    def _state(self) -> str:
        return f"{len(self._places)} workers serve"

    def _replace_dead(self) -> None:
        now = time.monotonic()
        for place, pid, status in self._died():
            is_quick = now - place.began_at < _QUICK_S
            place.n_quick = place.n_quick + 1 if is_quick else 0
            delay_s = min(2.0 ** (place.n_quick - 1), _LONGEST_DELAY_S)
            place.due_at = now + (delay_s if is_quick else 0.0)
            LOG.error(
                "Worker %d, process %d, %s: it is replaced %s",
                place.number, pid, _how(status),
                f"in {delay_s:.0f} s" if is_quick else "now",
            )  # fmt: skip

    def _died(self) -> Iterator[tuple[_Place, int, int]]:
        """Yield place, process and status of the workers that died since."""
        for place in self._places:
            if not (pid := place.pid):
                continue
            died, status = os.waitpid(pid, os.WNOHANG)
            if died:
                self._close_ready(place)
                place.pid = 0
                yield place, pid, os.waitstatus_to_exitcode(status)

    @staticmethod
    def _close_ready(place: _Place) -> None:
        if place.ready_fd >= 0:
            os.close(place.ready_fd)
        place.ready_fd = -1

    def _send(self, number: signal.Signals) -> None:
        for place in self._places:
            if place.pid:  # not waited for yet, so the number is still its own
                os.kill(place.pid, number)

    def _stop(self) -> int:
        notify(State.STOPPING)
        LOG.info("Stopping; workers finish the requests under way")
        self._send(signal.SIGTERM)
        limit_s = self._stop_timeout_s()
        until = time.monotonic() + limit_s if limit_s else None
        statuses: list[int] = []
        while any(place.pid for place in self._places):
            left_s = until - time.monotonic() if until else None
            if left_s is not None and left_s <= 0:
                self._kill(limit_s)
                until = left_s = None
            self._signals.wait(left_s)
            statuses += [status for _, _, status in self._died()]
        return 1 if any(statuses) else 0

    def _kill(self, limit_s: float) -> None:
        for place in self._places:
            if place.pid:
                LOG.error(
                    "Worker %d, process %d, has not ended within "
                    "graceful_shutdown_timeout, %d s, and is killed: what it has under "
                    "way is lost",
                    place.number, place.pid, limit_s,
                )  # fmt: skip
        self._send(signal.SIGKILL)


def _tell(fd: int, state: State) -> None:
    if state is State.READY:
        os.write(fd, b"1")
        os.close(fd)


def _how(status: int) -> str:
    """Return how a process ended, of its exit status or, negative, a signal."""
    if status < 0:
        return f"was killed by {signal.Signals(-status).name}"
    return f"ended with status {status}"


def end(status: int) -> NoReturn:
    """End this process at once, whatever its threads are doing."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
