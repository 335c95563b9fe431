# SPDX-License-Identifier: Apache-2.0
"""Build a RequestSpec like a conductor's from JSON that an operator has written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import jsonschema

from ...objects import Flavor, ImageMeta, ImageMetaProps, RequestSpec
from ..errors import InvalidRequest, excerpt, shortened

_MAX_NUMBER: Final = 2**31 - 1
_MAX_KEYS: Final = 256
_MAX_TEXT: Final = 4096

_AMOUNT = {"type": "integer", "minimum": 0, "maximum": _MAX_NUMBER}
_NAME = {"type": "string", "minLength": 1, "maxLength": 255}
_TEXT = {"type": "string", "maxLength": _MAX_TEXT}
_TEXTS = {
    "type": "object",
    "maxProperties": _MAX_KEYS,
    "propertyNames": {"type": "string", "minLength": 1, "maxLength": 255},
    "additionalProperties": _TEXT,
}

#: The JSON schema of a flavor.
FLAVOR_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["vcpus", "memory_mb"],
    "additionalProperties": False,
    "properties": {
        "name": _NAME,
        "vcpus": {**_AMOUNT, "minimum": 1},
        "memory_mb": {**_AMOUNT, "minimum": 1},
        "root_gb": _AMOUNT,
        "ephemeral_gb": _AMOUNT,
        "swap_mb": _AMOUNT,
        "extra_specs": _TEXTS,
    },
}

#: The JSON schema of a request.
REQUEST_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["flavor"],
    "additionalProperties": False,
    "properties": {
        "flavor": FLAVOR_SCHEMA,
        "image_properties": _TEXTS,
        "hints": {
            "type": "object",
            "maxProperties": _MAX_KEYS,
            "propertyNames": {"type": "string", "minLength": 1, "maxLength": 255},
            "additionalProperties": {
                "type": "array",
                "items": _TEXT,
                "maxItems": _MAX_KEYS,
            },
        },
        "availability_zone": _NAME,
        "project_id": _NAME,
        "user_id": _NAME,
        "ignore_hosts": {"type": "array", "items": _NAME, "maxItems": _MAX_KEYS},
        "force_hosts": {"type": "array", "items": _NAME, "maxItems": _MAX_KEYS},
    },
}


def read_request(document: Mapping[str, Any]) -> RequestSpec:
    """Return the request of a document that matches `REQUEST_SCHEMA`.

    Raises
    ------
    InvalidRequest
        nova has no such property of an image, or no such value of one.
    """
    flavor = read_flavor(document["flavor"])
    return RequestSpec(
        flavor=flavor,
        image=ImageMeta(properties=_properties(document.get("image_properties", {}))),
        num_instances=1,
        project_id=document.get("project_id"),
        user_id=document.get("user_id"),
        availability_zone=document.get("availability_zone"),
        scheduler_hints=_lists(document.get("hints", {})),
        ignore_hosts=document.get("ignore_hosts"),
        force_hosts=document.get("force_hosts"),
        force_nodes=None,
        instance_group=None,
        requested_destination=None,
        numa_topology=None,
        pci_requests=None,
        is_bfv=False,
    )


def read_flavor(sizes: Mapping[str, Any]) -> Flavor:
    """Return the flavor of a document that matches `FLAVOR_SCHEMA`."""
    name = sizes.get("name", "dry-run")
    return Flavor(
        id=0,
        name=name,
        flavorid=name,
        vcpus=sizes["vcpus"],
        memory_mb=sizes["memory_mb"],
        root_gb=sizes.get("root_gb", 0),
        ephemeral_gb=sizes.get("ephemeral_gb", 0),
        swap=sizes.get("swap_mb", 0),
        extra_specs=dict(sizes.get("extra_specs", {})),
    )


#: Extra specs from which nova's API would compute parts of a request; they are missing
#: here.
_COMPUTED: Final = ("hw:numa_", "hw:mem_page_size", "hw:cpu_policy", "pci_passthrough:")


def notes_on(document: Mapping[str, Any]) -> list[str]:
    """Return notes on what nova's API would add to the request of a document."""
    specs = document["flavor"].get("extra_specs", {})
    names = sorted(name for name in specs if name.startswith(_COMPUTED))
    if not names:
        return []
    return [
        f"nova's API computes NUMA cells and PCI devices from {', '.join(names)}; this "
        "request has none: use a stored request for such a flavor"
    ]


def _properties(properties: Mapping[str, str]) -> ImageMetaProps:
    for name, value in properties.items():
        try:
            ImageMetaProps.from_dict({name: value})
        except (ValueError, TypeError) as e:
            raise InvalidRequest(f"image_properties.{excerpt(name)[1:-1]}: {e}") from e
    return ImageMetaProps.from_dict(dict(properties))


def _lists(hints: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    return {name: list(values) for name, values in hints.items()}


def check(document: object, schema: Mapping[str, Any], name: str = "the body") -> None:
    """Raise InvalidRequest, with the path, unless a document matches a schema.

    Parameters
    ----------
    name : str
        The name of the whole document, for errors without a path.
    """
    validator = jsonschema.Draft202012Validator(schema)
    error = next(iter(validator.iter_errors(document)), None)
    if error is not None:
        path = [*error.absolute_path]
        where = excerpt(".".join(map(str, path)))[1:-1] if path else name
        raise InvalidRequest(f"{where}{_named(document, path)}: {_message(error)}")


def _named(document: Any, path: Sequence[str | int]) -> str:  # noqa: ANN401 - JSON
    """Return the name of the part of a document at a path, such as a flavor's.

    In a list, a name is clearer than the index in the path.
    """
    name = None
    for key in path:
        document = document[key]
        if isinstance(document, dict) and isinstance(document.get("name"), str):
            name = document["name"]
    return "" if name is None else f" (named {excerpt(name)})"


def _message(error: jsonschema.ValidationError) -> str:
    """Return what is wrong; jsonschema quotes the whole value, which may be long."""
    quoted = repr(error.instance)
    if not error.message.startswith(quoted):
        return shortened(error.message, 300)
    why = error.message.removeprefix(quoted)
    if error.validator == "maxLength":
        why = f" has more than {error.validator_value} characters"
    return f"{excerpt(error.instance)}{why}"
