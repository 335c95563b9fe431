# SPDX-License-Identifier: Apache-2.0
"""A filter is written in one of two forms, and either answers for both."""

from __future__ import annotations

from typing import Any

import pytest
from oslo_config import cfg

from moorage.filters import BaseHostFilter
from moorage.objects import RequestSpec
from moorage.scheduler.hosts import HostBatch, HostState

from ..conftest import batch, hosts, spec

RATIOS = hosts("cpu_allocation_ratio", [1.0, 4.0, 1.0])


class PerHost(BaseHostFilter):
    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        return bool(host_state.cpu_allocation_ratio > 1.0)


class Columns(BaseHostFilter):
    def passing(self, hosts: HostBatch, spec_obj: RequestSpec) -> Any:
        return hosts.cpu_allocation_ratio > 1.0


@pytest.mark.parametrize("form", [PerHost, Columns])
def test_each_form_answers_for_the_other(
    form: type[BaseHostFilter], conf: cfg.ConfigOpts
) -> None:
    filter_, rows = form(conf), batch(*RATIOS)
    mask = filter_.passing(rows, spec())
    assert (mask.dtype, mask.tolist()) == (bool, [False, True, False])
    assert [filter_.host_passes(h, spec()) for h in rows] == mask.tolist()


@pytest.mark.parametrize("form", [PerHost, Columns])
def test_no_hosts_have_an_empty_answer(
    form: type[BaseHostFilter], conf: cfg.ConfigOpts
) -> None:
    none = batch(*RATIOS).take([False] * 3)
    assert form(conf).passing(none, spec()).shape == (0,)


def test_truthy_answer_for_one_host_is_a_yes(conf: cfg.ConfigOpts) -> None:
    class Truthy(BaseHostFilter):
        def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> Any:
            return host_state.host

    assert Truthy(conf).passing(batch(*RATIOS), spec()).tolist() == [True] * 3


def test_filter_with_neither_form_is_refused_when_its_class_is_made() -> None:
    with pytest.raises(TypeError, match="Neither defines neither passing nor host_p"):
        type("Neither", (BaseHostFilter,), {})


def test_form_may_be_inherited() -> None:
    assert issubclass(type("Same", (PerHost,), {}), BaseHostFilter)
