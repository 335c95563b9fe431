# SPDX-License-Identifier: Apache-2.0
"""Each filter gets the hosts that the previous one passed; rejections are counted."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
from oslo_config import cfg

from moorage.filters import BaseHostFilter
from moorage.objects import RequestSpec
from moorage.scheduler.drivers.filter_chain import filter_hosts
from moorage.scheduler.drivers.filtering import explain_rejections
from moorage.scheduler.drivers.record import FilterStep
from moorage.scheduler.errors import NoValidHost, PluginError
from moorage.scheduler.hosts import HostBatch

from ...conftest import batch, hosts, spec

FOUR = hosts("free_ram_mb", [1, 2, 3, 4])


class AtLeastTwo(BaseHostFilter):
    REASON = "too little"
    n_calls = 0

    def passing(self, hosts: HostBatch, spec_obj: RequestSpec) -> Any:
        type(self).n_calls += 1
        return hosts.free_ram_mb >= 2


class AtMostThree(BaseHostFilter):
    RUN_ON_REBUILD = True
    run_filter_once_per_request = True

    def passing(self, hosts: HostBatch, spec_obj: RequestSpec) -> Any:
        return hosts.free_ram_mb <= 3


class NoOne(BaseHostFilter):
    def passing(self, hosts: HostBatch, spec_obj: RequestSpec) -> Any:
        return np.zeros(len(hosts), bool)


def _left(
    filters: list[BaseHostFilter],
    index: int = 0,
    is_rebuild: bool = False,
    steps: list[FilterStep] | None = None,
) -> str:
    left = filter_hosts(
        filters,
        batch(*FOUR),
        spec(),
        index=index,
        is_rebuild=is_rebuild,
        steps=[] if steps is None else steps,
    )
    return "".join(left.host)


@pytest.fixture
def both(conf: cfg.ConfigOpts) -> list[BaseHostFilter]:
    """Two filters of which each rejects one host."""
    return [AtLeastTwo(conf), AtMostThree(conf)]


def test_hosts_that_every_filter_passes_are_left(both: list[BaseHostFilter]) -> None:
    assert _left(both) == _left(both[::-1]) == "bc"


def test_without_filters_all_hosts_pass() -> None:
    assert _left([]) == "abcd"


def test_each_filter_leaves_a_step(both: list[BaseHostFilter]) -> None:
    steps: list[FilterStep] = [FilterStep("before", 9, 4, "x")]
    _left(both, steps=steps)
    assert steps[1:] == [
        FilterStep("AtLeastTwo", 4, 3, "too little"),
        FilterStep("AtMostThree", 3, 2, "rejected by the filter"),
    ]


def test_no_filter_runs_without_hosts(conf: cfg.ConfigOpts) -> None:
    AtLeastTwo.n_calls, steps = 0, list[FilterStep]()
    assert _left([NoOne(conf), AtLeastTwo(conf)], steps=steps) == ""
    assert (AtLeastTwo.n_calls, [s.name for s in steps]) == (0, ["NoOne"])


@pytest.mark.parametrize(
    ("index", "is_rebuild", "left"),
    [
        pytest.param(0, False, "bc", id="first instance"),
        pytest.param(1, False, "bcd", id="later instance: once is enough"),
        pytest.param(0, True, "abc", id="rebuild"),
        pytest.param(1, True, "abcd", id="rebuild, later instance"),
    ],
)
def test_filters_that_run(
    index: int, is_rebuild: bool, left: str, both: list[BaseHostFilter]
) -> None:
    assert _left(both, index, is_rebuild) == left


class Odd(BaseHostFilter):
    answer: Any = None

    def passing(self, hosts: HostBatch, spec_obj: RequestSpec) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    ("answer", "reported"),
    [
        pytest.param(None, "returned an array of shape", id="none"),
        pytest.param(True, r"of shape \(\) and type bool", id="one for all"),
        pytest.param([True], r"of shape \(1,\)", id="too short"),
        pytest.param([1, 0, 1, 0], "type int64", id="numbers"),
        pytest.param([[True]] * 4, r"of shape \(4, 1\)", id="a matrix"),
        pytest.param(
            ZeroDivisionError("by 0"), "ZeroDivisionError: by 0", id="failure"
        ),
    ],
)
def test_bad_answer_is_an_error_that_names_the_filter(
    answer: Any, reported: str, conf: cfg.ConfigOpts
) -> None:
    odd = Odd(conf)
    odd.answer = answer
    with pytest.raises(PluginError, match=f"filter Odd .*{reported}"):
        _left([odd])


def test_list_of_claims_is_a_mask(conf: cfg.ConfigOpts) -> None:
    odd = Odd(conf)
    odd.answer = [True, False, False, True]
    assert _left([odd]) == "ad"


def test_failure_of_our_own_kind_is_left_as_it_is(conf: cfg.ConfigOpts) -> None:
    odd = Odd(conf)
    odd.answer = NoValidHost("x")
    with pytest.raises(NoValidHost):
        _left([odd])


def test_log_has_the_words_that_operators_search_for(
    conf: cfg.ConfigOpts, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, logger="moorage"):
        _left([AtLeastTwo(conf), NoOne(conf)])
    reported = [(r.levelname, r.getMessage()) for r in caplog.records]
    assert reported == [
        ("DEBUG", "Starting with 4 host(s)"),
        ("DEBUG", "Filter AtLeastTwo returned 3 host(s)"),
        ("INFO", "Filter NoOne returned 0 hosts"),
        (
            "INFO",
            "Filtering removed all hosts for the request with instance ID "
            f"'{spec().instance_uuid}'. Filter results: "
            "['AtLeastTwo: (start: 4, end: 3)', 'NoOne: (start: 3, end: 0)']",
        ),
    ]


# -- one host's reasons ----------------------------------------------------------------


def test_reasons_of_a_host_are_all_reported(conf: cfg.ConfigOpts) -> None:
    filters = [AtLeastTwo(conf), AtMostThree(conf), NoOne(conf)]
    reported = explain_rejections(filters, batch(*FOUR)[0], spec())
    assert [(t.filter, t.reason) for t in reported] == [
        ("AtLeastTwo", "too little"),
        ("NoOne", NoOne.REASON),
    ]
    assert (reported[0].attribute, reported[0].required, reported[0].available) == (
        None,
    ) * 3


def test_only_filters_that_run_have_reasons(conf: cfg.ConfigOpts) -> None:
    filters = [AtMostThree(conf), NoOne(conf)]
    last = batch(*FOUR)[3]
    rebuild = spec(scheduler_hints={"_nova_check_type": ["rebuild"]})
    assert [t.filter for t in explain_rejections(filters, last, rebuild)] == [
        "AtMostThree"
    ]
    assert explain_rejections(filters, last, spec(force_hosts=["d"])) == []


def test_filter_that_cannot_explain_is_named(conf: cfg.ConfigOpts) -> None:
    odd = Odd(conf)
    odd.answer = ZeroDivisionError("by 0")
    with pytest.raises(PluginError, match="filter Odd failed: ZeroDivisionError: by 0"):
        explain_rejections([odd], batch(*FOUR)[0], spec())
