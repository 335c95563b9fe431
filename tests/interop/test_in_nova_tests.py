# SPDX-License-Identifier: Apache-2.0
"""nova's own functional tests pass with Moorage in nova-scheduler's place.

nova's API, conductor and computes run as nova's tests start them, in one process, with
their Placement, their databases and their message bus; only the scheduler is ours (see
`in_nova_tests`). Here are those that exercise a scheduler most. MOORAGE_NOVA_TESTS
names others, modules, classes or tests of nova.tests.functional, with spaces between.
With MOORAGE_FOLLOW_PLACEMENT, candidates come from providers in memory. `following` has
tests of that, which only use nova's services.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from ..fixtures.nova_peer import peer_or_skip

PROGRAM = Path(__file__).parent / "in_nova_tests" / "run.py"
FUNCTIONAL = "nova.tests.functional."

NUMA = "libvirt.test_numa_servers.NUMAServersTest"
GROUP = "test_server_group.ServerGroupTestV264"
PCI = "libvirt.test_pci_sriov_servers.PCIServersTest"

ISOLATE = "test_aggregates.IsolateAggregateFilterTest"
TENANT = "test_aggregates.TenantAggregateFilterTest"
ROUTED = "test_routed_networks.RoutedNetworkTests"
IMAGE_PROPERTIES = "test_scheduler.AggregateImagePropertiesIsolationTestCase"
EXTRA_SPECS = "test_scheduler.AggregateInstanceExtraSpecsFilterTestCase"

#: Each is run by one process: two last equally long on two cores, and more would only
#: import nova more often. The other tests of these classes boot for more cases of a
#: filter or prefilter, which test_filters and test_prefilters draw.
CHOSEN = (
    "following.FollowingTest "
    f"{NUMA}.test_create_server_with_mixed_policy "
    f"{NUMA}.test_create_server_with_hugepages "
    f"{NUMA}.test_create_server_with_numa_fails "
    f"{PCI}.test_create_server_with_pci_dev_and_numa "
    f"{PCI}.test_resize_vanilla_to_pci "
    "test_aggregates.AggregateMultiTenancyIsolationColdMigrateTest "
    f"{ISOLATE}.test_filter_with_traits_on_image_and_flavor "
    f"{TENANT}.test_filter_with_multiple_aggregates_for_tenant "
    f"{TENANT}.test_tenant_id_required_fails_if_no_aggregate",
    f"{ROUTED}.test_boot_with_deferred_port "
    f"{ROUTED}.test_boot_with_two_nics "
    f"{ROUTED}.test_evacuate "
    f"{ROUTED}.test_live_migrate "
    f"{ROUTED}.test_unshelve_after_shelve "
    f"{IMAGE_PROPERTIES}.test_filter_passes_with_prefix "
    f"{EXTRA_SPECS}.test_filter_rejects_with_prefix "
    "test_scheduler.MultiCellSchedulerTestCase "
    f"{GROUP}.test_evacuate_with_anti_affinity "
    f"{GROUP}.test_rebuild_with_anti_affinity",
)

#: Tests that replace, or inspect, a part of nova-scheduler, which is not there.
ABOUT_ITS_INSIDE = {
    "ConsumerGenerationConflictTest.test_evacuate_fails_allocating_on_dest_host",
    "ConsumerGenerationConflictTest.test_migrate_claim_on_dest_fails",
    "RoutedNetworkTests.test_boot_with_immediate_port_fails_due_to_config",
    "ServerDeleteBuildTests.test_delete_stuck_build_instance_after_claim",
    "ServerRescheduleTests.test_allocation_fails_during_reschedule",
    "TestAggregateMultiTenancyIsolationFilter."
    "test_aggregate_multitenancy_isolation_filter",
    "TestImagePropsWeigher.test_boot",
    "TestSchedulerGracefulShutdown."
    "test_graceful_shutdown_completes_instantly_when_no_tasks",
    "TestSchedulerGracefulShutdown.test_periodic_tasks_skipped_once_shutdown_starts",
}

#: Tests that expect the result of a bug of nova: `doc/explanation/differences.rst`.
ABOUT_ITS_BUGS = {"VGPUTests.test_multiple_instance_create_filling_up_capacity"}

pytestmark = [pytest.mark.deep, pytest.mark.peer, pytest.mark.timeout(2400)]


def chosen() -> Sequence[str]:
    named = os.environ.get("MOORAGE_NOVA_TESTS")
    return named.split() if named else CHOSEN


def is_about_nova(test: str) -> bool:
    name = ".".join(test.rsplit(".", 2)[1:])
    return name in ABOUT_ITS_INSIDE | ABOUT_ITS_BUGS


@pytest.mark.parametrize("names", chosen(), ids=lambda names: names.split()[0])
def test_they_pass(names: str) -> None:
    assert_they_pass([full_name(name) for name in names.split()])


def full_name(name: str) -> str:
    return name if name.startswith("following.") else FUNCTIONAL + name


def assert_they_pass(names: Sequence[str]) -> None:
    python = peer_or_skip()
    run = subprocess.run(
        [python, "-W", "ignore", PROGRAM, *names],
        capture_output=True,
        text=True,
        timeout=3600,
        check=False,
    )
    rows = [
        json.loads(line) for line in run.stdout.splitlines() if line.startswith('["')
    ]
    failed = {
        test: detail
        for test, outcome, _, detail in rows
        if outcome == "failed" and not is_about_nova(test)
    }
    assert run.returncode == 0, run.stderr
    assert any(outcome == "passed" for _, outcome, _, _ in rows), run.stderr
    assert not failed, "\n\n".join(
        f"{test}\n{detail}" for test, detail in failed.items()
    )
