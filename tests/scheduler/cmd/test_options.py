# SPDX-License-Identifier: Apache-2.0
"""Options are reloaded as a whole or not at all, and the log names the changes."""

from __future__ import annotations

from pathlib import Path

import pytest
from oslo_config import cfg

from moorage.scheduler import conf as moorage_conf
from moorage.scheduler.cmd.options import Options, copy_options
from moorage.scheduler.errors import PluginError
from moorage.scheduler.rpc import get_transport

URL = "rabbit://guest:{}@127.0.0.1:5672/"


class Files:
    """Options, and the file that they come from."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "moorage.conf"
        self.write()
        self.argv = ["--config-file", str(self.path)]
        self.conf = moorage_conf.load(self.argv)
        get_transport(self.conf).cleanup()
        self.options = Options(self.argv, self.conf, copy_options(self.argv, self.conf))

    def reload(self) -> bool:
        """Read the file again; return whether it could be used."""
        return self.options.reload(lambda _settings: True) is True

    def write(self, *lines: str, password: str = "one") -> None:
        url = f"transport_url = {URL.format(password)}"
        self.path.write_text("\n".join(["[DEFAULT]", url, *lines]) + "\n")


@pytest.fixture
def files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Files:
    caplog.set_level("INFO")
    return Files(tmp_path)


def test_changed_option_takes_effect_and_is_reported_with_its_default(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    files.write("[filter_scheduler]", "cpu_weight_multiplier = -2")
    assert files.reload()
    assert files.conf.filter_scheduler.cpu_weight_multiplier == -2.0
    assert [r.getMessage() for r in caplog.records] == [
        "[filter_scheduler] cpu_weight_multiplier changed from 1.0 to -2.0"
    ]
    files.write()
    assert files.reload()
    assert files.conf.filter_scheduler.cpu_weight_multiplier == 1.0
    assert "changed from -2.0 to 1.0" in caplog.text


def test_only_the_changed_entries_of_a_list_are_reported(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    group, name = "[filter_scheduler]", "enabled_filters"
    files.write(group, f"{name} = ComputeFilter,IoOpsFilter")
    assert files.reload()
    caplog.clear()
    for names in ("PciPassthroughFilter,ComputeFilter", "ComputeFilter"):
        files.write(group, f"{name} = {names}")
        assert files.reload()
    assert [r.getMessage() for r in caplog.records] == [
        f"{group} {name} changed: added PciPassthroughFilter; removed IoOpsFilter",
        f"{group} {name} changed: removed PciPassthroughFilter",
    ]
    files.write(group, f"{name} = A,B")
    assert files.reload()
    files.write(group, f"{name} = B,A")
    assert files.reload()
    assert (
        caplog.messages[-1] == f"{group} {name} changed from ['A', 'B'] to ['B', 'A']"
    )


@pytest.mark.parametrize(
    ("group", "setting"),
    [
        pytest.param("scheduler", "workers = two", id="int"),
        pytest.param("moorage", "max_view_age = two", id="float"),
    ],
)
def test_value_that_is_not_a_number_is_named_with_its_option(
    group: str, setting: str, files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    files.write(f"[{group}]", setting)
    assert not files.reload()
    cause = f"[{group}] {setting}: not a number ({files.path})"
    assert caplog.messages[-1].endswith(f"remain unchanged: {cause}")
    assert files.options.result.failure == cause
    files.write()
    assert files.reload()
    assert files.options.result.failure == ""


@pytest.mark.parametrize(
    ("group", "line", "warning"),
    [
        pytest.param(
            "scheduler",
            "max_attemps = 3",
            "[scheduler] max_attemps is not read: Neither nova 34 nor Moorage has such "
            "an option. Did you mean max_attempts?",
            id="of-nova",
        ),
        pytest.param(
            "kafka",
            "bootstrap_server = k1:9092",
            "[kafka] bootstrap_server is not read: Neither nova 34 nor Moorage has "
            "such an option. Did you mean bootstrap_servers?",
            id="of-ours",
        ),
        pytest.param("libvirt", "anything = 1", None, id="of-another-service"),
        pytest.param("filter_scheduler", "pci_in_placement = true", None, id="known"),
        pytest.param("placement", "region_name = one", None, id="of-keystoneauth"),
    ],
)
def test_unknown_option_of_our_groups_is_one_warning_at_start_and_reload(
    group: str, line: str, warning: str | None, files: Files,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    expected = [] if warning is None else [warning]
    files.write(f"[{group}]", line)
    conf = moorage_conf.load(files.argv)
    get_transport(conf).cleanup()
    caplog.clear()
    options = Options(files.argv, conf, copy_options(files.argv, conf))
    assert caplog.messages == expected
    caplog.clear()
    assert options.reload(lambda _settings: True)
    assert caplog.messages == expected


def test_nothing_is_reported_where_nothing_changed(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    assert files.reload()
    assert not caplog.records


def test_what_needs_a_restart_keeps_its_value_and_is_reported_each_time(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    files.write("[moorage]", "decision_records = 7")
    for _ in range(2):
        assert files.reload()
    assert files.conf.moorage.decision_records == 1000
    reported = "[moorage] decision_records changed from 1000 to 7; restart to apply"
    assert [r.getMessage() for r in caplog.records] == [reported] * 2


def test_secret_is_never_logged(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    files.write(password="two")
    assert files.reload()
    assert "[DEFAULT] transport_url changed from *** to ***" in caplog.text
    assert "guest" not in caplog.text


def test_secret_that_its_owner_does_not_mark_is_never_logged(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    group, name = "oslo_messaging_kafka", "ssl_client_key_password"
    files.write(f"[{group}]", f"{name} = hush")
    assert files.reload()
    assert f"[{group}] {name} changed from *** to ***" in caplog.text
    assert "hush" not in caplog.text


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param("max_attempts", id="no_value"),
        pytest.param("max_attempts = 0", id="value_of_ours"),
        pytest.param("[oslo_messaging_rabbit]\nssl = perhaps", id="value_of_oslos"),
    ],
)
def test_broken_file_changes_nothing_and_is_named(
    wrong: str, files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    files.write("debug = true", "[filter_scheduler]", "host_subset_size = 5")
    text = files.path.read_text()
    files.path.write_text(f"{text}[scheduler]\n{wrong}\n")
    assert not files.reload()
    assert files.conf.filter_scheduler.host_subset_size == 1
    [record] = caplog.records
    assert record.levelname == "ERROR"
    assert "Reload failed" in record.getMessage()
    assert str(files.path) in record.getMessage()
    files.path.write_text(text)
    assert files.reload()
    assert files.conf.filter_scheduler.host_subset_size == 5


def test_file_that_is_gone_changes_nothing_and_is_named(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    files.path.unlink()
    assert not files.reload()
    assert str(files.path) in caplog.text
    assert files.conf.filter_scheduler.host_subset_size == 1


def test_reload_makes_new_settings_and_leaves_the_old_ones(files: Files) -> None:
    before = files.options.settings
    files.write(
        *("[filter_scheduler]", "host_subset_size = 5"),
        *("[moorage]", "decision_records = 7"),
    )
    assert files.reload()
    after = files.options.settings
    assert before.filter_scheduler.host_subset_size == 1
    assert after.filter_scheduler.host_subset_size == 5
    assert after.moorage.decision_records == 1000, "it needs a restart"


def test_what_cannot_be_prepared_changes_nothing_and_is_named(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(settings: cfg.ConfigOpts) -> None:
        names = settings.filter_scheduler.enabled_filters
        raise PluginError(f"there is no filter {names[0]}")

    before = files.options.settings
    files.write(
        "debug = true", "[filter_scheduler]", "enabled_filters = X",
        "host_subset_size = 5",
    )  # fmt: skip
    assert files.options.reload(refuse) is None
    assert files.options.settings is before
    assert files.conf.filter_scheduler.host_subset_size == 1
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        (
            "ERROR",
            "Reload failed; options, plugins and hosts remain unchanged: "
            "there is no filter X",
        )
    ]


def test_option_that_a_plugin_registers_at_a_reload_is_known_from_then_on(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    def register(settings: cfg.ConfigOpts) -> bool:
        opts = [cfg.IntOpt("racks", default=1, mutable=True), cfg.IntOpt("rows")]
        settings.register_opts(opts, group="burst")
        return True

    files.write("[burst]", "racks = 2", "rows = 3")
    assert files.options.reload(register)
    assert files.options.settings.burst.racks == 2
    files.write("[burst]", "racks = 4", "rows = 5")
    assert files.options.reload(register)
    assert files.options.settings.burst.racks == 4
    assert files.options.settings.burst.rows == 3
    assert "[burst] racks changed from 2 to 4" in caplog.text
    assert "[burst] rows changed from 3 to 5; restart to apply" in caplog.text


def test_what_is_read_for_each_decision_may_be_changed() -> None:
    conf = cfg.ConfigOpts()
    moorage_conf.register_opts(conf)
    mutable = {
        f"{group or 'DEFAULT'}.{opt.name}"
        for group, opts in moorage_conf.list_opts()
        for opt in opts
        if opt.mutable
    }
    assert {
        "DEFAULT.service_down_time",
        "filter_scheduler.available_filters",
        "filter_scheduler.enabled_filters",
        "filter_scheduler.host_subset_size",
        "filter_scheduler.pci_weight_multiplier",
        "filter_scheduler.shuffle_best_same_weighed_hosts",
        "filter_scheduler.weight_classes",
        "metrics.weight_multiplier",
        "moorage.candidates_max_age",
        "moorage.cell_grace",
        "moorage.claim_max_age",
        "moorage.max_view_age",
        "scheduler.max_attempts",
    } <= mutable
    assert not {"scheduler.workers", "moorage.source", "DEFAULT.host"} & mutable
