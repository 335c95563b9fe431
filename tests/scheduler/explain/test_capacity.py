# SPDX-License-Identifier: Apache-2.0
"""The capacity is what a loop of real claims places."""

from __future__ import annotations

import contextlib
import copy
from collections import Counter

import pytest
from hypothesis import given

from moorage.objects import Flavor, RequestSpec, Selection
from moorage.scheduler.errors import NoValidHost
from moorage.scheduler.explain import (
    Explainer,
    FlavorCapacity,
    FlavorRequest,
    NoProviders,
    request_of_flavor,
    requests_of_decisions,
)
from moorage.scheduler.service import Scheduler

from ...fixtures.clouds import CONTEXT, new_uuids, request
from ...fixtures.packed_clouds import (
    packed_cloud,
    packed_requests,
    refresh_providers,
    track_device,
)
from ...fixtures.property_tests import examples

_MOST = 200
_SIZES = ("resources:VCPU", "resources:MEMORY_MB", "resources:DISK_GB")
_FIELDS = ("name", "vcpus", "memory_mb", "root_gb", "ephemeral_gb", "swap")


def _placed(scheduler: Scheduler, spec: RequestSpec) -> Counter[str]:
    """Claim until no host is left; return the instances by host, and release them."""
    placed: dict[str, str] = {}
    with contextlib.suppress(NoValidHost):
        for _ in range(_MOST):
            uuids = new_uuids()
            one = copy.deepcopy(spec)
            [[selection]] = scheduler.select_destinations(
                CONTEXT, one, uuids, True, False
            )
            assert isinstance(selection, Selection)
            placed[uuids[0]] = selection.service_host
    for instance, name in placed.items():
        scheduler.placement.delete_allocations(instance)
        scheduler.table.claims.release(name, instance)
    assert len(placed) < _MOST
    refresh_providers(scheduler)
    return Counter(placed.values())


def _capacity(scheduler: Scheduler, spec: RequestSpec) -> FlavorCapacity:
    [found] = scheduler.explainer.capacity([FlavorRequest(spec)]).flavors
    return found


@pytest.mark.parametrize("has_pool", [True, False])
@pytest.mark.parametrize("seed", [0, 1])
def test_it_is_what_a_loop_of_claims_places(seed: int, has_pool: bool) -> None:
    with packed_cloud(seed, has_pool=has_pool) as scheduler:

        @examples(0.1)
        @given(spec=packed_requests())
        def check(spec: RequestSpec) -> None:
            found = _capacity(scheduler, spec)
            placed = _placed(scheduler, spec)
            assert found.is_exact, found.notes
            assert found.n_instances == placed.total()
            zones = Counter({each.zone: each.n_instances for each in found.places})
            in_z1 = placed.pop("h2", 0)
            assert zones == +Counter({"nova": placed.total(), "z1": in_z1})

        check()


def test_a_flavor_with_pinned_cpus_fits_as_often_as_it_is_claimed() -> None:
    with packed_cloud(0) as scheduler:
        flavor = request(vcpus=2, root_gb=0).flavor
        flavor.extra_specs = {"hw:cpu_policy": "dedicated", "hw:numa_nodes": "1"}
        [found] = scheduler.explainer.capacity([request_of_flavor(flavor)]).flavors
        spec = request_of_flavor(flavor).spec_obj
        spec.project_id, spec.user_id = "project", "user"
        assert found.n_instances == _placed(scheduler, spec).total() > 0


def test_devices_are_left_after_the_claims_with_pcpus() -> None:
    # h0 grants two with PCPUs and one with VCPUs; both of its device providers have
    # two devices.
    with packed_cloud(1, has_pool=False) as scheduler:
        flavor = request(vcpus=2, memory_mb=512, root_gb=0).flavor
        flavor.extra_specs = {"hw:cpu_policy": "dedicated"}
        spec = request_of_flavor(flavor).spec_obj
        track_device(spec, "required")
        spec.project_id, spec.user_id = "project", "user"
        found = _capacity(scheduler, spec)
        assert found.n_instances == _placed(scheduler, spec).total() == 4
        assert found.is_exact


@pytest.mark.parametrize(
    ("specs", "note"),
    [
        ({"hw:cpu_policy": "bogus"}, "hw:cpu_policy is 'bogus'"),
        (dict.fromkeys(_SIZES, "0"), "set every amount to 0"),
    ],
)
def test_an_invalid_flavor_has_no_capacity_and_leaves_that_of_others(
    specs: dict[str, str], note: str
) -> None:
    with packed_cloud(0) as scheduler:
        bad = request_of_flavor(request(extra_specs=specs).flavor)
        good = FlavorRequest(request(root_gb=0))
        of_bad, of_good = scheduler.explainer.capacity([bad, good]).flavors
    assert of_bad.n_instances == 0
    assert note in of_bad.notes[-1]
    assert of_good.n_instances > 0


def test_a_stored_flavor_without_extra_specs_has_capacity() -> None:
    spec = request(root_gb=0)
    sizes = {name: getattr(spec.flavor, name) for name in _FIELDS}
    bare = request(root_gb=0)
    bare.flavor = Flavor(**sizes)
    found = requests_of_decisions([bare])
    with packed_cloud(0) as scheduler:
        [counted] = scheduler.explainer.capacity(found).flavors
        assert counted.n_instances == _capacity(scheduler, spec).n_instances > 0


def test_a_stored_request_whose_flavor_lacks_fields_is_left_out() -> None:
    refused, whole = request(), request()
    refused.flavor = Flavor(name="without sizes")
    [found] = requests_of_decisions([refused, whole])
    assert found.spec_obj.flavor.name == whole.flavor.name


def test_cells_of_an_image_are_not_those_of_the_flavor() -> None:
    pinned = request(vcpus=2, root_gb=0).flavor
    pinned.extra_specs = {"hw:cpu_policy": "dedicated", "hw:numa_nodes": "1"}
    stored = request(vcpus=2, root_gb=0)
    stored.numa_topology = request_of_flavor(pinned).spec_obj.numa_topology
    [plain] = requests_of_decisions([stored])
    assert plain.spec_obj.numa_topology is None
    stored.flavor = pinned
    [with_cells] = requests_of_decisions([stored])
    assert len(with_cells.spec_obj.numa_topology.cells) == 1


def test_volume_backed_boots_of_a_flavor_need_no_root_disk() -> None:
    boots = [request(root_gb=1000, is_bfv=is_bfv) for is_bfv in (False, True, True)]
    with packed_cloud(0) as scheduler:
        found = requests_of_decisions(boots)
        local, backed = scheduler.explainer.capacity(found).flavors
        expected = _capacity(scheduler, request(root_gb=0))
    assert (local.n_instances, local.notes) == (0, ())
    assert backed.n_instances == expected.n_instances > 0
    assert (backed.is_exact, backed.notes) == (True, ("volume-backed",))


def test_it_needs_the_providers_in_memory() -> None:
    with packed_cloud(0) as scheduler:
        explainer = Explainer(lambda: scheduler.parts)
        with pytest.raises(NoProviders, match="placement_database"):
            explainer.capacity([FlavorRequest(request())])
