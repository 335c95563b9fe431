# SPDX-License-Identifier: Apache-2.0
"""A guest's settings in the flavor and the image of a request.

An operator writes ``hw:name`` (or ``os:name``) into a flavor's extra specs, a user
``hw_name`` into an image's properties; both are the same setting. An empty value
counts as unset.

The CPU policies are here, too, by the rules of nova 34 (``nova.virt.hardware``). nova's
API has applied them before, so only a request that bypassed it can fail on them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
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


#: No host has more; it limits the size of sets of CPUs.
MAX_CPUS = 65536


class CPUPolicy(StrEnum):
    """Which of a guest's vCPUs have a dedicated host CPU, ordered from none to all."""

    SHARED = "shared"
    MIXED = "mixed"
    DEDICATED = "dedicated"


class ThreadPolicy(StrEnum):
    """How a pinned guest uses the threads of a core."""

    PREFER = "prefer"
    ISOLATE = "isolate"
    REQUIRE = "require"


class EmulatorPolicy(StrEnum):
    """Whether the emulator's threads have a dedicated host CPU."""

    SHARE = "share"
    ISOLATE = "isolate"


_RANK: dict[str, int] = {policy: rank for rank, policy in enumerate(CPUPolicy)}


def cpu_policy(guest: FlavorAndImage) -> CPUPolicy | None:
    """Return the flavor's CPU policy, or else the image's.

    Raises
    ------
    InvalidRequest
        A policy is unknown, or the image requests more than the flavor grants.
    """
    in_flavor, in_image = guest.both("cpu_policy")
    one_of("hw:cpu_policy", in_flavor, list(CPUPolicy))
    one_of("hw_cpu_policy", in_image, list(CPUPolicy))
    if in_flavor and in_image and _RANK[in_image] > _RANK[in_flavor]:
        raise contradiction("cpu_policy", in_flavor, in_image)
    chosen = in_flavor or in_image
    return CPUPolicy(chosen) if chosen else None


def thread_policy(guest: FlavorAndImage) -> ThreadPolicy | None:
    """Return the thread policy; "prefer" in the flavor overrides the image's.

    Raises
    ------
    InvalidRequest
        A policy is unknown, or the image contradicts the flavor.
    """
    in_flavor, in_image = guest.both("cpu_thread_policy")
    one_of("hw:cpu_thread_policy", in_flavor, list(ThreadPolicy))
    one_of("hw_cpu_thread_policy", in_image, list(ThreadPolicy))
    if in_flavor not in (None, ThreadPolicy.PREFER, in_image or in_flavor):
        raise contradiction("cpu_thread_policy", str(in_flavor), in_image)
    chosen = in_flavor or in_image
    return ThreadPolicy(chosen) if chosen else None


def emulator_policy(guest: FlavorAndImage) -> EmulatorPolicy | None:
    """Return the policy for the emulator's threads, which only a flavor can set."""
    key = "hw:emulator_threads_policy"
    chosen = one_of(key, guest.extra_spec(key), list(EmulatorPolicy))
    return EmulatorPolicy(chosen) if chosen else None


def n_dedicated_cpus(guest: FlavorAndImage) -> int:
    """Return how many vCPUs of a mixed guest are dedicated.

    Raises
    ------
    InvalidRequest
        A mask is malformed, or selects none or more than the flavor's vCPUs.
    """
    return len(dedicated_cpus(guest))


def dedicated_cpus(guest: FlavorAndImage) -> set[int]:
    """Return the dedicated vCPUs of a mixed guest; errors as `n_dedicated_cpus`."""
    realtime = _realtime_cpus(guest)
    return _dedicated_cpus(guest) or realtime


def _dedicated_cpus(guest: FlavorAndImage) -> set[int]:
    key = "hw:cpu_dedicated_mask"
    mask = guest.extra_spec(key)
    if mask is None:
        return set()
    cpus = _mask(key, mask, guest.n_vcpus)
    if len(cpus) == guest.n_vcpus:
        raise _bad_mask(key, mask, "leave at least one vCPU shared")
    return cpus


def _realtime_cpus(guest: FlavorAndImage) -> set[int]:
    if not strutils.bool_from_string(guest.extra_spec("hw:cpu_realtime")):
        return set()
    key = "hw:cpu_realtime_mask"
    in_flavor, in_image = guest.both("cpu_realtime_mask")
    mask = in_image or in_flavor or f"0-{guest.n_vcpus - 1}"
    cpus = _mask(key, mask, guest.n_vcpus)
    if len(cpus) == guest.n_vcpus and emulator_policy(guest) is None:
        raise _bad_mask(
            key, mask, "leave out a vCPU, unless hw:emulator_threads_policy is set"
        )
    return cpus


def _mask(key: str, mask: str, n_vcpus: int) -> set[int]:
    # A mask that only excludes starts from all vCPUs.
    all_cpus = f"0-{n_vcpus - 1}," if mask.strip().startswith("^") else ""
    try:
        cpus = parse_cpu_mask(all_cpus + mask)
    except ValueError:
        raise _bad_mask(key, mask, 'be a list such as "1-4,^3,6"') from None
    if not cpus or max(cpus) >= n_vcpus:
        raise _bad_mask(key, mask, f"choose some of the vCPUs 0 to {n_vcpus - 1}")
    return cpus


def _bad_mask(key: str, mask: str, remedy: str) -> InvalidRequest:
    return InvalidRequest(f"{key} is {excerpt(mask)}; it must {remedy}")


def parse_cpu_mask(mask: str) -> set[int]:
    """Return the CPUs of a mask such as ``1-4,^3,6``; ``^`` excludes.

    Raises
    ------
    ValueError
        The mask is malformed, or names a CPU above 65535.
    """
    included: set[int] = set()
    excluded: set[int] = set()
    for part in filter(None, map(str.strip, mask.split(","))):
        target = excluded if part.startswith("^") else included
        target |= _cpu_range(part.removeprefix("^"))
    return included - excluded


def _cpu_range(part: str) -> set[int]:
    first, dash, last = part.partition("-")
    start = int(first)
    end = int(last) if dash else start
    if not 0 <= start <= end < MAX_CPUS:
        raise ValueError(part)
    return set(range(start, end + 1))
