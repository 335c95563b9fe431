# SPDX-License-Identifier: Apache-2.0
"""Lines that are logged within a decision carry whose it is."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from oslo_config import cfg
from oslo_context.context import RequestContext, get_current
from oslo_log import formatters
from oslo_log import log as oslo_logging

from moorage.scheduler import logs
from moorage.scheduler.errors import NoValidHost

from ...fixtures.clouds import new_uuids
from .conftest import Select

WIRE = {
    "request_id": "req-1",
    "global_request_id": "req-0",
    "user_id": "someone",
    "project_id": "theirs",
    "auth_token": "hush",
    "service_catalog": [],
}

Lines = Callable[[], list[str]]


@pytest.fixture
def conf() -> cfg.ConfigOpts:
    made = cfg.ConfigOpts()
    oslo_logging.register_options(made)
    made([])
    return made


@pytest.fixture(params=["nova's format", "json"])
def lines(request: Any, conf: cfg.ConfigOpts) -> Iterator[tuple[str, Lines]]:
    """Log as oslo.log does; return what was written so far."""
    kept = io.StringIO()
    handler = logging.StreamHandler(kept)
    is_json = request.param == "json"
    handler.setFormatter(
        formatters.JSONFormatter()
        if is_json
        else formatters.ContextFormatter(config=conf)
    )
    logger = logging.getLogger("moorage")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield request.param, lambda: kept.getvalue().splitlines()
    logger.removeHandler(handler)
    logger.setLevel(before)


def test_log_lines_of_a_decision_carry_the_request(
    lines: tuple[str, Lines], select: Select
) -> None:
    kind, written = lines
    uuids = new_uuids()
    with pytest.raises(NoValidHost):
        select(uuids, context=WIRE, vcpus=1000)
    found = [line for line in written() if "no allocation candidates" in line]
    found += [line for line in written() if "Decision req-1" in line]
    assert len(found) == 2
    for line in found:
        if kind == "json":
            context = json.loads(line)["context"]
            assert context["request_id"] == "req-1"
            assert context["global_request_id"] == "req-0"
            assert context["project_id"] == "theirs"
            assert context["instance_uuids"] == uuids
        else:
            assert "[req-0 req-1 someone theirs" in line
            assert f"[instance: {uuids[0]}]" in line
        assert "hush" not in line


def test_json_line_of_a_decision_has_its_record_as_data(
    lines: tuple[str, Lines], select: Select
) -> None:
    kind, written = lines
    select(new_uuids(), context=WIRE)
    [line] = [line for line in written() if "Decision req-1" in line]
    assert "DecisionRecord" not in line
    if kind == "json":
        fields = json.loads(line)
        record = fields["extra"]["decision"]
        assert record["outcome"] == "selected"
        keys = {"name", "n_in", "n_out", "reason", "instance"}
        assert record["steps"][0].keys() == keys
        assert record["instances"][0]["top_hosts"][0]["host"] in line
        assert fields["args"] == [fields["message"].removeprefix("Decision ")]


def _current() -> RequestContext:
    found = get_current()
    assert found is not None
    return found


def test_several_instances_are_a_field_of_their_own() -> None:
    uuids = new_uuids(2)
    with logs.request(WIRE, uuids):
        here = _current()
        assert here.get_logging_values()["instance_uuids"] == uuids
        assert here.resource_uuid is None


def test_context_of_the_thread_is_put_back() -> None:
    with logs.request(WIRE, ()):
        with logs.request({**WIRE, "request_id": "req-2"}, ()):
            assert _current().request_id == "req-2"
        assert _current().request_id == "req-1"
    assert get_current() is None


def test_an_error_puts_it_back_too() -> None:
    with pytest.raises(ZeroDivisionError), logs.request(WIRE, ()):
        raise ZeroDivisionError
    assert get_current() is None


@pytest.mark.parametrize(
    "context", [None, {}, object()], ids=["none", "empty", "anything"]
)
def test_without_a_request_id_there_is_no_context(context: object) -> None:
    with logs.request(context, ()):
        assert get_current() is None


def test_request_context_in_process_is_read_like_the_dict_of_the_wire() -> None:
    theirs = RequestContext(
        user_id="someone", project_id="theirs", auth_token="hush", overwrite=False
    )
    with logs.request(theirs, ()):
        values = _current().get_logging_values()
    assert values["request_id"] == theirs.request_id
    assert (values["user"], values["project_id"]) == ("someone", "theirs")
    assert values["auth_token"] is None
