# SPDX-License-Identifier: Apache-2.0
"""Virtual time: the seed decides the order, nothing waits, and a kill is a kill."""

from __future__ import annotations

import random
import threading
import time

import pytest

from .fixtures.virtual_time import EPOCH, Deadlock, SimulatedKill, VirtualTime

N_THREADS = 5
N_STEPS = 6


def order_of(seed: int) -> list[str]:
    """Return the order of events of threads that sleep and wait for each other."""
    order: list[str] = []
    rng = random.Random(seed)
    with VirtualTime(random.Random(seed)) as virtual:
        lock, event = virtual.lock(), virtual.event()

        def run(name: str) -> None:
            for step in range(N_STEPS):
                virtual.sleep(rng.choice([0, 0, 1]))
                with lock:
                    virtual.switch()
                    order.append(f"{virtual.monotonic():g} {name} {step}")
            event.wait(rng.uniform(0, 5))
            order.append(f"{virtual.monotonic():g} {name} ends")

        tasks = [
            virtual.spawn(lambda n=str(number): run(n), name=str(number))  # type: ignore[misc]
            for number in range(N_THREADS)
        ]
        virtual.sleep(6)
        event.set()
        for task in tasks:
            task.join()
    return order


def test_same_seed_gives_the_same_order() -> None:
    orders = [order_of(seed) for seed in range(20)]
    assert orders == [order_of(seed) for seed in range(20)]
    assert len(set(map(tuple, orders))) == len(orders)


def test_time_jumps_to_the_earliest_time_out() -> None:
    began = time.monotonic()
    with VirtualTime(random.Random(1)) as virtual:
        seen: list[tuple[str, float]] = []

        def sleeper(name: str, seconds: float) -> None:
            virtual.sleep(seconds)
            seen.append((name, virtual.monotonic()))

        virtual.spawn(lambda: sleeper("day", 86_400), name="day")
        virtual.spawn(lambda: sleeper("minute", 60), name="minute")
        assert not virtual.event().wait(3600)
        assert (virtual.monotonic(), virtual()) == (3600, EPOCH + 3600)
        virtual.sleep(100_000)
    assert seen == [("minute", 60), ("day", 86_400)]
    assert time.monotonic() - began < 60


def test_clock_that_is_set_changes_no_wait() -> None:
    with VirtualTime(random.Random(1)) as virtual:
        virtual.step_clock(-3600)
        virtual.sleep(10)
        assert (virtual.monotonic(), virtual()) == (10, EPOCH - 3590)


def test_deadlock_names_the_waiting_threads() -> None:
    with VirtualTime(random.Random(1)) as virtual:
        one, other = virtual.lock(), virtual.lock()

        def take_both() -> None:
            with other:
                virtual.switch()
                with one:
                    pass

        with one:
            task = virtual.spawn(take_both, name="taker")
            with pytest.raises(Deadlock) as caught:
                task.join()
    assert "main/main waits for the end of taker" in str(caught.value)
    assert "main/taker waits for a lock that main holds" in str(caught.value)


def test_lock_admits_one_thread_at_a_time() -> None:
    with VirtualTime(random.Random(1)) as virtual:
        lock = virtual.lock()
        inside: list[int] = []

        def enter(number: int) -> None:
            with lock:
                inside.append(number)
                virtual.sleep(1)
                assert inside == [number]
                inside.clear()

        for number in range(N_THREADS):
            virtual.spawn(lambda n=number: enter(n), name="enter")  # type: ignore[misc]
        virtual.switch()
        assert not lock.acquire(blocking=False)
        assert not lock.acquire(timeout=0.5)
        assert lock.acquire(timeout=60)
        assert virtual.monotonic() <= N_THREADS
    assert not virtual.failures


def test_event_cleared_at_once_wakes_its_waiters() -> None:
    with VirtualTime(random.Random(1)) as virtual:
        event = virtual.event()
        woken: list[bool] = []
        task = virtual.spawn(lambda: woken.append(event.wait(9)), name="waits")
        virtual.sleep(1)
        event.set()
        event.clear()
        task.join()
        assert woken == [True]
        assert not event.wait(1)


def test_error_in_a_thread_is_kept() -> None:
    with VirtualTime(random.Random(1)) as virtual:
        virtual.spawn(lambda: 1 // 0, name="divides").join()
    [(name, error)] = virtual.failures
    assert name == "main/divides"
    assert isinstance(error, ZeroDivisionError)


def test_thread_of_no_virtual_time_is_refused() -> None:
    with VirtualTime(random.Random(1)) as virtual:
        caught: list[BaseException] = []

        def outside() -> None:
            try:
                virtual.switch()
            except RuntimeError as e:
                caught.append(e)

        thread = threading.Thread(target=outside, name="outsider")
        thread.start()
        thread.join()
    assert "outsider is no thread of this virtual time" in str(caught[0])


class Writer:
    """A process that writes a line a second, and another one when it ends."""

    def __init__(self, virtual: VirtualTime) -> None:
        self.virtual = virtual
        self.lines: list[str] = []
        self.cleanups: list[str] = []
        self.group = virtual.group("process")
        virtual.spawn(self.run, name="writer", group=self.group)

    def run(self) -> None:
        child = self.virtual.spawn(self.write, name="child")
        try:
            child.join()
        except Exception:
            self.lines.append("took the kill for an error")
        finally:
            try:
                self.virtual.switch()
                self.lines.append("went on after the kill")
            except SimulatedKill:
                self.cleanups.append("refused")

    def write(self) -> None:
        while True:
            self.lines.append(f"{self.virtual.monotonic():g}")
            self.virtual.sleep(1)


def test_killed_group_does_nothing_more() -> None:
    with VirtualTime(random.Random(1)) as virtual:
        writer = Writer(virtual)
        virtual.sleep(2.5)
        assert not writer.group.killed.is_set()
        virtual.kill(writer.group)
        assert writer.group.killed.wait(0)
        virtual.sleep(100)
        assert writer.lines == ["0", "1", "2"]
        assert not writer.cleanups, "as after SIGKILL, no cleanup runs"
        with pytest.raises(RuntimeError, match="process was killed"):
            virtual.spawn(writer.run, name="more", group=writer.group)
    assert writer.lines == ["0", "1", "2"]
    assert writer.cleanups == ["refused"], "threads end by SimulatedKill at the end"
    assert not virtual.failures


@pytest.mark.parametrize("n_switches", range(8))
def test_group_is_killed_at_a_switch_point(n_switches: int) -> None:
    with VirtualTime(random.Random(1)) as virtual:
        writer = Writer(virtual)
        virtual.kill_after(writer.group, n_switches)
        assert writer.group.killed.wait(60)
        virtual.sleep(100)
        # One switch is the wait for the child, whenever that is.
        assert n_switches <= len(writer.lines) <= n_switches + 1
    assert not virtual.failures


def test_thread_can_kill_its_own_group() -> None:
    with VirtualTime(random.Random(1)) as virtual:
        group = virtual.group("process")
        done: list[str] = []

        def run() -> None:
            done.append("before")
            virtual.kill(group)
            done.append("after")

        virtual.spawn(run, name="kills itself", group=group)
        virtual.sleep(1)
        assert group.killed.is_set()
    assert done == ["before"]
