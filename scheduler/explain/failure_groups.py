# SPDX-License-Identifier: Apache-2.0
"""Group decisions without a host: equal causes and equal requests are one problem."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Final

from ...objects import RequestSpec
from ..display import listed
from ..drivers.record import DecisionRecord
from .funnel import cause_of
from .requested import describe_request

#: Maximum entries of each kind in the text of a shape, such as extra specs.
_MAX_LISTED: Final = 10
_UNKNOWN: Final = "not stored"


@dataclasses.dataclass(slots=True)
class FailureGroup:
    """Decisions that failed for one cause and for requests of one shape.

    Attributes
    ----------
    shape : str
        What was requested; see `request_shape`.
    projects : list of str
    newest, oldest : float
        When the last and the first of the decisions began, seconds since the epoch.
    example : str or None
        The request id of the newest decision or, without one, the UUID of an instance
        of it.
    """

    cause: str
    shape: str
    flavor: str
    n_decisions: int = 0
    n_instances: int = 0
    projects: list[str] = dataclasses.field(default_factory=list)
    newest: float = 0.0
    oldest: float = 0.0
    example: str | None = None


def group_failures(
    decisions: Iterable[tuple[DecisionRecord, RequestSpec | None]],
) -> list[FailureGroup]:
    """Return decisions without a host by cause and shape, the most frequent first.

    Parameters
    ----------
    decisions : iterable of (DecisionRecord, RequestSpec or None)
        The newest first; None: the request is not known.
    """
    groups: dict[tuple[str, str], FailureGroup] = {}
    for record, spec_obj in decisions:
        shape, flavor = request_shape(spec_obj)
        cause = cause_of(record)
        group = groups.setdefault(
            (cause, shape),
            FailureGroup(
                cause,
                shape,
                flavor,
                newest=record.started_at,
                example=record.request_id or next(iter(record.instance_uuids), None),
            ),
        )
        group.n_decisions += 1
        group.n_instances += record.n_instances
        group.oldest = record.started_at
        if record.project_id and record.project_id not in group.projects:
            group.projects.append(record.project_id)
    return sorted(groups.values(), key=lambda group: -group.n_decisions)


def request_shape(spec_obj: RequestSpec | None) -> tuple[str, str]:
    """Return what a request needs as one line, and the name of its flavor.

    Requests of one shape have equal texts: it has neither the number of instances nor
    the UUIDs of images, groups, ports and other instances.
    """
    if spec_obj is None:
        return _UNKNOWN, ""
    request = describe_request(spec_obj)
    flavor, image = request.get("flavor", {}), request.get("image", {})
    disk_gb = sum(flavor.get(name) or 0 for name in ("root_gb", "ephemeral_gb"))
    sizes = (
        f"{flavor.get('vcpus') or 0:,} vCPU",
        _memory(flavor.get("memory_mb") or 0),
        f"{disk_gb:,} GB",
    )
    parts = [
        " / ".join(sizes),
        *_first_pairs(flavor.get("extra_specs", {})),
        *_first_pairs(image.get("properties", {})),
    ]
    if zone := request.get("availability_zone"):
        parts.append(f"zone {zone}")
    if hints := request.get("hints"):
        parts.append(f"hints {listed(sorted(hints), _MAX_LISTED)}")
    if policy := request.get("server_group", {}).get("policy"):
        parts.append(f"group {policy}")
    if request.get("is_volume_backed"):
        parts.append("boot from volume")
    if n_ports := len(request.get("ports", ())):
        parts.append(f"{n_ports} port{'' if n_ports == 1 else 's'}")
    if request.get("destination") or request.get("force_hosts"):
        parts.append("a named destination")
    return ", ".join(parts), flavor.get("name") or ""


def _first_pairs(pairs: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in sorted(pairs.items())[:_MAX_LISTED]]


def _memory(mb: int) -> str:
    return f"{mb // 1024:,} GiB" if mb and mb % 1024 == 0 else f"{mb:,} MiB"
