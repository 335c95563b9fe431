# SPDX-License-Identifier: Apache-2.0
"""Numbers with units, and links to pages."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from werkzeug.urls import uri_to_iri

from moorage.scheduler.display import age
from moorage.scheduler.web.page import formats


@pytest.mark.parametrize(
    ("write", "value", "text"),
    [
        (formats.count, 12345, "12,345"),
        (formats.count, None, "\u2013"),
        (formats.percent, 0.614, "61%"),
        (formats.percent, math.nan, "\u2013"),
        (formats.memory, 512, "512 MiB"),
        (formats.memory, 262144, "256 GiB"),
        (formats.memory, 200 * 1024 * 1024, "200.0 TiB"),
        (formats.disk, 4000, "4,000 GB"),
        (formats.disk, 4_000_000, "4,000 TB"),
        (formats.milliseconds, 1.25, "1.2 ms"),
        (formats.milliseconds, 122.1, "122 ms"),
        (formats.milliseconds, 12_345, "12.3 s"),
        (formats.milliseconds, None, "\u2013"),
        (age, 61, "61 s"),
        (age, 600, "10 min"),
        (age, 86400 * 3, "3 d"),
        (age, None, "\u2013"),
    ],
)
def test_numbers_have_units(write: Callable[[Any], str], value: Any, text: str) -> None:
    assert write(value) == text


@pytest.mark.parametrize("name", ["", ".", "..", "a/../b", "/a", "a//b", "x" * 256])
def test_a_name_that_a_path_cannot_hold_has_no_page(name: str) -> None:
    assert formats.host_path(name) is None


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=50))
def test_a_path_has_one_name_whatever_it_contains(name: str) -> None:
    path = formats.host_path(name)
    if path is not None:
        assert path.isascii()
        assert path.count("/") == 2
        assert not set("?#\"'<> \\") & set(path)
        assert uri_to_iri(path).isprintable() or not name.isprintable()
