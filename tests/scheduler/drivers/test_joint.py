# SPDX-License-Identifier: Apache-2.0
"""Rules stand for filters of instances that are placed together."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from moorage.filters import BaseHostFilter
from moorage.objects import RequestSpec
from moorage.scheduler.drivers.base import Eligible
from moorage.scheduler.drivers.driver_steps import eligible_jointly
from moorage.scheduler.drivers.record import DecisionRecord
from moorage.scheduler.errors import PluginError
from moorage.scheduler.hosts import HostBatch
from moorage.scheduler.locality import JointRule
from moorage.scheduler.request import Request
from moorage.testing.builders import batch, hosts, instance_uuid, options, spec

ONE = instance_uuid("one")


class Even(BaseHostFilter):
    """Passes hosts with an even number of GiB."""

    REASON = "odd"
    may_pass_later = True

    def passing(self, hosts: HostBatch, spec_obj: RequestSpec) -> npt.NDArray[np.bool_]:
        mask: npt.NDArray[np.bool_] = hosts.free_ram_mb % 2 == 0
        return mask


class EvenTogether(Even):
    """States as a rule that the first host gets nothing; it must not be asked."""

    def passing(self, hosts: HostBatch, spec_obj: RequestSpec) -> npt.NDArray[np.bool_]:
        raise AssertionError("a rule stands for it")

    def joint_rules(self, hosts: HostBatch, spec_obj: RequestSpec) -> list[JointRule]:
        return [JointRule(np.arange(len(hosts)) - 1)]


def _eligible(cls: type[BaseHostFilter]) -> tuple[Eligible, DecisionRecord]:
    spec_obj = spec()
    request = Request.validated(spec_obj)  # kept: the filters refer to it
    record = DecisionRecord("req", (ONE,), 1, 0.0)
    rows = batch(*hosts("free_ram_mb", [1, 2, 3, 4]))
    filters = [cls(options())]
    return eligible_jointly(request, filters, [], rows, ONE, record), record


def test_filter_without_rules_runs() -> None:
    found, record = _eligible(Even)
    assert "".join(found.hosts.host) == "bd"
    assert not found.rules
    assert [(step.n_in, step.n_out) for step in record.steps] == [(4, 2)]


def test_rules_stand_for_a_filter_that_may_pass_hosts_later() -> None:
    found, record = _eligible(EvenTogether)
    assert "".join(found.hosts.host) == "bcd"
    [rule] = found.rules
    assert rule.places.tolist() == [0, 1, 2]
    [step] = record.steps
    assert (step.name, step.n_in, step.n_out) == ("EvenTogether", 4, 3)
    assert step.reason == "odd"


def _returning(make: Callable[[], object]) -> type[BaseHostFilter]:
    class Broken(Even):
        def joint_rules(self, hosts: HostBatch, spec_obj: RequestSpec) -> object:  # type: ignore[override]
            return make()

    return Broken


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: [JointRule(np.zeros(3, int))], r"places of shape \[\(3,\)\]; it must"),
        (lambda: 1 / 0, "Broken failed: ZeroDivisionError"),
        (lambda: None, "Broken failed: TypeError"),
    ],
    ids=["other hosts", "an error", "no list"],
)
def test_broken_rules_name_the_filter(make: Callable[[], object], message: str) -> None:
    with pytest.raises(PluginError, match=message):
        _eligible(_returning(make))
