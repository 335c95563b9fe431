# SPDX-License-Identifier: Apache-2.0
"""When the instances of a host were launched, and which group each belongs to."""

from __future__ import annotations

from typing import Final

#: Instances whose lifetimes are alike: project, CPUs, memory in MiB, and image; the
#: image of a volume-backed instance is empty.
Group = tuple[str, int, int, str]
#: Seconds since the epoch, and the instance's group.
Launch = tuple[int, str, int, int, str]
#: The launches of a host's instances, the earliest first.
Launches = tuple[Launch, ...]

#: The time of an instance that the present decision has placed: it has no age.
LAUNCHING: Final = 2**53


def with_launch(launches: Launches, launched_at: int, group: Group) -> Launches:
    """Return the launches of a host with one more."""
    return tuple(sorted((*launches, (launched_at, *group))))


def without_launch(launches: Launches, launched_at: int, group: Group) -> Launches:
    """Return the launches without one of them, if the host has it."""
    remaining = list(launches)
    if (launch := (launched_at, *group)) in launches:
        remaining.remove(launch)
    return tuple(remaining)
