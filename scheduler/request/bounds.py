# SPDX-License-Identifier: Apache-2.0
"""Size limits for the parts of a request that users control.

A request beyond these limits is rejected before it is processed, because values of
some megabytes would occupy a worker for many seconds. nova's API and database allow
much less: 255 characters for a property, a name or an extra spec.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ..errors import InvalidRequest, excerpt
from .flavor_and_image import set_field

if TYPE_CHECKING:
    from ...objects import RequestSpec
    from ...objects.base import WireObject

#: Characters of one image property, name or ID.
MAX_TEXT: Final = 255
#: Longer image properties, which the scheduler does not read: a signature by an RSA key
#: of 2048 bits has 344 characters. Only the bound of all together holds for them.
_LONG_PROPERTIES: Final = frozenset({"img_signature", "os_command_line"})
#: Characters of all scheduler hints, of all image properties or of all extra specs.
MAX_TOTAL_TEXT: Final = 64 * 1024
#: Hosts that a request may ignore or force.
MAX_HOST_NAMES: Final = 10_000

_NAMES: Final = ("availability_zone", "project_id", "user_id")
_LISTS: Final = ("ignore_hosts", "force_hosts", "force_nodes")


def check_bounds(spec_obj: RequestSpec) -> None:
    """Reject a request if a part of it is too large.

    Raises
    ------
    InvalidRequest
        It names the part, and quotes its first 200 characters.
    """
    for name in _NAMES:
        _check_text(name, set_field(spec_obj, name))
    for name in _LISTS:
        _check_host_names(name, set_field(spec_obj, name) or ())
    _check_total("scheduler_hints", set_field(spec_obj, "scheduler_hints") or {})
    extra_specs = set_field(set_field(spec_obj, "flavor"), "extra_specs") or {}
    _check_total("flavor.extra_specs", extra_specs)
    _check_image(set_field(set_field(spec_obj, "image"), "properties"))


def _check_image(properties: WireObject | None) -> None:
    if properties is None:
        return
    present = properties.set_values()
    for name, value in present.items():
        for text in () if name in _LONG_PROPERTIES else _texts(value):
            _check_text(f"image.properties.{name}", text)
    _check_total("image.properties", present)


def _check_text(name: str, text: str | None) -> None:
    if text is not None and len(text) > MAX_TEXT:
        raise InvalidRequest(
            f"{name} is {excerpt(text)}; it must have at most {MAX_TEXT} characters"
        )


def _check_host_names(name: str, hosts: Sequence[str]) -> None:
    if len(hosts) > MAX_HOST_NAMES:
        raise InvalidRequest(
            f"{name} has {len(hosts)} names, {excerpt(hosts[:10])}; it must have at "
            f"most {MAX_HOST_NAMES}"
        )
    for host in hosts:
        _check_text(name, host)


def _check_total(name: str, values: Mapping[str, object]) -> None:
    sizes = {key: len(key) + sum(map(len, _texts(values[key]))) for key in values}
    if sum(sizes.values()) > MAX_TOTAL_TEXT:
        largest = max(sizes, key=sizes.__getitem__)
        raise InvalidRequest(
            f"{name} have {sum(sizes.values())} characters together; they must have at "
            f"most {MAX_TOTAL_TEXT}. The largest is {excerpt(largest)}: "
            f"{excerpt(', '.join(_texts(values[largest])))}"
        )


def _texts(value: Any) -> Iterator[str]:  # noqa: ANN401 - of its field's type
    """Yield the texts in a value, recursively."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from value
        yield from _texts(list(value.values()))
    elif isinstance(value, Iterable):
        for each in value:
            yield from _texts(each)
