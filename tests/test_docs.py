# SPDX-License-Identifier: Apache-2.0
"""What the documentation shows is true: options, samples, examples."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from oslo_config import cfg, generator

from moorage.scheduler.conf import list_opts, register_opts
from moorage.scheduler.conf.keystoneauth import auth_opts
from moorage.scheduler.drivers.plugins import load_filters, load_weighers
from moorage.scheduler.hosts import COLUMNS, HostTable
from moorage.scheduler.placement.query import Requirements
from moorage.scheduler.prefilters import PrefilterRequest
from moorage.scheduler.sources.inventory import InventoryHost, read_inventory
from moorage.scheduler.sources.inventory_schema import inventory_schema

from .fixtures.clouds import request

ROOT = Path(__file__).parents[1]
DOC = ROOT / "doc"
SAMPLE = ROOT / "etc/moorage/moorage.conf.sample"
EXAMPLES = DOC / "examples"

#: Their options are keystoneauth1's: their help is another one with another release.
NOT_OURS = {"placement", "neutron"}


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
    """Return what a sample says by group, of options of ours only."""
    parts = re.split(r"^\[(\w+)\]$", sample, flags=re.MULTILINE)
    return dict(zip(parts[1::2], map(ours, parts[2::2]), strict=True))


def ours(group: str) -> str:
    _, _, rest = group.partition("# From moorage.conf\n#\n")
    return rest.partition("\n# From ")[0].strip().removesuffix("#").strip()


def module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


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
    of_the_password_plugin = {(g, opt.dest) for g in NOT_OURS for opt in auth_opts()}
    assert listed == set(registered()) | of_the_password_plugin


def test_sample_is_current(tmp_path: Path) -> None:
    made = tmp_path / "sample"
    generator.main(
        [f"--output-file={made}", "--wrap-width=79", "--namespace=moorage.conf"]
    )
    now, shown = groups(made.read_text()), groups(SAMPLE.read_text())
    for group in now.keys() - NOT_OURS:
        assert shown[group] == now[group], "write it again: see CONTRIBUTING.md"


def test_configuration_page_shows_what_the_sample_has() -> None:
    namespaces = re.findall(
        r"^namespace = (\S+)",
        (ROOT / "etc/moorage/config-generator.conf").read_text(),
        re.MULTILINE,
    )
    page = (DOC / "configuration.rst").read_text()
    assert re.findall(r"show-options::\n\n   (\S+)", page) == namespaces


KEYS = inventory_schema(COLUMNS)["properties"]["hosts"]["items"]["properties"]


@pytest.mark.parametrize("key", [k for k in KEYS if k not in COLUMNS])
def test_every_key_of_a_host_is_documented(key: str) -> None:
    page = (DOC / "hosts.rst").read_text().partition(".. _inventory-hosts:")[2]
    assert f"``{key}``" in page


def test_inventory_of_the_docs_is_right() -> None:
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
    page = (DOC / "quickstart.rst").read_text()
    assert "".join(f"   {line}\n" for line in run.stdout.splitlines()) in page


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(path, id=path.name)
        for path in (ROOT / "README.md", *sorted(DOC.glob("*.rst")))
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
    page = (DOC / "contributor.rst").read_text()
    _, _, shown = page.partition("$ python doc/examples/first_request.py\n")
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
    figures = [
        each.weigh_all(small_cloud().batch(), request()).tolist()
        for each in load_weighers(burst_conf, time.time)
    ]
    assert figures == [[0, 0, 0, -1]] * 2


@pytest.mark.parametrize(
    ("hints", "required"),
    [({"quiet": ["yes"]}, {"CUSTOM_QUIET"}), ({}, set())],
    ids=["asked for", "not asked for"],
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
