# SPDX-License-Identifier: Apache-2.0
"""The options of a view: those that are set, without secrets."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from oslo_config import cfg

from ..conf import registered_opts
from ..conf.values import HIDDEN, is_secret, is_secret_name
from ..failures import without_secrets
from .frames import checked

#: Values by group and option.
OptionValues = Mapping[str, Mapping[str, Any]]

_NOVA = "nova.scheduler."
#: Options whose values can name code to import.
_CODE = frozenset({"available_filters", "weight_classes"})


def set_options(conf: cfg.ConfigOpts) -> dict[str, dict[str, Any]]:
    """Return the options that differ from their defaults; no secret is among them."""
    found: dict[str, dict[str, Any]] = {}
    for group, opt, _ in registered_opts(conf):
        if is_secret(opt) or opt.dest in ("config_file", "config_dir"):
            continue
        value = (conf[group] if group else conf)[opt.dest]
        if value != opt.default:
            found.setdefault(group or "DEFAULT", {})[opt.dest] = _masked(value)
    return found


def _masked(value: Any) -> Any:  # noqa: ANN401 - of any option
    if isinstance(value, str):
        return without_secrets(value)
    if isinstance(value, dict):
        return {
            name: HIDDEN if is_secret_name(str(name)) else _masked(each)
            for name, each in value.items()
        }
    return [_masked(each) for each in value] if isinstance(value, list) else value


def code_paths(values: OptionValues) -> list[str]:
    """Return the paths of code in the options of a view, which are left out."""
    of_groups = (of_group.items() for of_group in values.values())
    options = [each for items in of_groups for each in items]
    return [p for name, v in options if name in _CODE for p in v if not _is_safe(p)]


def _is_safe(path: str) -> bool:
    return "." not in path or path.startswith(_NOVA)


def apply_options(conf: cfg.ConfigOpts, values: OptionValues) -> bool:
    """Set the options of a view that are registered; return whether all are.

    What would import code by its path is left out: bytes of a view are not trusted.
    Entry points of installed plugins, and nova's own paths, are no such code.

    Raises
    ------
    UnreadableView
        A value is invalid.
    """
    return checked(partial(_apply, conf), values)


def _apply(conf: cfg.ConfigOpts, values: OptionValues) -> bool:
    are_all_set = True
    for group, of_group in values.items():
        for name, value in of_group.items():
            known = value
            if name in _CODE:
                known = [path for path in value if _is_safe(path)]
            try:
                conf.set_override(
                    str(name), known, None if group == "DEFAULT" else str(group)
                )
            except (cfg.NoSuchOptError, cfg.NoSuchGroupError):
                are_all_set = False
    return are_all_set
