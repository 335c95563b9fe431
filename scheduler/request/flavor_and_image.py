# SPDX-License-Identifier: Apache-2.0
"""A guest's settings in the flavor and the image of a request.

An operator writes ``hw:name`` (or ``os:name``) into a flavor's extra specs, a user
``hw_name`` into an image's properties; both are the same setting. An empty value
counts as unset.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oslo_utils import strutils

from ..errors import InvalidRequest, excerpt

if TYPE_CHECKING:
    from ...objects import RequestSpec
    from ...objects.base import WireObject


def set_field(obj: WireObject | None, name: str) -> Any:  # noqa: ANN401 - of its field's type
    """Return a versioned object's field, None if it is not set or `obj` is None."""
    return getattr(obj, name) if obj is not None and name in obj else None


@dataclass(frozen=True, slots=True)
class FlavorAndImage:
    """The flavor's and the image's settings for one guest.

    Attributes
    ----------
    n_vcpus : int
        The flavor's vCPUs.
    extra_specs : mapping
        The flavor's extra specs.
    properties : moorage.objects.ImageMetaProps or None
        The image's properties; None if the request has no image.
    """

    n_vcpus: int
    extra_specs: Mapping[str, str]
    properties: Any

    @classmethod
    def of(cls, spec_obj: RequestSpec) -> FlavorAndImage:
        """Return the settings of a request's guest."""
        flavor = set_field(spec_obj, "flavor")
        return cls(
            n_vcpus=set_field(flavor, "vcpus") or 0,
            extra_specs=set_field(flavor, "extra_specs") or {},
            properties=set_field(set_field(spec_obj, "image"), "properties"),
        )

    def extra_spec(self, key: str) -> str | None:
        """Return an extra spec, None if it is missing or empty."""
        return self.extra_specs.get(key) or None

    def image_property(self, name: str) -> Any:  # noqa: ANN401 - of its field's type
        """Return an image property, None if it is missing."""
        return set_field(self.properties, name)

    def both(self, name: str, prefix: str = "hw") -> tuple[str | None, Any]:
        """Return the flavor's and the image's value, each None if it is unset."""
        image_value = self.image_property(f"{prefix}_{name}")
        return self.extra_spec(f"{prefix}:{name}"), image_value or None

    def agreed(
        self, name: str, allowed: Collection[str], prefix: str = "hw"
    ) -> str | None:
        """Return the one value of flavor and image, None if neither has one.

        Raises
        ------
        InvalidRequest
            They contradict each other, or the value is not among `allowed`.
        """
        in_flavor, in_image = self.both(name, prefix)
        if in_flavor and in_image and in_flavor != in_image:
            raise contradiction(name, in_flavor, in_image, prefix)
        return one_of(f"{prefix}:{name}", in_flavor or in_image, allowed)

    def agreed_flag(self, name: str) -> bool:
        """Return whether flavor or image enable something.

        Raises
        ------
        InvalidRequest
            One of the two enables it and the other disables it.
        """
        in_flavor = _flag(self.extra_specs.get(f"hw:{name}"))
        in_image = _flag(self.image_property(f"hw_{name}"))
        if None not in (in_flavor, in_image) and in_flavor != in_image:
            raise contradiction(name, str(in_flavor), str(in_image))
        return bool(in_flavor or in_image)


def one_of(key: str, value: str | None, allowed: Collection[str]) -> str | None:
    """Return `value` if it is allowed or None; InvalidRequest otherwise."""
    if value is not None and value not in allowed:
        raise InvalidRequest(
            f"{key} is {excerpt(value)}; it must be one of {', '.join(allowed)}"
        )
    return value


def contradiction(
    name: str, in_flavor: str, in_image: str, prefix: str = "hw"
) -> InvalidRequest:
    """Return the error for a flavor and an image that contradict each other."""
    return InvalidRequest(
        f"{prefix}:{name} is {excerpt(in_flavor)} in the flavor and {prefix}_{name} is "
        f"{excerpt(in_image)} in the image; remove one of them, or make them equal"
    )


def _flag(value: object) -> bool | None:
    return None if value is None else bool(strutils.bool_from_string(value))
