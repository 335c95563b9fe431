# SPDX-License-Identifier: Apache-2.0
"""`moorage why-not` says how a host ranked at the decision, also with its view."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from moorage.scheduler.cmd.cli.main import cli

from ....fixtures.explained_clouds import NAMES
from ....fixtures.explaining_api import FAILED, SELECTED, TWO, ExplainingAPI


def _call(url: str, *args: str, status: int = 0) -> str:
    result = CliRunner().invoke(cli, ["--url", url, *args])
    assert result.exit_code == status, result.output
    return result.stdout


def _json(url: str, *args: str) -> Any:
    return json.loads(_call(url, *args, "--json"))


@pytest.mark.parametrize("request_id", [SELECTED, TWO])
@pytest.mark.parametrize("options", [[], ["--then"]], ids=["record", "view"])
def test_rank_is_that_of_the_decision(
    url: str, request_id: str, options: list[str]
) -> None:
    [decision] = _json(url, "explain", request_id)["decisions"]
    first = decision["instances"][0]
    best = {top["host"]: (n, top) for n, top in enumerate(first["top_hosts"], 1)}
    assert len(best) > 1
    chosen = best[first["host"]][1]
    for name in NAMES:
        then = _json(url, "why-not", name, request_id, *options)["then"]
        assert then["is_whole"] is bool(options)
        assert (then["n_ranked"], then["selected"]) == (len(best), first["host"])
        if name not in best:
            assert then["ranks"] == []
            continue
        [rank] = then["ranks"]
        number, top = best[name]
        assert rank["rank"] == number
        assert rank["weight"] == pytest.approx(top["weight"])
        assert rank["is_selected"] is (name == first["host"])
        distance = sum(own - other for own, other in rank["parts"].values())
        assert distance == pytest.approx(top["weight"] - chosen["weight"])


def test_text_names_the_weighers_that_made_the_difference(url: str) -> None:
    [decision] = _json(url, "explain", SELECTED)["decisions"]
    first = decision["instances"][0]
    other = next(t for t in first["top_hosts"] if t["weight"] < first["weight"])
    text = " ".join(_call(url, "why-not", other["host"], SELECTED).split())
    assert f"{other['host']} ranked" in text
    assert "Weigher -" in text
    assert f"against {first['host']}, which was selected" in text
    text = _call(url, "why-not", first["host"], SELECTED, "--then")
    assert "and was selected" in text


def test_refused_request_has_the_checks_of_then(url: str) -> None:
    then = _json(url, "why-not", NAMES[0], FAILED, "--then")["then"]
    [verdict] = then["nodes"]
    assert not verdict["passes"]
    assert "No host passed all filters" in _call(url, "why-not", NAMES[0], FAILED)


def test_host_that_the_view_does_not_have_is_one_line(url: str) -> None:
    error = CliRunner().invoke(
        cli, ["--url", url, "why-not", "nowhere", SELECTED, "--then"]
    )
    assert error.exit_code == 1
    assert error.stderr.count("\n") == 1


def test_page_has_the_rank(api: ExplainingAPI, url: str) -> None:
    from werkzeug.test import Client

    [decision] = _json(url, "explain", SELECTED)["decisions"]
    host = decision["instances"][0]["host"]
    page = Client(api.app).get(
        "/why-not", query_string={"host": host, "request": SELECTED}
    )
    assert "and was selected" in page.text


def test_explain_shows_any_host_beside_the_decision(url: str) -> None:
    [decision] = _json(url, "explain", SELECTED)["decisions"]
    best = [top["host"] for top in decision["instances"][0]["top_hosts"]]
    others = [name for name in NAMES if name not in best]
    assert others
    for name in NAMES:
        then = _json(url, "explain", SELECTED, "--host", name)["then"]
        # A host beyond the best is judged on the stored state of all hosts.
        assert then["is_whole"] is (name in others)
        assert bool(then["ranks"]) is (name in best)
        assert [verdict["passes"] for verdict in then["nodes"]] == (
            [False] if name in others else []
        )
        text = _call(url, "explain", SELECTED, "--host", name)
        assert "At the decision" in text
        assert ("and was selected" in text) is (name == best[0])


def test_explain_of_a_host_that_never_was_is_one_line(url: str) -> None:
    error = CliRunner().invoke(
        cli, ["--url", url, "explain", SELECTED, "--host", "nowhere"]
    )
    assert error.exit_code == 1
    assert error.stderr.count("\n") == 1
