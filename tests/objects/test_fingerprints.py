# SPDX-License-Identifier: Apache-2.0
"""Names, versions and fields are nova 34's, one by one and by fingerprint."""

import json
from pathlib import Path
from typing import Any

import pytest
from oslo_versionedobjects import fields as of
from oslo_versionedobjects.fixture import ObjectVersionChecker

from moorage.objects import REGISTRY
from moorage.objects.fields import Enumeration, class_of, element_of, type_of

NOVA = json.loads((Path(__file__).parents[1] / "data/nova_objects.json").read_text())
OBJECTS = NOVA["objects"]
FIELDS = [(name, field) for name in OBJECTS for field in OBJECTS[name]["fields"]]


def type_name(kind, nullable=False):
    suffix = " nullable" if nullable else ""
    name = kind.name if isinstance(kind, Enumeration) else type(kind).__name__
    if isinstance(kind, of.Object):
        return f"Object<{class_of(kind)[0]}>"
    if isinstance(kind, of.List | of.Set | of.Dict):
        element = element_of(kind)
        return f"{name}<{type_name(type_of(element), element.nullable)}>"
    return name + suffix


def default_of(field):
    if field.default is of.UnspecifiedDefault:
        return "<unspecified>"
    return "set()" if field.default == set() else field.default


def test_there_are_all_objects_and_no_other():
    assert set(REGISTRY) == set(OBJECTS)


@pytest.mark.parametrize("name", OBJECTS)
def test_fingerprint_is_novas(name):
    checker = ObjectVersionChecker(obj_classes={name: [REGISTRY[name]]})

    assert checker.get_hashes()[name] == OBJECTS[name]["fingerprint"]


@pytest.mark.parametrize("name", OBJECTS)
def test_object_has_novas_version_and_fields(name):
    assert OBJECTS[name]["version"] == REGISTRY[name].VERSION
    assert set(REGISTRY[name].fields) == set(OBJECTS[name]["fields"])


@pytest.mark.parametrize(("name", "field"), FIELDS, ids=".".join)
def test_field_is_novas(name, field):
    ours: Any = REGISTRY[name].fields[field]
    novas = OBJECTS[name]["fields"][field]

    assert type_name(type_of(ours)) == novas["type"]
    assert ours.nullable == novas["nullable"]
    assert ours.read_only == novas["read_only"]
    assert default_of(ours) == novas["default"]
    if "valid_values" in novas:
        assert list(ours.valid_values) == list(novas["valid_values"])
