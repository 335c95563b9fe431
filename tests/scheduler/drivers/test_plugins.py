# SPDX-License-Identifier: Apache-2.0
"""Plugins are found by name; a wrong name or a broken plugin stops the start."""

from __future__ import annotations

import textwrap
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from oslo_config import cfg

from moorage.filters.compute import ComputeFilter
from moorage.scheduler.conf.filter_scheduler import DEFAULT_FILTERS
from moorage.scheduler.drivers.placement_queries import is_enabled
from moorage.scheduler.drivers.plugins import (
    REMOVED_FILTERS,
    load_filters,
    load_prefilters,
    load_weighers,
)
from moorage.scheduler.entry_points import load_plugin, load_plugins
from moorage.scheduler.errors import PluginError
from moorage.scheduler.prefilters import (
    DEFAULT_PREFILTERS,
    ENABLED_BY,
)
from moorage.scheduler.sources.file import FileSource

from ...conftest import batch, host, options, spec

ALL_WEIGHERS = [
    "BuildFailureWeigher",
    "CPUWeigher",
    "CrossCellWeigher",
    "DiskWeigher",
    "FragmentationWeigher",
    "HypervisorVersionWeigher",
    "ImagePropertiesWeigher",
    "IoOpsWeigher",
    "LifetimeWeigher",
    "LocalityWeigher",
    "MetricsWeigher",
    "NumInstancesWeigher",
    "PCIWeigher",
    "RAMWeigher",
    "ServerGroupSoftAffinityWeigher",
    "ServerGroupSoftAntiAffinityWeigher",
]


def _names(made: list[Any]) -> list[str]:
    return [type(each).__name__ for each in made]


def _filters(**changes: Any) -> list[str]:
    return _names(load_filters(options(**changes), time.time))


def _weighers(*classes: str) -> list[str]:
    return _names(load_weighers(options(weight_classes=list(classes)), time.time))


# -- ours ------------------------------------------------------------------------------


def test_defaults_are_novas_filters_and_all_weighers(conf: cfg.ConfigOpts) -> None:
    assert _names(load_filters(conf, time.time)) == list(DEFAULT_FILTERS)
    assert _names(load_weighers(conf, time.time)) == ALL_WEIGHERS


def test_enabled_filters_are_in_the_order_given_and_once() -> None:
    names = ["ImagePropertiesFilter", "ComputeFilter", "ImagePropertiesFilter"]
    assert _filters(enabled_filters=names) == names[:2]


def test_unknown_filter_is_reported_with_those_that_exist() -> None:
    with pytest.raises(PluginError) as caught:
        _filters(enabled_filters=["ComputeFilter", "NoSuchFilter"])
    message = str(caught.value)
    assert "[filter_scheduler] enabled_filters: there is no filter 'NoSuchFilter'" in (
        message
    )
    assert all(name in message for name in DEFAULT_FILTERS)


@pytest.mark.parametrize("name", REMOVED_FILTERS)
def test_removed_filter_is_left_out(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert _filters(enabled_filters=[name, "ComputeFilter"]) == ["ComputeFilter"]
    assert f"{name}: {REMOVED_FILTERS[name]}" in caplog.text


def test_removed_filters_have_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert _filters(enabled_filters=["RamFilter", "RetryFilter", "RamFilter"]) == []
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert all(name in record.getMessage() for name in ("RamFilter", "RetryFilter"))


def test_filter_that_attested_hosts_stops_the_start() -> None:
    with pytest.raises(
        PluginError, match=r"TrustedFilter has been removed.*trait:CUSTOM_"
    ):
        _filters(enabled_filters=["ComputeFilter", "TrustedFilter"])


class CoreFilter(ComputeFilter):
    """An operator's filter with the name of one that nova removed."""


def test_plugin_with_a_removed_filters_name_is_loaded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    names = _filters(
        available_filters=[f"{__name__}.CoreFilter"], enabled_filters=["CoreFilter"]
    )
    assert names == ["CoreFilter"]
    assert not caplog.records


@pytest.mark.parametrize(
    ("classes", "names"),
    [
        pytest.param([], [], id="none"),
        pytest.param(["RAMWeigher"], ["RAMWeigher"], id="a name"),
        pytest.param(
            ["nova.scheduler.weights.ram.RAMWeigher"], ["RAMWeigher"], id="nova's path"
        ),
        pytest.param(
            ["moorage.weighers.columns.RAMWeigher"], ["RAMWeigher"], id="our path"
        ),
        pytest.param(
            ["nova.scheduler.weights.all_weighers", "RAMWeigher"],
            ALL_WEIGHERS,
            id="all, one of them twice",
        ),
    ],
)
def test_weight_classes(classes: list[str], names: list[str]) -> None:
    assert _weighers(*classes) == names


@pytest.mark.parametrize("path", ["NoWeigher", "nova.scheduler.weights.x.NoWeigher"])
def test_unknown_weigher_is_reported_with_those_that_exist(path: str) -> None:
    with pytest.raises(PluginError, match=f"no weigher '{path}'.*RAMWeigher"):
        _weighers(path)


def test_plugin_is_found_by_its_name() -> None:
    assert load_plugin("moorage.sources", "file") is FileSource
    assert load_plugin("moorage.filters", "ComputeFilter") is ComputeFilter


def test_unknown_plugin_is_reported_with_those_that_exist() -> None:
    with pytest.raises(PluginError, match=r"moorage.sources: .* 'fil'; there are file"):
        load_plugin("moorage.sources", "fil")


def test_our_prefilters_are_in_order() -> None:
    names = [name for name, _ in load_prefilters()]
    assert names[: len(DEFAULT_PREFILTERS)] == list(DEFAULT_PREFILTERS)


@pytest.mark.parametrize(("prefilter", "option"), ENABLED_BY.items())
def test_prefilter_is_enabled_by_its_option_at_any_time(
    prefilter: str, option: str
) -> None:
    conf = options()
    assert not is_enabled(prefilter, conf)
    conf.set_override(option, True, group="scheduler")
    assert is_enabled(prefilter, conf)


def test_plugin_that_cannot_be_made_is_named() -> None:
    conf = options(image_properties_default_architecture="arm64")
    with pytest.raises(PluginError, match=r"'ImagePropertiesFilter' .*arm64"):
        load_filters(conf, time.time)


# -- third parties' --------------------------------------------------------------------


class NovaStyle:
    def host_passes(self, host_state: Any, spec_obj: Any) -> bool:
        return bool(host_state.free_ram_mb > 1)

    def _weigh_object(self, host_state: Any, request: Any) -> float:
        return float(host_state.free_ram_mb)


def _theirs() -> list[type]:
    return [NovaStyle]


@pytest.mark.parametrize("name", ["NovaStyle", "_theirs"], ids=["class", "function"])
def test_dotted_path_is_a_class_or_a_function_that_returns_classes(name: str) -> None:
    path = f"{__name__}.{name}"
    (filter_,) = load_filters(
        options(available_filters=[path], enabled_filters=["NovaStyle"]), time.time
    )
    assert filter_.passing(batch(host()), spec()).tolist() == [True]
    assert _weighers(path) == ["NovaStyle"]


@pytest.mark.parametrize(
    ("path", "cause"),
    [
        pytest.param("no.such.module", "ModuleNotFoundError", id="module"),
        pytest.param("os.no_such", "AttributeError", id="name"),
        pytest.param("nodots", "ValueError", id="no dots"),
        pytest.param("os.sep", "TypeError", id="neither class nor function"),
    ],
)
def test_unusable_dotted_path_is_named(path: str, cause: str) -> None:
    with pytest.raises(PluginError, match=f"{path} cannot be used: {cause}"):
        _filters(available_filters=[path])


class Distribution:
    """An installed package with one module and entry points to it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.group = folder, f"moorage.test.{uuid.uuid4().hex}"
        monkeypatch.syspath_prepend(str(folder))

    def install(self, dist: str, *entry_points: str, module: str = "") -> None:
        """Write the files that pip would."""
        info = self.folder / f"{dist}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Name: {dist}\nVersion: 1.0\n")
        lines = "\n".join(entry_points)
        (info / "entry_points.txt").write_text(f"[{self.group}]\n{lines}\n")
        code = textwrap.dedent(module)
        (self.folder / f"{dist}_{self.group.rpartition('.')[2]}.py").write_text(code)

    def module_of(self, dist: str) -> str:
        """The name of a distribution's module, which no other test uses."""
        return f"{dist}_{self.group.rpartition('.')[2]}"


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Distribution:
    """A folder on the path to install packages into."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "site-packages"
    folder.mkdir()
    return Distribution(folder, monkeypatch)


def test_entry_point_of_a_third_party_is_loaded(packages: Distribution) -> None:
    packages.install("burst", f"Burst = {packages.module_of('burst')}:Burst",
                     module="class Burst: pass")  # fmt: skip
    assert list(load_plugins(packages.group)) == ["Burst"]


@pytest.mark.parametrize(
    ("module", "cause"),
    [
        pytest.param("import no_such_module", "No module named", id="import"),
        pytest.param("1 / 0", "ZeroDivisionError", id="failure"),
        pytest.param("x = 1", "has no attribute 'Burst'", id="no such name"),
    ],
)
def test_plugin_that_cannot_be_imported_is_named_with_its_distribution(
    module: str, cause: str, packages: Distribution
) -> None:
    packages.install("burst", f"Burst = {packages.module_of('burst')}:Burst",
                     module=module)  # fmt: skip
    with pytest.raises(PluginError, match=rf"'Burst' .*of burst 1.0\).*{cause}"):
        load_plugins(packages.group)


def test_two_plugins_of_one_name_are_both_named(packages: Distribution) -> None:
    for dist in ("first", "second"):
        packages.install(dist, f"Burst = {packages.module_of(dist)}:Burst",
                         module="class Burst: pass")  # fmt: skip
    with pytest.raises(PluginError, match="two plugins have one name") as caught:
        load_plugins(packages.group)
    assert "of first 1.0" in str(caught.value)
    assert "of second 1.0" in str(caught.value)
