# SPDX-License-Identifier: Apache-2.0
"""Hints keep a request with instances, or apart from them."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.filters.hinted_instances import DifferentHostFilter, SameHostFilter

from ..conftest import batch, host, hosts, instance_uuid, options, spec

ONE, TWO, OTHER = (instance_uuid(n) for n in ("one", "two", "other"))
ROWS = batch(
    *hosts("free_ram_mb", [1, 2, 3]), instances={"a": [ONE, OTHER], "b": [TWO]}
)


@pytest.mark.parametrize(
    ("values", "with_them"),
    [
        pytest.param([ONE], "a", id="one instance"),
        pytest.param([ONE, TWO], "ab", id="any of two"),
        pytest.param([ONE, OTHER], "a", id="two of one host"),
        pytest.param([instance_uuid("gone")], "", id="an unknown one"),
        pytest.param(["", ONE], "a", id="an empty one among them"),
    ],
)
def test_hint(values: list[str], with_them: str) -> None:
    same = SameHostFilter(options()).passing(
        ROWS, spec(scheduler_hints={"same_host": values})
    )
    different = DifferentHostFilter(options()).passing(
        ROWS, spec(scheduler_hints={"different_host": values})
    )
    assert "".join(ROWS.host[same]) == with_them
    assert (different == ~same).all()


@pytest.mark.parametrize("form", [SameHostFilter, DifferentHostFilter])
@pytest.mark.parametrize(
    "hints",
    [
        None,
        {},
        {"same_host": [], "different_host": []},
        {"same_host": [""], "different_host": [""]},
        {"other": [ONE]},
    ],
    ids=str,
)
def test_no_hint_passes_all(form: Any, hints: Any) -> None:
    assert form(options()).passing(ROWS, spec(scheduler_hints=hints)).all()


def test_nodes_of_one_service_share_its_instances() -> None:
    rows = batch(
        host(host="a", nodename="n1"),
        host(host="a", nodename="n2"),
        host(host="b"),
        instances={"a": [ONE]},
    )
    spec_obj = spec(scheduler_hints={"same_host": [ONE]})
    mask = SameHostFilter(options()).passing(rows, spec_obj)
    assert mask.tolist() == [True, True, False]


def test_rejection_names_the_instances() -> None:
    spec_obj = spec(
        scheduler_hints={"same_host": [ONE, TWO], "different_host": [ONE, TWO]}
    )
    same = SameHostFilter(options()).explain_rejection(ROWS[2], spec_obj)
    different = DifferentHostFilter(options()).explain_rejection(ROWS[0], spec_obj)
    assert same is not None
    assert (same.required, same.available) == (f"one of {ONE}, {TWO}", "nothing")
    assert different is not None
    assert (different.required, different.available) == (f"none of {ONE}, {TWO}", ONE)
