# SPDX-License-Identifier: Apache-2.0
"""Changes of a request or of hosts, each of which makes one failed check pass."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Self

import os_resource_classes as orc

from ...filters import BaseHostFilter
from ...filters.locality import LocalityFilter
from ...filters.remedy import Remedy, ValuesOfHosts, values_text
from ...objects import ImageMetaProps, RequestSpec
from ..drivers.restrictions import Restriction
from ..hosts import AggregateMap, HostAggregate, HostBatch
from ..locality.hints import remove_hint
from ..placement.constraints import ConstraintKind
from ..request import Request
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
    needs_operator : bool
        Whether only an operator can make the change: it is one of hosts, aggregates or
        options, not of the request.
    alternative : str
        What an operator can change instead so that the check passes; "": nothing else.
    offered : str
        What the admitted hosts have in place of what is requested, with their numbers;
        "": not known.
    """

    stage: CheckStage
    check: str
    text: str
    less_by: int | None = None
    needs_operator: bool = False
    alternative: str = ""
    offered: str = ""


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
    extra_specs : tuple of str
        The flavor's extra specs that the change removes.
    values : callable or None
        Returns what hosts have in place of what is requested.
    """

    change: Change
    of_query: Callable[[Pairs], Pairs] = _unchanged_params
    of_request: Callable[[RequestSpec], None] = _leave_unchanged
    numbers: Mapping[str, float] = dataclasses.field(default_factory=dict)
    without_filter: str = ""
    extra_specs: tuple[str, ...] = ()
    values: ValuesOfHosts | None = None

    def change_for(self, hosts: HostBatch) -> Change:
        """Return the change that admits some hosts, with what they offer."""
        if self.values is None:
            return self.change
        offered = values_text(self.values(hosts).tolist())
        return dataclasses.replace(self.change, offered=offered)


# -- queries to Placement --------------------------------------------------------------


def less(part: QueryPart, amount: int) -> Edit:
    """Return the change that requests only `amount` of a resource; 0: none of it."""
    assert part.constraint is not None
    [(_, pair)] = part.constraint.params
    name, _, required = pair.partition(":")
    less_by = int(required) - amount
    text = _less_text(name, less_by) if amount else f"no {name}"
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
    part: QueryPart,
    aggregates: AggregateMap,
    request: Request | None = None,
    *,
    is_of_sharing: bool = False,
) -> Edit | None:
    """Return the change that removes a part from a query; the part is no resource.

    None: the part stands for the case that a tree meets each part alone, but not all
    parts at once. No change is known for this case.

    Parameters
    ----------
    request : Request, optional
        The request, to say which part of it requires a trait.
    is_of_sharing : bool
        Whether the part is an aggregate that contains the hosts, but not the providers
        that share resources with the hosts.
    """
    constraint = part.constraint
    if constraint is None:
        return None
    check: str = constraint.kind
    needs_operator, alternative = False, ""
    if constraint.kind is ConstraintKind.GROUP:
        text = f"without {constraint.description}"
        edit = lambda params: _without_group(params, suffix_of(constraint))  # noqa: E731
    elif constraint.kind is ConstraintKind.POLICY:
        text = "another flavor, with group_policy=none"
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
            is_forbidden = value.startswith("!")
            text = _trait_text(check, request, is_forbidden=is_forbidden)
            changed = "removed from" if is_forbidden else "added to"
            alternative = f"trait {check} {changed} the hosts' providers"
            edit = lambda params: _without_trait(params, name, value)  # noqa: E731
        else:
            named = _NamedAggregates.of(value, aggregates)
            text, alternative = named.text, named.alternative
            needs_operator = named.needs_operator
            if is_of_sharing:
                text = f"the provider that the hosts share {named.membership}"
                needs_operator, alternative = True, ""
            name = f"{name}{part.suffix}"
            edit = lambda params: _dropped(params, (name, value))  # noqa: E731
    change = Change(
        CheckStage.PLACEMENT,
        check,
        _labelled(text, part),
        needs_operator=needs_operator,
        alternative=alternative,
    )
    return Edit(change, of_query=edit)


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


def _trait_text(name: str, request: Request | None, *, is_forbidden: bool) -> str:
    """Return the request that no longer requires, or forbids, a trait."""
    settings = None if request is None else request.settings
    keys = _trait_keys(settings.extra_specs, name) if settings is not None else []
    rule = "forbidden" if is_forbidden else "required"
    if keys:
        return f"another flavor, without extra spec {keys[0]}={rule}"
    traits = settings.properties.get("traits_required") if settings is not None else ()
    if not is_forbidden and name in (traits or ()):
        return f"another image, without property trait:{name}=required"
    return f"another flavor, image or port, for which {name} is not {rule}"


def _trait_keys(extra_specs: Mapping[str, str], name: str) -> list[str]:
    """Return the extra specs about a trait, of the flavor or of a request group."""
    return [
        key
        for key in extra_specs
        if key.startswith("trait") and key.partition(":")[2] == name
    ]


@dataclasses.dataclass(frozen=True, slots=True)
class _NamedAggregates:
    """How to meet the value of a ``member_of``, by the names of the aggregates."""

    text: str
    alternative: str
    membership: str
    needs_operator: bool = False

    @classmethod
    def of(cls, value: str, aggregates: AggregateMap) -> Self:
        uuids = value.removeprefix("!").removeprefix("in:").split(",")
        by_uuid = {aggregate.uuid: aggregate for aggregate in aggregates}
        known = [by_uuid[uuid] for uuid in uuids if uuid in by_uuid]
        names = _listed(
            by_uuid[uuid].name if uuid in by_uuid else uuid for uuid in uuids
        )
        is_whole = len(known) == len(uuids)
        if value.startswith("!"):
            traits = sorted(
                {
                    f"{key}={text}"
                    for aggregate in known
                    for key, text in aggregate.metadata.items()
                    if key.startswith("trait:") and text == "required"
                }
            )
            text = f"aggregate {names} allowed by the request"
            if traits:
                text = (
                    f"another flavor or image, with {', '.join(traits[:MAX_NAMES])}, "
                    f"for which aggregate {names} is reserved"
                )
            alternative = f"hosts removed from aggregate {names}"
            return cls(text, alternative, f"removed from aggregate {names}")
        membership = f"added to aggregate {names}"
        zones = [aggregate.availability_zone for aggregate in known]
        zone_names = [zone for zone in zones if zone]
        if is_whole and len(zone_names) == len(uuids):
            listed = _listed(zone_names)
            text = f"in another zone than {listed}"
            return cls(text, f"hosts added to the aggregate of {listed}", membership)
        if is_whole and all(map(_is_of_project, known)):
            text = f"hosts added to aggregate {names} of the project"
            return cls(text, "", membership, needs_operator=True)
        text = f"hosts added to aggregate {names}"
        return cls(text, "", membership, needs_operator=True)


def _is_of_project(aggregate: HostAggregate) -> bool:
    return any(key.startswith("filter_tenant_id") for key in aggregate.metadata)


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


def without_prefilter(
    reason: HostReason, request: Request, zones: Iterable[str]
) -> Edit:
    """Return the change after which a prefilter no longer rejects the request.

    Parameters
    ----------
    zones : iterable of str
        The zones of hosts.
    """
    why = reason.reason.removeprefix("Scheduling failed: ").rstrip(".")
    needs_operator, alternative = False, ""
    match reason.check:
        case "map_az_to_placement_aggregate":
            zone = request.availability_zone
            text = f"in a zone that exists, {_listed(zones)}, instead of {zone}"
            alternative = f"an aggregate with metadata availability_zone={zone}"
        case "require_tenant_aggregate":
            project = request.project_id
            text = f"an aggregate with metadata filter_tenant_id={project}"
            needs_operator = True
            alternative = "[scheduler] placement_aggregate_required_for_tenants = False"
        case _:
            text = f"another request, for which {reason.check} finds hosts: now {why}"
    change = Change(
        CheckStage.PREFILTER,
        reason.check,
        text,
        needs_operator=needs_operator,
        alternative=alternative,
    )
    return Edit(change)


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


def remedied(filter_: BaseHostFilter, remedy: Remedy) -> Edit:
    """Return the change that a filter names.

    A change that is not one of the request is tried without the filter.
    """
    name = type(filter_).__name__
    return Edit(
        Change(
            CheckStage.FILTER,
            name,
            remedy.text,
            needs_operator=remedy.needs_operator,
            alternative=remedy.alternative,
        ),
        of_request=lambda spec: _remove_parts(spec, remedy),
        without_filter="" if remedy.is_of_request else name,
        extra_specs=remedy.extra_specs,
        values=remedy.values,
    )


def _remove_parts(spec_obj: RequestSpec, remedy: Remedy) -> None:
    """Remove the parts of a request that a remedy names."""
    if remedy.extra_specs:
        spec_obj.flavor.extra_specs = {
            name: value
            for name, value in spec_obj.flavor.extra_specs.items()
            if name not in remedy.extra_specs
        }
    if remedy.image_properties:
        properties = spec_obj.image.properties.set_values()
        spec_obj.image.properties = ImageMetaProps(
            **{
                name: value
                for name, value in properties.items()
                if name not in remedy.image_properties
            }
        )
    if remedy.hints:
        spec_obj.scheduler_hints = {
            name: values
            for name, values in spec_obj.scheduler_hints.items()
            if name not in remedy.hints
        }
    if remedy.is_of_group:
        spec_obj.instance_group = None


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
        Change(CheckStage.FILTER, check, "the host enabled again", needs_operator=True),
        of_query=_unchanged_params if trait_edit is None else trait_edit.of_query,
        numbers=ENABLED,
    )


def running(check: str) -> Edit:
    """Return the change that brings the compute service of hosts up again."""
    text = "the host's compute service up again"
    change = Change(CheckStage.FILTER, check, text, needs_operator=True)
    return Edit(change, numbers=RUNNING)
