# SPDX-License-Identifier: Apache-2.0
"""[moorage] preset: multipliers that go together, for options that no one has set."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from oslo_config import cfg

NOVA: Final = "nova"
#: Group and name of an option.
_Key = tuple[str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class Preset:
    """The multipliers of one value of the option.

    Attributes
    ----------
    trade_off : str
        What the preset gains and costs, for the help of the option.
    multipliers : mapping
        Values by group and name of the option; other options keep their defaults.
    """

    trade_off: str
    multipliers: Mapping[_Key, float]


def _of_weighers(**multipliers: float) -> dict[_Key, float]:
    return {
        ("filter_scheduler", f"{name}_weight_multiplier"): value
        for name, value in multipliers.items()
    }


#: Of nova's -1, builds in progress weigh as much as all free memory, and a burst of
#: requests is spread again.
_FEW_BUILDS: Final = -0.1
_PACK: Final = _of_weighers(cpu=-1.0, ram=-1.0, disk=-1.0, io_ops=_FEW_BUILDS)
#: Beside packing by 1: with 4, more CPUs are stranded on hosts without memory; with 16,
#: large flavors are refused (doc/how-to/choose-a-policy.rst).
_FRAGMENTATION: Final = 8.0

#: The values of the option, by name.
PRESETS: Final[Mapping[str, Preset]] = MappingProxyType(
    {
        NOVA: Preset(
            "nova's defaults: each instance gets the host with the most that is free, "
            "at the price that no host stays empty for a large flavor",
            MappingProxyType({}),
        ),
        "pack": Preset(
            "Fills hosts one after another: large flavors find room and empty hosts "
            "can be switched off, at the price that instances share busier hosts, and "
            "that CPUs are stranded where memory is used up, or memory where CPUs are; "
            "fewer with [filter_scheduler] fragmentation_flavors",
            MappingProxyType(_PACK | _of_weighers(fragmentation=_FRAGMENTATION)),
        ),
        "spread_zones": Preset(
            "Packs, but places the members of soft server groups, and what is to be "
            "near or far, by their rule first, at the price of more hosts in use",
            MappingProxyType(
                _PACK
                | _of_weighers(soft_affinity=10.0, soft_anti_affinity=10.0)
                | {("locality", "weight_multiplier"): 10.0}
            ),
        ),
        "balanced": Preset(
            "Packs by CPUs and spreads by memory, so that hosts run out of both at "
            "once, at the price of fewer empty hosts than with pack",
            MappingProxyType(_of_weighers(cpu=-1.0, ram=1.0, io_ops=_FEW_BUILDS)),
        ),
    }
)


def multiplier(conf: cfg.ConfigOpts, group: str, name: str) -> tuple[float, str]:
    """Return the value of a weigher's multiplier, and the preset that it comes from.

    The preset applies if a file, an argument or an override does not set the option.

    Returns
    -------
    (float, str)
        The name of the preset is "" if the value is that of the option.
    """
    preset: str = conf.moorage.preset if "moorage" in conf else NOVA
    value = PRESETS[preset].multipliers.get((group, name))
    if value is None or is_given(conf, group, name):
        return float(conf[group][name]), ""
    return value, preset


def is_given(conf: cfg.ConfigOpts, group: str | None, name: str) -> bool:
    """Return whether a file, an argument or an override sets an option.

    Raises
    ------
    oslo_config.cfg.NoSuchOptError, oslo_config.cfg.NoSuchGroupError
    """
    location = conf.get_location(name, group)
    return location is not None and location.location not in (
        cfg.Locations.opt_default,
        cfg.Locations.set_default,
    )
