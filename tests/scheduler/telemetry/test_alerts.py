# SPDX-License-Identifier: Apache-2.0
"""The alert rules name metrics, label values and runbooks that exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from .conftest import Reader, Select

_ROOT = Path(__file__).parents[3]
_RULES = _ROOT / "etc/prometheus/moorage.rules.yml"
_TESTS = _ROOT / "etc/prometheus/moorage.rules.test.yml"
_SELECTOR = re.compile(r"(moorage_\w+)(?:\{(\w+)(?:=|=~)\"([^\"]+)\"\})?")


def _rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(_RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_rules_query_what_a_scheduler_exports(reader: Reader, select: Select) -> None:
    select()
    text = reader.get("/metrics").text
    samples = re.findall(r"^(moorage_\w+)\{(.*)\}", text, re.M)
    page = (_ROOT / "doc/reference/metrics.rst").read_text()
    for rule in _rules():
        selectors = _SELECTOR.findall(rule["expr"])
        assert selectors, rule["alert"]
        for name, label, values in selectors:
            if name.startswith("moorage_relay_"):
                assert f"``{name}``" in page
                continue
            assert f"# TYPE {name.removesuffix('_bucket')} " in text
            exported = [labels for sample, labels in samples if sample == name]
            for value in values.split("|") if label and exported else ():
                assert any(f'{label}="{value}"' in labels for labels in exported)


@pytest.mark.parametrize("rule", _rules(), ids=lambda rule: rule["alert"])
def test_rule_names_a_section_of_the_page_that_says_what_to_do(
    rule: dict[str, Any],
) -> None:
    page = (_ROOT / "doc/how-to/troubleshoot.rst").read_text()
    heading = rule["annotations"]["runbook"]
    assert f"\n{heading}\n{'-' * len(heading)}\n" in page
    assert rule["labels"]["severity"] in ("critical", "warning")


def test_promtools_tests_see_each_alert_fire() -> None:
    text = _TESTS.read_text()
    fired = set(re.findall(r'alertname="(\w+)"', text))
    assert fired == {rule["alert"] for rule in _rules()}
