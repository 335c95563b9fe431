# SPDX-License-Identifier: Apache-2.0
"""Load the driver, filters, weighers and prefilters by the names in the options."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.metadata
import inspect
import logging
import time
from collections.abc import Callable, Container, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

from oslo_config import cfg

from ...filters import BaseHostFilter
from ...weighers import BaseHostWeigher
from ..entry_points import listed, load_plugin, load_plugins
from ..errors import ConfigurationError, PluginError
from ..prefilters import DEFAULT_PREFILTERS
from ..prefilters.base import Prefilter
from .base import BaseSchedulerDriver
from .nova_plugins import make_filter, make_weigher

LOG = logging.getLogger(__name__)

_NOVA = "nova.scheduler."
_ALL_WEIGHERS = "nova.scheduler.weights.all_weighers"

#: Filters of older releases of nova, and their replacements.
REMOVED_FILTERS: Mapping[str, str] = MappingProxyType(
    {
        "RamFilter": "Placement's MEMORY_MB",
        "CoreFilter": "Placement's VCPU and PCPU",
        "DiskFilter": "Placement's DISK_GB",
        "AggregateRamFilter": "the allocation_ratio of MEMORY_MB in Placement",
        "AggregateCoreFilter": "the allocation_ratio of VCPU in Placement",
        "AggregateDiskFilter": "the allocation_ratio of DISK_GB in Placement",
        "ExactRamFilter": "a custom resource class in the flavor and in Placement",
        "ExactCoreFilter": "a custom resource class in the flavor and in Placement",
        "ExactDiskFilter": "a custom resource class in the flavor and in Placement",
        "RetryFilter": "the alternates that every selection carries",
        "AvailabilityZoneFilter": "the prefilter map_az_to_placement_aggregate",
        "TypeAffinityFilter": (
            "none: AggregateTypeAffinityFilter can restrict flavors to hosts"
        ),
    }
)

#: Removed filters that stop the start if enabled, and why: ignoring them would weaken
#: security.
REFUSED_FILTERS: Mapping[str, str] = MappingProxyType(
    {
        "TrustedFilter": (
            "nova has not attested hosts since its release 16; give trusted hosts a "
            "trait, and ask for it in flavors with trait:CUSTOM_...=required"
        ),
    }
)

Clock = Callable[[], float]
_Plugin = TypeVar("_Plugin", BaseHostFilter, BaseHostWeigher, BaseSchedulerDriver)


@dataclasses.dataclass(frozen=True, slots=True)
class PluginSet:
    """The plugins of a decision, and the options that they were created with.

    Attributes
    ----------
    prefilters : sequence of (name, prefilter)
        In the order in which they run.
    """

    conf: cfg.ConfigOpts
    driver: BaseSchedulerDriver
    prefilters: Sequence[tuple[str, Prefilter]]
    filters: Sequence[BaseHostFilter]
    weighers: Sequence[BaseHostWeigher]


def load_plugin_set(conf: cfg.ConfigOpts, clock: Clock) -> PluginSet:
    """Return the driver, prefilters, filters and weighers that the options enable.

    Raises
    ------
    PluginError
        A plugin cannot be used.
    """
    return PluginSet(
        conf=conf,
        driver=load_driver(conf),
        prefilters=load_prefilters(),
        filters=load_filters(conf, clock),
        weighers=load_weighers(conf, clock),
    )


def load_driver(conf: cfg.ConfigOpts) -> BaseSchedulerDriver:
    """Return a new driver of the class that ``[moorage] driver`` names.

    Raises
    ------
    PluginError
        The name is unknown, does not name a driver, or the driver cannot be created.
    """
    name = conf.moorage.driver
    cls = load_plugin("moorage.drivers", name, option="[moorage] driver")
    if not (inspect.isclass(cls) and issubclass(cls, BaseSchedulerDriver)):
        raise PluginError(
            f"[moorage] driver: {name!r} is not a subclass of BaseSchedulerDriver"
        )
    return _create(_make_driver, name, cls, conf, time.time)


def _make_driver(
    cls: type[BaseSchedulerDriver], conf: cfg.ConfigOpts, _clock: Clock
) -> BaseSchedulerDriver:
    return cls(conf)


def load_filters(conf: cfg.ConfigOpts, clock: Clock) -> list[BaseHostFilter]:
    """Return the filters of ``[filter_scheduler] enabled_filters``, in that order.

    Raises
    ------
    PluginError
        A filter is unknown, is not a filter class, or cannot be created.
    """
    available: dict[str, Any] = load_plugins("moorage.filters")
    for path in conf.filter_scheduler.available_filters:
        if not path.startswith(_NOVA):
            available.update({cls.__name__: cls for cls in _classes(path)})
    enabled = list(dict.fromkeys(conf.filter_scheduler.enabled_filters))
    names = _without_removed(enabled, available)
    unknown = [name for name in names if name not in available]
    if unknown:
        raise PluginError(
            f"[filter_scheduler] enabled_filters: there is no filter "
            f"{', '.join(map(repr, unknown))}; there are {listed(available)}"
        )
    return [_create(make_filter, name, available[name], conf, clock) for name in names]


def _without_removed(enabled: Sequence[str], known: Container[str]) -> list[str]:
    """Return the names except removed filters; log one warning for all removed ones.

    If an installed plugin has the name of a removed filter, the name is kept.

    Raises
    ------
    PluginError
        A name is that of a refused filter.
    """
    for name in enabled:
        if name in REFUSED_FILTERS and name not in known:
            raise PluginError(
                f"[filter_scheduler] enabled_filters: {name} has been removed: "
                f"{REFUSED_FILTERS[name]}"
            )
    removed = [n for n in enabled if n in REMOVED_FILTERS and n not in known]
    if removed:
        listing = "; ".join(f"{name}: {REMOVED_FILTERS[name]}" for name in removed)
        LOG.warning(
            "[filter_scheduler] enabled_filters: ignoring filters of older releases; "
            "remove them from the option. Their replacements: %s", listing,
        )  # fmt: skip
    return [name for name in enabled if name not in removed]


def load_weighers(conf: cfg.ConfigOpts, clock: Clock) -> list[BaseHostWeigher]:
    """Return the weighers of ``[filter_scheduler] weight_classes``, by name.

    Raises
    ------
    PluginError
        A weigher is unknown, is not a weigher class, or cannot be created.
    """
    available = load_plugins("moorage.weighers")
    enabled: dict[str, Any] = {}
    for path in conf.filter_scheduler.weight_classes:
        enabled.update(_weigher_classes(path, available))
    return [
        _create(make_weigher, name, enabled[name], conf, clock)
        for name in sorted(enabled)
    ]


def _weigher_classes(path: str, known: dict[str, Any]) -> dict[str, Any]:
    if path == _ALL_WEIGHERS:
        return known
    name = path.rpartition(".")[2]
    if path in known or (path.startswith(_NOVA) and name in known):
        return {name: known[name]}
    if "." not in path or path.startswith(_NOVA):
        raise PluginError(
            f"[filter_scheduler] weight_classes: there is no weigher {path!r}; "
            f"there are {listed(known)}"
        )
    return {cls.__name__: cls for cls in _classes(path)}


def _classes(path: str) -> Sequence[type]:
    """Import a dotted path: a class, or a function that returns classes."""
    module, _, name = path.rpartition(".")
    try:
        plugin = getattr(importlib.import_module(module), name)
        return [plugin] if inspect.isclass(plugin) else list(plugin())
    except Exception as e:
        # Third-party code may raise anything; the error must stop the start.
        raise PluginError(f"{path} cannot be used: {type(e).__name__}: {e}") from e


def _create(
    wrap: Callable[[type[Any], cfg.ConfigOpts, Clock], _Plugin],
    name: str,
    plugin: type,
    conf: cfg.ConfigOpts,
    clock: Clock,
) -> _Plugin:
    try:
        return wrap(plugin, conf, clock)
    except Exception as e:
        # The error names the plugin. The text of a ConfigurationError names the option,
        # so that the type of the error is not needed.
        cause = e if isinstance(e, ConfigurationError) else f"{type(e).__name__}: {e}"
        raise PluginError(
            f"plugin {name!r} ({_origin(plugin)}) cannot be made: {cause}"
        ) from e


def _origin(plugin: type) -> str:
    """Return the module of a plugin and its distribution."""
    package = plugin.__module__.partition(".")[0]
    names = importlib.metadata.packages_distributions().get(package, ())
    versions = {f"{name} {importlib.metadata.version(name)}" for name in names}
    return ", of ".join([plugin.__module__, *sorted(versions)])


def load_prefilters() -> list[tuple[str, Prefilter]]:
    """Return our prefilters in order, then those of third parties sorted by name.

    Raises
    ------
    PluginError
        A prefilter cannot be imported or called.
    """
    available = load_plugins("moorage.prefilters")
    names = [name for name in DEFAULT_PREFILTERS if name in available]
    names += sorted(available.keys() - set(names))
    if not_callable := [name for name in names if not callable(available[name])]:
        raise PluginError(
            f"moorage.prefilters: {', '.join(map(repr, not_callable))} cannot be called"
        )
    return [(name, available[name]) for name in names]
