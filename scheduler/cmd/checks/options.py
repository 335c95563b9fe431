# SPDX-License-Identifier: Apache-2.0
"""How Moorage treats each nova option related to scheduling, in one table.

The options are those of nova 34 and of the oslo libraries that its scheduler uses. A
group's ``*`` stands for its options without a line of their own.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

#: Group and name of an option; "_" where oslo.config also takes "-".
Key = tuple[str, str]


class Fate(enum.Enum):
    """The treatment of an option, in the words of the report."""

    HONOURED = "Honoured"
    ELSEWHERE = "Honoured elsewhere"
    NEEDLESS = "Not needed"
    IGNORED = "Ignored"


@dataclass(frozen=True, slots=True)
class OptionFate:
    """The treatment of an option, and who reads it or why it is not read."""

    fate: Fate
    why: str = ""

    def __str__(self) -> str:
        return f"{self.fate.value}: {self.why}" if self.why else self.fate.value


def fate_of(group: str, name: str) -> OptionFate | None:
    """Return the treatment of an option; None: it is unrelated to schedulers."""
    return FATES.get((group, name)) or FATES.get((group, "*"))


def _lines(
    fate: Fate, why: str, group: str, names: str
) -> Iterator[tuple[Key, OptionFate]]:
    verdict = OptionFate(fate, why)
    return (((group, name), verdict) for name in names.split())


_BUILDS_REQUESTS: Final = (
    "nova's API and conductor read it, before they call a scheduler"
)
_COMPUTES: Final = "the computes read it"
_CONDUCTOR: Final = "the conductor reads it"
_KEYSTONEAUTH: Final = "keystoneauth1 reads it"
_MESSAGING: Final = "oslo.messaging reads it"
_OWN_RETRIES: Final = (
    "Moorage retries an unreachable database by its own rules; see [moorage] "
    "cell_timeout and cell_grace"
)
_OWN_THREADS: Final = "each cell's database has its own thread, if it needs one"
_POOLS: Final = (
    "connection_debug connection_parameters connection_recycle_time connection_trace "
    "max_overflow max_pool_size mysql_sql_mode mysql_wsrep_sync_wait pool_timeout "
    "sqlite_synchronous"
)
_UNREAD_OF_OSLO_DB: Final = (
    "backend synchronous_reader asyncio_connection asyncio_slave_connection"
)
_RETRIES_OF_OSLO_DB: Final = (
    "max_retries retry_interval db_retry_interval db_inc_retry_interval "
    "db_max_retry_interval db_max_retries use_db_reconnect"
)

_TABLE: Final = (
    (
        Fate.HONOURED, "", "scheduler",
        "max_attempts max_placement_results workers discover_hosts_in_cells_interval "
        "limit_tenants_to_placement_aggregate placement_aggregate_required_for_tenants "
        "query_placement_for_image_type_support enable_isolated_aggregate_filtering "
        "image_metadata_prefilter query_placement_for_routed_network_aggregates",
    ),
    (
        Fate.HONOURED, "", "filter_scheduler",
        "available_filters enabled_filters weight_classes host_subset_size "
        "shuffle_best_same_weighed_hosts image_properties_default_architecture "
        "max_io_ops_per_host max_instances_per_host isolated_images isolated_hosts "
        "restrict_isolated_hosts_to_isolated_images "
        "aggregate_image_properties_isolation_namespace "
        "aggregate_image_properties_isolation_separator ram_weight_multiplier "
        "cpu_weight_multiplier disk_weight_multiplier io_ops_weight_multiplier "
        "hypervisor_version_weight_multiplier num_instances_weight_multiplier "
        "build_failure_weight_multiplier cross_cell_move_weight_multiplier "
        "image_props_weight_multiplier image_props_weight_setting "
        "pci_weight_multiplier soft_affinity_weight_multiplier "
        "soft_anti_affinity_weight_multiplier",
    ),
    (
        Fate.NEEDLESS,
        "instances come from the source of hosts, and the computes' updates are always "
        "processed",
        "filter_scheduler", "track_instance_changes",
    ),
    (Fate.ELSEWHERE, _BUILDS_REQUESTS, "filter_scheduler", "pci_in_placement"),
    (
        Fate.HONOURED, "", "metrics",
        "weight_multiplier weight_setting required weight_of_unavailable",
    ),
    # -- where other services are ------------------------------------------------------
    (Fate.HONOURED, _KEYSTONEAUTH, "placement", "*"),
    (
        Fate.ELSEWHERE, "Placement itself reads it", "placement",
        "allocation_conflict_retry_count randomize_allocation_candidates "
        "incomplete_consumer_project_id incomplete_consumer_user_id "
        "max_allocation_candidates allocation_candidates_generation_strategy",
    ),
    (Fate.HONOURED, _KEYSTONEAUTH, "neutron", "*"),
    (
        Fate.HONOURED, "how often a connection is retried", "neutron",
        "http_retries",
    ),
    (
        Fate.ELSEWHERE, "nova's API and computes read it", "neutron",
        "ovs_bridge default_floating_pool physnets",
    ),
    (
        Fate.ELSEWHERE, "nova's metadata API reads it", "neutron",
        "service_metadata_proxy metadata_proxy_shared_secret",
    ),
    (
        Fate.NEEDLESS, "Neutron's extensions are not queried", "neutron",
        "extension_sync_interval",
    ),
    (
        Fate.NEEDLESS, "nova's scheduler, too, sends Placement no service token",
        "service_user", "*",
    ),
    # -- databases ---------------------------------------------------------------------
    (
        Fate.HONOURED,
        "by the source nova_db: it fills templates of cell mappings, and [moorage] "
        "register_service writes there",
        "database", "connection",
    ),
    (
        Fate.HONOURED, "by the source nova_db", "api_database", "connection",
    ),
    (Fate.HONOURED, "for the databases of cells", "database", _POOLS),
    (Fate.HONOURED, "", "api_database", _POOLS),
    *(
        line
        for group in ("database", "api_database")
        for line in (
            (Fate.NEEDLESS, _OWN_RETRIES, group, _RETRIES_OF_OSLO_DB),
            (Fate.NEEDLESS, "it has no effect here", group, _UNREAD_OF_OSLO_DB),
            (
                Fate.IGNORED, "only [" + group + "] connection is read from", group,
                "slave_connection",
            ),
        )
    ),
    # -- the message bus ---------------------------------------------------------------
    (
        Fate.HONOURED, _MESSAGING, "DEFAULT",
        "transport_url control_exchange rpc_response_timeout executor_thread_pool_size "
        "rpc_ping_enabled",
    ),
    *(
        (Fate.HONOURED, _MESSAGING, f"oslo_messaging_{name}", "*")
        for name in ("kafka", "metrics", "notifications", "rabbit", "tracing")
    ),
    (
        Fate.HONOURED, "", "notifications",
        "notification_format versioned_notifications_topics",
    ),
    (
        Fate.HONOURED, "the scheduler's notifications are INFO, as in nova",
        "notifications", "default_level",
    ),
    (
        Fate.ELSEWHERE, "other notifications than the scheduler's", "notifications",
        "notify_on_state_change bdms_in_notifications include_share_mapping",
    ),
    (
        Fate.ELSEWHERE, "the scheduler's callers read it; calls from 4.0 to 4.5 are "
        "served", "upgrade_levels", "scheduler",
    ),
    (Fate.ELSEWHERE, "the callers read it", "upgrade_levels", "baseapi compute"),
    (
        Fate.NEEDLESS, "objects of a newer nova are read without the conductor's help",
        "upgrade_levels", "conductor",
    ),
    # -- the service -------------------------------------------------------------------
    (
        Fate.HONOURED, "", "DEFAULT",
        "host service_down_time manager_shutdown_timeout graceful_shutdown_timeout "
        "long_rpc_timeout default_availability_zone",
    ),
    (
        Fate.HONOURED, "by the source nova_db, for hosts whose row has none", "DEFAULT",
        "cpu_allocation_ratio ram_allocation_ratio disk_allocation_ratio "
        "initial_cpu_allocation_ratio initial_ram_allocation_ratio "
        "initial_disk_allocation_ratio",
    ),
    (
        Fate.HONOURED, "by the source nova_db", "DEFAULT", "servicegroup_driver",
    ),
    (
        Fate.HONOURED, "if [moorage] register_service is set, which it is not by "
        "default", "DEFAULT", "report_interval",
    ),
    (Fate.NEEDLESS, "no address is published", "DEFAULT", "my_ip"),
    (
        Fate.NEEDLESS, "each periodic task has its own option that disables it",
        "DEFAULT", "periodic_enable",
    ),
    (
        Fate.NEEDLESS, "periodic tasks begin at once",
        "DEFAULT", "periodic_fuzzy_delay",
    ),
    (
        Fate.NEEDLESS, _OWN_THREADS, "DEFAULT",
        "default_thread_pool_size default_green_pool_size "
        "cell_worker_thread_pool_size thread_pool_statistic_period",
    ),
    (Fate.NEEDLESS, "threads are always used", "DEFAULT", "concurrency_backend"),
    (Fate.NEEDLESS, "no state is stored there", "DEFAULT", "state_path"),
    (
        Fate.ELSEWHERE, _BUILDS_REQUESTS, "DEFAULT",
        "default_schedule_zone allow_resize_to_same_host",
    ),
    (
        Fate.ELSEWHERE, "nova's API reads it", "DEFAULT",
        "internal_service_availability_zone enable_new_services",
    ),
    (Fate.ELSEWHERE, _CONDUCTOR, "DEFAULT", "migrate_max_retries"),
    (
        Fate.ELSEWHERE, _COMPUTES, "DEFAULT",
        "scheduler_instance_sync_interval reserved_huge_pages reserved_host_cpus "
        "reserved_host_memory_mb reserved_host_disk_mb vcpu_pin_set compute_monitors "
        "max_concurrent_builds",
    ),
    (
        Fate.HONOURED, "oslo.log reads it", "DEFAULT",
        "debug log_config_append log_date_format log_file log_dir use_syslog "
        "use_journal syslog_log_facility use_json use_stderr log_color "
        "log_rotate_interval log_rotate_interval_type max_logfile_count "
        "max_logfile_size_mb log_rotation_type logging_context_format_string "
        "logging_default_format_string logging_debug_format_suffix "
        "logging_exception_prefix logging_user_identity_format default_log_levels "
        "publish_errors instance_format instance_uuid_format rate_limit_interval "
        "rate_limit_burst rate_limit_except_level fatal_deprecations",
    ),
    # -- other services ----------------------------------------------------------------
    (
        Fate.HONOURED, "the same value as on the computes", "compute",
        "packing_host_numa_cells_allocation_strategy",
    ),
    (Fate.ELSEWHERE, _COMPUTES, "compute", "*"),
    (
        Fate.ELSEWHERE, "nova's API, conductor and computes read it", "pci", "alias",
    ),
    (
        Fate.ELSEWHERE, "the computes read it; devices come as they report them", "pci",
        "device_spec report_in_placement",
    ),
    (Fate.ELSEWHERE, "nova's API and conductor read it", "quota", "*"),
    (Fate.ELSEWHERE, _CONDUCTOR, "conductor", "*"),
    (Fate.HONOURED, "", "workarounds", "disable_fallback_pcpu_query"),
    (
        Fate.HONOURED, "by the source nova_db", "workarounds",
        "disable_compute_service_check_for_ffu",
    ),
    (
        Fate.ELSEWHERE, "nova's quotas read it", "workarounds",
        "unified_limits_count_pcpu_as_vcpu",
    ),
    (
        Fate.ELSEWHERE, "nova's conductor and computes read it", "workarounds",
        "enable_numa_live_migration skip_hypervisor_version_check_on_lm",
    ),
    (
        Fate.ELSEWHERE, _COMPUTES, "workarounds",
        "disable_deep_image_inspection disable_group_policy_check_upcall "
        "disable_libvirt_livesnapshot disable_rootwrap "
        "enable_qemu_monitor_announce_self ensure_libvirt_rbd_instance_dir_cleanup "
        "handle_virt_lifecycle_events libvirt_disable_apic "
        "never_download_image_if_on_rbd qemu_monitor_announce_self_count "
        "qemu_monitor_announce_self_interval reserve_disk_resource_for_image_cache "
        "skip_cpu_compare_at_startup skip_cpu_compare_on_dest "
        "skip_reserve_in_use_ironic_nodes "
        "wait_for_vif_plugged_event_during_hard_reboot",
    ),
    (
        Fate.HONOURED, "by oslo.cache, if [DEFAULT] servicegroup_driver is mc",
        "cache", "*",
    ),
    (Fate.IGNORED, "OSprofiler is not supported", "profiler", "*"),
    (Fate.HONOURED, "", "oslo_reports", "log_dir"),
    (Fate.IGNORED, "only SIGUSR2 triggers a report", "oslo_reports", "*"),
)  # fmt: skip

#: Every option related to scheduling, and its treatment.
FATES: Final[Mapping[Key, OptionFate]] = MappingProxyType(
    {key: verdict for line in _TABLE for key, verdict in _lines(*line)}
)
