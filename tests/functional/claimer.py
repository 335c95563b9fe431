# SPDX-License-Identifier: Apache-2.0
"""A scheduler in a process of its own that decides many requests; see the tests.

Usage: claimer.py CONFIG_FILE N_REQUESTS N_THREADS. A line from the standard input
starts it. It writes one JSON object: what each instance was answered, and how claims
went.
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from moorage.objects import Flavor, ImageMeta, ImageMetaProps, RequestSpec
from moorage.scheduler.conf import load
from moorage.scheduler.errors import NoValidHost, SchedulerError
from moorage.scheduler.service import Scheduler, build

CONTEXT = {"request_id": "req-test", "project_id": "project", "user_id": "user"}

#: Seconds after the last answer in which claims in doubt are settled.
QUIET_S = 60.0


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


def decide(scheduler: Scheduler, instance: str) -> tuple[str, Any]:
    """Return an instance and the allocations that it was answered, or a failure."""
    try:
        answer: Any = scheduler.select_destinations(
            CONTEXT, request(), [instance], return_objects=True
        )
    except NoValidHost:
        return instance, None
    except SchedulerError as e:
        return instance, type(e).__name__
    claimed = json.loads(answer[0][0].allocation_request)["allocations"]
    return instance, {node: part["resources"] for node, part in claimed.items()}


def main() -> None:
    """Decide, wait until what is in doubt is settled, and tell."""
    config_file, n_requests, n_threads = sys.argv[1:]
    scheduler = build(load(["--config-file", config_file]))
    scheduler.start()
    print("ready", flush=True)
    sys.stdin.readline()
    instances = [str(uuid.uuid4()) for _ in range(int(n_requests))]
    with ThreadPoolExecutor(int(n_threads)) as pool:
        answers = dict(pool.map(lambda i: decide(scheduler, i), instances))
    ends_at = time.monotonic() + QUIET_S
    while scheduler.n_orphans and time.monotonic() < ends_at:
        time.sleep(0.2)
    claims = Counter(
        attempt.result
        for decision in scheduler.decisions.newest()
        for attempt in decision.claims
    )
    questions = scheduler.kept.stats().misses
    scheduler.stop()
    print(json.dumps({"answers": answers, "claims": claims, "questions": questions}))


if __name__ == "__main__":
    main()
