# SPDX-License-Identifier: Apache-2.0
"""nova 34's answers to single allocation candidates: NUMA cells and PCI devices.

Loaded by nova_side.py in the peer environment; it imports nova and nothing of ours.
"""

import contextlib
from typing import Any
from unittest import mock

import nova_hosts
from nova.objects import base
from nova.scheduler.filters import numa_topology_filter, pci_passthrough_filter
from nova.virt import hardware

_FILTERS = {
    "numa": numa_topology_filter.NUMATopologyFilter(),
    "pci": pci_passthrough_filter.PciPassthroughFilter(),
}


def evaluate_offers(message):
    """Return nova's result for each candidate of each host for each request.

    Keys: "hosts", "options" (as in nova_hosts.py), "spec_objs" (primitives),
    "mappings" (by host, request and candidate), "forgets" (whether nova forgets what
    one attempt to fit left behind before it makes the next one).

    An answer, by host and request, has by filter "each" (whether each candidate passes
    where it is the only one) and "all" (the same when nova gets all of them at once),
    and "left": what is left of the host once a candidate that passed both is consumed,
    else None. An exception is an answer, by its name.
    """
    mind = forgetful() if message["forgets"] else contextlib.nullcontext()
    with nova_hosts.options(message["options"]), mind:
        return [
            [
                _answer(host, spec_obj, mappings)
                for spec_obj, mappings in zip(
                    message["spec_objs"], of_host, strict=True
                )
            ]
            for host, of_host in zip(message["hosts"], message["mappings"], strict=True)
        ]


def _answer(host, spec_obj, mappings):
    # Both filters work on copies of what they are given.
    state, spec = nova_hosts.state(host), base.NovaObject.obj_from_primitive(spec_obj)
    answer: dict[str, Any] = {
        name: {
            "each": [_kept(filter_, state, spec, [one])[0] for one in mappings],
            "all": _kept(filter_, state, spec, mappings),
        }
        for name, filter_ in _FILTERS.items()
    }
    answer["left"] = [
        _attempt(_left, host, spec_obj, one) if passes == [True, True] else None
        for one, *passes in zip(
            mappings, *(answer[name]["each"] for name in _FILTERS), strict=True
        )
    ]
    return answer


def _kept(filter_, state, spec, mappings):
    """Return whether a filter passes each candidate, or what it raises for each."""
    before = state.allocation_candidates = _candidates(mappings)
    passes = _attempt(filter_.host_passes, state, spec)
    if isinstance(passes, str):
        return [passes] * len(mappings)
    kept = state.allocation_candidates if passes else []
    return [any(one is other for other in kept) for one in before]


def _attempt(function, *arguments):
    try:
        return function(*arguments)
    except Exception as error:
        return type(error).__name__


def _candidates(mappings):
    return [{"allocations": {}, "mappings": mapping} for mapping in mappings]


def _left(host, spec_obj, mapping):
    """Return a host's cells and pools once a candidate is consumed; nova's manager.

    Raises
    ------
    Exception
        Any exception of nova's.
    """
    state, spec = nova_hosts.state(host), base.NovaObject.obj_from_primitive(spec_obj)
    state.allocation_candidates = _candidates([mapping])
    _FILTERS["numa"].host_passes(state, spec)
    for group in spec.requested_resources:
        group.provider_uuids = mapping[group.requester_id]
    # Its public form logs what is raised, and leaves the host half changed.
    state._locked_consume_from_request(spec)
    topology = state.numa_topology
    return {
        "cells": [_cell(cell) for cell in topology.cells] if topology else None,
        "pools": state.pci_stats.pools,
    }


def _cell(cell):
    return {
        "id": cell.id,
        "cpu_usage": cell.cpu_usage,
        "memory_usage": cell.memory_usage,
        "pinned": sorted(cell.pinned_cpus),
        "pages_used": {str(pages.size_kb): pages.used for pages in cell.mempages},
    }


@contextlib.contextmanager
def forgetful():
    """Let nova try each pair of cells again, with a guest cell as requested.

    Its notes of what fits are sets that never have a pair in them, and each attempt
    gets a guest cell of its own to write to. A cell without pages is accounted, too.
    """

    class Forgetful(set):
        def __contains__(self, item):
            return not isinstance(item, tuple) and super().__contains__(item)

    fit = hardware._numa_fit_instance_cell
    account = hardware._numa_pagesize_usage_from_cell

    def fit_clone(host_cell, instance_cell, *more):
        return fit(host_cell, instance_cell.obj_clone(), *more)

    def account_pages(host_cell, instance_cell, sign):
        return account(host_cell, instance_cell, sign) if host_cell.mempages else []

    patches = mock.patch.multiple(
        hardware,
        _numa_fit_instance_cell=fit_clone,
        _numa_pagesize_usage_from_cell=account_pages,
    )
    with mock.patch.object(hardware, "set", Forgetful, create=True), patches:
        yield
