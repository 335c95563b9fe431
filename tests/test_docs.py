# SPDX-License-Identifier: Apache-2.0
"""The documentation is correct: options, samples, examples, outputs, names, links."""

from __future__ import annotations

import ast
import importlib.util
import pkgutil
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import numpy.typing as npt
import pytest
from click.testing import CliRunner
from oslo_config import cfg, generator

from moorage.objects import RequestSpec
from moorage.scheduler.cmd.cli.main import cli
from moorage.scheduler.conf import list_opts, load, register_opts
from moorage.scheduler.conf.keystoneauth import auth_opts
from moorage.scheduler.drivers.plugins import load_filters, load_weighers
from moorage.scheduler.hosts import COLUMNS, HostBatch, HostTable
from moorage.scheduler.placement.query import Requirements
from moorage.scheduler.prefilters import ENABLED_BY, PrefilterRequest
from moorage.scheduler.service import build
from moorage.scheduler.sources.inventory import InventoryHost, read_inventory
from moorage.scheduler.sources.inventory_schema import inventory_schema
from moorage.testing import check_plugin
from moorage.weighers import BaseHostWeigher

from .fixtures.clouds import request
from .fixtures.property_tests import same_examples

ROOT = Path(__file__).parents[1]
DOC = ROOT / "doc"
PAGES = sorted(DOC.glob("**/*.rst"))
SAMPLE = ROOT / "etc/moorage/moorage.conf.sample"
EXAMPLES = DOC / "examples"
PLUGIN = ROOT / "examples/plugin"

#: Their options are keystoneauth1's: the help text depends on its release.
NOT_OURS = {"placement", "neutron", "nova", "cinder"}


def registered() -> Iterator[tuple[str, str]]:
    conf = read(cfg.ConfigOpts())
    oslos = set(conf)
    register_opts(conf)
    for name in set(conf) - oslos:
        if isinstance(conf[name], cfg.ConfigOpts.GroupAttr):
            yield from ((name, option) for option in conf[name])
        else:
            yield "DEFAULT", name


def read(conf: cfg.ConfigOpts) -> cfg.ConfigOpts:
    conf([], default_config_files=[], default_config_dirs=[])
    return conf


def groups(sample: str) -> dict[str, str]:
    """Return the text of a sample by group, of our own options only."""
    parts = re.split(r"^\[(\w+)\]$", sample, flags=re.MULTILINE)
    return dict(zip(parts[1::2], map(ours, parts[2::2]), strict=True))


def ours(group: str) -> str:
    _, _, rest = group.partition("# From moorage.conf\n#\n")
    return rest.partition("\n# From ")[0].strip().removesuffix("#").strip()


def module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def small_cloud() -> HostTable:
    table = HostTable()
    for host in read_inventory(EXAMPLES / "hosts.yaml").hosts:
        table.put(host.record)
    return table


@pytest.mark.parametrize(
    ("group", "option"),
    sorted(pair for pair in registered() if pair[0] not in NOT_OURS),
)
def test_every_option_is_in_the_sample(group: str, option: str) -> None:
    assert re.search(rf"^#?{option} =", groups(SAMPLE.read_text())[group], re.MULTILINE)


def test_every_registered_option_is_listed() -> None:
    listed = {(group, opt.dest) for group, opts in list_opts() for opt in opts}
    password_opts = {(g, opt.dest) for g in NOT_OURS for opt in auth_opts()}
    assert listed == set(registered()) | password_opts


def test_sample_is_current(tmp_path: Path) -> None:
    generated = tmp_path / "sample"
    generator.main(
        [f"--output-file={generated}", "--wrap-width=79", "--namespace=moorage.conf"]
    )
    current, stored = groups(generated.read_text()), groups(SAMPLE.read_text())
    for group in current.keys() - NOT_OURS:
        assert stored[group] == current[group], "regenerate it: see CONTRIBUTING.md"


def test_configuration_page_shows_what_the_sample_has() -> None:
    namespaces = re.findall(
        r"^namespace = (\S+)",
        (ROOT / "etc/moorage/config-generator.conf").read_text(),
        re.MULTILINE,
    )
    page = (DOC / "reference/configuration.rst").read_text()
    assert re.findall(r"show-options::\n\n   (\S+)", page) == namespaces


KEYS = inventory_schema(COLUMNS)["properties"]["hosts"]["items"]["properties"]


@pytest.mark.parametrize("key", [k for k in KEYS if k not in COLUMNS])
def test_every_key_of_a_host_is_documented(key: str) -> None:
    page = (DOC / "reference/inventory-file.rst").read_text()
    assert f"``{key}``" in page


def test_inventory_of_the_docs_is_valid() -> None:
    hosts: dict[str, InventoryHost] = {
        host.record.host: host for host in read_inventory(EXAMPLES / "hosts.yaml").hosts
    }
    assert sorted(hosts) == ["node1", "node2", "node3", "node4"]
    assert hosts["node3"].record.disabled


def test_quick_start_prints_what_the_page_shows() -> None:
    example = EXAMPLES / "quickstart.py"
    assert len(example.read_text().splitlines()) < 35
    run = subprocess.run(
        [sys.executable, "-W", "ignore", example],
        capture_output=True,
        text=True,
        check=True,
    )
    page = (DOC / "tutorials/first-decision.rst").read_text()
    assert "".join(f"   {line}\n" for line in run.stdout.splitlines()) in page


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(path, id=f"{path.relative_to(ROOT)}")
        for path in (ROOT / "README.md", ROOT / "CHANGELOG.md", *PAGES)
    ],
)
def test_nothing_is_installed_from_an_index_that_does_not_have_it(page: Path) -> None:
    found = re.findall(r"pip install\s+(\S+)", page.read_text())
    assert [each for each in found if each.strip("'`\"").startswith("moorage")] == []


def test_first_request_prints_what_the_docs_show(
    capsys: pytest.CaptureFixture[str],
) -> None:
    module("first_request").main()
    printed = capsys.readouterr().out.splitlines()
    page = (DOC / "tutorials/first-decision.rst").read_text()
    _, _, shown = page.partition("/python doc/examples/first_request.py\n")
    assert printed == [line.strip() for line in shown.splitlines()[: len(printed)]]


@pytest.mark.parametrize(
    ("example", "page"), [("locality", "locality"), ("bare_metal", "bare-metal")]
)
def test_examples_of_places_and_bare_metal_select_what_the_docs_show(
    example: str, page: str, capsys: pytest.CaptureFixture[str]
) -> None:
    module(example).main()
    printed = capsys.readouterr().out.splitlines()
    text = (DOC / f"how-to/{page}.rst").read_text()
    _, _, shown = text.partition(f"/python doc/examples/{example}.py\n")
    assert printed == [line.strip() for line in shown.splitlines()[: len(printed)]]


def test_instances_near_a_volume_go_where_the_docs_show(
    capsys: pytest.CaptureFixture[str],
) -> None:
    module("near_volume").main()
    printed = capsys.readouterr().out.splitlines()
    page = (DOC / "how-to/locality.rst").read_text()
    _, _, shown = page.partition("/python doc/examples/near_volume.py\n")
    assert printed == [line.strip() for line in shown.splitlines()[: len(printed)]]


@pytest.fixture
def burst_conf(monkeypatch: pytest.MonkeyPatch) -> cfg.ConfigOpts:
    """Options that name the plugins of the docs as an operator would."""
    monkeypatch.syspath_prepend(EXAMPLES)
    conf = cfg.ConfigOpts()
    register_opts(conf)
    for name, value in {
        "available_filters": ["burst.Burst", "burst.BurstColumn"],
        "enabled_filters": ["Burst", "BurstColumn"],
        "weight_classes": ["burst.FewInstances", "burst.FewInstancesColumn"],
    }.items():
        conf.set_override(name, value, group="filter_scheduler")
    return read(conf)


def test_both_forms_of_the_filter_agree(burst_conf: cfg.ConfigOpts) -> None:
    masks = [
        each.passing(small_cloud().batch(), request()).tolist()
        for each in load_filters(burst_conf, time.time)
    ]
    assert masks == [[True] * 4] * 2


def test_both_forms_of_the_weigher_agree(burst_conf: cfg.ConfigOpts) -> None:
    weights = [
        each.weigh_all(small_cloud().batch(), request()).tolist()
        for each in load_weighers(burst_conf, time.time)
    ]
    assert weights == [[0, 0, 0, -1]] * 2


@pytest.mark.parametrize(
    ("hints", "required"),
    [({"quiet": ["yes"]}, {"CUSTOM_QUIET"}), ({}, set())],
    ids=["with the hint", "without the hint"],
)
def test_prefilter_requires_the_trait(
    hints: dict[str, list[str]], required: set[str]
) -> None:
    requirements = Requirements()
    spec = request(scheduler_hints=hints)
    module("quiet").quiet_hosts_only(
        PrefilterRequest(spec, requirements, HostTable().aggregates, cfg.ConfigOpts())
    )
    assert requirements.root_required == required


# -- the plugin tutorial; tests/examples/test_plugin.py installs and runs its code -----


def test_plugin_tutorial_shows_every_file() -> None:
    page = (DOC / "tutorials/plugin.rst").read_text()
    shown = set(re.findall(r"literalinclude:: \.\./\.\./examples/plugin/(\S+)", page))
    files = (path for path in PLUGIN.rglob("*.*") if path.suffix in (".py", ".toml"))
    assert {f"{path.relative_to(PLUGIN)}" for path in files} - shown == {
        "moorage_example_plugin/__init__.py"
    }


@pytest.mark.deep
def test_plugin_tutorial_shows_the_failure_of_the_conformance_test() -> None:
    class FillWeigher(BaseHostWeigher):
        def weigh_all(
            self, hosts: HostBatch, spec_obj: RequestSpec
        ) -> npt.NDArray[np.float64]:
            total_mb = hosts.total_usable_ram_mb
            with np.errstate(all="ignore"):
                share: npt.NDArray[np.float64] = (
                    total_mb - hosts.free_ram_mb
                ) / total_mb
            return share

    page = (DOC / "tutorials/plugin.rst").read_text()
    shown = re.search(r"AssertionError: (.*?: )\[-inf\]\n   (hosts = )", page)
    assert shown is not None
    with same_examples(), pytest.raises(AssertionError) as failure:
        check_plugin(FillWeigher)
    first, *notes = str(failure.value), *failure.value.__notes__
    assert first.startswith(shown[1])
    assert f"{shown[2]}batch(host(" in "\n".join(notes)


# -- names, links and log lines on all pages -------------------------------------------


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(path, id=f"{path.relative_to(ROOT)}")
        for path in (*ROOT.glob("*.md"), *ROOT.glob("examples/**/*.md"))
    ],
)
def test_links_of_markdown_files_exist(page: Path) -> None:
    links = re.findall(
        r"\]\((?!http)([^)]+)|(?:src|srcset)=\"([^\"]+)", page.read_text()
    )
    wrong = [
        link for pair in links if not _leads_somewhere(page, link := "".join(pair))
    ]
    assert wrong == []


def _leads_somewhere(page: Path, link: str) -> bool:
    """Return whether a relative link names a file, and its anchor a heading there."""
    name, _, anchor = link.partition("#")
    target = page.parent / name if name else page
    if not anchor:
        return target.exists()
    titles = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
    return anchor in {
        re.sub(r"[^\w -]", "", t).lower().replace(" ", "-") for t in titles
    }


def test_pages_name_files_of_the_documentation_that_exist() -> None:
    sources = [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    sources += [ROOT / "scheduler/README.md", ROOT / "examples/plugin/README.md"]
    named = {
        name
        for page in sources
        for name in re.findall(r"doc/[\w/-]+\.\w+", page.read_text())
    }
    assert {name for name in named if not (ROOT / name).exists()} == set()


def test_named_objects_exist() -> None:
    named = {
        name
        for page in PAGES
        for name in re.findall(r"``(moorage(?:\.\w+)+)[`(]", page.read_text())
    }
    # Groups of entry points are packages or have no module; spans have attributes.
    named -= {"moorage.heartbeats", "moorage.prefilters", "moorage.drivers"}
    named -= {
        "moorage.sources",
        "moorage.columns",
        "moorage.instances",
        "moorage.outcome",
        "moorage.conf",
    }
    assert {name for name in named if not _exists(name)} == set()


def _exists(name: str) -> bool:
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


def test_pages_show_commands_with_options_that_exist() -> None:
    shown = {
        command.replace("\\\n", " ")
        for page in PAGES
        for command in re.findall(
            r"^ +\$ moorage ((?:.*\\\n)*.*)$", page.read_text(), re.MULTILINE
        )
    }
    assert shown
    # An unknown command or option is refused before --help is.
    wrong = [
        command
        for command in sorted(shown)
        if CliRunner().invoke(cli, [*shlex.split(command), "--help"]).exit_code
    ]
    assert wrong == []


def test_named_options_exist() -> None:
    known = set(registered())
    ours = {"moorage", "telemetry", "agent", "scheduler", "filter_scheduler", "metrics"}
    ours |= {"kafka", "locality", "relay", "solver"}
    pages = [page for page in PAGES if page.name != "nova-options.rst"]
    named = {
        (page.name, *pair)
        for page in pages
        for pair in re.findall(r"\[(\w+)\]\s+(\w+)", page.read_text())
        if pair[0] in ours
    }
    elsewhere = {("filter_scheduler", "pci_in_placement")}  # of nova's other services
    assert {each for each in named if each[1:] not in known | elsewhere} == set()


def test_page_names_the_options_of_the_prefilters() -> None:
    page = (DOC / "reference/plugin-interfaces.rst").read_text()
    _, _, table = page.partition(".. _prefilter-options:")
    rows = re.findall(r"\* - ``(\w+)``\n     - ``(\w+)`` \((\w+)\)", table)
    assert {name: option for name, option, _ in rows} == ENABLED_BY
    defaults = load([], config_files=[]).scheduler
    for _, option, default in rows:
        assert str(defaults[option]).lower() == default


def test_metrics_page_has_all_metrics_and_no_other_page_has_unknown_ones() -> None:
    modules = sorted((ROOT / "scheduler/telemetry").glob("*.py"))
    code = "".join(module.read_text() for module in modules)
    exported = set(re.findall(r'"(moorage_\w+)"', code))
    page = (DOC / "reference/metrics.rst").read_text()
    documented = {_without_total(n) for n in re.findall(r"``(moorage_\w+)``", page)}
    assert documented == exported
    named = {
        _without_total(name)
        for page in PAGES
        for name in re.findall(r"``(moorage_\w+)[`{ ]", page.read_text())
    }
    assert named - {"moorage_example_plugin"} <= exported


def _without_total(name: str) -> str:
    return name.removesuffix("_total")


@pytest.mark.parametrize(
    "name",
    [
        "how-to/choose-a-driver.rst",
        "how-to/high-availability.rst",
        "how-to/troubleshoot.rst",
        "tutorials/beside-nova.rst",
    ],
)
def test_log_lines_are_those_of_the_code(name: str) -> None:
    page = (DOC / name).read_text()
    line = re.compile(r"^ +(?:INFO|WARNING|ERROR) (moorage\.\S+) \[-\] (.+)$", re.M)
    lines = line.findall(page)
    assert lines
    wrong = [
        message
        for logger, message in lines
        if not any(pattern.fullmatch(message) for pattern in _messages(logger))
    ]
    assert wrong == []


def _messages(logger: str) -> list[re.Pattern[str]]:
    """Return patterns of the texts in a module, and of texts of others that it logs."""
    patterns = _patterns(ROOT.joinpath(*logger.split(".")[1:]).with_suffix(".py"))
    if logger.endswith(".placement_queries"):  # logs a text of the module `health`
        patterns += _patterns(ROOT / "scheduler/placement/health.py")
    return patterns


def _patterns(module_path: Path) -> list[re.Pattern[str]]:
    found = []
    for node in ast.walk(ast.parse(module_path.read_text())):
        fixed = re.split(r"%(?:\.\d)?[sdfrg]", _text(node))
        if sum(map(len, fixed)) >= _MIN_FIXED:
            found.append(re.compile(".+".join(map(re.escape, fixed))))
    return found


def _text(node: ast.AST) -> str:
    """Return the format of a text in the code; "" if it is none."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_text(part) or "%s" for part in parts)
    return ""


#: Characters besides the arguments that a text must have to identify a log message.
_MIN_FIXED = 8


@pytest.fixture(scope="module")
def decision_line() -> str:
    """The decision line of the first request of doc/examples/first_request.py."""
    conf = load(config_files=[])
    inventory = str(EXAMPLES / "hosts.yaml")
    conf.set_override("inventory_file", inventory, group="moorage")
    scheduler = build(conf)
    scheduler.start()
    try:
        module("first_request").select(scheduler)
        [record] = scheduler.decisions.newest()
    finally:
        scheduler.stop()
    return record.summary()


@pytest.mark.parametrize(
    "name", ["how-to/explain-a-decision.rst", "reference/decision-line.rst"]
)
def test_decision_line_is_that_of_the_code(name: str, decision_line: str) -> None:
    [shown] = re.findall(r"^   Decision (.*)$", (DOC / name).read_text(), re.M)
    # A file has no age.
    assert _masked(shown.replace(" 0.4 s old", "")) == _masked(decision_line)


def _masked(line: str) -> str:
    line = re.sub(r"[0-9a-f]{8}(?:-[0-9a-f]+){4}", "UUID", line)
    return re.sub(r"\d+\.\d ms", "N ms", line)
