# SPDX-License-Identifier: Apache-2.0
"""Every real message parses, and what is written back equals it field for field."""

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.objects import MalformedObject, Serializer

from ..fixtures.property_tests import examples

WIRE = Path(__file__).parents[1] / "data" / "wire"
SERIALIZER = Serializer()


def corpus():
    with gzip.open(WIRE / "corpus.jsonl.gz", "rt") as lines:
        return [json.loads(line) for line in lines]


def same(message):
    """Sort what has no order: the names of changed fields."""
    if isinstance(message, dict):
        return {
            k: sorted(v) if k == "nova_object.changes" else same(v)
            for k, v in message.items()
        }
    return [same(item) for item in message] if isinstance(message, list) else message


def there_and_back(message):
    read = SERIALIZER.deserialize_entity({}, message)
    return json.loads(json.dumps(SERIALIZER.serialize_entity({}, read)))


CORPUS = corpus()
SCENARIOS = sorted(WIRE.glob("*.json"))
REQUESTS = [m["message"]["args"] for m in CORPUS if "spec_obj" in m["message"]["args"]]


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario_is_written_back_equal(path):
    message = json.loads(path.read_text())

    assert same(there_and_back(message)) == same(message)


@pytest.mark.parametrize("number", range(len(CORPUS)))
def test_message_is_written_back_equal(number):
    args = CORPUS[number]["message"]["args"]

    assert same(there_and_back(args)) == same(args)


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_context_crosses_whole(path):
    context = json.loads(path.read_text()).get("context", {})

    back = SERIALIZER.deserialize_context(SERIALIZER.serialize_context(context))

    assert back == context


def places(message, path=()):
    """List the path of every value inside a message."""
    inner = message.items() if isinstance(message, dict) else enumerate(message)
    for key, value in inner:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


def test_fault_in_any_field_is_reported_with_its_path():
    request = REQUESTS[0]["spec_obj"]
    texts = [p for p in places(request) if all(isinstance(key, str) for key in p)]
    fields = [p for p in texts if p[-2:-1] == ("nova_object.data",)]
    for path in fields:
        message = json.loads(json.dumps(request))
        holder = message
        for key in path[:-1]:
            holder = holder[key]
        holder[path[-1]] = 1j
        with pytest.raises(MalformedObject) as caught:
            SERIALIZER.deserialize_entity({}, message)
        named = [key for key in path if key != "nova_object.data"]
        assert caught.value.path == ".".join(["RequestSpec", *named])


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=12)
    | st.sampled_from(["1.0", "1.999", "2.0", "Flavor", "x" * 99, "0" * 40, "1e9999"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=5,
)


@st.composite
def mutated(draw):
    message = json.loads(json.dumps(draw(st.sampled_from(REQUESTS))))["spec_obj"]
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(list(places(message))))
        holder = message
        for key in path[:-1]:
            holder = holder[key]
        if draw(st.booleans()):
            del holder[path[-1]]
        else:
            holder[path[-1]] = draw(JSON)
        if not message:
            break
    return message


@examples(8)
@given(mutated())
def test_damaged_message_is_read_whole_or_refused(message):
    try:
        read = SERIALIZER.deserialize_entity({}, {"spec_obj": message})
        json.dumps(SERIALIZER.serialize_entity({}, read))
    except MalformedObject as error:
        str(error)  # its message can be made of any value


@examples(4)
@given(st.sampled_from(CORPUS), st.data())
def test_truncated_message_is_no_json_or_refused(message, data):
    text = json.dumps(message["message"]["args"])
    cut = text[: data.draw(st.integers(0, len(text) - 1))]
    with pytest.raises(
        (json.JSONDecodeError, MalformedObject)
    ):  # of json, or MalformedObject
        SERIALIZER.deserialize_entity({}, json.loads(cut))
