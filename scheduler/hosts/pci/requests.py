# SPDX-License-Identifier: Apache-2.0
"""Which kinds of pools match a guest's PCI requests."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from oslo_utils.strutils import bool_from_string

from ...request.pci import Items, PciRequest, Value
from .pool import PoolKind

#: Keys of a spec that Placement matches, or that are matched by provider. nova intends
#: the last for pools only, but shares one list (``PciDeviceStats.ignored_spec_tags``).
_IGNORED: Final = frozenset({"resource_class", "traits", "rp_uuids", "rp_uuid"})


class Match(NamedTuple):
    """Whether the devices of a kind of pools can be given to a request.

    Attributes
    ----------
    matches : bool
        It has all that one of the specs asks for.
    is_usable : bool
        It is not special, or the specs ask for what it is. Special are PFs, VDPA and
        remote-managed devices, and devices that can, or cannot, be live-migrated.
    """

    matches: bool
    is_usable: bool


def match_request(request: PciRequest, kind: PoolKind) -> Match:
    """Return whether a kind of pools matches the specs, and is usable for them."""
    return _wanted(request.specs).match(kind)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What specs ask for, prepared to be compared with many kinds."""

    specs: tuple[Items, ...]
    allows_pf: bool
    allows_vdpa: bool
    allows_remote_managed: bool
    live_migratable: str | None

    def match(self, kind: PoolKind) -> Match:
        has = dict(kind.items)
        return Match(any(_has_all(has, s) for s in self.specs), self._allow(has))

    def _allow(self, properties: Mapping[str, Value]) -> bool:
        dev_type = properties.get("dev_type")
        if dev_type == "type-PF" and not self.allows_pf:
            return False
        if dev_type == "vdpa" and not self.allows_vdpa:
            return False
        if not self.allows_remote_managed and _is_true(properties, "remote_managed"):
            return False
        wanted = self.live_migratable
        return wanted is None or properties.get("live_migratable") == wanted


@functools.lru_cache(512)
def _wanted(specs: tuple[Items, ...]) -> _Wanted:
    read = [dict(spec) for spec in specs]
    movable = {spec.get("live_migratable") for spec in read}
    return _Wanted(
        # A spec's count is a text, which never equals a pool's count.
        specs=tuple(_comparable(spec) for spec in specs if "count" not in dict(spec)),
        allows_pf=any(spec.get("dev_type") == "type-PF" for spec in read),
        allows_vdpa=any(spec.get("dev_type") == "vdpa" for spec in read),
        allows_remote_managed=any(_is_true(spec, "remote_managed") for spec in read),
        live_migratable=next(
            (value for value in ("true", "false") if movable == {value}), None
        ),
    )


def _is_true(properties: Mapping[str, Value], key: str) -> bool:
    value = properties.get(key)
    return value is not None and bool(bool_from_string(value))


def _comparable(spec: Items) -> Items:
    return tuple((key, _lowered(value)) for key, value in spec if key not in _IGNORED)


def _lowered(value: Value) -> Value:
    return value.lower() if isinstance(value, str) else value


def _has_all(properties: Mapping[str, Value], spec: Items) -> bool:
    return all(_answers(properties.get(key), wanted) for key, wanted in spec)


def _answers(present: Value, wanted: Value) -> bool:
    """Compare as nova's ``pci_device_prop_match``: lists by subset, texts in any case.

    An absent property equals None.
    """
    if isinstance(present, tuple) and isinstance(wanted, tuple):
        return all(each in present for each in wanted)
    return _lowered(present) == wanted
