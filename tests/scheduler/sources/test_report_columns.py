# SPDX-License-Identifier: Apache-2.0
"""A plugin's column is reported, stored in the table, and read by other plugins."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from moorage.agent import Reporter
from moorage.filters import BaseHostFilter
from moorage.objects import RequestSpec, report_data
from moorage.scheduler.conf import load
from moorage.scheduler.errors import InventoryError, PluginError
from moorage.scheduler.hosts import (
    COLUMNS,
    Column,
    HostBatch,
    HostState,
    HostTable,
)
from moorage.scheduler.sources.file import FileSource
from moorage.scheduler.sources.inventory import read_inventory
from moorage.scheduler.sources.push import PushSource
from moorage.scheduler.sources.report_columns import load_columns, with_columns
from moorage.testing import (
    batch,
    batches,
    check_plugin,
    host,
    options,
    spec,
    table,
)
from moorage.weighers import BaseHostWeigher

from ...fixtures.clouds import host as file_host
from ...fixtures.clouds import write_inventory

POWER = Column(
    name="power_watts", dtype=float, default=0.0, unit="W", description="power drawn"
)
RACK = Column(name="rack", dtype=str, default=None, description="rack of the host")
SLOTS = Column(name="slots", dtype=int, default=-1, description="slot in the rack")
ON_BATTERY = Column(
    name="on_battery", dtype=bool, default=False, description="runs on its battery"
)
ADDED = (POWER, RACK, SLOTS, ON_BATTERY)
ALL = with_columns(ADDED)
VALUES = {"power_watts": 250.5, "rack": "r7", "slots": 3, "on_battery": True}
DEFAULTS = {"power_watts": 0.0, "rack": None, "slots": -1, "on_battery": False}


class NotOnBattery(BaseHostFilter):
    """Reject hosts that run on their battery."""

    def passing(self, hosts: HostBatch, spec_obj: RequestSpec) -> npt.NDArray[np.bool_]:
        """Return which hosts do not."""
        return ~hosts.on_battery


class InRack(BaseHostFilter):
    """Pass the hosts of a rack: the form for one host."""

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        """Return whether it is in r7."""
        return bool(host_state.rack == "r7")


class LittlePower(BaseHostWeigher):
    """Prefer hosts that draw little power."""

    def weigh_all(
        self, hosts: HostBatch, spec_obj: RequestSpec
    ) -> npt.NDArray[np.float64]:
        """Return minus the power."""
        return -hosts.power_watts


class Cloud:
    """A push source with an agent that knows the plugin's columns."""

    def __init__(self, folder: Path) -> None:
        self.conf = load([], config_files=[])
        self.url = f"sqlite:///{folder}/hosts.sqlite"
        self.conf.set_override("store_connection", self.url, group="moorage")
        self.sent: list[Any] = []
        self.reporter = Reporter(self._cast, columns=ALL)
        self.table, self.source = self.started()

    def _cast(self, reports: list[dict[str, Any]]) -> None:
        self.sent += json.loads(json.dumps(reports))

    def started(self) -> tuple[HostTable, PushSource]:
        table, source = HostTable(columns=ALL), PushSource(self.conf)
        source.start(table)
        return table, source

    def deliver(self) -> None:
        sent, self.sent = self.sent, []
        self.source.apply(sent)


@pytest.fixture
def cloud(tmp_path: Path) -> Cloud:
    return Cloud(tmp_path)


def values(table: HostTable, name: str = "a") -> dict[str, Any]:
    [state] = (each for each in table.batch() if each.host == name)
    return {column.name: getattr(state, column.name) for column in ADDED}


def test_column_is_an_array_of_its_type() -> None:
    hosts = batch(host(host="a", **VALUES), host(host="b"), declared=ADDED)
    types = [getattr(hosts, each.name).dtype for each in ADDED]
    assert types == [np.float64, object, np.int64, np.bool_]
    assert hosts.power_watts.tolist() == [250.5, 0.0]
    assert list(hosts.rack) == ["r7", None]
    assert hosts.matches("rack", ["r7"]).tolist() == [True, False]


def test_column_is_no_attribute_of_novas_for_extra_specs() -> None:
    assert not batch(host(), declared=ADDED).has_attribute("rack")


def test_pushed_column_reaches_filters_and_weighers(cloud: Cloud) -> None:
    cloud.reporter.report(host(host="a", **VALUES))
    cloud.reporter.report(host(host="b", power_watts=90.0))
    cloud.deliver()
    hosts = cloud.table.batch()
    assert NotOnBattery(options()).passing(hosts, spec()).tolist() == [False, True]
    assert InRack(options()).passing(hosts, spec()).tolist() == [True, False]
    assert LittlePower(options()).weigh_all(hosts, spec()).tolist() == [-250.5, -90.0]


def test_delta_changes_the_column_alone(cloud: Cloud) -> None:
    cloud.reporter.report(host(host="a", **VALUES))
    cloud.reporter.report(host(host="a", **{**VALUES, "power_watts": 80}))
    _, data = report_data(cloud.sent[-1])
    assert data["changes"] == {"power_watts": 80}
    cloud.deliver()
    assert values(cloud.table) == {**VALUES, "power_watts": 80.0}


def test_column_survives_a_restart(cloud: Cloud) -> None:
    cloud.reporter.report(host(host="a", **VALUES))
    cloud.deliver()
    cloud.source.stop()
    cloud.source.start_polling(cloud.table)
    cloud.source.stop()
    table, source = cloud.started()
    assert values(table) == VALUES
    source.stop()


def test_host_of_an_agent_without_the_column_has_the_default(cloud: Cloud) -> None:
    Reporter(cloud._cast).report(host(host="a"))  # noqa: SLF001 - its own bus
    cloud.deliver()
    assert values(cloud.table) == DEFAULTS


def test_scheduler_without_the_column_ignores_it(cloud: Cloud) -> None:
    cloud.table = HostTable()
    cloud.source = PushSource(cloud.conf)
    cloud.source.start(cloud.table)
    cloud.reporter.report(host(host="a", **VALUES))
    cloud.deliver()
    assert list(cloud.table.batch().host) == ["a"]
    assert not hasattr(cloud.table.batch(), "rack")


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("power_watts", "much", "power_watts: 'much' where a finite number is needed"),
        ("power_watts", float("nan"), "power_watts: nan where a finite number"),
        ("rack", 7, "rack: 7 where a text or null is needed"),
        ("slots", 1.5, "slots: 1.5 where an integer of 64 bits is needed"),
        ("slots", True, "slots: True where an integer of 64 bits is needed"),
        ("on_battery", 1, "on_battery: 1 where true or false is needed"),
    ],
)
def test_value_of_a_wrong_type_is_refused_on_both_sides(
    cloud: Cloud,
    caplog: pytest.LogCaptureFixture,
    column: str,
    value: Any,
    words: str,
) -> None:
    with pytest.raises(ValueError, match=f"^host 'a': {words}"):
        cloud.reporter.report(host(host="a", **{column: value}))
    cloud.reporter.report(host(host="a", **VALUES))
    cloud.deliver()
    cloud.reporter.send_whole_report(host(host="a").uuid)
    _, data = report_data(cloud.sent[-1])
    data.update({column: value, "revision": 2})
    cloud.deliver()
    assert cloud.source.counts.refused == 1
    assert f"host 'a': {words}" in caplog.text
    assert values(cloud.table) == VALUES, "the host stays as it was"


def test_column_of_a_file_reaches_the_table(tmp_path: Path) -> None:
    conf = load([], config_files=[])
    path = write_inventory(tmp_path, file_host("a", **VALUES), file_host("b"))
    conf.set_override("inventory_file", str(path), group="moorage")
    source, filled = FileSource(conf), HostTable(columns=ALL)
    source.start(filled)
    assert values(filled, "a") == VALUES
    assert values(filled, "b") == DEFAULTS
    source.refresh(filled)
    assert values(filled, "a") == VALUES


def test_wrong_value_in_a_file_is_named(tmp_path: Path) -> None:
    path = write_inventory(tmp_path, file_host("a", slots="x"))
    with pytest.raises(InventoryError, match="host 'a', key 'slots': 'x' is not of"):
        read_inventory(path, ALL)
    with pytest.raises(InventoryError, match="'slots' was unexpected"):
        read_inventory(path)


def test_source_that_does_not_know_the_column_leaves_it() -> None:
    filled = table(host(host="a", **VALUES), declared=ADDED)
    records = [host(host="a", vcpus_used=5), host(host="b")]
    filled.put_columns({n: [getattr(r, n) for r in records] for n in COLUMNS})
    assert values(filled, "a") == VALUES
    assert values(filled, "b") == DEFAULTS


def test_row_is_returned_as_it_was_put() -> None:
    record = host(host="a", **VALUES)
    assert table(record, declared=ADDED).as_reported(record.uuid) == record


def test_undeclared_column_is_refused() -> None:
    with pytest.raises(ValueError, match="host 'a' has no columns rock"):
        table(host(host="a", rock="r7"), declared=ADDED)


@pytest.mark.deep
@pytest.mark.parametrize("plugin", [NotOnBattery, InRack])
def test_filter_of_a_column_keeps_the_contract(plugin: type[BaseHostFilter]) -> None:
    drawn = {"on_battery": (True,), "rack": ("r7", "r8")}
    check_plugin(plugin, batches=batches(columns=drawn, declared=ADDED))


@pytest.mark.deep
def test_weigher_of_a_column_keeps_the_contract() -> None:
    drawn = batches(columns={"power_watts": (-1.0, 0.0, 1e6)}, declared=ADDED)
    check_plugin(LittlePower, batches=drawn)


# -- declarations ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Rack", "", "a b", "_a", "1a", None])
def test_name_has_to_be_an_identifier(name: Any) -> None:
    with pytest.raises(ValueError, match="lower-case identifier"):
        Column(name=name, dtype=int, default=0, description="")


@pytest.mark.parametrize("dtype", [np.float32, "int", list, None, []])
def test_bad_dtype_is_refused(dtype: Any) -> None:
    with pytest.raises(ValueError, match=r"column 'a': dtype .* use int, float, bool"):
        Column(name="a", dtype=dtype, default=0, description="")


@pytest.mark.parametrize(
    ("dtype", "default"), [(int, 1.5), (int, None), (bool, 0), (str, 1), (float, "x")]
)
def test_default_has_to_be_of_the_type(dtype: type, default: Any) -> None:
    with pytest.raises(ValueError, match=r"column 'a': the default is .* is needed"):
        Column(name="a", dtype=dtype, default=default, description="")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("free_ram_mb", id="column"),
        pytest.param("rack", id="another plugin's column"),
        pytest.param("aggregates", id="attribute of a host"),
        pytest.param("take", id="method of a batch"),
        pytest.param("placed", id="attribute of a batch"),
        pytest.param("limits", id="attribute of a host state"),
        pytest.param("revision", id="the table's own column"),
        pytest.param("instances_added", id="key of a report"),
        pytest.param("vcpus", id="key of a file"),
    ],
)
def test_name_in_use_is_refused(name: str) -> None:
    other = Column(name=name, dtype=int, default=0, description="")
    with pytest.raises(ValueError, match=f"column '{name}': the name is already"):
        with_columns([other], ALL)


def test_column_needs_a_default() -> None:
    column = Column(name="a", dtype=int, default=dataclasses.MISSING, description="")
    with pytest.raises(ValueError, match="column 'a' has no default"):
        with_columns([column])


class Distribution:
    """Installed entry points, as importlib.metadata finds them."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        monkeypatch.syspath_prepend(folder)

    def install(self, name: str, source: str, **entry_points: str) -> None:
        (self._folder / f"{name}.py").write_text(source)
        info = self._folder / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
        )
        lines = [f"{key} = {name}:{value}" for key, value in entry_points.items()]
        text = "\n".join(["[moorage.columns]", *lines])
        (info / "entry_points.txt").write_text(text)


@pytest.fixture
def distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Distribution:
    # It has the entry points of an earlier path.
    monkeypatch.setattr("stevedore.extension.ExtensionManager.ENTRY_POINT_CACHE", {})
    return Distribution(tmp_path, monkeypatch)


_SOURCE = """
from moorage.scheduler.hosts import Column
def column(name, dtype=int, default=0):
    return Column(name=name, dtype=dtype, default=default, description="")
"""


def test_entry_points_name_a_column_or_a_list(distribution: Distribution) -> None:
    declared = "one = column('rack_one')\nmore = [column('u1'), column('u2')]\n"
    distribution.install("racks_list", _SOURCE + declared, one="one", more="more")
    columns = load_columns()
    assert columns.keys() - COLUMNS.keys() == {"rack_one", "u1", "u2"}
    made = HostTable(columns=columns)
    made.put(host(host="a", u1=4))
    assert made.batch().u1.tolist() == [4]


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ("column('host')", "plugin 'bad': column 'host': the name is already a column"),
        ("7", "plugin 'bad': 7 is not a Column, nor a list of them"),
        ("['x']", "plugin 'bad': 'x' is not a Column"),
        (
            "column('a', dtype=list)",
            "plugin 'bad' .* column 'a': dtype <class",
        ),
        ("column('a', default='x')", "plugin 'bad' .* column 'a': the default is"),
    ],
)
def test_bad_declaration_stops_the_start_in_one_line(
    distribution: Distribution, declared: str, words: str, request: Any
) -> None:
    name = f"racks_bad_{abs(hash(request.node.name))}"
    distribution.install(name, f"{_SOURCE}\nbad = {declared}\n", bad="bad")
    with pytest.raises(PluginError, match=f"^moorage.columns: {words}") as raised:
        load_columns()
    assert "\n" not in str(raised.value)


def test_no_plugin_declares_columns_here() -> None:
    assert load_columns() == COLUMNS
