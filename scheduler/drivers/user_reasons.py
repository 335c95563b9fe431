# SPDX-License-Identifier: Apache-2.0
"""Why no host was found, for end users: counts by cause, and never a host's name.

What filters rejected is in the decision record. Placement does not say why it left out
a host; that is estimated from the host table, without another request.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final
from urllib.parse import parse_qs, urlsplit

import numpy as np
import numpy.typing as npt
import os_resource_classes as orc
import os_traits

from ...filters import BaseHostFilter
from ..hosts import AggregateMap, HostAggregate, HostBatch
from ..request import Request
from .record import DecisionRecord, FilterStep
from .restrictions import REQUIRED

Mask = npt.NDArray[np.bool_]
#: The parameters of a query to Placement.
Query = Mapping[str, Sequence[str]]

#: nova's conductor stores the first 255 bytes of a message as the instance's fault;
#: "No valid host was found. " precedes the reason.
MAX_BYTES: Final = 255 - 25

_MAX_ZONE: Final = 40
_MAX_CLASS: Final = 60
_MAX_TRAITS: Final = 2
_MAX_REASON: Final = 90
_ZONE: Final = "availability_zone"
#: The resource classes of which the host table has the free amounts.
_IN_TABLE: Final = frozenset({orc.VCPU, orc.MEMORY_MB, orc.DISK_GB})
_EXCLUDED: Final = "excluded by the request"
_TAKEN: Final = ("was taken by other requests", "were taken by other requests")
_OTHERS: Final = ", others for other reasons"


@dataclasses.dataclass(frozen=True, slots=True)
class _Cause:
    """A number of hosts, and what is said of one and of several."""

    n_hosts: int
    of_one: str
    of_several: str = ""

    def __str__(self) -> str:
        text = self.of_one if self.n_hosts == 1 else self.of_several or self.of_one
        return f"{self.n_hosts:,} {text}"


def count_causes(
    record: DecisionRecord,
    request: Request,
    hosts: HostBatch,
    aggregates: AggregateMap,
    offered: Collection[str],
) -> str:
    """Return the reason of a request that fits nowhere, at most `MAX_BYTES` long.

    Parameters
    ----------
    hosts : HostBatch
        All hosts.
    offered : collection of str
        The UUIDs of the nodes for which Placement had candidates.
    """
    if not len(hosts):
        return "No hosts are known."
    causes, n_all = [*_of_steps(record)], len(hosts)
    whole = f"{n_all:,} host{'' if n_all == 1 else 's'}"
    if record.is_truncated:
        n_all = record.n_hosts
        whole = f"the {n_all:,} hosts that Placement offered"
    elif not request.is_rebuild:
        left_out = hosts.take(~hosts.matches("uuid", offered))
        query = parse_qs(urlsplit(record.queries[0]).query) if record.queries else {}
        causes += _of_left_out(left_out, request, aggregates, query)
    if not request.is_rebuild:
        # Their last candidate was used up before the filters ran, or ran again.
        n_taken = max(0, n_all - sum(cause.n_hosts for cause in causes))
        causes.append(_Cause(n_taken, *_TAKEN))
    causes.sort(key=lambda cause: -cause.n_hosts)
    return _joined(f"Of {whole}: ", [str(cause) for cause in causes if cause.n_hosts])


def _joined(start: str, causes: Iterable[str]) -> str:
    text = ""
    for cause in causes:
        longer = f"{text}, {cause}" if text else f"{start}{cause}"
        if len(f"{longer}{_OTHERS}.".encode()) > MAX_BYTES:
            return f"{text}{_OTHERS}."
        text = longer
    return f"{text}." if text else f"{start}none is left."


# -- filters ---------------------------------------------------------------------------


def _of_steps(record: DecisionRecord) -> Iterator[_Cause]:
    steps = _last_pass(record.steps)
    rejected: Counter[str] = Counter()
    for step in steps:
        rejected[_said_of(step)] += step.n_in - step.n_out
    yield from (_Cause(n_hosts, text) for text, n_hosts in rejected.items())
    n_left = steps[-1].n_out if steps else record.n_hosts
    yield _Cause(n_left, "has no room left", "have no room left")


def _last_pass(steps: list[FilterStep]) -> list[FilterStep]:
    """Return the steps since the filters last began with hosts already rejected."""
    begin = 0
    for place in range(1, len(steps)):
        if steps[place].n_in > steps[place - 1].n_out:
            begin = place
    return steps[begin:]


def _said_of(step: FilterStep) -> str:
    if step.reason == REQUIRED:
        return _EXCLUDED
    if step.reason == BaseHostFilter.REASON:
        return f"rejected by {step.name}"
    return f"rejected ({_clean(step.reason, _MAX_REASON)})"


# -- what Placement left out -----------------------------------------------------------


def _of_left_out(
    hosts: HostBatch,
    request: Request,
    aggregates: AggregateMap,
    query: Query,
) -> Iterator[_Cause]:
    """Yield the first cause of each host, by the host table."""
    is_left = np.ones(len(hosts), dtype=bool)
    for mask, (of_one, of_several) in _causes(hosts, request, aggregates, query):
        yield _Cause(int(np.count_nonzero(is_left & mask)), of_one, of_several)
        is_left &= ~mask
    yield _Cause(int(np.count_nonzero(is_left)), *_of_others(query))


def _of_others(query: Query) -> tuple[str, str]:
    """Return what is said of one host and of several that have no cause in the table.

    Bare metal is requested by a custom resource class, which the table does not have.
    """
    amounts = _requested(query)
    classes = amounts.keys() - _IN_TABLE
    if len(classes) != 1:
        what = _listed_needs(query, sorted(classes))
        return f"lacks {what}", f"lack {what}"
    [name] = classes
    quantity = "no" if amounts[name] == 1 else "too few"
    left = f"{quantity} {_clean(name, _MAX_CLASS)} left"
    if not _has_conditions(query):
        return f"has {left}", f"have {left}"
    what = "a trait or an aggregate that is required"
    return f"has {left}, or lacks {what}", f"have {left}, or lack {what}"


def _listed_needs(query: Query, classes: Sequence[str]) -> str:
    """Return what a host may lack that the table does not have, as the query has it."""
    needs = [f"trait {_clean(name, _MAX_CLASS)}" for name in _required_traits(query)]
    if len(needs) > _MAX_TRAITS:
        needs = ["a required trait"]
    if any(key.startswith("member_of") for key in query):
        needs.append("a required aggregate")
    needs += [_clean(name, _MAX_CLASS) for name in classes[:_MAX_TRAITS]]
    needs.append("room in Placement")
    return " or ".join(filter(None, [", ".join(needs[:-1]), needs[-1]]))


def _required_traits(query: Query) -> list[str]:
    """Return the traits that a query requires, but the one that every host has."""
    values = [
        value
        for key, texts in query.items()
        if key.startswith(("required", "root_required"))
        for text in texts
        for value in text.removeprefix("in:").split(",")
    ]
    required = {each for each in values if each and not each.startswith("!")}
    return sorted(required - {os_traits.OWNER_NOVA})


def _requested(query: Query) -> Counter[str]:
    """Return the amounts of all request groups together, by resource class."""
    found: Counter[str] = Counter()
    for key, texts in query.items():
        if key.startswith("resources"):
            found.update(_amounts({"resources": texts}))
    return found


def _has_conditions(query: Query) -> bool:
    """Return whether an aggregate, or a trait that not all hosts have, is required."""
    of_root = ",".join(query.get("root_required", ())).split(",")
    required = {trait for trait in of_root if trait and not trait.startswith("!")}
    is_of_group = any(key.startswith(("required", "member_of")) for key in query)
    return is_of_group or bool(required - {os_traits.OWNER_NOVA})


def _causes(
    hosts: HostBatch,
    request: Request,
    aggregates: AggregateMap,
    query: Query,
) -> Iterator[tuple[Mask, tuple[str, str]]]:
    if in_tree := query.get("in_tree"):
        yield ~hosts.matches("uuid", in_tree), (_EXCLUDED, _EXCLUDED)
    zone = request.field(_ZONE)
    if zone and aggregates.uuids_with_metadata(_ZONE, zone):
        where = f"not in zone {_clean(zone, _MAX_ZONE)}"
        yield ~_in_zone(hosts, zone), (f"is {where}", f"are {where}")
    yield hosts.disabled, ("is disabled", "are disabled")
    free = {
        orc.MEMORY_MB: (_free_memory_mb, "memory"),
        orc.VCPU: (_free_vcpus, "CPUs"),
        orc.DISK_GB: (_free_disk_gb, "disk space"),
    }
    amounts = _amounts(query)
    for name, (compute, word) in free.items():
        if amount := amounts.get(name):
            yield compute(hosts) < amount, (f"lacks {word}", f"lack {word}")
    # nova's computes let one instance have at most what a host has without its ratio.
    totals = {
        orc.MEMORY_MB: (hosts.total_usable_ram_mb, "less memory"),
        orc.VCPU: (hosts.vcpus_total, "fewer CPUs"),
        orc.DISK_GB: (hosts.total_usable_disk_gb, "less disk space"),
    }
    for name, (total, word) in totals.items():
        if amount := amounts.get(name):
            limit = f"one instance {word}"
            yield total < amount, (f"allows {limit}", f"allow {limit}")


def _in_zone(hosts: HostBatch, zone: str) -> Mask:
    def is_in(aggregates: Iterable[HostAggregate]) -> bool:
        return any(each.metadata.get(_ZONE) == zone for each in aggregates)

    mask: Mask = hosts.map_distinct("aggregates", is_in, bool)
    return mask


def _free_memory_mb(hosts: HostBatch) -> npt.NDArray[np.float64]:
    used = hosts.total_usable_ram_mb - hosts.free_ram_mb
    free: npt.NDArray[np.float64]
    free = hosts.total_usable_ram_mb * hosts.ram_allocation_ratio - used
    return free


def _free_vcpus(hosts: HostBatch) -> npt.NDArray[np.float64]:
    free: npt.NDArray[np.float64]
    free = hosts.vcpus_total * hosts.cpu_allocation_ratio - hosts.vcpus_used
    return free


def _free_disk_gb(hosts: HostBatch) -> npt.NDArray[np.float64]:
    used_gb = hosts.disk_mb_used / 1024
    free: npt.NDArray[np.float64]
    free = hosts.total_usable_disk_gb * hosts.disk_allocation_ratio - used_gb
    return free


def _amounts(query: Query) -> dict[str, int]:
    """Return the amounts that the whole host, not a part of it, has to have."""
    resources = ",".join(query.get("resources", ())).split(",")
    pairs = (pair.partition(":") for pair in resources)
    return {name: int(amount) for name, _, amount in pairs if amount.isdecimal()}


def _clean(text: str, most: int) -> str:
    """Return a text without what is not printable, shortened."""
    clean = "".join(c if c.isprintable() else "?" for c in text[: most + 1])
    return clean if len(clean) <= most else f"{clean[: most - 1]}…"
