# SPDX-License-Identifier: Apache-2.0
"""The same hosts and requests before nova's filters and weighers, and before ours."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from oslo_config import cfg

from moorage.filters import BaseHostFilter
from moorage.objects import RequestSpec
from moorage.scheduler.conf import load
from moorage.scheduler.entry_points import load_plugins
from moorage.scheduler.hosts import HostRecord
from moorage.testing.builders import NOW
from moorage.testing.strategies import IMAGES, DrawnHosts
from moorage.weighers import BaseHostWeigher

from ..fixtures.nova_peer import NOT_NOVAS, Peer
from ..strategies.plugins import plugin_hosts, plugin_requests

#: Requests that are judged on each cloud: making and sending one costs the most.
N_REQUESTS = 4

Options = Mapping[str, Mapping[str, Any]]

#: Nothing, then all that decides set to something, then some of it otherwise.
OPTIONS: Sequence[Options] = (
    {},
    {
        "filter_scheduler": {
            "max_io_ops_per_host": 2,
            "max_instances_per_host": 3,
            "isolated_hosts": ["h0", "h1"],
            "isolated_images": [IMAGES[0]],
            "image_properties_default_architecture": "x86_64",
            "image_props_weight_multiplier": 2.0,
            "num_instances_weight_multiplier": -1.0,
            "ram_weight_multiplier": 0.5,
        },
        "metrics": {
            "weight_setting": ["cpu.percent=-1.5", "cpu.frequency=0.01"],
            "required": False,
            "weight_of_unavailable": -10.0,
            "weight_multiplier": 3.0,
        },
    },
    {
        "filter_scheduler": {
            "isolated_hosts": ["h0"],
            "restrict_isolated_hosts_to_isolated_images": False,
            "isolated_images": [IMAGES[0], IMAGES[1]],
            "image_props_weight_multiplier": -1.0,
            "image_props_weight_setting": ["os_distro=2", "hw_disk_bus=-0.5"],
            "build_failure_weight_multiplier": 5.0,
            "cross_cell_move_weight_multiplier": -2.0,
        },
        "metrics": {"weight_setting": ["cpu.percent=1"]},
    },
    {
        "filter_scheduler": {
            "isolated_hosts": ["h1"],
            "aggregate_image_properties_isolation_namespace": "hw",
            "aggregate_image_properties_isolation_separator": "_",
        },
        "metrics": {
            "weight_setting": ["cpu.percent=0", "cpu.frequency=1"],
            "required": False,
        },
    },
)


@dataclasses.dataclass(frozen=True)
class Case:
    """The input of both."""

    cloud: DrawnHosts
    requests: Sequence[RequestSpec]
    options: Options


def cases(
    requests: st.SearchStrategy[RequestSpec] | None = None, n_requests: int = N_REQUESTS
) -> st.SearchStrategy[Case]:
    return st.builds(
        Case,
        cloud=plugin_hosts(),
        requests=st.lists(
            plugin_requests() if requests is None else requests,
            min_size=n_requests,
            max_size=n_requests,
        ),
        options=st.sampled_from(OPTIONS),
    )


def examples(count: int) -> settings:
    """Settings for that many requests, the same ones in every run."""
    return settings(
        max_examples=math.ceil(count / N_REQUESTS),
        deadline=None,
        derandomize=True,
        # Shrinking a difference would last minutes; the cases are small already.
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=[HealthCheck.too_slow],
    )


# -- nova's answers -------------------------------------------------------------------


def novas(
    peer: Peer,
    case: Case,
    *,
    filters: Iterable[str] = (),
    weighers: Iterable[str] = (),
    chain: bool = False,
) -> list[dict[str, Any]]:
    """Return nova's result for each request; see `judge` of nova_hosts.py."""
    answers: list[dict[str, Any]] = peer.ask(
        "judge",
        hosts=[_plain(record) for record in case.cloud.records],
        aggregates=[
            {**dataclasses.asdict(a), "hosts": sorted(a.hosts)}
            for a in case.cloud.aggregates
        ],
        instances=case.cloud.instances,
        images=case.cloud.images,
        now=NOW,
        options=case.options,
        filters=list(filters),
        weighers=list(weighers),
        chain=chain,
        spec_objs=[spec.obj_to_primitive() for spec in case.requests],
    )
    return answers


def _plain(record: HostRecord) -> dict[str, Any]:
    values = {f.name: getattr(record, f.name) for f in dataclasses.fields(record)}
    seen = record.last_seen_up
    values["last_seen_up"] = (
        None if math.isnan(seen) else "now" if math.isinf(seen) else seen
    )
    values["stats"] = dict(record.stats)
    topology = record.numa_topology
    values["numa_topology"] = topology and json.dumps(
        topology.to_object().obj_to_primitive()
    )
    values["pci_stats"] = json.dumps(record.pci_stats.to_dicts())
    if record.metrics is not None:
        values["metrics"] = dict(record.metrics)
    return values


# -- ours ------------------------------------------------------------------------


def our_filters(options: Options, names: Iterable[str]) -> list[BaseHostFilter]:
    return [_made("moorage.filters", name, OPTIONS.index(options)) for name in names]


def our_weighers(options: Options, names: Iterable[str]) -> list[BaseHostWeigher]:
    return [_made("moorage.weighers", name, OPTIONS.index(options)) for name in names]


@functools.cache
def conf_of(index: int) -> cfg.ConfigOpts:
    conf = load([], config_files=[])
    for group, values in OPTIONS[index].items():
        for name, value in values.items():
            conf.set_override(name, value, group)
    return conf


@functools.cache
def known(group: str) -> dict[str, Any]:
    """Return our plugins that nova has, too, by name."""
    return {n: p for n, p in load_plugins(group).items() if n not in NOT_NOVAS}


@functools.cache
def _made(group: str, name: str, index: int) -> Any:
    return known(group)[name](conf_of(index), clock=lambda: NOW)


def agree(ours: Any, theirs: Any) -> bool:
    """Return whether two numbers are equal to 1e-9."""
    return np.allclose(ours, theirs, rtol=1e-12, atol=1e-9)


def is_off(weigher: str, case: Case) -> bool:
    """Return whether nova does not weigh, regardless of a host's aggregates.

    Its ImagePropertiesWeigher reads the option only; ours reads aggregates, too.
    """
    options = case.options.get("filter_scheduler", {})
    is_zero = not options.get("image_props_weight_multiplier")
    return weigher == "ImagePropertiesWeigher" and is_zero
