# SPDX-License-Identifier: Apache-2.0
"""Every plugin of ours keeps the contract; one that breaks it is told which and how."""

from __future__ import annotations

import contextlib
import socket
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from moorage.filters import BaseHostFilter
from moorage.scheduler.drivers.plugins import load_plugins
from moorage.testing import (
    batch,
    check_filter,
    check_plugin,
    check_weigher,
    host,
    options,
    spec,
)
from moorage.weighers import BaseHostWeigher

EXAMPLES = Path(__file__).parents[2] / "examples" / "plugin"
REGISTERED = {**load_plugins("moorage.filters"), **load_plugins("moorage.weighers")}


@pytest.mark.parametrize("plugin", REGISTERED.values(), ids=REGISTERED)
def test_plugin_keeps_the_contract(plugin: type) -> None:
    check_plugin(plugin, max_examples=30)


class Modest(BaseHostFilter):
    """Fine in every respect."""

    def passing(self, hosts: Any, spec_obj: Any) -> Any:
        return hosts.free_ram_mb > 0


class Weighty(BaseHostWeigher):
    """Fine in every respect."""

    def weigh_host(self, host_state: Any, spec_obj: Any) -> float:
        return float(host_state.free_ram_mb)


class Torn(Modest):
    def host_passes(self, host_state: Any, spec_obj: Any) -> bool:
        return bool(host_state.free_ram_mb > 1)


class Numbers(Modest):
    def passing(self, hosts: Any, spec_obj: Any) -> Any:
        return hosts.free_ram_mb


class First(Modest):
    def passing(self, hosts: Any, spec_obj: Any) -> Any:
        return np.arange(len(hosts)) == 0


class OnlyOne(Modest):
    def passing(self, hosts: Any, spec_obj: Any) -> Any:
        return np.ones(1, bool)


class Forgetful(Modest):
    def passing(self, hosts: Any, spec_obj: Any) -> Any:
        self.last = spec_obj
        return super().passing(hosts, spec_obj)


class Meddler(Modest):
    def passing(self, hosts: Any, spec_obj: Any) -> Any:
        spec_obj.flavor.extra_specs["seen"] = "yes"
        return super().passing(hosts, spec_obj)


class Reader(Modest):
    def passing(self, hosts: Any, spec_obj: Any) -> Any:
        Path("/etc/hostname").read_text()
        return super().passing(hosts, spec_obj)


class SilentCaller(Modest):
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


@pytest.mark.parametrize("plugin", [Modest, Weighty])
def test_honest_plugin_passes(plugin: type) -> None:
    check_plugin(plugin, max_examples=20)


@pytest.mark.parametrize(
    ("plugin", "claim"),
    [
        (Torn, "host_passes of each host and passing of all of them agree"),
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


@pytest.mark.usefixtures("_examples_can_be_imported")
def test_plugins_of_the_example_package_keep_the_contract() -> None:
    from moorage_example_plugin.fill import FillWeigher
    from moorage_example_plugin.quarantine import QuarantineFilter

    assert "moorage_example_plugin" in sys.modules
    check_plugin(QuarantineFilter, max_examples=30)
    check_plugin(FillWeigher, max_examples=30)
