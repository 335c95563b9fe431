# SPDX-License-Identifier: Apache-2.0
"""A JSON query is evaluated against every host's attributes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from moorage.filters.json_query import JsonFilter
from moorage.scheduler.errors import InvalidRequest

from ..conftest import batch, host, options, spec

ROWS = batch(
    host(host="a", free_ram_mb=0, vcpus_used=8, stats={"tier": "gold", "n": "1"}),
    host(host="b", free_ram_mb=1024, hypervisor_type=None, host_ip="10.0.0.1"),
    host(host="c", free_ram_mb=4096, disabled=True, stats={"tier": "iron"}),
    host(host="d", free_ram_mb=1024, cpu_allocation_ratio=1.5, metrics={"cpu": 2}),
)


def _passing(query: Any) -> str:
    spec_obj = spec(scheduler_hints={"query": [json.dumps(query)]})
    mask = JsonFilter(options()).prepare(spec_obj).passing(ROWS, spec_obj)
    return "".join(ROWS.host[mask])


@pytest.mark.parametrize(
    ("query", "passing"),
    [
        ([], "abcd"),
        ({}, "abcd"),
        (["=", "$free_ram_mb", 1024], "bd"),
        (["=", 1024, "$free_ram_mb"], "bd"),
        (["<", "$free_ram_mb", 1024], "a"),
        (["<=", "$free_ram_mb", 1024], "abd"),
        ([">", "$free_ram_mb", 1024], "c"),
        ([">=", "$free_ram_mb", 1024], "bcd"),
        (["<", 0, "$free_ram_mb"], "bcd"),
        ([">", "$free_ram_mb", 0, 1024], "c"),
        (["=", "$free_ram_mb", 1024, 1024], "bd"),
        (["=", "$free_ram_mb", 1024.0], "bd"),
        ([">", "$cpu_allocation_ratio", 1], "d"),
        (["=", "$vcpus_used", "$vcpus_total"], "a"),
        (["in", "$free_ram_mb", 0, 4096], "ac"),
        (["in", "$host", "a", "d", "x"], "ad"),
        (["=", "$host", "a"], "a"),
        (["=", "$hypervisor_hostname", "$host"], "abcd"),
        ([">", "$host", "b"], "cd"),
        (["=", "$stats.tier", "gold"], "a"),
        (["=", "$stats.tier", "$stats.tier"], "ac"),
        (["=", "$metrics.cpu", 2], "d"),
        # less than two terms
        (["="], ""),
        (["=", "$free_ram_mb"], ""),
        (["in", "$host"], ""),
        (["=", "$hypervisor_type", "QEMU"], "acd"),
        # what is not there is left out
        (["=", "$no_such", 2, 2], "abcd"),
        (["=", "$hypervisor_type", 2, 2], "b"),
        (["=", 2, "$hypervisor_type"], ""),
        (["=", "", 2, 2], "abcd"),
        (["=", None, 2, 2], "abcd"),
        (["=", "$stats.no_such.key", 2, 2], "abcd"),
        (["=", "$free_ram_mb.key", 2, 2], "abcd"),
        (["=", "$disabled", 2, 2], "abcd"),
        # what has no order
        (["<", "$free_ram_mb", "9"], ""),
        (["=", "$free_ram_mb", "1024"], ""),
        (["<", "$host", 9], ""),
        (["<", "a", 9], ""),
        (["=", "$free_ram_mb", {"x": 1}], ""),
        # and, or, not
        (["and", [">", "$free_ram_mb", 0], ["<", "$free_ram_mb", 4096]], "bd"),
        (["or", ["=", "$free_ram_mb", 0], ["=", "$free_ram_mb", 4096]], "ac"),
        (["and"], "abcd"),
        (["or"], ""),
        (["not"], ""),
        (["and", "$free_ram_mb"], "bcd"),
        (["and", "$host_ip"], "abcd"),
        (["or", "$host_ip"], "b"),
        (["or", "$stats"], "ac"),
        (["not", "$host_ip"], ""),
        (["not", ["=", "$free_ram_mb", 1024]], "ac"),
        (["not", True, False], "abcd"),
        (["not", True, True], ""),
        (["and", []], "abcd"),
        (["not", []], ""),
        (["or", False, 0, ""], ""),
        (["or", "x"], "abcd"),
        # the result of an operator is a term too
        (["=", [">", "$free_ram_mb", 0], True], "bcd"),
        (["=", [">", "$free_ram_mb", 0], ["=", "$stats.tier", "iron"]], "ac"),
        (["=", "$host", "$free_ram_mb"], ""),
        (["in", "$free_ram_mb", "$stats.n", 0], "a"),
        # the service
        (["=", "$service.disabled", False], "abd"),
        (["=", "$service.host", "a"], "a"),
        (["or", "$service.forced_down"], ""),
        # numbers that no column holds
        (["<", "$free_ram_mb", 10**30], "abcd"),
        (["<", -(10**30), "$free_ram_mb"], "abcd"),
    ],
    ids=json.dumps,
)
def test_query(query: Any, passing: str) -> None:
    assert _passing(query) == passing


def test_not_inside_another_operator_negates() -> None:
    # nova treats the list that "not" returns as true, even if it is [False].
    inner = ["not", ["=", "$free_ram_mb", 1024]]
    assert _passing(["and", inner]) == _passing(inner) == "ac"
    assert _passing(["not", inner]) == "bd"


@pytest.mark.parametrize("hints", [None, {}, {"query": []}, {"query": [""]}], ids=str)
def test_no_query_passes_all(hints: Any) -> None:
    spec_obj = spec(scheduler_hints=hints)
    assert JsonFilter(options()).prepare(spec_obj).passing(ROWS, spec_obj).all()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("[", "not the text of one JSON value", id="no JSON"),
        pytest.param('["!=", 1, 2]', "'!=' is not an operator", id="operator"),
        pytest.param('["and", ["x"]]', "'x' is not an operator", id="a nested one"),
        pytest.param('["in", "$host", ["a", "b"]]', "'a' is not an op", id="a list"),
        pytest.param('[["and"]]', r"\['and'\] is not an operator", id="a list for one"),
        pytest.param('"abc"', "'abc' is not a list", id="text"),
        pytest.param("5", "5 is not a list", id="a number"),
        pytest.param('{"a": 1}', "is not a list", id="an object"),
        pytest.param('["not", ' * 21 + "1" + "]" * 21, "more than 20 deep", id="deep"),
        pytest.param(
            '["in", 1' + ", 1" * 5500 + "]", "more than 16384 characters", id="long"
        ),
        pytest.param(
            json.dumps(["in", *(f"$stats.{i}" for i in range(21))]),
            "more than 20 variables",
            id="variables",
        ),
        pytest.param(
            json.dumps(["or", *[["=", 1, 0]] * 67]), "more than 200 terms", id="terms"
        ),
        pytest.param("[" * 100_000, "cannot be used", id="too deep to be read"),
    ],
)
def test_unreadable_query_is_a_client_error(text: str, message: str) -> None:
    spec_obj = spec(scheduler_hints={"query": [text]})
    with pytest.raises(
        InvalidRequest, match=rf"(?s)scheduler_hints: query .*{message}"
    ):
        JsonFilter(options()).prepare(spec_obj)


def test_unreadable_query_of_an_old_instance_does_not_stop_a_rebuild() -> None:
    hints = {"query": ["["], "_nova_check_type": ["rebuild"]}
    spec_obj = spec(scheduler_hints=hints)
    assert JsonFilter(options()).prepare(spec_obj).passing(ROWS, spec_obj).all()


def test_two_queries_are_a_client_error() -> None:
    spec_obj = spec(scheduler_hints={"query": ['["and"]', '["or"]']})
    with pytest.raises(InvalidRequest, match="scheduler_hints: query"):
        JsonFilter(options()).prepare(spec_obj)


def test_rejection_names_query_and_values() -> None:
    query = ["and", [">", "$free_ram_mb", 0], ["=", "$stats.tier", "iron"]]
    spec_obj = spec(scheduler_hints={"query": [json.dumps(query)]})
    prepared = JsonFilter(options()).prepare(spec_obj)
    reason = prepared.explain_rejection(ROWS[0], spec_obj)
    assert reason is not None
    assert (reason.attribute, reason.required, reason.available) == (
        "free_ram_mb, stats.tier",
        json.dumps(query),
        "$free_ram_mb is 0, $stats.tier is gold",
    )


def test_rejection_names_a_variable_that_hosts_lack() -> None:
    spec_obj = spec(scheduler_hints={"query": ['["=", "$no_such", 1]']})
    prepared = JsonFilter(options()).prepare(spec_obj)
    reason = prepared.explain_rejection(ROWS[0], spec_obj)
    assert reason is not None
    assert reason.available == "$no_such is None"
