# SPDX-License-Identifier: Apache-2.0
"""Every plugin of ours meets the contract; a broken one is named with its fault."""

from __future__ import annotations

import contextlib
import re
import socket
import sys
import traceback
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

import moorage.testing
from moorage.filters import BaseHostFilter
from moorage.scheduler.entry_points import load_plugins
from moorage.testing import (
    batch,
    batches,
    check_filter,
    check_plugin,
    check_weigher,
    host,
    options,
    requests,
    spec,
)
from moorage.weighers import BaseHostWeigher

from ..fixtures.property_tests import same_examples
from ..strategies.plugins import plugin_batches, plugin_requests

EXAMPLES = Path(__file__).parents[2] / "examples" / "plugin"
REGISTERED = {**load_plugins("moorage.filters"), **load_plugins("moorage.weighers")}


@pytest.mark.deep
@pytest.mark.parametrize("plugin", REGISTERED.values(), ids=REGISTERED)
def test_plugin_keeps_the_contract(plugin: type) -> None:
    check_plugin(
        plugin,
        batches=plugin_batches(),
        requests=plugin_requests(),
        max_examples=15,
    )


class ValidFilter(BaseHostFilter):
    """Fine in every respect."""

    def passing(self, hosts: Any, spec_obj: Any) -> Any:
        return hosts.free_ram_mb > 0


class ValidWeigher(BaseHostWeigher):
    """Fine in every respect."""

    def weigh_host(self, host_state: Any, spec_obj: Any) -> float:
        return float(host_state.free_ram_mb)


class ContradictoryFilter(ValidFilter):
    def host_passes(self, host_state: Any, spec_obj: Any) -> bool:
        return bool(host_state.free_ram_mb > 1)


class Numbers(ValidFilter):
    def passing(self, hosts: Any, spec_obj: Any) -> Any:
        return hosts.free_ram_mb


class First(ValidFilter):
    def passing(self, hosts: Any, spec_obj: Any) -> Any:
        return np.arange(len(hosts)) == 0


class OnlyOne(ValidFilter):
    def passing(self, hosts: Any, spec_obj: Any) -> Any:
        return np.ones(1, bool)


class Forgetful(ValidFilter):
    def passing(self, hosts: Any, spec_obj: Any) -> Any:
        self.last = spec_obj
        return super().passing(hosts, spec_obj)


class Meddler(ValidFilter):
    def passing(self, hosts: Any, spec_obj: Any) -> Any:
        spec_obj.flavor.extra_specs["seen"] = "yes"
        return super().passing(hosts, spec_obj)


class Reader(ValidFilter):
    def passing(self, hosts: Any, spec_obj: Any) -> Any:
        Path("/etc/hostname").read_text()
        return super().passing(hosts, spec_obj)


class SilentCaller(ValidFilter):
    def passing(self, hosts: Any, spec_obj: Any) -> Any:
        with contextlib.suppress(Exception):
            socket.create_connection(("127.0.0.1", 1))
        return super().passing(hosts, spec_obj)


class Fragile(BaseHostFilter):
    def host_passes(self, host_state: Any, spec_obj: Any) -> bool:
        return bool(host_state.metrics["cpu.percent"])


class Divider(BaseHostWeigher):
    def weigh_all(self, hosts: Any, spec_obj: Any) -> Any:
        with np.errstate(all="ignore"):
            return hosts.free_ram_mb / hosts.total_usable_ram_mb


class Peak(BaseHostWeigher):
    def weigh_all(self, hosts: Any, spec_obj: Any) -> Any:
        return hosts.free_ram_mb / float(max(hosts.free_ram_mb.max(), 1))


class Ranks(BaseHostWeigher):
    ROWWISE = True

    def weigh_all(self, hosts: Any, spec_obj: Any) -> Any:
        return hosts.free_ram_mb / hosts.free_ram_mb.sum()


class ByOrder(BaseHostFilter):
    ROWWISE = True

    def passing(self, hosts: Any, spec_obj: Any) -> Any:
        return np.full(len(hosts), len(hosts) > 1)


class Follower(BaseHostFilter):
    ROWWISE = True

    def passing(self, hosts: Any, spec_obj: Any) -> Any:
        return np.full(len(hosts), not hosts.placed)


class Emptying(ValidWeigher):
    ROWWISE = True

    def multipliers(self, hosts: Any) -> Any:
        return np.full(len(hosts), 1.0 + len(hosts.placed))


class LikeAnother(Follower):
    """Does not promise what its base promises."""


@pytest.mark.parametrize(
    ("plugin", "claim"),
    [
        (Ranks, "weigh_all answers the same for some hosts as for all"),
        (ByOrder, "passing answers the same for some hosts as for all"),
        (Follower, "passing answers the same for a host on which"),
        (Emptying, "multipliers answers the same for a host on which"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_broken_promise_of_rowwise_is_named(plugin: type, claim: str) -> None:
    hosts = batch(host(host="h0"), host(host="h1", free_ram_mb=64))
    made = plugin(options())
    check: Any = check_filter if isinstance(made, BaseHostFilter) else check_weigher
    with pytest.raises(AssertionError, match=f"{plugin.__name__}: ROWWISE: {claim}"):
        check(made, hosts, spec())


def test_subclass_does_not_inherit_the_promise_of_rowwise() -> None:
    assert Follower.ROWWISE
    assert not LikeAnother.ROWWISE
    check_filter(LikeAnother(options()), batch(host(), host(host="h1")), spec())


def test_only_plugins_that_read_other_hosts_or_the_time_are_not_rowwise() -> None:
    assert {name for name, plugin in REGISTERED.items() if not plugin.ROWWISE} == {
        "ComputeFilter",  # the time
        "LocalityFilter",
        "LocalityWeigher",
        "ServerGroupAffinityFilter",
    }


@pytest.mark.parametrize("plugin", [ValidFilter, ValidWeigher])
def test_honest_plugin_passes(plugin: type) -> None:
    check_plugin(plugin, max_examples=20)


@pytest.mark.parametrize(
    ("plugin", "claim"),
    [
        (
            ContradictoryFilter,
            "host_passes of each host and passing of all of them agree",
        ),
        (Numbers, "passing answers bool, not int64"),
        (First, "passing answers the same in any order of rows"),
        (OnlyOne, r"passing answers an array of shape \(2,\), not \(1,\)"),
        (Forgetful, "passing changes nothing; it changed itself"),
        (Meddler, "passing changes nothing; it changed the request"),
        (Reader, "passing does no I/O; it tried open"),
        (SilentCaller, "passing does no I/O; it tried socket"),
        (Fragile, "passing answers any request.*TypeError"),
        (Divider, "weigh_all answers no NaN and no infinity"),
        (Peak, "weigh_host of each host and weigh_all of all of them agree"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_broken_plugin_is_named_with_what_it_breaks(plugin: type, claim: str) -> None:
    hosts = batch(
        host(host="h0", free_ram_mb=1),
        host(host="h1", free_ram_mb=64, total_usable_ram_mb=0),
    )
    made = plugin(options())
    check: Any = check_filter if isinstance(made, BaseHostFilter) else check_weigher
    with pytest.raises(AssertionError, match=f"{plugin.__name__}: {claim}"):
        check(made, hosts, spec())


class DependsOnAggregate(BaseHostFilter):
    """Contradicts itself on hosts of the aggregate that the test requires."""

    def passing(self, hosts: Any, spec_obj: Any) -> Any:
        return np.ones(len(hosts), bool)

    def host_passes(self, host_state: Any, spec_obj: Any) -> bool:
        is_odd = any("rack" in each.metadata for each in host_state.aggregates)
        return not (is_odd and spec_obj.flavor.extra_specs.get("odd:key"))


def _failure(plugin: type, **more: Any) -> str:
    """Return all that a failed check says."""
    with same_examples(), pytest.raises(AssertionError) as caught:
        check_plugin(plugin, max_examples=300, **more)
    return "\n".join(traceback.format_exception_only(caught.value))


def test_failing_example_is_reported_as_the_builders_make_it() -> None:
    text = _failure(
        DependsOnAggregate,
        batches=batches(metadata={"rack": ["r1"]}),
        requests=requests(extra_specs={"odd:key": ["yes"]}),
    )
    assert (
        "DependsOnAggregate: host_passes of each host and passing of all of them agree"
        in text
    )
    assert "object at 0x" not in text
    assert len(text) < 1000, text
    code = text[text.index("hosts = batch(") :]
    made = {name: getattr(moorage.testing, name) for name in moorage.testing.__all__}
    exec(code, made)
    [shown] = made["hosts"]
    assert [each.metadata for each in shown.aggregates] == [{"rack": "r1"}]
    assert made["spec_obj"].flavor.extra_specs == {"odd:key": "yes"}


def test_failing_example_shows_what_differs_from_the_builders() -> None:
    class Picky(BaseHostFilter):
        def passing(self, hosts: Any, spec_obj: Any) -> Any:
            return hosts.num_io_ops < 3

        def host_passes(self, host_state: Any, spec_obj: Any) -> bool:
            return True

    text = _failure(Picky)
    assert re.search(r"batch\(host\(host='h0', .*num_io_ops=\d", text)
    assert "free_ram_mb" not in text, "it is that of the builder"


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"requests": requests()}, id="requests"),
        pytest.param({"requests": requests(hints={"rack": [["1"]]})}, id="hints"),
        pytest.param({"requests": st.just(spec())}, id="one request"),
        pytest.param({"batches": batches()}, id="batches"),
    ],
)
def test_given_strategies_cause_no_warning(more: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_plugin(ValidFilter, max_examples=5, **more)


@pytest.mark.deep
def test_all_values_are_given_as_sequences_and_are_often_drawn() -> None:
    seen: Counter[str] = Counter()

    class Watching(ValidFilter):
        def passing(self, hosts: Any, spec_obj: Any) -> Any:
            seen["all"] += 1
            seen["host_ip"] += "192.0.2.7" in hosts.host_ip
            seen["metadata"] += any(
                "rack" in a.metadata for mine in hosts.aggregates for a in mine
            )
            seen["extra_specs"] += "odd:key" in spec_obj.flavor.extra_specs
            seen["hints"] += spec_obj.scheduler_hints.get("rack") == ["1", "2"]
            return super().passing(hosts, spec_obj)

    check_plugin(
        Watching,
        batches=batches(metadata={"rack": ["1"]}, columns={"host_ip": ["192.0.2.7"]}),
        requests=requests(extra_specs={"odd:key": ["x"]}, hints={"rack": [["1", "2"]]}),
    )
    for name in ("host_ip", "metadata", "extra_specs", "hints"):
        assert seen[name] > seen["all"] / 50, seen


class Theirs:
    """As it was written for nova."""

    def host_passes(self, host_state: Any, spec_obj: Any) -> bool:
        return bool(host_state.num_io_ops < 2)


class TheirWeigher:
    """As it was written for nova."""

    def _weigh_object(self, host_state: Any, request: Any) -> float:
        return float(len(host_state.instances))


@pytest.mark.parametrize("plugin", [Theirs, TheirWeigher])
def test_plugin_that_was_written_for_nova_can_be_checked(plugin: type) -> None:
    check_plugin(plugin, max_examples=20)


@pytest.fixture
def _examples_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))


@pytest.mark.deep
@pytest.mark.usefixtures("_examples_can_be_imported")
def test_plugins_of_the_example_package_keep_the_contract() -> None:
    from moorage_example_plugin.fill import FillWeigher
    from moorage_example_plugin.quarantine import QuarantineFilter

    assert "moorage_example_plugin" in sys.modules
    check_plugin(QuarantineFilter, max_examples=30)
    check_plugin(FillWeigher, max_examples=30)
