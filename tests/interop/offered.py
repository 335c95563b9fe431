# SPDX-License-Identifier: Apache-2.0
"""The same candidates before nova's filters and host states, and before ours."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from oslo_config import cfg

from moorage.objects import InstanceNUMACell, RequestSpec
from moorage.scheduler.candidates import AllocationCandidates
from moorage.scheduler.conf import load
from moorage.scheduler.drivers.instances import consumption_of, consumption_on_host
from moorage.scheduler.entry_points import load_plugins
from moorage.scheduler.hosts import HostBatch
from moorage.scheduler.request import Request
from moorage.testing import builders

from ..fixtures.clouds import offer_of
from ..fixtures.nova_peer import Peer
from ..strategies.offers import Mappings, Offers, Report

#: The filters that judge candidates, under the names that nova_numa.py gives them.
FILTERS = {"numa": "NUMATopologyFilter", "pci": "PciPassthroughFilter"}

#: [compute]packing_host_numa_cells_allocation_strategy, to which nova sorts cells.
PACKING = "packing_host_numa_cells_allocation_strategy"


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """One candidate of one host for one request, with nova's result and ours.

    Attributes
    ----------
    ours, novas, clean : mapping
        By filter whether the candidate passes, and "left", what it leaves of the host;
        nova's "clean" answers are those that no earlier attempt has changed.
    """

    report: Report
    spec: RequestSpec
    mappings: Mappings
    ours: Mapping[str, Any]
    novas: Mapping[str, Any]
    clean: Mapping[str, Any]

    @property
    def guest_cells(self) -> Sequence[InstanceNUMACell]:
        guest = self.spec.numa_topology
        return guest.cells if guest else ()

    def __repr__(self) -> str:
        facts = self.report.texts(), self.spec.numa_topology, self.spec.pci_requests
        return f"{facts} {self.mappings} {self.ours} {self.novas} {self.clean}"


def cases(peer: Peer, offers: Offers, *, is_packed: bool) -> Iterator[Case]:
    """Ask nova, nova that forgets, and us, of every candidate."""
    novas = _novas(peer, offers, is_packed=is_packed, forgets=False)
    clean = _novas(peer, offers, is_packed=is_packed, forgets=True)
    for q, spec in enumerate(offers.requests):
        ours = our_answers(offers, q, is_packed=is_packed)
        for h, report in enumerate(offers.reports):
            for i, mappings in enumerate(offers.mappings[h][q]):
                yield Case(
                    report,
                    spec,
                    mappings,
                    ours[h][i],
                    _of_candidate(novas[h][q], i),
                    _of_candidate(clean[h][q], i),
                )


def _of_candidate(answer: Mapping[str, Any], i: int) -> dict[str, Any]:
    return {
        **{name: answer[name]["each"][i] for name in FILTERS},
        **{f"{name} of all": answer[name]["all"][i] for name in FILTERS},
        "left": answer["left"][i],
    }


def has_old_providers(spec: RequestSpec) -> bool:
    """nova consumes from the providers in the specs if there are no groups."""
    device_requests = spec.pci_requests.requests if spec.pci_requests else ()
    written = (each.spec[0].get("rp_uuids") for each in device_requests)
    return not spec.requested_resources and any(written)


# -- nova's answers -----------------------------------------------------------------


def _novas(peer: Peer, offers: Offers, *, is_packed: bool, forgets: bool) -> Any:
    return peer.ask(
        "evaluate_offers",
        hosts=[columns(report) for report in offers.reports],
        options={"compute": {PACKING: is_packed}},
        spec_objs=[spec.obj_to_primitive() for spec in offers.requests],
        mappings=offers.mappings,
        forgets=forgets,
    )


def columns(report: Report) -> dict[str, Any]:
    """Return the columns of a host that nova_hosts.py makes a compute node of."""
    record = builders.host(host=report.host)
    plain = {f.name: getattr(record, f.name) for f in dataclasses.fields(record)}
    return {
        **plain,
        "stats": {},
        "last_seen_up": "now",
        "cpu_allocation_ratio": report.cpu_allocation_ratio,
        "ram_allocation_ratio": report.ram_allocation_ratio,
        **report.texts(),
    }


# -- ours ---------------------------------------------------------------------------


def our_answers(
    offers: Offers, request: int, *, is_packed: bool
) -> list[list[dict[str, Any]]]:
    """Return our result for each candidate of each host for one request."""
    spec, conf = offers.requests[request], _conf(is_packed)
    hosts, numbers = _offered(offers, request)
    verdicts = {
        name: _by_number(_filter(plugin, is_packed), hosts, spec)
        for name, plugin in FILTERS.items()
    }
    answers = []
    for of_host, report, number in zip(
        (of_requests[request] for of_requests in offers.mappings),
        offers.reports,
        numbers,
        strict=True,
    ):
        answers.append([{name: verdicts[name][n] for name in FILTERS} for n in number])
        for answer, mappings in zip(answers[-1], of_host, strict=True):
            fits = all(answer[name] for name in FILTERS)
            answer |= _consumed(report, spec, mappings, conf) if fits else _NOTHING
    return answers


def _offered(offers: Offers, request: int) -> tuple[HostBatch, list[tuple[int, ...]]]:
    """Return the hosts with candidates, and the numbers of each host's."""
    flat, numbers = list[Mapping[str, Any]](), list[tuple[int, ...]]()
    for of_requests in offers.mappings:
        mine = [{"mappings": mappings} for mappings in of_requests[request]]
        numbers.append(tuple(range(len(flat), len(flat) + len(mine))))
        flat += mine
    table = builders.table(*(report.record() for report in offers.reports))
    names = (report.host for report in offers.reports)
    by_host = dict(zip(map(builders.node_uuid, names), numbers, strict=True))
    answer = AllocationCandidates(flat, {}, by_host)
    return table.batch_of_offer(offer_of(answer)), numbers


def _by_number(filter_: Any, hosts: HostBatch, spec: RequestSpec) -> dict[int, bool]:
    """Return whether each candidate passes, by its number."""
    prepared, rows = filter_.prepare(spec), hosts.candidates
    mask = prepared.passing_candidates(hosts, spec)
    passing = prepared.passing(hosts, spec)
    if mask is None:
        mask = passing[rows.rows]
    assert hosts.any_candidate(mask).tolist() == passing.tolist()
    assert passing.tolist() == [prepared.host_passes(host, spec) for host in hosts]
    return dict(zip(rows.numbers.tolist(), mask.tolist(), strict=True))


_NOTHING: dict[str, Any] = {"left": None, "given back": None}


def _consumed(
    report: Report, spec: RequestSpec, mappings: Mappings, conf: cfg.ConfigOpts
) -> dict[str, Any]:
    """Return a host's state once a candidate is consumed, and once it is given back."""
    table, name = builders.table(report.record()), spec.instance_uuid
    filter_ = _plugins()[FILTERS["numa"]](conf).prepare(spec)
    limits = filter_.selection_limits(table.batch()[0], spec)
    consumption = consumption_of(Request.of(spec), conf)
    limits_on_host = consumption_on_host(consumption, limits, mappings)
    in_batch = table.batch().with_instance(0, name, limits_on_host)
    table.claims.consume(builders.node_uuid(report.host), name, limits_on_host)
    left = _state(table.batch())
    assert _state(in_batch) == left
    table.claims.release(report.host, name)
    return {"left": left, "given back": _state(table.batch())}


def state_of(report: Report) -> dict[str, Any]:
    """Return the cells and pools of a host on which nothing was consumed."""
    return _state(builders.table(report.record()).batch())


def _state(hosts: HostBatch) -> dict[str, Any]:
    topology, pools = hosts.value("numa_topology", 0), hosts.value("pci_stats", 0)
    return {
        "cells": topology and [_cell(cell) for cell in topology.to_object().cells],
        "pools": [dict(pool) for pool in pools.to_dicts()],
    }


def _cell(cell: Any) -> dict[str, Any]:
    return {
        "id": cell.id,
        "cpu_usage": cell.cpu_usage,
        "memory_usage": cell.memory_usage,
        "pinned": sorted(cell.pinned_cpus),
        "pages_used": {str(pages.size_kb): pages.used for pages in cell.mempages},
    }


@functools.cache
def _conf(is_packed: bool) -> cfg.ConfigOpts:
    conf = load([], config_files=[])
    conf.set_override(PACKING, is_packed, group="compute")
    return conf


@functools.cache
def _plugins() -> dict[str, Any]:
    return load_plugins("moorage.filters")


@functools.cache
def _filter(name: str, is_packed: bool) -> Any:
    return _plugins()[name](_conf(is_packed))
