# SPDX-License-Identifier: Apache-2.0
"""The command simulate: traces, settings, pages, and wrong input."""

from __future__ import annotations

import csv
import json
import os
import re
import resource
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from moorage.scheduler.cmd.cli.main import cli

from ....fixtures.explained_clouds import NAMES

TRACE = Path(__file__).parents[4] / "examples/data/traces/azure-packing-batched.csv"
Call = Callable[..., Result]


@pytest.fixture
def call() -> Call:
    def call(*args: str, status: int = 0, before: tuple[str, ...] = ()) -> Result:
        result = CliRunner().invoke(cli, [*before, "simulate", *args])
        assert result.exit_code == status, result.output
        return result

    return call


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    path = tmp_path / "pack.conf"
    path.write_text(
        "[filter_scheduler]\nram_weight_multiplier = -1\ncpu_weight_multiplier = -1\n"
    )
    return path


def test_settings_are_compared_on_a_trace(call: Call, pack: Path) -> None:
    args = [str(TRACE), "--first", "150", "--hosts", "20"]
    text = call(*args, "--compare", str(pack), "--seeds", "2").stdout
    assert text.startswith("150 instances on 20 hosts, ")
    assert re.search(r"mean +defaults +pack", text)
    assert re.search(r"hosts without an instance .* % +.*\(\+.* ± .*\)", text)
    again = call(*args, "--compare", str(pack), "--seeds", "2").stdout
    assert again == text


@pytest.mark.deep
def test_preset_is_a_setting_like_others(call: Call, tmp_path: Path) -> None:
    by_hand = tmp_path / "by_hand.conf"
    by_hand.write_text(
        "[filter_scheduler]\ncpu_weight_multiplier = -1\nram_weight_multiplier = -1\n"
        "disk_weight_multiplier = -1\nio_ops_weight_multiplier = -0.1\n"
        "[moorage]\npreset = nova\n"
    )
    args = [str(TRACE), "--first", "300", "--hosts", "15", "--json"]
    compared = call(
        *args, "--set", "moorage.preset=pack", "--compare", str(by_hand)
    ).stdout
    preset, same = (run["summary"] for run in json.loads(compared)["runs"])
    assert preset == same
    nova = json.loads(call(*args).stdout)["runs"][0]["summary"]
    assert nova["empty_hosts"] < preset["empty_hosts"]


def test_preset_that_does_not_exist_gets_one_line(call: Call) -> None:
    text = call(
        "--synthetic", "5", "--hosts", "2", "--set", "moorage.preset=dense", status=1
    ).output
    assert re.fullmatch(r"Error: .*preset = dense: .*spread_zones.*\n", text), text


def test_printed_flavors_keep_room_for_the_large_one(
    call: Call, tmp_path: Path
) -> None:
    trace, columns = tmp_path / "trace.csv", "id=id,arrival_s=at,departure_s=end,"
    columns += "vcpus=cpus,memory_mb=mb"
    rows = [f"small{i},{i},,1,2048" for i in range(4)] + ["large,9,,8,16384"]
    trace.write_text("\n".join(["id,at,end,cpus,mb", *rows]))
    mix = CliRunner().invoke(cli, ["flavor-mix", str(trace), "--columns", columns])
    assert mix.stdout == (
        "[filter_scheduler]\nfragmentation_flavors = 1:2048=4, 8:16384=1\n"
    )
    path = tmp_path / "mix.conf"
    path.write_text(mix.stdout + "fragmentation_weight_multiplier = 3\n")
    args = [str(trace), "--columns", columns, "--hosts", "2", "--shape", "8:16"]
    for driver in ("filter_scheduler", "solver"):
        text = call(
            *args, "--set", f"moorage.driver={driver}", "--compare", str(path), "--json"
        ).stdout
        refused = [run["summary"]["refused"] for run in json.loads(text)["runs"]]
        assert refused == [1.0, 0.0]


def test_multiplier_without_flavors_gets_one_line(call: Call) -> None:
    setting = "filter_scheduler.fragmentation_weight_multiplier=1"
    text = call("--synthetic", "5", "--hosts", "2", "--set", setting, status=1).output
    assert re.fullmatch(r"Error: .*fragmentation_flavors is empty.*\n", text), text


def test_flavor_mix_needs_requests() -> None:
    for args in (["no-such-file"], [], [str(TRACE), "--history", "1d"]):
        result = CliRunner().invoke(cli, ["flavor-mix", *args])
        assert result.exit_code != 0
        assert "Traceback" not in result.output


def test_page_loads_nothing_else_and_is_the_same_again(
    call: Call, pack: Path, tmp_path: Path
) -> None:
    pages = []
    for name in ("one", "two"):
        folder = tmp_path / name
        call(
            "--synthetic", "150", "--hosts", "3", "--shape", "32:128",
            "--compare", str(pack), "--html", str(folder),
        )  # fmt: skip
        pages.append((folder / "index.html").read_text())
        assert (folder / "hosts-at-the-end.svg").stat().st_size > 1000
    assert pages[0] == pages[1]
    sources = re.findall(r"""(?:src|href)=["']([^"']+)""", pages[0])
    assert all(source.startswith(("#", "data:")) for source in sources)
    assert "<script" not in pages[0]
    assert "Instances refused so far" in pages[0]


def test_measures_over_time_are_written(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "measures.csv"
    args = ["--synthetic", "50", "--hosts", "3", "--csv", str(path), "--json"]
    answer = json.loads(call(*args).stdout)
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    [run] = answer["runs"]
    assert len(rows) == len(run["times_s"]) == 400
    assert float(rows[-1]["empty_hosts"]) == run["series"]["empty_hosts"][-1]


def test_fewest_hosts_are_searched(call: Call) -> None:
    args = [str(TRACE), "--first", "150", "--hosts", "20", "--compact"]
    text = call(*args).stdout
    match = re.search(
        r"(\d+) hosts are the fewest without a refusal, ([\d.]+) times the lower bound "
        r"of (\d+)",
        " ".join(text.split()),
    )
    assert match is not None
    hosts, ratio, bound = match.groups()
    assert float(ratio) == pytest.approx(int(hosts) / int(bound), abs=1e-3)
    fewer = call(str(TRACE), "--first", "150", "--hosts", str(int(hosts) - 1)).stdout
    assert "refused most often" in fewer
    enough = call(str(TRACE), "--first", "150", "--hosts", hosts).stdout
    assert "refused most often" not in enough


def test_own_history_is_simulated_on_an_inventory(call: Call, url: str) -> None:
    inventory = Path(__file__).parents[4] / "doc/examples/hosts.yaml"
    args = ["--history", "1d", "--inventory", str(inventory)]
    text = call(*args, before=("--url", url)).stdout
    # One, two, and the one that fits nowhere: it has an instance of the two.
    assert text.startswith("3 instances on ")


def test_cloud_and_its_snapshot_are_simulated_with_instances_and_options(
    call: Call, url: str, tmp_path: Path
) -> None:
    path = tmp_path / "cloud.snapshot"
    CliRunner().invoke(cli, ["--url", url, "snapshot", str(path)])
    args = ["--history", "1d", "--cloud", "--json"]
    running, stored = (
        json.loads(call(*args, before=before).stdout)["runs"]
        for before in (("--url", url), ("--snapshot", str(path)))
    )
    for runs in (running, stored):
        assert [run.pop("decisions_per_s") > 0 for run in runs] == [True]
    assert running == stored
    [run] = running
    assert run["hosts"] == len(NAMES)
    assert run["settings"] == "configuration"
    # The requests of two decisions, of which the third repeats an instance.
    assert run["requests"] == 3
    table = call("--history", "1d", "--cloud", before=("--url", url)).stdout
    assert f"on {len(NAMES)} hosts" in table


def test_cloud_without_an_api_gets_one_line(call: Call) -> None:
    before = ("--url", "http://127.0.0.1:9")
    text = call("--synthetic", "3", "--cloud", before=before, status=1).output
    assert text.count("\n") == 1


def test_events_are_reported(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "events.yaml"
    path.write_text(
        "- {at: 1h, kind: fail, number: 2}\n- {at: 2h, kind: add, number: 1}"
    )
    args = [str(TRACE), "--first", "60", "--hosts", "4", "--events", str(path)]
    text = call(*args, "--seeds", "2").stdout
    assert re.search(
        r"defaults: fail of 2 host\(s\) after 1\.0 h: [\d.]+ instances, [\d.]+ without "
        r"another host\ndefaults: add of 1 host\(s\) after 2\.0 h\n",
        text,
    )
    path.write_text("- {at: 1h, kind: fail, host: nowhere}")
    text = call(*args, status=1).output
    assert text == "Error: fail of nowhere after 1.0 h: there is no such host\n"
    path.write_text("- {at: 1h, kind: fail, host: host3}")
    text = call(*args, "--compact", status=2).output
    assert "write number: N instead of host: NAME" in " ".join(text.split())


def test_legend_has_any_name_of_settings(
    call: Call, pack: Path, tmp_path: Path
) -> None:
    hidden, folder = pack.rename(tmp_path / "_pack.conf"), tmp_path / "page"
    args = ["--synthetic", "20", "--hosts", "1", "--shape", "1:2"]
    call(*args, "--compare", str(hidden), "--html", str(folder))
    for plot in ("used-share-of-memory", "refused-instances-by-flavor"):
        assert re.search(r">\s*_pack</text>", (folder / f"{plot}.svg").read_text())


def test_page_has_the_hosts_that_were_added(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "events.yaml"
    path.write_text("- {at: 1m, kind: add, number: 5}")
    args = ["--synthetic", "20", "--hosts", "2", "--events", str(path)]
    call(*args, "--html", str(tmp_path / "page"))
    assert (tmp_path / "page" / "hosts-at-the-end.svg").stat().st_size > 1000


def test_devices_of_openb_are_counted(call: Call, tmp_path: Path) -> None:
    nodes, pods = tmp_path / "nodes.csv", tmp_path / "pods.csv"
    nodes.write_text("sn,cpu_milli,memory_mib,gpu\na,8000,16384,2\nb,8000,16384,1\n")
    pods.write_text(
        "name,cpu_milli,memory_mib,num_gpu,creation_time,deletion_time\n"
        + "".join(f"p{i},1000,1024,{gpus},{i},\n" for i, gpus in enumerate("2010"))
    )
    filters = "filter_scheduler.enabled_filters=ComputeFilter,PciPassthroughFilter"
    args = [str(pods), "--inventory", str(nodes), "--set", filters]
    [run] = json.loads(call(*args, "--json").stdout)["runs"]
    assert run["series"]["devices"][-1] == 3
    assert run["summary"]["refused"] == 0
    text = call(*args).stdout
    assert re.search(r"PCI devices in use +[\d.]+\n", text)
    # A third request for a device finds none.
    with pods.open("a") as file:
        file.write("p9,1000,1024,1,9,\n")
    text = call(*args).stdout
    assert "refused most often: 1000m-1024Mi-1gpu 1" in text
    none = call(str(TRACE), "--first", "5", "--hosts", "3").stdout
    assert "PCI devices" not in none


@pytest.mark.deep
def test_setting_changes_the_driver(call: Call) -> None:
    args = [str(TRACE), "--first", "200", "--hosts", "20"]
    filters = "filter_scheduler.enabled_filters=ComputeFilter"
    assert call(*args, "--set", filters).stdout != ""
    text = call(*args, "--set", "filter_scheduler.ram_weight_multiplier=-1").stdout
    assert text != call(*args).stdout
    assert re.search(r"mean +configuration", text)


def test_moves_that_empty_hosts_are_counted(call: Call) -> None:
    args = [str(TRACE), "--first", "150", "--hosts", "20", "--max-moves", "9"]
    text = " ".join(call(*args, "--defragment-every", "50").stdout.split())
    assert re.search("instances refused 0.0 ", text)
    [(n_moves, n_each, gib)] = re.findall(
        r"defaults: (\d+) moves to empty hosts, one for each (\d+) instances placed, "
        r"([\d,]+) GiB of memory",
        text,
    )
    assert 0 < int(n_moves) <= 3 * 9
    assert int(n_each) == round(150 / int(n_moves))
    assert gib != "0"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--hosts", "3"], "Pass a trace, --synthetic or --history"),
        ([str(TRACE)], "Pass --hosts"),
        (
            [str(TRACE), "--hosts", "3", "--events", "no.yaml"],
            "no.yaml: cannot be read",
        ),
        ([str(TRACE), "--hosts", "3", "--cloud"], "Pass --hosts"),
        ([str(TRACE), "--synthetic", "3", "--hosts", "3"], "Pass a trace"),
        (["no.csv", "--hosts", "3"], "no.csv: cannot be read"),
        ([str(TRACE), "--hosts", "3", "--shape", "big"], "'big' is no shape of a host"),
        ([str(TRACE), "--hosts", "3", "--shape", "0:1"], "'0:1' is no shape of a host"),
        ([str(TRACE), "--hosts", "3", "--shape", "9" * 30 + ":1"], "is no shape"),
        ([str(TRACE), "--hosts", "3", "--shape", "1:" + "9" * 19], "is no shape"),
        ([str(TRACE), "--inventory", "no.yaml"], "no.yaml: cannot be read"),
        (
            [str(TRACE), "--hosts", "3", "--columns", "id=x"],
            "no arrival_s, departure_s, vcpus, memory_mb",
        ),
        (
            [str(TRACE), "--hosts", "3", "--set", "filter_scheduler.ram_multiplier=1"],
            "has such an option. Did you mean ram_weight_multiplier?",
        ),
        (
            [str(TRACE), "--hosts", "3", "--set", "moorage.driver=none"],
            "none",
        ),
        ([str(TRACE), "--hosts", "3", "--compare", "no.conf"], "no.conf"),
        (
            [str(TRACE), "--inventory", "x", "--compact"],
            "--compact searches a number of equal hosts",
        ),
        (
            [str(TRACE), "--hosts", "3", "--max-moves", "3"],
            "--max-moves needs --defragment-every",
        ),
    ],
)
def test_wrong_input_gets_one_line(args: list[str], message: str) -> None:
    result = CliRunner().invoke(cli, ["simulate", *args])
    assert result.exit_code in (1, 2)
    assert message in " ".join(result.output.split())
    assert "Traceback" not in result.output
    assert isinstance(result.exception, SystemExit)


def test_unknown_option_of_a_file_is_named(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "typo.conf"
    path.write_text("[filter_scheduler]\nram_weight_multiplyer = 2\n")
    args = [str(TRACE), "--hosts", "3", "--compare", str(path)]
    message = call(*args, status=1).output
    assert "[filter_scheduler] ram_weight_multiplyer" in message


def test_page_that_cannot_be_written_loses_no_result(
    call: Call, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    args = ["--synthetic", "20", "--hosts", "3", "--html", str(tmp_path / "file")]
    result = call(*args, status=1)
    assert "cannot be written" in result.stderr
    assert result.stdout.startswith("20 instances on 3 hosts")


def test_measures_that_cannot_be_written_leave_the_old_ones(
    call: Call, tmp_path: Path
) -> None:
    args = ["--synthetic", "20", "--hosts", "3", "--csv"]
    result = call(*args, "/dev/full", status=1)
    assert result.stderr == (
        "Error: --csv /dev/full cannot be written: No space left on device\n"
    )
    assert result.stdout.startswith("20 instances on 3 hosts")
    path = tmp_path / "measures.csv"
    path.write_text("old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, hard))
    try:
        result = call(*args, str(path), status=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert result.stderr == f"Error: --csv {path} cannot be written: File too large\n"
    assert path.read_text() == "old"
    assert [*tmp_path.iterdir()] == [path]


def test_left_out_lines_are_shown(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    head, *lines = TRACE.read_text().splitlines()[:20]
    path.write_text("\n".join([head, *lines, "x,1,-5,1,0,0.1,0.2"]))
    text = call(str(path), "--hosts", "5").stdout
    assert "left out 1 (line 21) without CPUs or memory" in " ".join(text.split())


def test_traces_of_one_file_name_are_told_apart(call: Call, tmp_path: Path) -> None:
    paths = [tmp_path / name / "t.csv" for name in "ab"]
    for number, path in enumerate(paths, start=1):
        path.parent.mkdir()
        rows = [f"{i},0,,8,512" for i in range(number)]
        path.write_text("\n".join(["id,a,d,v,m", *rows, "wrong,0,,-1,512"]))
    columns = "id=id,arrival_s=a,departure_s=d,vcpus=v,memory_mb=m"
    args = [*map(str, paths), "--columns", columns, "--hosts", "9", "--shape", "8:16"]
    answer = json.loads(call(*args, "--compact", "--json").stdout)
    assert answer["fewest_hosts"]["defaults"] == {
        str(path): {"hosts": n, "lower_bound": n} for n, path in enumerate(paths, 1)
    }
    assert [*answer["skipped"]] == [run["trace"] for run in answer["runs"]]


def test_hosts_without_cpus_refuse_everything(call: Call) -> None:
    inventory = Path(__file__).parents[4] / "doc/examples/bare-metal.yaml"
    args = [str(TRACE), "--first", "20", "--inventory", str(inventory)]
    text = call(*args).stdout
    assert "Larger than any host: 20 instance(s)" in text
    assert re.search(r"instances refused +20\.0", text)


@pytest.mark.deep
def test_page_shows_any_names_of_flavors_settings_and_traces(
    call: Call, tmp_path: Path
) -> None:
    lines = [
        f'{i},0,9,9000,512,"{flavor}"'
        for i, flavor in enumerate(("a$b^$c", "<script>alert(1)</script>", "\x1b[31m"))
    ]
    path = tmp_path / os.fsdecode(b"trace\xff.csv")
    path.write_text("\n".join(["id,a,d,v,m,f", *lines]))
    conf = tmp_path / os.fsdecode(b"pack\xfe.conf")
    conf.write_text("[filter_scheduler]\nram_weight_multiplier = -1\n")
    folder, measures = tmp_path / "page", tmp_path / "measures.csv"
    call(
        str(path), "--hosts", "2", "--compare", str(conf), "--html", str(folder),
        "--csv", str(measures), "--columns",
        "id=id,arrival_s=a,departure_s=d,vcpus=v,memory_mb=m,flavor=f",
    )  # fmt: skip
    page = (folder / "index.html").read_text()
    assert "<script" not in page
    assert "\x1b" not in page
    assert "a$b^$c" in page
    ElementTree.parse(folder / "refused-instances-by-flavor.svg")
    with measures.open(newline="") as file:
        assert len({row["settings"] for row in csv.DictReader(file)}) == 2


def test_trace_of_a_population_only_is_measured(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("id,a,d,v,m\n1,-60,,48,512\n2,-30,-20,48,512\n")
    columns = "id=id,arrival_s=a,departure_s=d,vcpus=v,memory_mb=m"
    args = [str(path), "--hosts", "1", "--columns", columns, "--json"]
    summary = json.loads(call(*args).stdout)["runs"][0]["summary"]
    assert summary["vcpus_used"] == 0.5
