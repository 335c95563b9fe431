# SPDX-License-Identifier: Apache-2.0
"""Reports are the host table's columns; both kinds are pinned by fingerprint."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from oslo_versionedobjects.fixture import ObjectVersionChecker

from moorage.objects import (
    REGISTRY,
    HostDelta,
    HostReport,
    MalformedObject,
    Serializer,
    UnsupportedObject,
    report_data,
)
from moorage.objects.host_report import REPORTS
from moorage.scheduler.hosts import HostRecord

UUID = "c0a80101-0000-4000-8000-000000000000"
BESIDE = {"incarnation", "revision", "reply_topic", "reply_server", "instances"}

# A changed fingerprint needs a new minor version, and a reader that can do without.
FINGERPRINTS = {
    "HostReport": "1.0-6a130ae82c05dbb6cce6075bf5589cea",
    "HostDelta": "1.0-3c627d7c676374d45977b20ccdaae213",
}


def delta(**changes: Any) -> dict[str, Any]:
    """A delta in its wire form; what is changed are the keys around its fields."""
    made = HostDelta(
        uuid=UUID,
        incarnation=UUID,
        since=1,
        revision=2,
        changes={"free_ram_mb": 1},
        instances_added=[],
        instances_removed=[],
    )
    keys = {f"moorage_object.{key}": value for key, value in changes.items()}
    return {**made.obj_to_primitive(), **keys}


def test_report_has_the_tables_columns() -> None:
    columns = {field.name for field in dataclasses.fields(HostRecord)}
    # When a host was seen is the scheduler's to tell.
    assert set(HostReport.fields) - BESIDE == columns - {"last_seen_up"}


@pytest.mark.parametrize("name", FINGERPRINTS)
def test_fingerprint_is_pinned(name: str) -> None:
    checker = ObjectVersionChecker(obj_classes={name: [REPORTS[name]]})
    assert checker.get_hashes()[name] == FINGERPRINTS[name]


def test_reports_are_none_of_novas_objects() -> None:
    assert not REPORTS.keys() & REGISTRY.keys()


def test_what_is_written_is_read_again() -> None:
    primitive = delta()
    read = HostDelta.obj_from_primitive(primitive)
    assert read.obj_to_primitive() == primitive
    assert read.changes == {"free_ram_mb": 1}


def test_serializer_hands_reports_on_as_they_are() -> None:
    cast = {"reports": [delta(), delta(version="7.0")]}
    assert Serializer().deserialize_entity({}, cast) == cast


@pytest.mark.parametrize("version", ["1.0", "1.7", "1.0.3"])
def test_minor_versions_are_taken(version: str) -> None:
    cls, data = report_data(delta(version=version))
    assert (cls, data["since"]) == (HostDelta, 1)


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
