# SPDX-License-Identifier: Apache-2.0
"""The command tune: what it finds can be pasted, and wrong input."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from moorage.scheduler.cmd.cli.main import cli
from moorage.scheduler.conf import load
from moorage.scheduler.errors import InvalidRequest
from moorage.scheduler.web import make_web_server

from ....fixtures.clouds import new_uuids
from ....fixtures.explaining_api import decide, explaining_api

TRACE = Path(__file__).parents[4] / "examples/data/traces/azure-packing-batched.csv"
INPUT = [str(TRACE), "--first", "40", "--hosts", "5"]
RAM = "filter_scheduler.ram_weight_multiplier"


def call(*args: str) -> Result:
    return CliRunner().invoke(cli, list(args))


def test_settings_that_are_printed_have_the_figures_that_are_printed(
    tmp_path: Path,
) -> None:
    search = ["tune", *INPUT, "--trials", "3", "--seeds", "2"]
    answer = json.loads(call(*search, "--json").stdout)
    best = answer["best"]
    assert best != "present"
    assert set(answer["settings"][best]) == {
        f"filter_scheduler.{name}_weight_multiplier"
        for name in ("cpu", "ram", "io_ops", "fragmentation")
    }
    assert answer["differences"][best]["empty_hosts"]["mean"] > 0
    path = tmp_path / "best.conf"
    path.write_text(answer["configuration"])
    args = [*INPUT, "--compare", str(path), "--seeds", "3", "--json"]
    compared = json.loads(call("simulate", *args).stdout)
    # The first run of `simulate` is of the arrivals as they are.
    simulated = [run["summary"] for run in compared["runs"] if run["seed"]]
    shown = ("present", best)
    tuned = [run["summary"] for run in answer["runs"] if run["settings"] in shown]
    assert simulated == tuned
    text = call(*search).stdout
    assert f"{best} reaches the goal best:\n\n[filter_scheduler]\n" in text
    assert answer["configuration"].replace("\n", "") in text.replace("\n", "")
    assert re.search(r"ram_weight_multiplier +1 +-", text)


def test_option_without_a_present_value_is_searched() -> None:
    option = "DEFAULT.cpu_allocation_ratio"
    args = ["--trials", "1", "--seeds", "2", "--option", f"{option}=1..4", "--json"]
    answer = json.loads(call("tune", *INPUT, *args).stdout)
    assert answer["settings"]["present"] == {option: "None"}
    [trial] = answer["trials"]
    assert 1 <= float(trial["settings"][option]) <= 4


def test_present_settings_may_be_the_best() -> None:
    answer = call(
        "tune", *INPUT, "--trials", "2", "--seeds", "2", "--set", "moorage.preset=pack",
        "--option", f"{RAM}=1.5..2",
    )  # fmt: skip
    assert "The present settings reach the goal best." in answer.stdout


@pytest.mark.deep
def test_weigher_that_is_idle_with_the_present_settings_is_left_out_there() -> None:
    args = ["tune", *INPUT, "--trials", "1", "--seeds", "2"]
    args += ["--set", "moorage.preset=pack"]
    text = " ".join(call(*args).stdout.split())
    assert text.count("FragmentationWeigher is idle") == 1
    flavors = "filter_scheduler.fragmentation_flavors=1:1024=1"
    answer = json.loads(call(*args, "--json").stdout)
    with_flavors = json.loads(call(*args, "--set", flavors, "--json").stdout)
    name = "filter_scheduler.fragmentation_weight_multiplier"
    assert name not in answer["settings"]["present"]
    assert with_flavors["settings"]["present"][name] == "8"


def test_history_has_the_flavors_that_the_option_can_name(tmp_path: Path) -> None:
    none = {f"resources:{name}": "0" for name in ("VCPU", "MEMORY_MB", "DISK_GB")}
    bare_metal = {"resources:CUSTOM_BAREMETAL": "1", **none}
    conf = load([], config_files=[])
    conf.set_override("port", 0, group="web")
    with explaining_api(tmp_path) as api, make_web_server(conf, api.app) as server:
        decide(api.scheduler, "metal", new_uuids(), vcpus=32, extra_specs=bare_metal)
        with pytest.raises(InvalidRequest):
            decide(api.scheduler, "invalid", new_uuids(), vcpus=0)
        api.store.flush()
        before = ["--url", f"http://127.0.0.1:{server.port}"]
        mix = call(*before, "flavor-mix", "--history", "1d").stdout
        args = ["tune", "--history", "1d", "--hosts", "2", "--trials", "1"]
        answer = call(*before, *args, "--seeds", "2", "--json")
    assert mix == ("[filter_scheduler]\nfragmentation_flavors = 1:128=2, 1:256=1\n")
    assert json.loads(answer.stdout)["runs"][0]["requests"] == 4


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--option", "ram_weight_multiplier=1..2"], "write GROUP.OPTION=LOW..HIGH"),
        (["--option", f"{RAM}=1"], "write GROUP.OPTION=LOW..HIGH"),
        (["--option", f"{RAM}=2..1"], "the range is empty or infinite"),
        (["--option", f"{RAM}=0..inf"], "the range is empty or infinite"),
        (["--option", f"{RAM}=a..b"], "could not convert"),
        (
            ["--option", "filter_scheduler.ram_multiplier=1..2"],
            "Did you mean ram_weight_multiplier?",
        ),
        (["--option", "filter_scheduler.host_subset_size=0..3"], "Should be greater"),
        (["--option", "moorage.driver=1..2"], "a range needs an option that is a numb"),
        (["--option", "moorage.driver=filter_scheduler|none"], "none"),
        (
            ["--option", f"{RAM}=1|2", "--option", f"{RAM}=0..3"],
            f"{RAM} is named twice",
        ),
        (["--set", "moorage.driver=none"], "none"),
        (["--goal", "happiness"], "'happiness' does not name each of its figures once"),
        (["--goal", "vcpus_used"], "does not name each of its figures once"),
        (["--goal", "refused,refused"], "does not name each of its figures once"),
        (["--at-most", "refused"], "'refused' is not FIGURE=VALUE"),
        (["--at-least", "density=much"], "'density=much' is not FIGURE=VALUE"),
        (["--at-least", "size=2"], "'size=2' is not FIGURE=VALUE"),
        (["--hosts", "0"], "0 is not in the range x>=1"),
    ],
)
def test_wrong_input_gets_one_line(args: list[str], message: str) -> None:
    result = call("tune", *INPUT, "--trials", "3", *args)
    assert result.exit_code in (1, 2)
    text = " ".join(result.output.split())
    assert message in text
    assert len(text) < 700
    assert isinstance(result.exception, SystemExit)
