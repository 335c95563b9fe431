# SPDX-License-Identifier: Apache-2.0
"""[locality]: levels such as rack, row and room, and where hosts are at them."""

from __future__ import annotations

import re
from typing import Final

from oslo_config import cfg, types

from .values import PluginFile

GROUP = "locality"

#: Hints are named after levels. ``host`` and ``cell`` would give hints that nova has,
#: with other rules; names that end with ``_volume`` or ``_port`` would give the hints
#: about volumes and ports; ``elsewhere`` is a distance.
_LEVEL: Final = re.compile(
    r"(?!(?:host|cell|elsewhere|.*_volume|.*_port)$)[a-z][a-z0-9_]{0,31}"
)


class _Level(types.String):
    """The name of a level."""

    def __call__(self, value: object) -> str:
        name: str = super().__call__(value)
        if not _LEVEL.fullmatch(name):
            raise ValueError(
                f"{name!r} cannot be a level: its name must have 1 to 32 lower-case "
                'letters, digits and "_", begin with a letter, not end with _volume '
                "or _port, and not be host, cell or elsewhere"
            )
        return name


BOOT_VOLUME: Final = "boot_volume"
PORTS: Final = "ports"

OPTS = (
    cfg.ListOpt(
        "levels",
        default=[],
        item_type=_Level(),
        bounds=False,
        mutable=True,
        help=(
            "The levels at which hosts have places, the smallest first, for example "
            "rack, row, room. Possible values: names of lower-case letters, digits and "
            '"_", other than host, cell and elsewhere, that do not end with _volume or '
            "_port. A host aggregate with the metadata "
            "moorage:level = rack is a rack: its name, or its metadata moorage:place, "
            "is the name of the place. The sources file and push have places in the "
            "column of that name. Empty: hints and extra specs about places are "
            "ignored. Related: LocalityFilter in [filter_scheduler] enabled_filters."
        ),
    ),
    cfg.StrOpt(
        "places",
        mutable=True,
        help=(
            "The path of a CSV file of places that are aggregates in Placement and not "
            "host aggregates of nova: the header aggregate,level,place, then a line "
            "for each aggregate with its UUID, one of levels, and the name of the "
            "place. Its members are read from Placement: with [placement_database] "
            "connection from the copy in memory, otherwise every minute. "
            "`moorage locality apply --placement` writes the file. Related: levels."
        ),
    ),
    cfg.Opt(
        "distances",
        type=types.Dict(value_type=types.Float(min=0, max=1e9), bounds=False),
        default={},
        mutable=True,
        help=(
            "The distance of two hosts by the smallest level at which they are in one "
            "place, for the hints near and far and for soft server groups. Possible "
            "values: level:number, separated by commas, and elsewhere:number for hosts "
            "that share no place, for example rack:1,row:3,room:10,elsewhere:100. "
            "Numbers must not decrease; a level without one has that of the level "
            "below, and elsewhere is twice the largest. Empty: the number of levels "
            "up, 1 in the same place of the smallest level. Related: distance_file, "
            "weight_multiplier."
        ),
    ),
    cfg.Opt(
        "distance_file",
        type=PluginFile(),
        mutable=True,
        help=(
            "The path of a CSV file of the distances between places, in the unit of "
            "distances: the header level,from,to,distance, then a line for two places "
            "of a level, for example row,a,b,12. Either direction stands for both. It "
            "takes precedence over the levels above for hosts in these two places."
        ),
    ),
    cfg.FloatOpt(
        "weight_multiplier",
        default=1.0,
        mutable=True,
        help=(
            "Multiplier of the distances by the hints near and far and by soft server "
            "groups at a level: more than 1 makes them weigh more than free memory, "
            "for example. Overridden for a host by the smallest "
            "locality_weight_multiplier among the metadata of its aggregates."
        ),
    ),
    cfg.ListOpt(
        "automatic",
        item_type=types.String(choices=[BOOT_VOLUME, PORTS]),
        default=[BOOT_VOLUME, PORTS],
        mutable=True,
        help=(
            "What new instances are placed near to without a hint, as a preference. "
            "Possible values: boot_volume, the volume that an instance boots from "
            "(with [moorage] source = nova_db and [cinder]); ports, the networks of "
            "the requested ports (with [neutron]). Only if an aggregate is mapped: the "
            "metadata moorage:volume_backend, or moorage:segment and "
            "moorage:physical_network. Empty: hints only."
        ),
    ),
    cfg.FloatOpt(
        "lookup_timeout",
        default=2.0,
        min=0.1,
        max=60.0,
        mutable=True,
        help=(
            "Seconds that a decision waits for Cinder and Neutron in all, to find its "
            "volumes and ports. Then hints that require a place fail, and preferences "
            "are dropped. For 10 s after that the service is not waited for. Related: "
            "[cinder] and [neutron] timeout, which limit one HTTP request, have this "
            "default."
        ),
    ),
)
