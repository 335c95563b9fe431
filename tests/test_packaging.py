# SPDX-License-Identifier: Apache-2.0
"""The installed package is moorage, complete, and nothing else."""

from __future__ import annotations

import configparser
import importlib
import os
import re
import runpy
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path, PurePosixPath

import pytest

from moorage.filters import BaseHostFilter
from moorage.weighers import BaseHostWeigher

ROOT = Path(__file__).parents[1]
#: Folders of Python that are no part of the package.
BESIDE = {"bench", "build", "dist", "doc", "etc", "examples", "tests"}
#: Where a wheel installs files below the prefix.
FOLDERS_OF_DATA = ("etc", "share/man/man1", "share/man/man8", "share/moorage")


def _setup_cfg() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser


def _packages() -> set[str]:
    return set(_setup_cfg()["options"]["packages"].split())


def _in_tree() -> set[Path]:
    """The folders of Python, relative to the root."""
    found = {Path()}
    for folder, folders, files in os.walk(ROOT):
        here = Path(folder).relative_to(ROOT)
        folders[:] = [
            name
            for name in folders
            if not name.startswith((".", "__")) and not name.endswith(".egg-info")
            and not (here == Path() and name in BESIDE)
        ]  # fmt: skip
        if any(name.endswith(".py") for name in files):
            found.add(here)
    return found


def test_setup_cfg_lists_every_package_of_the_tree() -> None:
    in_tree = {".".join(("moorage", *folder.parts)) for folder in _in_tree()}
    assert _packages() == in_tree


def test_every_package_has_an_init() -> None:
    assert [f for f in _in_tree() if not (ROOT / f / "__init__.py").exists()] == []


def test_root_has_no_other_modules() -> None:
    assert [path.name for path in ROOT.glob("*.py")] == ["__init__.py"]


ENTRY_POINTS = [
    pytest.param(value, id=f"{group}-{name}")
    for group, lines in _setup_cfg()["options.entry_points"].items()
    for name, _, value in (
        line.replace(" ", "").partition("=") for line in lines.split("\n") if line
    )
]


@pytest.mark.parametrize("value", ENTRY_POINTS)
def test_entry_point_resolves(value: str) -> None:
    module, _, name = value.partition(":")
    assert callable(getattr(importlib.import_module(module), name))


@pytest.mark.parametrize(
    ("group", "folder"),
    [("moorage.filters", "filters"), ("moorage.weighers", "weighers")],
)
def test_every_plugin_has_an_entry_point_of_its_class_name(
    group: str, folder: str
) -> None:
    stems = [path.stem for path in (ROOT / folder).glob("*.py")]
    modules = [
        importlib.import_module(f"moorage.{folder}.{stem}")
        for stem in stems
        if stem != "__init__"
    ]
    base = {"filters": BaseHostFilter, "weighers": BaseHostWeigher}[folder]
    plugins = {
        each
        for module in modules
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, base) and each is not base
    }
    # What others are made of is no plugin itself.
    shared = {parent for each in plugins for parent in each.__mro__[1:]}
    classes = {f"{each.__name__} = {each.__module__}" for each in plugins - shared}
    lines = _setup_cfg()["options.entry_points"][group].strip().splitlines()
    assert {line.partition(":")[0] for line in lines} == classes


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The names in a wheel that is built from a copy of the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    copy = folder / "checkout"
    skipped = shutil.ignore_patterns(
        ".*", "__pycache__", "*.egg-info", "build", "dist", "data", "_build"
    )
    shutil.copytree(ROOT, copy, ignore=skipped)
    # As `make man` builds it, which takes ten seconds.
    page = copy / "etc/man/man8/moorage-scheduler.8"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.touch()
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "-q"]
    command = [*pip, "-w", str(folder), str(copy)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    (built,) = folder.glob("moorage-*.whl")
    with zipfile.ZipFile(built) as archive:
        return archive.namelist()


@pytest.mark.deep
def test_wheel_has_moorage_and_nothing_else(wheel: list[str]) -> None:
    tops = {PurePosixPath(name).parts[0] for name in wheel}
    info = next(top for top in tops if top.endswith(".dist-info"))
    data = info.replace(".dist-info", ".data")
    assert tops <= {"moorage", info, data}
    beyond = {
        name
        for name in wheel
        if name.startswith(f"{data}/")
        and not name.startswith(
            tuple(f"{data}/data/{folder}/" for folder in FOLDERS_OF_DATA)
        )
    }
    assert beyond == set()
    assert f"{data}/data/share/moorage/systemd/moorage-scheduler.service" in wheel
    assert f"{data}/data/share/moorage/sysusers.d/moorage.conf" in wheel
    assert f"{data}/data/share/man/man8/moorage-scheduler.8" in wheel
    inside = {
        PurePosixPath(name).parts[1] for name in wheel if name.startswith("moora")
    }
    assert not inside & BESIDE


def test_wheel_has_every_module_of_the_tree(wheel: list[str]) -> None:
    modules = {
        f"moorage/{path.relative_to(ROOT).as_posix()}"
        for folder in _in_tree()
        for path in (ROOT / folder).glob("*.py")
    }
    assert {name for name in wheel if name.endswith(".py")} == modules


def test_wheel_has_the_typing_marker(wheel: list[str]) -> None:
    assert "moorage/py.typed" in wheel


def test_wheel_has_every_file_of_the_page(wheel: list[str]) -> None:
    page = ROOT / "scheduler" / "web" / "page"
    files = [*page.glob("static/*"), *page.glob("templates/*")]
    assert len(files) > 10
    names = {f"moorage/{path.relative_to(ROOT).as_posix()}" for path in files}
    assert names - set(wheel) == set()


def test_wheel_has_the_sample_configuration(wheel: list[str]) -> None:
    assert any(name.endswith("etc/moorage/moorage.conf.sample") for name in wheel)


def test_each_command_has_a_man_page() -> None:
    pages = runpy.run_path(str(ROOT / "doc/conf.py"))["man_pages"]
    commands = _setup_cfg()["options.entry_points"]["console_scripts"]
    names = {line.split()[0] for line in commands.strip().splitlines()}
    assert {name for _, name, *_ in pages} == names
    assert [page for page, *_ in pages if not (ROOT / f"doc/{page}.rst").exists()] == []


def test_tests_of_make_quick_exist() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    [named] = re.findall(r"^QUICK +:= ((?:.*\\\n)*.*)", makefile, re.MULTILINE)
    paths = named.replace("\\\n", "").split()
    assert paths
    assert [path for path in paths if not (ROOT / path).exists()] == []
