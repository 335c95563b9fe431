# SPDX-License-Identifier: Apache-2.0
"""Objects in any nesting, others' objects, and contexts."""

import datetime
import json

from oslo_versionedobjects import base, fields

from moorage.objects import Flavor, Selection, Serializer

SERIALIZER = Serializer()


class Foreign(base.VersionedObject):
    fields = {"names": fields.SetOfStringsField()}  # noqa: RUF012 - oslo's way


base.VersionedObjectRegistry.objectify(Foreign)


def there_and_back(value):
    written = json.loads(json.dumps(SERIALIZER.serialize_entity({}, value)))
    return SERIALIZER.deserialize_entity({}, written)


def test_objects_are_found_in_any_nesting():
    back = there_and_back({"a": [(Selection(service_host="h"),)], "b": {"c": None}})

    assert back["a"][0][0].service_host == "h"
    assert back["b"] == {"c": None}


def test_reply_is_json():
    time = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)

    written = SERIALIZER.serialize_entity({}, [{"x"}, (1,), time])

    assert written == [["x"], [1], "2026-01-02T00:00:00Z"]


def test_objects_of_others_are_written():
    written = SERIALIZER.serialize_entity({}, [Foreign(names={"a"})])

    assert json.loads(json.dumps(written)) == written
    assert written[0]["versioned_object.data"] == {"names": ["a"]}


def test_context_keeps_all_that_is_json():
    context = {"user_id": "u", "roles": ["a"], "session": object(), "future": {"x": 1}}

    crossed = SERIALIZER.serialize_context(context)

    assert crossed == {"user_id": "u", "roles": ["a"], "future": {"x": 1}}
    assert SERIALIZER.deserialize_context(crossed) == crossed


def test_context_reaches_the_object():
    context = {"user_id": "u"}
    flavor = SERIALIZER.deserialize_entity(context, Flavor(vcpus=1).obj_to_primitive())

    assert flavor.obj_context == context
