# SPDX-License-Identifier: Apache-2.0
"""The dashboard's queries name what is exported, and a real Prometheus answers them."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from werkzeug.test import Client

from moorage.scheduler.relay.status import RelayRole, RelayStatus
from moorage.scheduler.telemetry.pages import make_relay_app

from ...fixtures.markers import Server, require_marker, skip_without
from ...fixtures.ports import free_port
from ...fixtures.waiting import wait_until
from .conftest import Reader, Select

_ROOT = Path(__file__).parents[3]
_RULES = _ROOT / "etc/prometheus"
_BOARD: dict[str, Any] = json.loads((_ROOT / "etc/grafana/moorage.json").read_text())
_PANELS: list[dict[str, Any]] = [p for p in _BOARD["panels"] if p["type"] != "row"]
#: Metrics that other processes than a scheduler export.
_OF_OTHERS = ("moorage_relay_", "moorage_audit_", "moorage_capacity_")
#: Metrics without a value as long as nothing of the kind has happened.
_OF_EVENTS = (
    "moorage_candidate_answers_total",
    "moorage_claim_announcements_total",
    "moorage_host_reports_total",
    "moorage_provider_reading",
    "moorage_stored_decisions_total",
)
_SELECTOR = re.compile(r"(moorage_\w+)(?:\{([^}]*)\})?")
_CONFIG = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: ["{rules}"]
scrape_configs: [{{job_name: moorage, static_configs: [{{targets: ["{target}"]}}]}}]
"""


def _program(name: str) -> str:
    require_marker("prometheus")
    program = shutil.which(name)
    if program is None:
        skip_without(Server.PROMETHEUS, f"{name} is not on the PATH")
    return program


def _queries() -> Iterator[tuple[str, str]]:
    """Yield the title of each panel with a query of it, as Grafana sends it."""
    for panel in _PANELS:
        for target in panel["targets"]:
            query = target["expr"].replace("$__rate_interval", "1m")
            yield panel["title"], query.replace("$instance", ".*")


def test_panels_do_not_overlap_and_have_units() -> None:
    ids = [panel["id"] for panel in _BOARD["panels"]]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in _BOARD["panels"]:
        at = panel["gridPos"]
        cells = set(itertools.product(
            range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"])
        ))  # fmt: skip
        assert at["x"] + at["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
    assert all(panel["fieldConfig"]["defaults"]["unit"] for panel in _PANELS)


def test_all_metrics_of_the_reference_are_in_the_dashboard() -> None:
    known = set(_reference())
    text = " ".join(query for _, query in _queries())
    shown = {_family(name) for name in re.findall(r"moorage_\w+", text)}
    assert shown <= known
    of_one_audit = {
        "moorage_audit_consumers",
        "moorage_audit_timestamp_seconds",
        "moorage_audit_duration_seconds",
        "moorage_relay_hosts",
    }
    assert known - shown <= of_one_audit


def _family(name: str) -> str:
    return re.sub("_(bucket|sum|count)$", "", name)


def _reference() -> dict[str, tuple[set[str], str]]:
    """Return the labels of each metric of the reference, and what it says of it."""
    page = (_ROOT / "doc/reference/metrics.rst").read_text()
    rows = re.split(r"^   \* - ", page, flags=re.M)[2:]
    cells = [row.split("\n     -", 2) for row in rows]
    return {
        name: (set(re.findall(r"``(\w+)``", labels)), meaning)
        for names, labels, meaning in cells
        for name in re.findall(r"``(moorage_\w+)``", names)
    }


def test_scheduler_and_relay_export_the_labels_of_the_reference(
    reader: Reader, select: Select
) -> None:
    select()
    status = RelayStatus(RelayRole.LEADER, n_written=Counter(report=1), last_write_at=1)
    relay = Client(make_relay_app(status)).get("/metrics").text
    families = [
        *text_string_to_metric_families(reader.get("/metrics").text),
        *text_string_to_metric_families(relay),
    ]
    reference, seen = _reference(), set()
    for sample in (sample for family in families for sample in family.samples):
        name = _family(sample.name)
        if name.startswith("moorage_") and not name.endswith("_created"):
            assert set(sample.labels) - {"le"} == reference[name][0], name
            seen.add(name)
    unseen = set(reference) - seen
    assert all(name.startswith((*_OF_OTHERS, *_OF_EVENTS)) for name in unseen), unseen
    assert not any(name.startswith("moorage_relay_") for name in unseen)


def test_panels_name_labels_and_values_of_the_reference() -> None:
    reference = _reference()
    for panel, target in ((p, t) for p in _PANELS for t in p["targets"]):
        labels: set[str] = {"instance"}
        for name, matchers in _SELECTOR.findall(target["expr"]):
            labels_of_metric, meaning = reference[_family(name)]
            labels |= labels_of_metric
            if name.endswith("_bucket"):
                labels.add("le")
            for label, value in re.findall(r'(\w+)[=!~]+"([^"]+)"', matchers):
                assert label in {*labels_of_metric, "instance"}, panel["title"]
                assert value == "$instance" or f"``{value}``" in meaning, value
        grouped = re.findall(r"\bby \(([^)]*)\)", target["expr"])
        by = {label.strip() for part in grouped for label in part.split(",")}
        assert by <= labels, panel["title"]
        assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= by


@pytest.mark.prometheus
@pytest.mark.parametrize("command", ["check", "test"])
def test_promtool_accepts_the_rules_and_sees_each_alert_fire(command: str) -> None:
    file = {"check": "moorage.rules.yml", "test": "moorage.rules.test.yml"}[command]
    done = subprocess.run(
        [_program("promtool"), command, "rules", file],
        cwd=_RULES, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def prometheus(reader: Reader, tmp_path: Path) -> Iterator[str]:
    """The URL of a Prometheus that scrapes the scheduler each second."""
    config, url = tmp_path / "prometheus.yml", f"127.0.0.1:{free_port()}"
    target = urllib.parse.urlsplit(reader.url).netloc
    rules = _RULES / "moorage.rules.yml"
    config.write_text(_CONFIG.format(rules=rules, target=target))
    with (tmp_path / "prometheus.log").open("w") as log:
        process = subprocess.Popen(
            [
                *(_program("prometheus"), f"--config.file={config}"),
                f"--web.listen-address={url}",
                f"--storage.tsdb.path={tmp_path}/data",
            ],
            stdout=log, stderr=log,
        )  # fmt: skip
    yield f"http://{url}"
    process.kill()
    process.wait()


def _result(prometheus: str, path: str, **arguments: str) -> Any:
    query = urllib.parse.urlencode(arguments)
    with urllib.request.urlopen(f"{prometheus}/api/v1/{path}?{query}") as answer:
        return json.load(answer)["data"]


def _has_data(prometheus: str, query: str) -> bool:
    """Return whether a query results in a number; 0 / 0 is none."""
    result = _result(prometheus, "query", query=query)["result"]
    return any(series["value"][1] != "NaN" for series in result)


@pytest.mark.prometheus
def test_each_panel_shows_what_a_scheduler_exports(
    prometheus: str, select: Select
) -> None:
    def has_two_samples() -> bool:
        select()
        try:
            rate = "rate(moorage_decisions_total[1m]) > 0"
            return bool(_result(prometheus, "query", query=rate)["result"])
        except OSError:  # it has not started yet
            return False

    wait_until(has_two_samples, interval_s=0.5)
    empty = [
        (title, query)
        for title, query in _queries()
        if not _has_data(prometheus, query)
        and not any(name in query for name in (*_OF_OTHERS, *_OF_EVENTS))
    ]
    assert empty == []
    groups = _result(prometheus, "rules")["groups"]
    health = {rule["health"] for group in groups for rule in group["rules"]}
    assert health in ({"ok"}, {"ok", "unknown"})  # unknown: not evaluated yet
