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
from ..candidates import Offer
from ..hosts import AggregateMap, HostAggregate, HostBatch
from ..placement.allocations.claims import ClaimResult
from ..request import Request
from .record import (
    COLLIDED,
    DEVICES_CLAIMED_FIRST,
    MEMBER_CLAIMED_FIRST,
    OTHER_CLAIMED_FIRST,
    RELEASED,
    ClaimAttempt,
    DecisionRecord,
    FilterStep,
)
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
_FULL: Final = (
    "is full of instances of this request",
    "are full of instances of this request",
)
_BUSY: Final = ("was busy with other requests", "were busy with other requests")
_CHANGED: Final = ("changed meanwhile", "changed meanwhile")
_MEMBER_FIRST: Final = ("was left to a member of the server group",) * 2
_OTHER_FIRST: Final = ("was left to another instance by a rule about places",) * 2
_NOT_OFFERED: Final = (
    "was not offered by Placement",
    "were not offered by Placement",
)
_UNKNOWN: Final = ("failed for an unknown reason", "failed for unknown reasons")
#: Placement's words where others have used up an inventory since it offered it.
_EXCEEDED: Final = "exceed the capacity"
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


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Tried:
    """The hosts that passed the filters for the instance that got none of them.

    Attributes
    ----------
    offer : Offer
        With what other instances of the request have reserved.
    claims : sequence of ClaimAttempt
        Of the same attempt.
    later : collection of str
        The filters whose rejections hold for one instance only; see
        `BaseHostFilter.may_pass_later`.
    """

    hosts: HostBatch
    offer: Offer
    claims: Sequence[ClaimAttempt]
    later: Collection[str]


def count_causes(
    record: DecisionRecord,
    request: Request,
    hosts: HostBatch,
    aggregates: AggregateMap,
    offered: Collection[str],
    tried: Tried | None = None,
) -> str:
    """Return the reason of a request that fits nowhere, at most `MAX_BYTES` long.

    Parameters
    ----------
    hosts : HostBatch
        All hosts.
    offered : collection of str
        The UUIDs of the nodes for which Placement had candidates.
    tried : Tried, optional
        None: no host was tried after the filters.
    """
    if not len(hosts):
        return "No hosts are known."
    causes, n_all = [*_of_steps(record, tried)], len(hosts)
    whole = f"{n_all:,} host{'' if n_all == 1 else 's'}"
    if record.is_truncated:
        n_all = record.n_hosts
        whole = f"the {n_all:,} hosts that Placement offered"
    elif not request.is_rebuild:
        left_out = hosts.take(~hosts.matches("uuid", offered))
        query = parse_qs(urlsplit(record.queries[0]).query) if record.queries else {}
        causes += _of_left_out(left_out, request, aggregates, query)
    if not request.is_rebuild:
        # Placement offered them, but their last candidate was claimed before the
        # filters ran.
        n_taken = max(0, n_all - sum(cause.n_hosts for cause in causes))
        causes.append(_Cause(n_taken, *_TAKEN))
    causes = _summed(causes)
    causes.sort(key=lambda cause: -cause.n_hosts)
    return _joined(f"Of {whole}: ", [str(cause) for cause in causes if cause.n_hosts])


def _summed(causes: Iterable[_Cause]) -> list[_Cause]:
    n_hosts: Counter[tuple[str, str]] = Counter()
    for cause in causes:
        n_hosts[cause.of_one, cause.of_several] += cause.n_hosts
    return [_Cause(n, *texts) for texts, n in n_hosts.items()]


def _joined(start: str, causes: Iterable[str]) -> str:
    text = ""
    for cause in causes:
        longer = f"{text}, {cause}" if text else f"{start}{cause}"
        if len(f"{longer}{_OTHERS}.".encode()) > MAX_BYTES:
            return f"{text}{_OTHERS}."
        text = longer
    return f"{text}." if text else f"{start}none is left."


# -- filters ---------------------------------------------------------------------------


def _of_steps(record: DecisionRecord, tried: Tried | None) -> Iterator[_Cause]:
    """Yield why hosts were rejected, or were tried in vain.

    Hosts that the first instance could have had and the last one could not, are full of
    the others: nothing else changes within a pass.
    """
    later = () if tried is None else tried.later
    runs, n_left = record.runs(), record.n_hosts
    if runs:
        first, last = runs[0], runs[-1]
        yield from _of_run(step for step in first if step.name not in later)
        yield _Cause(_n_passing(first, later) - _n_passing(last, later), *_FULL)
        yield from _of_run(step for step in last if step.name in later)
        n_left = last[-1].n_out
    if tried is None or len(tried.hosts) != n_left:
        yield _Cause(n_left, *_UNKNOWN)
    else:
        yield from _of_tried(tried)


def _n_passing(run: Sequence[FilterStep], later: Collection[str]) -> int:
    """Return how many hosts passed the filters that run first."""
    n_last = next((step.n_in for step in run if step.name in later), None)
    return run[-1].n_out if n_last is None else n_last


def _of_run(steps: Iterable[FilterStep]) -> Iterator[_Cause]:
    rejected: Counter[str] = Counter()
    for step in steps:
        rejected[_said_of(step)] += step.n_in - step.n_out
    yield from (_Cause(n_hosts, text) for text, n_hosts in rejected.items())


def _said_of(step: FilterStep) -> str:
    if step.reason == REQUIRED:
        return _EXCLUDED
    if step.reason == BaseHostFilter.REASON:
        return f"rejected by {step.name}"
    return f"rejected ({_clean(step.reason, _MAX_REASON)})"


# -- claims ----------------------------------------------------------------------------


def _of_tried(tried: Tried) -> Iterator[_Cause]:
    """Yield why each host that passed the filters was not selected."""
    said = _of_claims(tried.claims)
    hosts, offer = tried.hosts, tried.offer
    for i in range(len(hosts)):
        if (texts := said.get(hosts.value("host", i))) is not None:
            yield _Cause(1, *texts)
            continue
        node_uuid, candidates = hosts.value("uuid", i), hosts.candidates_of(i)
        if candidates is None:
            candidates = list(offer.numbers_of(node_uuid))
        if not any(map(offer.is_open, candidates)):
            yield _Cause(1, *_TAKEN)
        elif offer.next_candidate(node_uuid, candidates) is None:
            yield _Cause(1, *_FULL)
        else:
            yield _Cause(1, *_UNKNOWN)


def _of_claims(claims: Iterable[ClaimAttempt]) -> dict[str, tuple[str, str]]:
    """Return why the last claim on each service host failed; none if it was granted."""
    said: dict[str, tuple[str, str]] = {}
    host_of: dict[str, str] = {}
    for claim in claims:
        pairs = dict(zip(claim.instance_uuids, claim.hosts, strict=False))
        if claim.result == ClaimResult.CLAIMED.value:
            host_of.update(pairs)
            for host in claim.hosts:
                said.pop(host, None)
        elif claim.result == RELEASED:
            hosts = [host_of[uuid] for uuid in claim.instance_uuids if uuid in host_of]
            if claim.detail.startswith(MEMBER_CLAIMED_FIRST):
                said.update(dict.fromkeys(hosts, _MEMBER_FIRST))
            elif claim.detail.startswith(OTHER_CLAIMED_FIRST):
                said.update(dict.fromkeys(hosts, _OTHER_FIRST))
        elif len(claim.hosts) == 1:  # a refused claim on several is split
            said[claim.hosts[0]] = _of_refusal(claim)
    return said


def _of_refusal(claim: ClaimAttempt) -> tuple[str, str]:
    if claim.result == ClaimResult.CONTENDED.value:
        return _BUSY
    is_taken = claim.result == COLLIDED or claim.detail == DEVICES_CLAIMED_FIRST
    return _TAKEN if is_taken or _EXCEEDED in claim.detail else _CHANGED


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
    if not classes and not _has_conditions(query):
        return _NOT_OFFERED
    if len(classes) != 1:
        needs = _listed_needs(query, sorted(classes))
        return f"lacks {needs}", f"lack {needs}"
    [name] = classes
    quantity = "no" if amounts[name] == 1 else "too few"
    amount = f"{quantity} {_clean(name, _MAX_CLASS)} left"
    if not _has_conditions(query):
        return f"has {amount}", f"have {amount}"
    condition = "a trait or an aggregate that is required"
    return (
        f"has {amount}, or lacks {condition}",
        f"have {amount}, or lack {condition}",
    )


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
    required = {trait for trait in values if trait and not trait.startswith("!")}
    return sorted(required - {os_traits.OWNER_NOVA})


def _requested(query: Query) -> Counter[str]:
    """Return the amounts of all request groups, by resource class."""
    amounts: Counter[str] = Counter()
    for key, texts in query.items():
        if key.startswith("resources"):
            amounts.update(_amounts({"resources": texts}))
    return amounts


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
    zone = request.availability_zone
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
        return any(a.metadata.get(_ZONE) == zone for a in aggregates)

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
