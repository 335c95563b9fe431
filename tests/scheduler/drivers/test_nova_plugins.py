# SPDX-License-Identifier: Apache-2.0
"""A filter or weigher that was written for nova runs as it is."""

from __future__ import annotations

import math
from typing import Any

import pytest
from oslo_config import cfg

from moorage.scheduler.drivers.nova_plugins import make_filter, make_weigher
from moorage.scheduler.errors import PluginError
from moorage.scheduler.hosts import HostBatch
from moorage.weighers.columns import RAMWeigher

from ...conftest import NOW, aggregate, batch, hosts, node_uuid, spec, table
from ...fixtures.clouds import offer

THREE = hosts("free_ram_mb", [1, 2, 3])


class NovaFilter:
    """Pass hosts with RAM for the flavor, as nova's protocol has it."""

    RUN_ON_REBUILD = True
    run_filter_once_per_request = True

    def host_passes(self, host_state: Any, spec_obj: Any) -> Any:
        return host_state.free_ram_mb >= 2 and spec_obj.memory_mb


class NovaWeigher:
    """Weigh by RAM, packing the hosts of an aggregate."""

    def __init__(self) -> None:
        self.minval, self.maxval = 0, None

    def weight_multiplier(self, host_state: Any) -> float:
        return -1.0 if host_state.aggregates else 1.0

    def _weigh_object(self, host_state: Any, weight_properties: Any) -> Any:
        return host_state.free_ram_mb


def _clock() -> float:
    return NOW


def test_foreign_filter_answers_for_each_host(conf: cfg.ConfigOpts) -> None:
    filter_ = make_filter(NovaFilter, conf, _clock)
    mask = filter_.passing(batch(*THREE), spec())
    assert (mask.dtype, mask.tolist()) == (bool, [False, True, True])


def test_foreign_filter_keeps_its_name_and_rules(conf: cfg.ConfigOpts) -> None:
    filter_ = make_filter(NovaFilter, conf, _clock)
    assert type(filter_).__name__ == "NovaFilter"
    assert filter_.RUN_ON_REBUILD
    assert filter_.run_filter_once_per_request


def test_foreign_filter_without_rules_has_novas_defaults(conf: cfg.ConfigOpts) -> None:
    bare = type("Bare", (), {"host_passes": lambda _self, _host, _spec: True})
    filter_ = make_filter(bare, conf, _clock)
    assert not filter_.RUN_ON_REBUILD
    assert not filter_.run_filter_once_per_request


def test_foreign_weigher_answers_for_each_host(conf: cfg.ConfigOpts) -> None:
    weigher = make_weigher(NovaWeigher, conf, _clock)
    rows = batch(*THREE, aggregates=[aggregate(1, "b")])
    assert weigher.weigh_all(rows, spec()).tolist() == [1.0, 2.0, 3.0]
    assert weigher.multipliers(rows).tolist() == [1.0, -1.0, 1.0]
    assert (weigher.minval, weigher.maxval) == (0, None)
    assert type(weigher).__name__ == "NovaWeigher"


def test_foreign_multiplier_that_is_not_finite_is_1(
    conf: cfg.ConfigOpts, caplog: pytest.LogCaptureFixture
) -> None:
    def multiplier(_self: Any, host_state: Any) -> float:
        return math.nan if host_state.aggregates else 2.0

    odd = type("Odd", (NovaWeigher,), {"weight_multiplier": multiplier})
    weigher = make_weigher(odd, conf, _clock)
    rows = batch(*THREE, aggregates=[aggregate(1, "b")])
    for _ in range(2):
        assert weigher.multipliers(rows).tolist() == [2.0, 1.0, 2.0]
    assert caplog.text.count("weigher Odd: a multiplier is") == 1


def test_foreign_weigher_without_multiplier_counts_once(conf: cfg.ConfigOpts) -> None:
    bare = type("Bare", (), {"_weigh_object": lambda _self, _host, _spec: 1})
    weigher = make_weigher(bare, conf, _clock)
    assert weigher.multipliers(batch(*THREE)).tolist() == [1.0] * 3
    assert (weigher.minval, weigher.maxval) == (None, None)


def test_class_of_ours_is_made_with_options_and_clock(conf: cfg.ConfigOpts) -> None:
    weigher = make_weigher(RAMWeigher, conf, _clock)
    assert type(weigher) is RAMWeigher
    assert (weigher.conf, weigher.clock) == (conf, _clock)


@pytest.mark.parametrize("cls", [object, NovaWeigher, RAMWeigher])
def test_class_that_is_no_filter_is_refused(cls: type, conf: cfg.ConfigOpts) -> None:
    with pytest.raises(PluginError, match=f"{cls.__name__} is not a filter"):
        make_filter(cls, conf, _clock)


@pytest.mark.parametrize("cls", [object, NovaFilter])
def test_class_that_is_no_weigher_is_refused(cls: type, conf: cfg.ConfigOpts) -> None:
    with pytest.raises(PluginError, match=f"{cls.__name__} is not a weigher"):
        make_weigher(cls, conf, _clock)


class NovaCandidateFilter:
    """Keep candidates as nova's CandidateFilterMixin does, and return limits."""

    def filter_candidates(self, host_state: Any, filter_func: Any) -> Any:
        good = [c for c in host_state.allocation_candidates if filter_func(c)]
        host_state.allocation_candidates = good
        return good

    def host_passes(self, host_state: Any, spec_obj: Any) -> Any:
        host_state.limits["memory_mb"] = host_state.free_ram_mb
        return self.filter_candidates(host_state, lambda c: c["mappings"]["_x"] == "y")


def _offered(*mapped: tuple[str, str]) -> HostBatch:
    """The three hosts, with candidates that map a group."""
    requests = [
        {
            "allocations": {node_uuid(name): {"resources": {"VCPU": 1}}},
            "mappings": {"_x": value},
        }
        for name, value in mapped
    ]
    summaries = {
        node_uuid(name): {"resources": {}, "root_provider_uuid": node_uuid(name)}
        for name, _ in mapped
    }
    body = {"allocation_requests": requests, "provider_summaries": summaries}
    return table(*THREE).batch_of_offer(offer(body))


def test_foreign_filter_may_leave_candidates_out(conf: cfg.ConfigOpts) -> None:
    filter_ = make_filter(NovaCandidateFilter, conf, _clock)
    hosts = _offered(("b", "y"), ("a", "z"), ("b", "z"), ("c", "y"), ("c", "y"))
    mask = filter_.passing_candidates(hosts, spec())
    assert mask is not None
    assert sorted(hosts.candidates.numbers[mask].tolist()) == [0, 3, 4]
    left = hosts.take_candidates(mask)
    assert list(left.host) == ["b", "c"]
    assert left.candidates_of(0) == [0]


def test_foreign_filter_may_shorten_the_list_itself(conf: cfg.ConfigOpts) -> None:
    class InPlace(NovaCandidateFilter):
        def filter_candidates(self, host_state: Any, filter_func: Any) -> Any:
            mine = host_state.allocation_candidates
            mine[:] = [each for each in mine if filter_func(each)]
            return mine

    hosts = _offered(("a", "y"), ("a", "z"), ("b", "z"))
    mask = make_filter(InPlace, conf, _clock).passing_candidates(hosts, spec())
    assert mask is not None
    assert mask.tolist() == [True, False, False]


def test_foreign_filter_shows_limits(conf: cfg.ConfigOpts) -> None:
    filter_ = make_filter(NovaCandidateFilter, conf, _clock)
    [*_, last] = _offered(("c", "y"))
    assert filter_.selection_limits(last, spec()) == {"memory_mb": 3}


def test_foreign_filter_that_judges_hosts_leaves_candidates_alone(
    conf: cfg.ConfigOpts,
) -> None:
    filter_ = make_filter(NovaFilter, conf, _clock)
    assert filter_.passing_candidates(_offered(("a", "y")), spec()) is None
