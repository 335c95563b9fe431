# SPDX-License-Identifier: Apache-2.0
"""Load plugins of all kinds by the names of their entry points."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable
from typing import Any, NoReturn

import stevedore

from .errors import PluginError


def load_plugins(group: str) -> dict[str, Any]:
    """Return all plugins of an entry point group by name.

    Raises
    ------
    PluginError
        A plugin cannot be imported, or two distributions have plugins of the same name.
    """
    return _loaded(stevedore.ExtensionManager, group)


def load_plugin(group: str, name: str, *, option: str = "") -> Any:  # noqa: ANN401 - a class or a function
    """Return the plugin of that name; no other plugin of its group is imported.

    Parameters
    ----------
    option : str, optional
        The option that names the plugin, such as ``[moorage] source``.

    Raises
    ------
    PluginError
        There is no such plugin (the message has the names that exist), the plugin
        cannot be imported, or two distributions have plugins of that name.
    """
    plugins = _loaded(
        stevedore.NamedExtensionManager,
        group,
        names=[name],
        on_missing_entrypoints_callback=None,  # it is raised below
    )
    if name not in plugins:
        names = {
            entry_point.name
            for entry_point in importlib.metadata.entry_points(group=group)
        }
        setting = f"{option} = {name}: " if option else ""
        raise PluginError(
            f"{setting}{group}: there is no plugin {name!r}; there are {listed(names)}"
        )
    return plugins[name]


def _loaded(make: type[Any], group: str, **keywords: object) -> dict[str, Any]:
    def refuse(
        _manager: object,
        entry_point: importlib.metadata.EntryPoint,
        cause: BaseException,
    ) -> NoReturn:
        raise PluginError(
            f"{group}: plugin {_described(entry_point)} cannot be imported: "
            f"{type(cause).__name__}: {cause}"
        ) from cause

    manager = make(group, on_load_failure_callback=refuse, **keywords)
    plugins: dict[str, Any] = {}
    for extension in manager:
        if extension.name in plugins:
            owners = " and ".join(
                _described(namesake.entry_point)
                for namesake in manager
                if namesake.name == extension.name
            )
            raise PluginError(f"{group}: two plugins have one name: {owners}")
        plugins[extension.name] = extension.plugin
    return plugins


def _described(entry_point: importlib.metadata.EntryPoint) -> str:
    # stevedore's cache does not keep which distribution an entry point came from.
    origins = (
        f"{dist.name} {dist.version}"
        for dist in importlib.metadata.distributions()
        if entry_point in dist.entry_points
    )
    origin = next(origins, "an unknown distribution")
    return f"{entry_point.name!r} ({entry_point.value}, of {origin})"


def listed(names: Iterable[str]) -> str:
    """Return names as a list, sorted, for an error."""
    return ", ".join(sorted(names))
