# SPDX-License-Identifier: Apache-2.0
"""The options of a view: all that differ from their defaults, without secrets."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from oslo_config import cfg

from ..conf import registered_opts
from ..conf.presets import PRESETS, is_given
from ..conf.values import HIDDEN, PluginFile, is_secret, is_secret_name
from ..failures import without_secrets
from .frames import checked

#: Values by group and option.
OptionValues = Mapping[str, Mapping[str, Any]]

_NOVA = "nova.scheduler."
#: Options whose values can name code to import.
_CODE = frozenset({"available_filters", "weight_classes"})


def set_options(conf: cfg.ConfigOpts) -> dict[str, dict[str, Any]]:
    """Return the options that differ from their defaults, without secrets.

    A multiplier that is set to its default is among them: it outranks a preset.
    """
    presettable = {key for preset in PRESETS.values() for key in preset.multipliers}
    options: dict[str, dict[str, Any]] = {}
    for group, opt, _ in registered_opts(conf):
        if is_secret(opt) or opt.dest in ("config_file", "config_dir"):
            continue
        value = (conf[group] if group else conf)[opt.dest]
        key = group or "DEFAULT", opt.dest
        if value != opt.default or (key in presettable and is_given(conf, *key)):
            options.setdefault(group or "DEFAULT", {})[opt.dest] = masked(value)
    return options


def masked(value: Any) -> Any:  # noqa: ANN401 - of any option
    """Return the value of an option without secrets of URLs and of entries by name."""
    if isinstance(value, str):
        return without_secrets(value)
    if isinstance(value, dict):
        return {
            name: HIDDEN if is_secret_name(str(name)) else masked(entry)
            for name, entry in value.items()
        }
    return [masked(entry) for entry in value] if isinstance(value, list) else value


def code_paths(conf: cfg.ConfigOpts, values: OptionValues) -> list[str]:
    """Return the paths of code in a view's options that `apply_options` omits."""
    return [
        path
        for group, group_values in values.items()
        for name, value in group_values.items()
        if name in _CODE and not _is_given(conf, group, name)
        for path in value
        if not _is_safe(path)
    ]


def without_missing_files(
    conf: cfg.ConfigOpts, values: OptionValues
) -> tuple[OptionValues, list[str]]:
    """Return a view's options without those of files that are not on this machine.

    Returns
    -------
    (mapping, list of str)
        The list has a text for each file that `conf` does not name either.
    """
    kept = {group: dict(group_values) for group, group_values in values.items()}
    missing = []
    for section, opt, _ in registered_opts(conf):
        group, name = section or "DEFAULT", opt.dest
        path = kept.get(group, {}).get(name)
        if (
            isinstance(opt.type, PluginFile)
            and path
            and isinstance(path, str)
            and not _is_given(conf, group, name)
            and not Path(path).is_file()
        ):
            missing.append(f"{path} of [{group}] {name}")
            for key in (name, *opt.type.needed_by):
                kept[group].pop(key, None)
    return kept, missing


def _is_safe(path: str) -> bool:
    return "." not in path or path.startswith(_NOVA)


def apply_options(conf: cfg.ConfigOpts, values: OptionValues) -> bool:
    """Set the registered options of a view that are not set in `conf` already.

    Paths by which code would be imported are omitted: bytes of a view are not trusted.
    Entry points of installed plugins, and nova's own paths, are kept.

    Returns
    -------
    bool
        Whether all options of the view are registered.

    Raises
    ------
    UnreadableView
        A value is invalid.
    """
    return checked(partial(_apply, conf), values)


def _apply(conf: cfg.ConfigOpts, values: OptionValues) -> bool:
    are_all_registered = True
    for group, group_values in values.items():
        for name, value in group_values.items():
            safe_value = value
            if name in _CODE:
                safe_value = [path for path in value if _is_safe(path)]
            try:
                if not _is_given(conf, str(group), str(name)):
                    conf.set_override(str(name), safe_value, _section(str(group)))
            except (cfg.NoSuchOptError, cfg.NoSuchGroupError):
                are_all_registered = False
    return are_all_registered


def _is_given(conf: cfg.ConfigOpts, group: str, name: str) -> bool:
    """Return whether a file, an argument or an override sets an option."""
    try:
        return is_given(conf, _section(group), name)
    except (cfg.NoSuchOptError, cfg.NoSuchGroupError):
        return False


def _section(group: str) -> str | None:
    return None if group == "DEFAULT" else group
