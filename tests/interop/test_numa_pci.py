# SPDX-License-Identifier: Apache-2.0
"""The same candidates pass our NUMA and PCI filters and nova 34's, and leave the same.

Where nova's answer hangs on what an earlier attempt left behind, ours is that of a nova
that forgets, and of a judge that tries everything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.objects import InstanceNUMACell, NUMACell, RequestSpec
from moorage.testing import builders as b

from ..fixtures.nova_peer import Peer
from ..strategies.offers import Offers, Report, offers
from .judged import examples
from .offered import FILTERS, Case, cases, has_old_providers, state_of
from .reference_fit import devices_fit, numa_fits

pytestmark = [pytest.mark.deep, pytest.mark.peer, pytest.mark.usefixtures("quiet")]

#: Hosts, requests and candidates that are drawn at a time make some 12 cases.
N_CASES = 2000
N_DRAWS = N_CASES // 12

JUDGES = {"numa": numa_fits, "pci": devices_fit}

#: Guest sizes for which nova treats the page size that it found first as requested.
ANY_SIZES = (-1, -2, -3)


def has_no_cores(case: Case) -> bool:
    """nova cannot pin to cells that report no cores."""
    host = case.report.numa_topology
    return host is not None and any(not cell.siblings for cell in host.cells)


def has_no_pages(case: Case) -> bool:
    """nova cannot account a guest without a page size in a cell without pages."""
    host = case.report.numa_topology
    return host is not None and any(not cell.mempages for cell in host.cells)


def pins_twice(case: Case) -> bool:
    """nova's isolated emulator gets a thread of a core that is in use, and fails."""
    guest = case.spec.numa_topology
    return guest.emulator_threads_policy == "isolate" and any(
        cell.cpu_thread_policy == "isolate" for cell in guest.cells
    )


#: Where nova is known to fail, by filter: exception -> the predicate of such cases.
FAILURES: Mapping[str, Mapping[str, Any]] = {
    "numa": {"ValueError": has_no_cores},
    "pci": {},
    "left": {
        "CPUPinningInvalid": pins_twice,
        "IndexError": has_no_pages,
        "PciDeviceRequestFailed": lambda case: has_old_providers(case.spec),
    },
}


def is_known(what: str, case: Case, nova: object) -> bool:
    """Return whether nova is known to be wrong there, so that we differ on purpose."""
    if what == "left" and has_old_providers(case.spec):
        return True
    known = FAILURES[what].get(nova) if isinstance(nova, str) else None
    return known is not None and known(case)


def may_hang_on_the_past(case: Case) -> bool:
    """Return whether an earlier attempt of nova's may change a later one."""
    cells = case.guest_cells
    return len(cells) > 1 or any(cell.pagesize in ANY_SIZES for cell in cells)


def excuse(what: str, case: Case) -> str | None:
    """Return why nova may differ from us; None: it may not.

    The other nova and the judge have to agree with us in any case.
    """
    scope = what.removesuffix(" of all")
    ours, novas = by_core(case, case.ours[scope]), by_core(case, case.novas[what])
    if ours == novas:
        return "none needed"
    if is_known(scope, case, novas):
        return "known failure"
    return "left-over" if may_hang_on_the_past(case) else None


def by_core(case: Case, left: Any) -> Any:
    """Return what is left of a host with the number of pinned threads of each core.

    Which thread of a core nova pins is an accident of how often a set of
    numbers was copied; no later decision depends on it.
    """
    if not isinstance(left, dict) or left["cells"] is None:
        return left
    assert case.report.numa_topology is not None
    cells = [
        {**cell, "pinned": [len(core & set(cell["pinned"])) for core in cores_of(host)]}
        for cell, host in zip(
            left["cells"], case.report.numa_topology.cells, strict=True
        )
    ]
    return {**left, "cells": cells}


def cores_of(host: NUMACell) -> list[set[int]]:
    return host.siblings or [{cpu} for cpu in sorted(host.pcpuset)]


def check(case: Case, found: Counter[object]) -> None:
    """Expect one candidate to be judged alike, and count how."""
    for name, judge in JUDGES.items():
        ours, clean = case.ours[name], case.clean[name]
        assert ours == judge(case.report, case.spec, case.mappings), (name, case)
        assert ours == clean or is_known(name, case, clean), (name, case)
        found[name, ours] += 1
        count(name, case, found)
        count(f"{name} of all", case, found)
    ours, clean = (by_core(case, each["left"]) for each in (case.ours, case.clean))
    assert ours == clean or is_known("left", case, clean), ("left", case)
    assert case.ours["given back"] in (None, state_of(case.report)), case
    if ours is not None and case.novas["left"] is not None:
        count("left", case, found)
        found["left", "threads", case.ours["left"] == case.clean["left"]] += 1


def count(what: str, case: Case, found: Counter[object]) -> None:
    why = excuse(what, case)
    assert why is not None, (what, case)
    found[what, why] += 1


def test_candidates_pass_as_in_nova_and_leave_the_same(peer: Peer) -> None:
    found: Counter[object] = Counter()

    @examples(N_DRAWS * 4)
    @given(drawn=offers(), is_packed=st.booleans())
    def judge(drawn: Offers, is_packed: bool) -> None:
        for case in cases(peer, drawn, is_packed=is_packed):
            check(case, found)

    judge()
    print(dict(sorted(found.items(), key=str)))
    for name in FILTERS:
        n_cases = found[name, True] + found[name, False]
        assert n_cases >= 0.8 * N_CASES
        assert min(found[name, True], found[name, False]) > 0.2 * n_cases
        assert found[name, "left-over"] <= 0.02 * n_cases
        assert found[f"{name} of all", "left-over"] <= 0.02 * n_cases
    # Devices alone are tried on copies: nothing is left over.
    assert found["pci", "left-over"] == found["pci of all", "left-over"] == 0
    assert found["left", "none needed"] > 0.1 * N_CASES


# -- one by one -----------------------------------------------------------------------


def guest_spec(*cells: Any, **changes: Any) -> RequestSpec:
    plain: dict[str, Any] = {
        "numa_topology": b.guest_topology(*cells) if cells else None,
        "pci_requests": b.pci_requests(),
        "requested_resources": [],
    }
    return b.spec(**{**plain, **changes})


def judged(
    peer: Peer,
    report: Report,
    spec: RequestSpec,
    *mappings: Mapping[str, Sequence[str]],
) -> list[Case]:
    """Return the results for each candidate, by default one that maps nothing."""
    drawn = Offers([report], [spec], [[mappings or [{}]]])
    return list(cases(peer, drawn, is_packed=False))


def host(*cells: Any, **changes: Any) -> Report:
    return Report("h0", b.numa_topology(*cells) if cells else None, [], **changes)


def floating(*n_cpus: int) -> list[InstanceNUMACell]:
    """Guest cells with so many floating CPUs each."""
    return [
        b.guest_cell(
            number,
            cpu_policy=None,
            pcpuset=set(),
            cpuset=set(range(10 * number, 10 * number + n)),
        )
        for number, n in enumerate(n_cpus)
    ]


def with_cpus(*n_cpus: int) -> Report:
    """A host with so many CPUs in each cell."""
    return host(
        *[
            b.numa_cell(number, cpuset=set(range(10 * number, 10 * number + n)))
            for number, n in enumerate(n_cpus)
        ]
    )


@pytest.mark.parametrize(
    ("n_cpus", "n_guest_cpus", "fits"),
    [
        pytest.param((1, 1, 1), (1, 1, 2), False, id="a guest that fits nowhere"),
        pytest.param((1, 3, 2), (2, 3), True, id="a guest that fits"),
    ],
)
def test_novas_notes_of_other_cells_are_not_taken_as_a_result(
    peer: Peer, n_cpus: tuple[int, ...], n_guest_cpus: tuple[int, ...], fits: bool
) -> None:
    [case] = judged(peer, with_cpus(*n_cpus), guest_spec(*floating(*n_guest_cpus)))
    assert (case.ours["numa"], case.clean["numa"]) == (fits, fits)
    assert case.novas["numa"] is not fits


def test_page_size_of_a_cell_without_cpus_is_not_required_of_the_next(
    peer: Peer,
) -> None:
    large = b.numa_cell(0, cpuset={0}, mempages=[b.pages(2048, 8), b.pages(1 << 20, 2)])
    small = b.numa_cell(1, cpu_usage=1, mempages=[b.pages(2048, 1024)])
    guest = b.guest_cell(cpuset={0, 1}, pcpuset=set(), cpu_policy="shared", pagesize=-3)
    [case] = judged(peer, host(large, small), guest_spec(guest))
    assert (case.ours["numa"], case.novas["numa"], case.clean["numa"]) == (
        True,
        False,
        True,
    )


def test_guest_is_pinned_if_the_host_reports_no_cores(peer: Peer) -> None:
    [case] = judged(peer, host(b.numa_cell(siblings=[])), guest_spec(b.guest_cell()))
    assert case.novas["numa"] == "ValueError"
    assert case.ours["numa"] is True


def test_guest_without_page_size_is_accounted_where_there_are_no_pages(
    peer: Peer,
) -> None:
    [case] = judged(peer, host(b.numa_cell(mempages=[])), guest_spec(b.guest_cell()))
    assert case.novas["left"] == "IndexError"
    [cell] = case.ours["left"]["cells"]
    assert (cell["memory_usage"], cell["pinned"]) == (1024, [0, 1])
    assert case.ours["left"] == case.clean["left"]


def test_emulator_beside_a_busy_thread_frees_what_it_pinned(
    peer: Peer,
) -> None:
    threads = b.numa_cell(siblings=[{0, 1}, {2, 3}], pinned_cpus={1})
    cell = b.guest_cell(pcpuset={0}, cpu_thread_policy="isolate")
    guest = b.guest_topology(cell, emulator_threads_policy="isolate")
    [case] = judged(peer, host(threads), guest_spec(numa_topology=guest))
    assert case.novas["left"] == "CPUPinningInvalid"
    assert case.ours["left"]["cells"][0]["pinned"] == [0, 1, 2, 3]
    assert case.ours["given back"] == state_of(case.report)


def test_request_without_an_image_is_answered(peer: Peer) -> None:
    [case] = judged(peer, host(b.numa_cell()), guest_spec(b.guest_cell(), image=None))
    assert case.novas["numa"] == "AttributeError"
    assert case.ours["numa"] is True


def test_alias_without_a_request_id_has_no_providers(peer: Peer) -> None:
    request = b.pci_request(alias_name="alias", request_id=None)
    report = Report("h0", None, [b.pci_pool()])
    spec = guest_spec(pci_requests=b.pci_requests(request))
    [case] = judged(peer, report, spec, {"": ["root"]})
    assert case.novas["pci"] == "TypeError"
    assert case.ours["pci"] is True
