# SPDX-License-Identifier: Apache-2.0
"""Reports have the wire form of versioned objects; their values are not read here."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.objects import (
    REGISTRY,
    MalformedObject,
    ReportKind,
    Serializer,
    UnsupportedObject,
    report_data,
    report_primitive,
)

UUID = "c0a80101-0000-4000-8000-000000000000"


def delta(**changes: Any) -> dict[str, Any]:
    """A delta in its wire form; what is changed are the keys around its fields."""
    data = {
        "uuid": UUID,
        "incarnation": UUID,
        "since": 1,
        "revision": 2,
        "changes": {"free_ram_mb": 1},
        "instances_added": [],
        "instances_removed": [],
    }
    keys = {f"moorage_object.{key}": value for key, value in changes.items()}
    return {**report_primitive(ReportKind.DELTA, data), **keys}


def test_reports_are_none_of_novas_objects() -> None:
    assert not {kind.value for kind in ReportKind} & REGISTRY.keys()


@pytest.mark.parametrize("kind", ReportKind)
def test_what_is_written_is_read_again(kind: ReportKind) -> None:
    data = {"uuid": UUID, "revision": 1}
    primitive = report_primitive(kind, data)
    assert primitive == {
        "moorage_object.name": kind.value,
        "moorage_object.namespace": "moorage",
        "moorage_object.version": "1.2",
        "moorage_object.data": data,
    }
    assert report_data(primitive) == (kind, data)


def test_serializer_hands_reports_on_as_they_are() -> None:
    cast = {"reports": [delta(), delta(version="7.0")]}
    assert Serializer().deserialize_entity({}, cast) == cast


@pytest.mark.parametrize("version", ["1.0", "1.7", "1.0.3"])
def test_minor_versions_are_accepted(version: str) -> None:
    kind, data = report_data(delta(version=version))
    assert (kind, data["since"]) == (ReportKind.DELTA, 1)


@pytest.mark.parametrize(
    ("primitive", "error", "words"),
    [
        ("text", MalformedObject, "HostReport or HostDelta"),
        ({}, MalformedObject, "moorage_object.name"),
        (delta(name="HostGossip"), UnsupportedObject, "HostGossip"),
        (delta(name=7), MalformedObject, "moorage_object.name"),
        (delta(name=[]), MalformedObject, "moorage_object.name"),
        (delta(namespace="nova"), MalformedObject, "namespace 'moorage'"),
        (delta(version="2.0"), MalformedObject, "version 1.x of HostDelta"),
        (delta(version="new"), MalformedObject, "a version like 1.2"),
        (delta(version=1.0), MalformedObject, "moorage_object.version"),
        (delta(data=[]), MalformedObject, "moorage_object.data"),
    ],
)
def test_what_is_no_report_is_refused(
    primitive: object, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        report_data(primitive)
