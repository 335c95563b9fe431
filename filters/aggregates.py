# SPDX-License-Identifier: Apache-2.0
"""Filters by the images, flavors, extra specs or projects that aggregates allow."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from oslo_config import cfg

from ..objects import RequestSpec
from ..scheduler.hosts import HostAggregate, HostBatch, HostState, metadata_values
from ..scheduler.request import Request
from ..scheduler.request.flavor_and_image import FlavorAndImage
from .base import BaseHostFilter, Mask
from .extra_specs_ops import ExtraSpecsFilter, Requirement, match
from .rejection import Mismatch
from .remedy import Remedy, without_image_property

LOG = logging.getLogger(__name__)

_EXTRA_SPECS_SCOPE = "aggregate_instance_extra_specs"
_FLAVORS_KEY = "instance_type"
_PROJECTS_PREFIX = "filter_tenant_id"


class AggregateImagePropertiesIsolation(BaseHostFilter):
    """Pass hosts whose aggregates allow every property of the image.

    A metadata key with the name of an image property lists the values that the property
    may have. An image without the property may be on any host. Keys that are not image
    properties are ignored; nova logs a warning for each such key, host and request.
    """

    REASON = "an aggregate is for images with other properties"
    RUN_ON_REBUILD = True
    run_filter_once_per_request = True
    ROWWISE = True

    def __init__(
        self, conf: cfg.ConfigOpts, *, clock: Callable[[], float] = time.time
    ) -> None:
        super().__init__(conf, clock=clock)
        options = conf.filter_scheduler
        namespace = options.aggregate_image_properties_isolation_namespace
        separator = options.aggregate_image_properties_isolation_separator
        self._prefix = f"{namespace}{separator}" if namespace else ""
        if namespace:
            LOG.warning(
                "[filter_scheduler] aggregate_image_properties_isolation_namespace: "
                "no image property begins with %r, so that "
                "AggregateImagePropertiesIsolation passes all hosts; unset the option, "
                "or use [scheduler] enable_isolated_aggregate_filtering",
                self._prefix,
            )

    def passing(self, hosts: HostBatch, spec_obj: RequestSpec) -> Mask:
        """Return which hosts' aggregates allow the image, shape (n_hosts,)."""
        settings = Request.of(spec_obj).settings
        mask: Mask = hosts.map_distinct(
            "aggregates",
            lambda of_host: not any(self._misfits(of_host, settings)),
            bool,
        )
        return mask

    def _misfits(
        self, aggregates: Sequence[HostAggregate], settings: FlavorAndImage
    ) -> Iterator[tuple[str, str, frozenset[str]]]:
        """Yield key, image's value and allowed values of each property that misfits."""
        for key, allowed in _merged_metadata(aggregates).items():
            if key.startswith(self._prefix):
                value = settings.properties.get(key)
                if value and str(value) not in allowed:
                    yield key, str(value), allowed

    def mismatch(self, host_state: HostState, spec_obj: RequestSpec) -> Mismatch:
        """Return the image's value of a property, and the values that are allowed."""
        misfits = self._misfits(host_state.aggregates, Request.of(spec_obj).settings)
        key, value, allowed = next(misfits)
        return f"aggregates' {key}", value, allowed

    def remedies(
        self, hosts: HostBatch, spec_obj: RequestSpec, rejected: Mask
    ) -> Iterator[Remedy]:
        """Yield the change of each property of the image that aggregates forbid."""
        settings = Request.of(spec_obj).settings
        misfits_of = hosts.map_distinct(
            "aggregates",
            lambda of_host: {
                key: ", ".join(sorted(allowed))
                for key, _, allowed in self._misfits(of_host, settings)
            },
            object,
        )
        for key in sorted({key for misfits in misfits_of for key in misfits}):
            value = settings.properties.get(key)
            fails = np.array([key in misfits for misfits in misfits_of], np.bool_)
            yield without_image_property(
                key,
                value,
                fails,
                functools.partial(_metadata_texts, key=key),
                f"metadata {key} of the hosts' aggregates with {value}",
            )


class AggregateInstanceExtraSpecsFilter(ExtraSpecsFilter):
    """Pass hosts whose aggregates satisfy the extra specs that apply to aggregates.

    These extra specs have the scope ``aggregate_instance_extra_specs:`` or no scope.
    For each of them, at least one of the values in the metadata of the host's
    aggregates must match.
    """

    REASON = "no aggregate has what an extra spec asks for"
    ROWWISE = True

    def _requirements(self, spec_obj: RequestSpec) -> Iterator[Requirement]:
        for key, required in Request.of(spec_obj).settings.extra_specs.items():
            scope, is_scoped, name = key.partition(":")
            if not is_scoped:
                yield Requirement(key, required, key)
            elif scope == _EXTRA_SPECS_SCOPE:
                yield Requirement(name, required, key)

    def _satisfying(self, hosts: HostBatch, key: str, required: str) -> Mask:
        mask: Mask = hosts.map_distinct(
            "aggregates",
            lambda of_host: any(
                match(value, required) for value in metadata_values(of_host, key)
            ),
            bool,
        )
        return mask

    def _available(self, host_state: HostState, key: str) -> tuple[str, object]:
        return f"aggregates' {key}", metadata_values(host_state.aggregates, key)

    def _values(self, hosts: HostBatch, key: str) -> npt.NDArray[Any]:
        return _values_of(hosts, lambda of_host: metadata_values(of_host, key))

    def _alternative(self, key: str, required: str) -> str:
        return f"an aggregate of the hosts with metadata {key}={required}"


class AggregateMultiTenancyIsolation(BaseHostFilter):
    """Pass hosts whose aggregates allow the project, or do not restrict projects.

    All metadata whose key begins with ``filter_tenant_id`` lists the projects that are
    allowed. Instances of a listed project may still be on other hosts; the prefilter
    ``require_tenant_aggregate`` confines them to hosts of the listing aggregates.
    """

    REASON = "an aggregate is for other projects"
    run_filter_once_per_request = True
    ROWWISE = True

    def passing(self, hosts: HostBatch, spec_obj: RequestSpec) -> Mask:
        """Return which hosts' aggregates allow the project, shape (n_hosts,)."""
        return _allowing(hosts, spec_obj.project_id, _projects)

    def mismatch(self, host_state: HostState, spec_obj: RequestSpec) -> Mismatch:
        """Return the project, and the projects that the aggregates allow."""
        available = _projects(host_state.aggregates)
        return f"aggregates' {_PROJECTS_PREFIX}", spec_obj.project_id, available

    def remedies(
        self, hosts: HostBatch, spec_obj: RequestSpec, rejected: Mask
    ) -> Iterator[Remedy]:
        """Yield the change of the aggregates that are for other projects."""
        names = _restricting(hosts, rejected, _projects)
        yield Remedy(
            rejected,
            f"project {spec_obj.project_id} in metadata {_PROJECTS_PREFIX} of "
            f"aggregate {names}",
            needs_operator=True,
        )


class AggregateTypeAffinityFilter(BaseHostFilter):
    """Pass hosts whose aggregates allow the flavor, or do not restrict flavors.

    The metadata ``instance_type`` lists the names of flavors.
    """

    REASON = "an aggregate is for other flavors"
    run_filter_once_per_request = True
    ROWWISE = True

    def passing(self, hosts: HostBatch, spec_obj: RequestSpec) -> Mask:
        """Return which hosts' aggregates allow the flavor, shape (n_hosts,)."""
        return _allowing(hosts, _flavor_name(spec_obj), _flavors)

    def mismatch(self, host_state: HostState, spec_obj: RequestSpec) -> Mismatch:
        """Return the flavor, and the flavors that the aggregates allow."""
        available = _flavors(host_state.aggregates)
        return f"aggregates' {_FLAVORS_KEY}", _flavor_name(spec_obj), available

    def remedies(
        self, hosts: HostBatch, spec_obj: RequestSpec, rejected: Mask
    ) -> Iterator[Remedy]:
        """Yield the change to a flavor that the aggregates allow."""
        name = _flavor_name(spec_obj)
        yield Remedy(
            rejected,
            f"another flavor than {name}, one that the hosts' aggregates list as "
            f"{_FLAVORS_KEY}",
            alternative=f"flavor {name} in metadata {_FLAVORS_KEY} of aggregate "
            f"{_restricting(hosts, rejected, _flavors)}",
            values=lambda hosts: _values_of(hosts, _flavors),
        )


def _flavor_name(spec_obj: RequestSpec) -> str | None:
    return spec_obj.flavor.name if "name" in spec_obj.flavor else None


def _flavors(aggregates: Sequence[HostAggregate]) -> frozenset[str]:
    return metadata_values(aggregates, _FLAVORS_KEY)


def _projects(aggregates: Sequence[HostAggregate]) -> frozenset[str]:
    metadata = _merged_metadata(aggregates)
    listed = (metadata[key] for key in metadata if key.startswith(_PROJECTS_PREFIX))
    return frozenset[str]().union(*listed)


def _allowing(
    hosts: HostBatch,
    name: str | None,
    allowed: Callable[[Sequence[HostAggregate]], frozenset[str]],
) -> Mask:
    """Return which hosts' aggregates allow `name`, or do not restrict names.

    Parameters
    ----------
    allowed : callable
        Returns the names that some aggregates allow; none: they do not restrict names.
    """

    def is_allowed(aggregates: Sequence[HostAggregate]) -> bool:
        names = allowed(aggregates)
        return not names or name in names

    mask: Mask = hosts.map_distinct("aggregates", is_allowed, bool)
    return mask


def _values_of(
    hosts: HostBatch, values: Callable[[Sequence[HostAggregate]], frozenset[str]]
) -> npt.NDArray[Any]:
    """Return a text of each host's values in the metadata of its aggregates."""
    texts: npt.NDArray[Any] = hosts.map_distinct(
        "aggregates", lambda of_host: ", ".join(sorted(values(of_host))) or "nothing",
        object,
    )  # fmt: skip
    return texts


def _metadata_texts(hosts: HostBatch, key: str) -> npt.NDArray[Any]:
    return _values_of(hosts, lambda of_host: metadata_values(of_host, key))


def _restricting(
    hosts: HostBatch,
    rejected: Mask,
    allowed: Callable[[Sequence[HostAggregate]], frozenset[str]],
) -> str:
    """Return the names of rejected hosts' aggregates that restrict names."""
    of_hosts = hosts.take(rejected).map_distinct(
        "aggregates",
        lambda of_host: tuple(a.name for a in of_host if allowed([a])),
        object,
    )
    names = sorted({name for of_host in of_hosts for name in of_host})
    suffix = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{' or '.join(names[:3])}{suffix}"


def _merged_metadata(
    aggregates: Sequence[HostAggregate],
) -> Mapping[str, frozenset[str]]:
    """Return the values that aggregates have under each metadata key."""
    keys = {key for aggregate in aggregates for key in aggregate.metadata}
    return {key: metadata_values(aggregates, key) for key in keys}
