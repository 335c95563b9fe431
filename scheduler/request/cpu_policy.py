# SPDX-License-Identifier: Apache-2.0
"""Dedicated CPUs: what a guest's CPU policies request from Placement.

The rules are those of nova 34 (``nova.virt.hardware``). nova's API has applied them
before, so only a request that bypassed it can fail here.
"""

from __future__ import annotations

from enum import StrEnum

from oslo_utils import strutils

from ..errors import InvalidRequest, excerpt
from .flavor_and_image import FlavorAndImage, contradiction, one_of

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
