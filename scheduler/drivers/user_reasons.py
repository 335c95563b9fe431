# SPDX-License-Identifier: Apache-2.0
"""Explain to end users why no host was found: hosts by cause, and no host's name.

The decision record has the numbers of hosts that filters rejected. Placement does not
say why it did not offer a host; the cause is estimated from the host table, without
another request.
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
    runs_of,
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
#: Part of Placement's message if other requests have used up an inventory since it was
#: offered.
_EXCEEDED: Final = "exceed the capacity"
_OTHERS: Final = ", others for other reasons"


@dataclasses.dataclass(frozen=True, slots=True)
class _Cause:
    """A number of hosts with one cause, and the text for one host and for several."""

    n_hosts: int
    of_one: str
    of_several: str = ""

    def __str__(self) -> str:
        text = self.of_one if self.n_hosts == 1 else self.of_several or self.of_one
        return f"{self.n_hosts:,} {text}"


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Tried:
    """The hosts that passed all filters for an instance that nevertheless got none.

    Attributes
    ----------
    offer : Offer
        The candidates, less what other instances of the request have reserved.
    claims : sequence of ClaimAttempt
        The claims of the attempt to decide.
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
    """Return why a request fits nowhere, as a text of at most `MAX_BYTES`.

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
    causes, n_all = [*_causes_of_steps(record, tried)], len(hosts)
    hosts_text = f"{n_all:,} host{'' if n_all == 1 else 's'}"
    if record.is_truncated:
        n_all = record.n_hosts
        hosts_text = f"the {n_all:,} hosts that Placement offered"
    elif not request.is_rebuild:
        left_out = hosts.take(~hosts.matches("uuid", offered))
        query = parse_qs(urlsplit(record.queries[0]).query) if record.queries else {}
        causes += _causes_of_left_out(left_out, request, aggregates, query)
    if not request.is_rebuild:
        # The hosts without any other cause: Placement offered them, but their last
        # candidate was claimed before the filters ran.
        n_taken = max(0, n_all - sum(cause.n_hosts for cause in causes))
        causes.append(_Cause(n_taken, *_TAKEN))
    causes = _summed(causes)
    causes.sort(key=lambda cause: -cause.n_hosts)
    return _joined(
        f"Of {hosts_text}: ", [str(cause) for cause in causes if cause.n_hosts]
    )


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


def _causes_of_steps(record: DecisionRecord, tried: Tried | None) -> Iterator[_Cause]:
    """Yield the causes of hosts that filters rejected, or that were tried in vain.

    Hosts that passed for the first instance and not for the last one are full of other
    instances of the request: nothing else changes within an attempt.
    """
    later = () if tried is None else tried.later
    runs, n_left = runs_of(record.steps), record.n_hosts
    if runs:
        first_run, last_run = runs[0], runs[-1]
        yield from _causes_of_run(step for step in first_run if step.name not in later)
        yield _Cause(_n_passing(first_run, later) - _n_passing(last_run, later), *_FULL)
        yield from _causes_of_run(step for step in last_run if step.name in later)
        n_left = last_run[-1].n_out
    if tried is None or len(tried.hosts) != n_left:
        yield _Cause(n_left, *_UNKNOWN)
    else:
        yield from _causes_of_tried(tried)


def _n_passing(run: Sequence[FilterStep], later: Collection[str]) -> int:
    """Return how many hosts passed the filters of a run that are not in `later`."""
    n_last = next((step.n_in for step in run if step.name in later), None)
    return run[-1].n_out if n_last is None else n_last


def _causes_of_run(steps: Iterable[FilterStep]) -> Iterator[_Cause]:
    rejected: Counter[str] = Counter()
    for step in steps:
        rejected[_text_of_step(step)] += step.n_in - step.n_out
    yield from (_Cause(n_hosts, text) for text, n_hosts in rejected.items())


def _text_of_step(step: FilterStep) -> str:
    if step.reason == REQUIRED:
        return _EXCLUDED
    if step.reason == BaseHostFilter.REASON:
        return f"rejected by {step.name}"
    return f"rejected ({_clean(step.reason, _MAX_REASON)})"


# -- claims ----------------------------------------------------------------------------


def _causes_of_tried(tried: Tried) -> Iterator[_Cause]:
    """Yield why each host that passed the filters was not selected."""
    texts_of_host = _texts_of_claims(tried.claims)
    hosts, offer = tried.hosts, tried.offer
    for i in range(len(hosts)):
        if (texts := texts_of_host.get(hosts.value("host", i))) is not None:
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


def _texts_of_claims(claims: Iterable[ClaimAttempt]) -> dict[str, tuple[str, str]]:
    """Return the texts for the service hosts on which the last claim failed."""
    texts_of_host: dict[str, tuple[str, str]] = {}
    host_of: dict[str, str] = {}
    for claim in claims:
        pairs = dict(zip(claim.instance_uuids, claim.hosts, strict=False))
        if claim.result == ClaimResult.CLAIMED.value:
            host_of.update(pairs)
            for host in claim.hosts:
                texts_of_host.pop(host, None)
        elif claim.result == RELEASED:
            hosts = [host_of[uuid] for uuid in claim.instance_uuids if uuid in host_of]
            if claim.detail.startswith(MEMBER_CLAIMED_FIRST):
                texts_of_host.update(dict.fromkeys(hosts, _MEMBER_FIRST))
            elif claim.detail.startswith(OTHER_CLAIMED_FIRST):
                texts_of_host.update(dict.fromkeys(hosts, _OTHER_FIRST))
        elif len(claim.hosts) == 1:  # a refused claim on several hosts is split
            texts_of_host[claim.hosts[0]] = _texts_of_refusal(claim)
    return texts_of_host


def _texts_of_refusal(claim: ClaimAttempt) -> tuple[str, str]:
    if claim.result == ClaimResult.CONTENDED.value:
        return _BUSY
    is_taken = claim.result == COLLIDED or claim.detail == DEVICES_CLAIMED_FIRST
    return _TAKEN if is_taken or _EXCEEDED in claim.detail else _CHANGED


# -- hosts that Placement did not offer ------------------------------------------------


def _causes_of_left_out(
    hosts: HostBatch,
    request: Request,
    aggregates: AggregateMap,
    query: Query,
) -> Iterator[_Cause]:
    """Yield why Placement did not offer hosts, estimated from the host table.

    Each host counts for the first cause that applies to it.
    """
    has_no_cause = np.ones(len(hosts), dtype=bool)
    for mask, (of_one, of_several) in _known_causes(hosts, request, aggregates, query):
        yield _Cause(int(np.count_nonzero(has_no_cause & mask)), of_one, of_several)
        has_no_cause &= ~mask
    yield _Cause(int(np.count_nonzero(has_no_cause)), *_texts_without_cause(query))


def _texts_without_cause(query: Query) -> tuple[str, str]:
    """Return the texts for hosts for which the host table shows no cause.

    They name custom resource classes, by which bare metal is requested, and which the
    table does not have.
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
    """Return a list of what the query requires and the host table does not show."""
    needs = [f"trait {_clean(name, _MAX_CLASS)}" for name in _required_traits(query)]
    if len(needs) > _MAX_TRAITS:
        needs = ["a required trait"]
    if any(key.startswith("member_of") for key in query):
        needs.append("a required aggregate")
    needs += [_clean(name, _MAX_CLASS) for name in classes[:_MAX_TRAITS]]
    needs.append("room in Placement")
    return " or ".join(filter(None, [", ".join(needs[:-1]), needs[-1]]))


def _required_traits(query: Query) -> list[str]:
    """Return the traits that a query requires, except the one that every host has."""
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
    root_traits = ",".join(query.get("root_required", ())).split(",")
    required = {trait for trait in root_traits if trait and not trait.startswith("!")}
    has_group_condition = any(
        key.startswith(("required", "member_of")) for key in query
    )
    return has_group_condition or bool(required - {os_traits.OWNER_NOVA})


def _known_causes(
    hosts: HostBatch,
    request: Request,
    aggregates: AggregateMap,
    query: Query,
) -> Iterator[tuple[Mask, tuple[str, str]]]:
    """Yield which hosts a cause applies to, and its texts for one host and several."""
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
    # nova-compute lets one instance have at most the host's total without overcommit.
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
    """Return the amounts of the request group without a suffix, by resource class."""
    resources = ",".join(query.get("resources", ())).split(",")
    pairs = (pair.partition(":") for pair in resources)
    return {name: int(amount) for name, _, amount in pairs if amount.isdecimal()}


def _clean(text: str, most: int) -> str:
    """Return a text of at most `most` characters, all of them printable."""
    printable = "".join(c if c.isprintable() else "?" for c in text[: most + 1])
    return printable if len(printable) <= most else f"{printable[: most - 1]}…"
