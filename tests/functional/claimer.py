# SPDX-License-Identifier: Apache-2.0
"""Schedulers that decide many requests, each in a process; see claimers.py.

Usage: claimer.py LOAD CONFIG_FILE…; LOAD is a `Load` as JSON. The processes are forked
from one that has imported everything, which takes longer than all else at their start.
"ready" is written once all have started; a line from the standard input then lets them
decide. A JSON object is written for each scheduler: what each instance was answered and
when, and how claims went. They run until the end of the standard input.
"""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import sys
import time
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from moorage.objects import Flavor, ImageMeta, ImageMetaProps, RequestSpec
from moorage.scheduler.conf import load
from moorage.scheduler.drivers.claims import contention
from moorage.scheduler.errors import NoValidHost, SchedulerError
from moorage.scheduler.instances import InstanceLocation, InstanceState
from moorage.scheduler.service import Scheduler, build
from moorage.scheduler.sources.file import FileSource

CONTEXT = {"request_id": "req-test", "project_id": "project", "user_id": "user"}

#: Seconds in which all of them start.
START_S = 120.0

#: Seconds from an error to the next request of that thread.
AFTER_ERROR_S = 0.5

#: How often an instance is requested again after an error.
MAX_ATTEMPTS = 60


@dataclasses.dataclass(frozen=True)
class Load:
    """The load of one scheduler.

    Attributes
    ----------
    n_requests, n_threads : int
        Of one instance each; how many of them at a time.
    retries : bool
        Whether every second instance is requested again after an error.
    max_choices : int
        Among how many near-equal hosts is chosen at most; 1: always the best one.
    """

    n_requests: int
    n_threads: int = 4
    retries: bool = False
    max_choices: int = contention.MAX_CHOICES


def request() -> RequestSpec:
    """One instance of 1 vCPU."""
    flavor = Flavor(
        name="small", flavorid="1", vcpus=1, memory_mb=64, root_gb=1, ephemeral_gb=0,
        swap=0, extra_specs={},
    )  # fmt: skip
    nothing = dict.fromkeys(
        ("availability_zone", "instance_group", "ignore_hosts", "force_hosts",
         "force_nodes", "requested_destination", "numa_topology", "pci_requests")
    )  # fmt: skip
    return RequestSpec(
        flavor=flavor, image=ImageMeta(properties=ImageMetaProps()), num_instances=1,
        project_id="project", user_id="user", scheduler_hints={}, is_bfv=False,
        **nothing,
    )  # fmt: skip


class InformedSource(FileSource):
    """The hosts of a file; it knows what became of this process's requests.

    Attributes
    ----------
    open : set of str
        Instances whose requests are running.
    answered : dict
        Host by instance.
    """

    def __init__(self) -> None:
        super().__init__()
        self.open: set[str] = set()
        self.answered: dict[str, str] = {}

    def locate_instance(self, instance_uuid: str) -> InstanceLocation:
        if instance_uuid in self.open:
            return InstanceLocation(InstanceState.PENDING)
        host = self.answered.get(instance_uuid)
        if host is None:
            return InstanceLocation(InstanceState.GONE)
        return InstanceLocation(InstanceState.ON_HOST, host)


def decide(
    scheduler: Scheduler, source: InformedSource, instance: str, n_attempts: int
) -> dict[str, Any]:
    """Return the allocations that an instance was answered, or a failure's name."""
    source.open.add(instance)
    try:
        return _decide(scheduler, source, instance, n_attempts)
    finally:
        source.open.discard(instance)


def _decide(
    scheduler: Scheduler, source: InformedSource, instance: str, n_attempts: int
) -> dict[str, Any]:
    failed: list[str] = []
    while len(failed) < n_attempts:
        try:
            answer: Any = scheduler.select_destinations(
                CONTEXT, request(), [instance], return_objects=True
            )
        except NoValidHost:
            return _outcome(None, failed)
        except SchedulerError as e:
            failed.append(type(e).__name__)
            time.sleep(AFTER_ERROR_S)
        else:
            source.answered[instance] = answer[0][0].service_host
            claimed = json.loads(answer[0][0].allocation_request)["allocations"]
            held = {node: part["resources"] for node, part in claimed.items()}
            return _outcome(held, failed)
    return _outcome(failed[-1], failed)


def _outcome(answer: object, failed: list[str]) -> dict[str, Any]:
    return {"answer": answer, "at": time.monotonic(), "failed": failed}


def run(plan: Load, config_file: str, barrier: Any, outcomes: Any, ending: Any) -> None:
    """Decide in a process of its own, and report the outcome; stop at the end."""
    contention.MAX_CHOICES = plan.max_choices  # type: ignore[misc]  # Final elsewhere
    source = InformedSource()
    scheduler = build(load(["--config-file", config_file]), source=source)
    scheduler.start()
    barrier.wait()  # all have started
    barrier.wait()  # all may decide
    try:
        outcomes.put(decide_all(scheduler, source, plan))
    except BaseException:
        outcomes.put(None)
        raise
    ending.wait()
    scheduler.stop()


def decide_all(
    scheduler: Scheduler, source: InformedSource, plan: Load
) -> dict[str, Any]:
    """Return the answers to all requests of a scheduler, and how its claims went."""
    began = time.monotonic()
    instances = [str(uuid.uuid4()) for _ in range(plan.n_requests)]
    n_attempts = [
        MAX_ATTEMPTS if plan.retries and i % 2 else 1 for i in range(len(instances))
    ]
    with ThreadPoolExecutor(plan.n_threads) as pool:
        decided = pool.map(partial(decide, scheduler, source), instances, n_attempts)
        answers = dict(zip(instances, decided, strict=True))
    elapsed_s = time.monotonic() - began
    attempts = [a for d in scheduler.decisions.newest() for a in d.claims]
    return {
        "answers": answers,
        "claims": Counter(attempt.result for attempt in attempts),
        "n_sent": sum(attempt.n_attempts for attempt in attempts),
        "n_queries": scheduler.candidates_cache.stats().misses,
        "n_orphans": scheduler.status.n_orphans,
        "elapsed_s": elapsed_s,
    }


def main() -> None:
    """Let a process for each configuration file decide."""
    encoded, *config_files = sys.argv[1:]
    plan = Load(**json.loads(encoded))
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(len(config_files) + 1)
    outcomes, ending = context.SimpleQueue(), context.Event()
    processes = [
        context.Process(target=run, args=(plan, path, barrier, outcomes, ending))
        for path in config_files
    ]
    for process in processes:
        process.start()
    barrier.wait(START_S)
    print("ready", flush=True)
    sys.stdin.readline()
    barrier.wait()
    for _ in processes:
        print(json.dumps(outcomes.get()), flush=True)
    sys.stdin.read()
    ending.set()
    for process in processes:
        process.join()
    sys.exit(any(process.exitcode for process in processes))


if __name__ == "__main__":
    main()
