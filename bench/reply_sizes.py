# SPDX-License-Identifier: Apache-2.0
"""Replies with allocation requests, compared with identifiers in their place."""

from __future__ import annotations

import gzip
import json
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from moorage.objects import NUMATopologyLimits, SchedulerLimits, Selection, Serializer

from .clouds import make_cloud, stable_uuid
from .decisions import MeasuredScheduler
from .requests import CONTEXT, plain
from .timing import Percentiles, Plan, repeated

_N_INSTANCES: Final = (1, 10, 100)
#: Selections of each instance: with max_attempts = 3, the host and two alternates.
_N_EACH: Final = 3
_N_HOSTS: Final = 1_000
#: Providers of a nested host: two NUMA cells and two physical functions are in use.
_CHILDREN: Final = (
    {"PCPU": 4, "MEMORY_MB": 8192},
    {"PCPU": 4, "MEMORY_MB": 8192},
    {"CUSTOM_PCI_8086_154C": 1},
    {"SRIOV_NET_VF": 1},
)

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ReplySize:
    """One reply: its bytes, and the CPU time of the scheduler and the conductor.

    Attributes
    ----------
    made, read : Percentiles
        Selections to the text of the message, and back; milliseconds of CPU.
    decision : Percentiles
        The CPU time of the whole decision; Placement is a stand-in.
    """

    hosts: str
    n_instances: int
    what: str
    n_bytes: int
    n_gzip: int
    made: Percentiles
    read: Percentiles
    decision: Percentiles


def reply_sizes(plan: Plan) -> Iterator[ReplySize]:
    """Yield replies for several numbers of instances, on flat and on nested hosts."""
    cloud = make_cloud(_N_HOSTS)
    scheduler = MeasuredScheduler(cloud)
    for n_instances in _N_INSTANCES:
        decision = scheduler.cpu_ms(plain(cloud, n_instances), plan)
        for hosts, body_of in {"flat": _flat, "nested": _nested}.items():
            bodies = [body_of(i) for i in range(_N_EACH * n_instances)]
            texts: dict[str, Callable[[Body], str]] = {
                "bodies": json.dumps,
                "identifiers": lambda _body: uuid.uuid4().hex,
            }
            for what, text_of in texts.items():
                yield _measured(
                    hosts, n_instances, what, bodies, text_of, plan, decision
                )


def _measured(
    hosts: str,
    n_instances: int,
    what: str,
    bodies: list[Body],
    text_of: Callable[[Body], str],
    plan: Plan,
    decision: Percentiles,
) -> ReplySize:
    serializer = Serializer()

    def made() -> str:
        found = [_selection(i, hosts, text_of(b)) for i, b in enumerate(bodies)]
        reply = [found[i : i + _N_EACH] for i in range(0, len(found), _N_EACH)]
        return json.dumps(serializer.serialize_entity(CONTEXT, reply))

    text = made()

    def read() -> object:
        reply = serializer.deserialize_entity(CONTEXT, json.loads(text))
        if what == "bodies":
            return [json.loads(s.allocation_request) for each in reply for s in each]
        return reply

    return ReplySize(
        hosts,
        n_instances,
        what,
        len(sent := _enveloped(text)),
        len(gzip.compress(sent)),
        Percentiles.of(repeated(plan, lambda: _cpu_ms(made))),
        Percentiles.of(repeated(plan, lambda: _cpu_ms(read))),
        decision,
    )


def _selection(number: int, hosts: str, allocation_request: str) -> Selection:
    name = f"compute{number:05}.example.org"
    limits: dict[str, Any] = {}
    if hosts == "nested":
        limits["numa_topology"] = NUMATopologyLimits(
            cpu_allocation_ratio=4.0, ram_allocation_ratio=1.0
        )
    return Selection(
        compute_node_uuid=stable_uuid(name),
        service_host=name,
        nodename=name,
        cell_uuid=stable_uuid("cell"),
        limits=SchedulerLimits.from_dict(limits),
        allocation_request=allocation_request,
        allocation_request_version="1.36",
        availability_zone="zone1",
    )


def _flat(number: int) -> Body:
    root = stable_uuid(f"root {number}")
    resources = {"VCPU": 4, "MEMORY_MB": 8192, "DISK_GB": 40}
    return {"allocations": {root: {"resources": resources}}, "mappings": {"": [root]}}


def _nested(number: int) -> Body:
    root = stable_uuid(f"root {number}")
    children = [stable_uuid(f"{root} {i}") for i in range(len(_CHILDREN))]
    groups = {stable_uuid(f"group {i}"): [each] for i, each in enumerate(children)}
    parts = zip(children, _CHILDREN, strict=True)
    return {
        "allocations": {
            root: {"resources": {"DISK_GB": 40}},
            **{child: {"resources": resources} for child, resources in parts},
        },
        "mappings": {"": [root], **groups},
    }


def _enveloped(text: str) -> bytes:
    """Return a reply as oslo.messaging puts it on the bus."""
    message = json.dumps({"result": json.loads(text), "failure": None, "ending": True})
    return json.dumps({"oslo.version": "2.0", "oslo.message": message}).encode()


def _cpu_ms(block: Callable[[], object]) -> float:
    began = time.process_time()
    block()
    return 1000 * (time.process_time() - began)
