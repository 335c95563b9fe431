# SPDX-License-Identifier: Apache-2.0
"""Options have nova's groups, names and defaults, and no global state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from oslo_config import cfg

from moorage.scheduler.conf import list_opts, load, register_opts
from moorage.scheduler.kafka_client import TopicNames


#: As in nova 34.
@pytest.mark.parametrize(
    ("group", "name", "default"),
    [
        (None, "service_down_time", 60),
        (None, "default_availability_zone", "nova"),
        (None, "long_rpc_timeout", 1800),
        ("scheduler", "max_attempts", 3),
        ("scheduler", "max_placement_results", 1000),
        (
            "filter_scheduler",
            "available_filters",
            ["nova.scheduler.filters.all_filters"],
        ),
        (
            "filter_scheduler",
            "enabled_filters",
            [
                "ComputeFilter",
                "ComputeCapabilitiesFilter",
                "ImagePropertiesFilter",
                "ServerGroupAntiAffinityFilter",
                "ServerGroupAffinityFilter",
                "LocalityFilter",  # ours; without [locality] levels it passes all
            ],
        ),
        (
            "filter_scheduler",
            "weight_classes",
            ["nova.scheduler.weights.all_weighers"],
        ),
        ("filter_scheduler", "host_subset_size", 1),
        ("filter_scheduler", "shuffle_best_same_weighed_hosts", False),
        ("filter_scheduler", "image_properties_default_architecture", None),
        ("filter_scheduler", "max_io_ops_per_host", 8),
        ("filter_scheduler", "max_instances_per_host", 50),
        ("filter_scheduler", "isolated_images", []),
        ("filter_scheduler", "isolated_hosts", []),
        ("filter_scheduler", "restrict_isolated_hosts_to_isolated_images", True),
        ("filter_scheduler", "aggregate_image_properties_isolation_namespace", None),
        ("filter_scheduler", "aggregate_image_properties_isolation_separator", "."),
        ("filter_scheduler", "ram_weight_multiplier", 1.0),
        ("metrics", "weight_multiplier", 1.0),
        ("metrics", "weight_setting", []),
        ("metrics", "required", True),
        ("metrics", "weight_of_unavailable", -10000.0),
        ("filter_scheduler", "cpu_weight_multiplier", 1.0),
        ("filter_scheduler", "disk_weight_multiplier", 1.0),
        ("filter_scheduler", "io_ops_weight_multiplier", -1.0),
        ("filter_scheduler", "num_instances_weight_multiplier", 0.0),
        ("filter_scheduler", "build_failure_weight_multiplier", 1000000.0),
        ("filter_scheduler", "soft_affinity_weight_multiplier", 1.0),
        ("filter_scheduler", "soft_anti_affinity_weight_multiplier", 1.0),
        ("placement", "service_type", "placement"),
        ("placement", "valid_interfaces", ["internal", "public"]),
    ],
)
def test_default_is_novas(
    group: str | None, name: str, default: Any, conf: cfg.ConfigOpts
) -> None:
    assert (conf[group] if group else conf)[name] == default


def test_nova_conf_is_read_and_what_is_unknown_in_it_is_no_error(
    tmp_path: Path,
) -> None:
    path = tmp_path / "nova.conf"
    path.write_text(
        "[DEFAULT]\nmy_ip = 10.0.0.1\nservice_down_time = 90\n"
        "[filter_scheduler]\nenabled_filters = ComputeFilter,NUMATopologyFilter\n"
        "available_filters = a.b\navailable_filters = c.d\n"
        "[libvirt]\nvirt_type = kvm\n"
    )
    conf = load(["--config-file", str(path)])
    assert conf.service_down_time == 90
    assert conf.filter_scheduler.enabled_filters == [
        "ComputeFilter",
        "NUMATopologyFilter",
    ]
    assert conf.filter_scheduler.available_filters == ["a.b", "c.d"]


@pytest.mark.parametrize(
    ("group", "line"),
    [
        ("scheduler", "max_attempts = 0"),
        ("scheduler", "max_placement_results = many"),
        ("filter_scheduler", "host_subset_size = 0"),
        ("filter_scheduler", "soft_affinity_weight_multiplier = -1"),
        ("moorage", "decision_records = 0"),
    ],
)
def test_invalid_value_is_reported_by_name(
    group: str, line: str, tmp_path: Path
) -> None:
    path = tmp_path / "moorage.conf"
    path.write_text(f"[{group}]\n{line}\n")
    name = line.partition(" ")[0]
    with pytest.raises(cfg.ConfigFileValueError, match=name):
        getattr(load([], config_files=[str(path)])[group], name)


def test_file_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(cfg.ConfigFilesNotFoundError, match="missing"):
        load(["--config-file", str(tmp_path / "missing.conf")])


def test_two_sets_of_options_do_not_know_of_each_other() -> None:
    one, two = (load([], config_files=[]) for _ in range(2))
    one.set_override("max_attempts", 9, group="scheduler")
    assert two.scheduler.max_attempts == 3


def test_options_that_are_registered_already_are_left_alone() -> None:
    conf = cfg.ConfigOpts()
    conf.register_opt(cfg.IntOpt("max_attempts", default=7), group="scheduler")
    for _ in range(2):
        register_opts(conf)
    conf([], default_config_files=[])
    assert conf.scheduler.max_attempts == 7
    assert conf.scheduler.max_placement_results == 1000


def test_global_options_are_not_touched() -> None:
    load([], config_files=[])
    assert "filter_scheduler" not in cfg.CONF


def test_every_option_has_help() -> None:
    assert [o.name for _, opts in list_opts() for o in opts if not o.help] == []


def test_sample_generator_gets_every_group() -> None:
    groups = [group for group, _ in list_opts()]
    assert groups[0] == "DEFAULT"
    assert {"scheduler", "filter_scheduler", "placement", "moorage"} <= {*groups}


def test_default_prefix_has_the_usual_topics() -> None:
    conf = load([], config_files=[])
    names = TopicNames.of(conf)
    assert names == ("moorage-hosts", "moorage-heartbeats", "moorage-aggregates")
    conf.set_override("topic_prefix", "cloud2", group="kafka")
    assert TopicNames.of(conf).hosts == "cloud2-hosts"
