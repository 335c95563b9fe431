# SPDX-License-Identifier: Apache-2.0
"""Filters, weighers, prefilters, sources and drivers by the names operators write."""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import logging
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NoReturn, TypeVar

import stevedore
from oslo_config import cfg

from ...filters import BaseHostFilter
from ...weighers import BaseHostWeigher
from ..errors import ConfigurationError, PluginError
from ..prefilters.base import Prefilter
from .foreign import filter_from, weigher_from

LOG = logging.getLogger(__name__)

_NOVA = "nova.scheduler."
_ALL_WEIGHERS = "nova.scheduler.weights.all_weighers"

#: Filters of older releases of nova, and what does their work now.
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
            "nothing: AggregateTypeAffinityFilter can keep flavors to hosts"
        ),
    }
)

#: Those that must not be left out quietly: hosts would be trusted without a proof.
REFUSED_FILTERS: Mapping[str, str] = MappingProxyType(
    {
        "TrustedFilter": (
            "nova has not attested hosts since its release 16; give trusted hosts a "
            "trait, and ask for it in flavors with trait:CUSTOM_...=required"
        ),
    }
)

Clock = Callable[[], float]
_Made = TypeVar("_Made", BaseHostFilter, BaseHostWeigher)


def load_plugins(group: str) -> dict[str, Any]:
    """Return all plugins of an entry point group by name.

    Raises
    ------
    PluginError
        One cannot be imported, or two distributions have the same name.
    """
    return _loaded(stevedore.ExtensionManager, group)


def load_plugin(group: str, name: str, *, option: str = "") -> Any:  # noqa: ANN401 - a class or a function
    """Return the plugin of that name; the others need not be fit to be imported.

    Parameters
    ----------
    option : str, optional
        What names the plugin, such as ``[moorage] source``.

    Raises
    ------
    PluginError
        There is none, the message has the names that exist; or it cannot be imported,
        or two distributions have that name.
    """
    found = _loaded(
        stevedore.NamedExtensionManager,
        group,
        names=[name],
        on_missing_entrypoints_callback=None,  # it is raised below
    )
    if name not in found:
        names = {each.name for each in importlib.metadata.entry_points(group=group)}
        asked = f"{option} = {name}: " if option else ""
        raise PluginError(
            f"{asked}{group}: there is no plugin {name!r}; there are {_listed(names)}"
        )
    return found[name]


def _loaded(make: type[Any], group: str, **more: object) -> dict[str, Any]:
    def refuse(
        _manager: object,
        entry_point: importlib.metadata.EntryPoint,
        cause: BaseException,
    ) -> NoReturn:
        raise PluginError(
            f"{group}: plugin {_described(entry_point)} cannot be imported: "
            f"{type(cause).__name__}: {cause}"
        ) from cause

    manager = make(group, on_load_failure_callback=refuse, **more)
    found: dict[str, Any] = {}
    for extension in manager:
        if extension.name in found:
            both = " and ".join(
                _described(e.entry_point) for e in manager if e.name == extension.name
            )
            raise PluginError(f"{group}: two plugins have one name: {both}")
        found[extension.name] = extension.plugin
    return found


def _described(entry_point: importlib.metadata.EntryPoint) -> str:
    # stevedore's cache does not keep which distribution an entry point came from.
    origins = (
        f"{dist.name} {dist.version}"
        for dist in importlib.metadata.distributions()
        if entry_point in dist.entry_points
    )
    origin = next(origins, "an unknown distribution")
    return f"{entry_point.name!r} ({entry_point.value}, of {origin})"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def load_filters(conf: cfg.ConfigOpts, clock: Clock) -> list[BaseHostFilter]:
    """Return the filters of ``[filter_scheduler] enabled_filters``, in that order.

    Raises
    ------
    PluginError
        One is unknown, no filter, or cannot be made.
    """
    known: dict[str, Any] = load_plugins("moorage.filters")
    for path in conf.filter_scheduler.available_filters:
        if not path.startswith(_NOVA):
            known.update({cls.__name__: cls for cls in _classes(path)})
    enabled = list(dict.fromkeys(conf.filter_scheduler.enabled_filters))
    names = _without_removed(enabled, known)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise PluginError(
            f"[filter_scheduler] enabled_filters: there is no filter "
            f"{', '.join(map(repr, unknown))}; there are {_listed(known)}"
        )
    return [_made(filter_from, name, known[name], conf, clock) for name in names]


def _without_removed(enabled: Sequence[str], known: Container[str]) -> list[str]:
    """Return the names but those of removed filters, of which one warning tells.

    A plugin that has such a name is what the operator means by it.
    """
    for name in enabled:
        if name in REFUSED_FILTERS and name not in known:
            raise PluginError(
                f"[filter_scheduler] enabled_filters: there is no {name} any more: "
                f"{REFUSED_FILTERS[name]}"
            )
    removed = [n for n in enabled if n in REMOVED_FILTERS and n not in known]
    if removed:
        told = "; ".join(f"{name}: {REMOVED_FILTERS[name]}" for name in removed)
        LOG.warning(
            "[filter_scheduler] enabled_filters: filters of older releases are left "
            "out, and can be removed there. What does their work: %s", told,
        )  # fmt: skip
    return [name for name in enabled if name not in removed]


def load_weighers(conf: cfg.ConfigOpts, clock: Clock) -> list[BaseHostWeigher]:
    """Return the weighers of ``[filter_scheduler] weight_classes``, by name.

    Raises
    ------
    PluginError
        One is unknown, no weigher, or cannot be made.
    """
    known = load_plugins("moorage.weighers")
    wanted: dict[str, Any] = {}
    for path in conf.filter_scheduler.weight_classes:
        wanted.update(_weigher_classes(path, known))
    return [
        _made(weigher_from, name, wanted[name], conf, clock) for name in sorted(wanted)
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
            f"there are {_listed(known)}"
        )
    return {cls.__name__: cls for cls in _classes(path)}


def _classes(path: str) -> Sequence[type]:
    """Import what a dotted path names: a class, or a function that returns classes."""
    module, _, name = path.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name)
        return [found] if inspect.isclass(found) else list(found())
    except Exception as e:
        # Whatever somebody else's module raises must stop the start, named.
        raise PluginError(f"{path} cannot be used: {type(e).__name__}: {e}") from e


def _made(
    wrap: Callable[[type, cfg.ConfigOpts, Clock], _Made],
    name: str,
    plugin: type,
    conf: cfg.ConfigOpts,
    clock: Clock,
) -> _Made:
    try:
        return wrap(plugin, conf, clock)
    except ConfigurationError:
        raise
    except Exception as e:
        # As above: a plugin that cannot be made stops the start, named.
        raise PluginError(
            f"plugin {name!r} ({plugin.__module__}) cannot be made: "
            f"{type(e).__name__}: {e}"
        ) from e


def load_prefilters(order: Sequence[str]) -> list[tuple[str, Prefilter]]:
    """Return all prefilters: ours in their order, then third parties' by name.

    Raises
    ------
    PluginError
        One cannot be imported.
    """
    known = load_plugins("moorage.prefilters")
    names = [name for name in order if name in known]
    names += sorted(known.keys() - set(order))
    return [(name, known[name]) for name in names]
