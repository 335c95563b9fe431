# SPDX-License-Identifier: Apache-2.0
"""Changes of a request or of hosts, each of which makes one failed check pass."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import os_resource_classes as orc

from ...filters import BaseHostFilter
from ...filters.locality import LocalityFilter
from ...filters.metrics import MetricsFilter
from ...objects import RequestSpec
from ..drivers.restrictions import Restriction
from ..hosts import AggregateMap
from ..locality.hints import remove_hint
from ..placement.constraints import ConstraintKind
from .query_checks import QueryPart, suffix_of
from .reasons import CheckStage, HostReason

#: Resource classes of which no change requests 0: each flavor has CPUs and memory.
NEVER_ZERO: Final = frozenset({orc.VCPU, orc.PCPU, orc.MEMORY_MB})

_MIB_PER_GIB: Final = 1024
#: The maximum number of names or findings in the text of a change.
MAX_NAMES: Final = 3

Pairs = list[tuple[str, str]]


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """One change that makes one check pass.

    Attributes
    ----------
    check : str
        The check that passes with the change: a resource class, trait, filter,
        restriction or prefilter.
    text : str
        The change in words, such as "2 GiB less memory".
    less_by : int or None
        How much less of the resource class `check` is requested, in the unit of the
        class; None: the change does not reduce a resource.
    """

    stage: CheckStage
    check: str
    text: str
    less_by: int | None = None


def _unchanged_params(params: Pairs) -> Pairs:
    return params


def _leave_unchanged(_spec_obj: RequestSpec) -> None:
    pass


@dataclasses.dataclass(frozen=True, slots=True)
class Edit:
    """How to apply a change, in order to check the hosts with the change.

    Attributes
    ----------
    of_query : callable
        Returns the changed parameters of a query.
    of_request : callable
        Changes a request in place.
    numbers : mapping
        By column of the host table: the value that all hosts get.
    without_filter : str
        The class name of a filter that does not run; "": all run.
    """

    change: Change
    of_query: Callable[[Pairs], Pairs] = _unchanged_params
    of_request: Callable[[RequestSpec], None] = _leave_unchanged
    numbers: Mapping[str, float] = dataclasses.field(default_factory=dict)
    without_filter: str = ""


# -- queries to Placement --------------------------------------------------------------


def less(part: QueryPart, amount: int) -> Edit:
    """Return the change that requests only `amount` of a resource; 0: none of it."""
    assert part.constraint is not None
    [(_, pair)] = part.constraint.params
    name, _, required = pair.partition(":")
    less_by = int(required) - amount
    text = _less_text(name, less_by) if amount else f"without {name}"
    return Edit(
        Change(CheckStage.PLACEMENT, name, _labelled(text, part), less_by),
        of_query=lambda params: _with_amount(params, part.suffix, name, amount),
    )


def without_tree(tree: str) -> Edit:
    """Return the change that no longer requires the tree of a provider."""
    return Edit(
        Change(CheckStage.PLACEMENT, "in_tree", f"without in_tree={tree}"),
        of_query=lambda params: _dropped(params, ("in_tree", tree)),
    )


def without_part(
    part: QueryPart, aggregates: AggregateMap, *, is_of_sharing: bool = False
) -> Edit | None:
    """Return the change that removes a part from a query; the part is no resource.

    None: the part stands for the case that a tree meets each part alone, but not all
    parts at once. No change is known for this case.

    Parameters
    ----------
    is_of_sharing : bool
        Whether the part is an aggregate that contains the hosts, but not the providers
        that share resources with the hosts.
    """
    constraint = part.constraint
    if constraint is None:
        return None
    check: str = constraint.kind
    if constraint.kind is ConstraintKind.GROUP:
        text = f"without {constraint.description}"
        edit = lambda params: _without_group(params, suffix_of(constraint))  # noqa: E731
    elif constraint.kind is ConstraintKind.POLICY:
        text = "without group_policy=isolate"
        edit = _without_isolation
    elif constraint.kind is ConstraintKind.SUBTREE:
        text = f"without {constraint.description}"
        subtree = dict(constraint.params)["same_subtree"]
        edit = lambda params: _dropped(params, ("same_subtree", subtree))  # noqa: E731
    else:
        [(name, value)] = constraint.params
        if constraint.kind is ConstraintKind.TRAIT:
            check = value.removeprefix("!").removeprefix("in:").replace(",", " or ")
            is_of_root = constraint.must_match_root
            name = "root_required" if is_of_root else f"{name}{part.suffix}"
            forbidden = value.startswith("!")
            text = f"with {check} allowed" if forbidden else f"without {check}"
            edit = lambda params: _without_trait(params, name, value)  # noqa: E731
        else:
            text = _aggregate_text(value, aggregates)
            if is_of_sharing:
                text = f"with what it shares {_membership_text(value, aggregates)}"
            name = f"{name}{part.suffix}"
            edit = lambda params: _dropped(params, (name, value))  # noqa: E731
    return Edit(
        Change(CheckStage.PLACEMENT, check, _labelled(text, part)), of_query=edit
    )


def _labelled(text: str, part: QueryPart) -> str:
    return text if part.group is None else f"{text} in group {part.suffix}"


def _less_text(name: str, amount: int) -> str:
    match name:
        case orc.MEMORY_MB:
            gib = amount / _MIB_PER_GIB
            size = f"{gib:,.4g} GiB" if amount % 128 == 0 else f"{amount:,} MiB"
            return f"{size if gib >= 1 else f'{amount:,} MiB'} less memory"
        case orc.DISK_GB:
            return f"{amount:,} GB less disk"
        case orc.VCPU | orc.PCPU:
            noun = "vCPU" if name == orc.VCPU else "dedicated CPU"
            return f"{amount:,} fewer {noun}{'' if amount == 1 else 's'}"
    return f"{amount:,} fewer {name}"


def _aggregate_text(value: str, aggregates: AggregateMap) -> str:
    uuids = value.removeprefix("!").removeprefix("in:").split(",")
    aggregate_of = {aggregate.uuid: aggregate for aggregate in aggregates}
    zones = [
        aggregate_of[uuid].availability_zone if uuid in aggregate_of else None
        for uuid in uuids
    ]
    zone_names = [zone for zone in zones if zone]
    if not value.startswith("!") and len(zone_names) == len(uuids):
        return f"in another zone than {_listed(zone_names)}"
    names = [
        aggregate_of[uuid].name if uuid in aggregate_of else uuid for uuid in uuids
    ]
    if value.startswith("!"):
        return f"with aggregate {_listed(names)} allowed"
    return f"outside aggregate {_listed(names)}"


def _membership_text(value: str, aggregates: AggregateMap) -> str:
    uuids = value.removeprefix("!").removeprefix("in:").split(",")
    aggregate_of = {aggregate.uuid: aggregate for aggregate in aggregates}
    names = [
        aggregate_of[uuid].name if uuid in aggregate_of else uuid for uuid in uuids
    ]
    where = "outside" if value.startswith("!") else "in"
    return f"{where} aggregate {_listed(names)}"


def _listed(names: Iterable[str]) -> str:
    distinct = sorted(set(names))
    n_more = len(distinct) - MAX_NAMES
    suffix = f" or {n_more} more" if n_more > 0 else ""
    return f"{' or '.join(distinct[:MAX_NAMES])}{suffix}"


def _with_amount(params: Pairs, suffix: str, name: str, amount: int) -> Pairs:
    changed, has_resources = [], False
    for key, value in params:
        if key == f"resources{suffix}":
            pairs = [
                pair for pair in value.split(",") if not pair.startswith(f"{name}:")
            ]
            pairs += [f"{name}:{amount}"] if amount else []
            has_resources = bool(pairs)
            value = ",".join(pairs)
        if value:
            changed.append((key, value))
    return _without_group(changed, suffix) if suffix and not has_resources else changed


def _without_group(params: Pairs, suffix: str) -> Pairs:
    names = {f"{kind}{suffix}" for kind in ("resources", "required", "member_of")}
    names.add(f"in_tree{suffix}")
    remaining = [param for param in params if param[0] not in names]
    return list(_without_suffix(remaining, suffix))


def _without_suffix(params: Pairs, suffix: str) -> Iterator[tuple[str, str]]:
    for name, value in params:
        if name == "same_subtree":
            value = ",".join(
                group_suffix
                for group_suffix in value.split(",")
                if group_suffix != suffix
            )
        if value:
            yield name, value


def _without_isolation(params: Pairs) -> Pairs:
    remaining = [param for param in params if param[0] != "group_policy"]
    return [*remaining, ("group_policy", "none")]


def _without_trait(params: Pairs, name: str, value: str) -> Pairs:
    changed = []
    for key, traits in params:
        if key == name:
            is_any_of = traits.startswith("in:")
            remaining = [traits] if is_any_of else traits.split(",")
            traits = ",".join(trait for trait in remaining if trait != value)
        if traits:
            changed.append((key, traits))
    return changed


def _dropped(params: Pairs, dropped: tuple[str, str]) -> Pairs:
    return [param for param in params if param != dropped]


# -- prefilters, restrictions, filters -------------------------------------------------


def without_prefilter(reason: HostReason) -> Edit:
    """Return the change after which a prefilter no longer rejects the request."""
    why = reason.reason or "it rejects the request"
    text = f"without {reason.check} ({why})"
    return Edit(Change(CheckStage.PREFILTER, reason.check, text))


def without_restriction(restriction: Restriction) -> Edit:
    """Return the change that removes a restriction of hosts from the request."""
    names = _listed(restriction.values)
    change = Change(
        CheckStage.RESTRICTION,
        restriction.name,
        f"without {restriction.name} {names}",
    )
    return Edit(change, of_request=lambda spec: _lift(spec, restriction.name))


def _lift(spec_obj: RequestSpec, name: str) -> None:
    _, is_destination, column = name.partition("requested_destination ")
    if not is_destination:
        setattr(spec_obj, name, None)
        return
    field = {"host": "host", "nodename": "node", "cell_uuid": "cell"}[column]
    # A destination always has a host name; an empty name restricts nothing.
    no_value = "" if field == "host" else None
    setattr(spec_obj.requested_destination, field, no_value)


def without_filter(filter_: BaseHostFilter, spec_obj: RequestSpec) -> Edit:
    """Return the change that disables a filter.

    If MetricsFilter is disabled, MetricsWeigher fails a request as soon as a host lacks
    a required metric.
    """
    name = type(filter_).__name__
    text = f"without {name} ({filter_.reason_for(spec_obj)})"
    if isinstance(filter_, MetricsFilter) and filter_.conf.metrics.required:
        text = f"{text}, and with [metrics] required = False"
    return Edit(Change(CheckStage.FILTER, name, text), without_filter=name)


def without_hint(hint: str, findings: Sequence[str]) -> Edit:
    """Return the change that removes a hint about places, or the hint's extra spec.

    Parameters
    ----------
    hint : str
        The name of the hint, followed by ``=`` and a value if only that value is
        removed.
    findings : sequence of str
        Texts about places, which say why the hint rejects the hosts in them.
    """
    listed = ", ".join(findings[:MAX_NAMES])
    suffix = " and others" if len(findings) > MAX_NAMES else ""
    why = f" ({listed}{suffix})" if findings else ""
    change = Change(CheckStage.FILTER, LocalityFilter.__name__, f"without {hint}{why}")
    return Edit(change, of_request=lambda spec: remove_hint(spec, hint))


#: The columns of an enabled host, and of a host whose compute service runs.
ENABLED: Final[Mapping[str, float]] = {"disabled": False}
RUNNING: Final[Mapping[str, float]] = {
    "forced_down": False,
    "last_seen_up": math.inf,
}


def enabled(check: str, part: QueryPart | None) -> Edit:
    """Return the change that enables hosts again.

    Parameters
    ----------
    part : QueryPart or None
        The part of the query that forbids the trait of disabled hosts; None: the query
        has no such part.
    """
    trait_edit = None if part is None else without_part(part, AggregateMap())
    return Edit(
        Change(CheckStage.FILTER, check, "the host enabled again"),
        of_query=_unchanged_params if trait_edit is None else trait_edit.of_query,
        numbers=ENABLED,
    )


def running(check: str) -> Edit:
    """Return the change that brings the compute service of hosts up again."""
    change = Change(CheckStage.FILTER, check, "the host's compute service up again")
    return Edit(change, numbers=RUNNING)
