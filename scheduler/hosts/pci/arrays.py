# SPDX-License-Identifier: Apache-2.0
"""The pools of many hosts as arrays, and which kinds of pools match a guest's requests.

One row is a state of a host's pools.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt
from oslo_utils.strutils import bool_from_string

from ...request.pci import Items, PciRequest, Value
from ..interning import Codes, Interner
from ..numa import grown
from .pools import HostPools, Pool, PoolKind, are_split

#: Keys of a spec that Placement matches, or that are matched by provider. nova intends
#: the last key for pools only, but has one list (``PciDeviceStats.ignored_spec_tags``).
_IGNORED: Final = frozenset({"resource_class", "traits", "rp_uuids", "rp_uuid"})


class Match(NamedTuple):
    """Whether the devices of a kind of pools can be given to a request.

    Attributes
    ----------
    matches : bool
        The devices have all properties that one of the specs requests.
    is_usable : bool
        The devices are not special, or the specs request such special devices. Special
        are PFs, VDPA and remote-managed devices, and devices that can, or cannot, be
        live-migrated.
    """

    matches: bool
    is_usable: bool


def match_request(request: PciRequest, kind: PoolKind) -> Match:
    """Return whether a kind of pools matches the specs, and is usable for them."""
    return _wanted(request.specs).match(kind)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What specs request, prepared to be compared with many kinds of pools."""

    specs: tuple[Items, ...]
    allows_pf: bool
    allows_vdpa: bool
    allows_remote_managed: bool
    live_migratable: str | None

    def match(self, kind: PoolKind) -> Match:
        properties = dict(kind.items)
        return Match(
            any(_has_all(properties, spec) for spec in self.specs),
            self._allow(properties),
        )

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
    spec_dicts = [dict(spec) for spec in specs]
    migratable_values = {spec.get("live_migratable") for spec in spec_dicts}
    return _Wanted(
        # A spec's count is a text, which never equals a pool's count.
        specs=tuple(_comparable(spec) for spec in specs if "count" not in dict(spec)),
        allows_pf=any(spec.get("dev_type") == "type-PF" for spec in spec_dicts),
        allows_vdpa=any(spec.get("dev_type") == "vdpa" for spec in spec_dicts),
        allows_remote_managed=any(
            _is_true(spec, "remote_managed") for spec in spec_dicts
        ),
        live_migratable=next(
            (value for value in ("true", "false") if migratable_values == {value}), None
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
    return all(_equals(properties.get(key), wanted) for key, wanted in spec)


def _equals(present: Value, wanted: Value) -> bool:
    """Return whether a property equals the requested value.

    As in nova's ``pci_device_prop_match``, a list equals each list of some of its
    items, a text equals it in any case, and an absent property equals None.
    """
    if isinstance(present, tuple) and isinstance(wanted, tuple):
        return all(item in present for item in wanted)
    return _lowered(present) == wanted


Mask = npt.NDArray[np.bool_]
_Scalar = TypeVar("_Scalar", bound=np.generic)

#: In place of a kind: the row has fewer pools.
NO_KIND: Final = -1
#: In place of a provider's code: the pool has none, or the request needs no more.
NO_PROVIDER: Final = -1
#: The code of a provider that no pool has.
UNKNOWN_PROVIDER: Final = -2
#: In place of a NUMA node: the devices are at none. (-1 can be a node in reports.)
NO_NODE: Final = -2
#: In place of a NUMA node: the row has fewer pools.
NOT_THERE: Final = -3

_MATCHES: Final = 1
_IS_USABLE: Final = 2

#: The columns, with the value that pads a row of fewer pools.
_COLUMNS: Final[Mapping[str, tuple[type[np.signedinteger[Any]], int]]] = {
    "kind": (np.int32, NO_KIND),
    "count": (np.int64, 0),
    "provider": (np.int32, NO_PROVIDER),
    "numa_node": (np.int32, NOT_THERE),
}


@dataclass(frozen=True, slots=True, eq=False)
class PoolRows:
    """The pools of m hosts, padded to the largest number that any known host has.

    Attributes
    ----------
    kind : ndarray of int32, shape (m, n_pools)
        Codes of `kinds`; NO_KIND: no pool.
    count : ndarray of int64, shape (m, n_pools)
        Free devices.
    provider : ndarray of int32, shape (m, n_pools)
        Codes as `PoolArrays.provider_codes` returns them, or NO_PROVIDER.
    numa_node : ndarray of int32, shape (m, n_pools)
        NO_NODE: none; NOT_THERE: no pool.
    has_split : ndarray of bool, shape (m,)
        Whether some provider's devices are in several pools of the host.
    kinds : Interner
        The kinds of all pools, in order of their codes.
    """

    kind: Codes
    count: npt.NDArray[np.int64]
    provider: Codes
    numa_node: Codes
    has_split: Mask
    kinds: Interner

    def __len__(self) -> int:
        return len(self.has_split)

    def take(self, indices: npt.NDArray[Any] | Sequence[int]) -> Self:
        """Return some of the rows, in this order; a row can occur again."""
        picked = np.asarray(indices, dtype=np.intp)
        return type(self)(
            take_rows(self.kind, picked),
            take_rows(self.count, picked),
            take_rows(self.provider, picked),
            take_rows(self.numa_node, picked),
            self.has_split[picked],
            self.kinds,
        )

    def match(self, request: PciRequest) -> tuple[Mask, Mask]:
        """Return which pools match a request, and which of these are usable for it.

        The answers for equal specs are cached with the kinds.

        Returns
        -------
        two ndarrays of bool, shape (m, n_pools)
        """
        answers = self.kinds.map_values(
            ("PciRequest", request.specs), _matcher(request), np.int8
        )
        # NO_KIND, -1, finds the last element.
        by_kind = np.append(answers, np.int8(0))
        matches = by_kind.take(self.kind.T, mode="wrap").T
        return (matches & _MATCHES).view(bool), matches == _MATCHES | _IS_USABLE


def take_rows(
    column: npt.NDArray[_Scalar], indices: npt.NDArray[np.intp]
) -> npt.NDArray[_Scalar]:
    """Return some rows of an array of shape (m, n_pools).

    The first axis is contiguous in memory, and stays so: five times faster for sums
    over a few pools of many hosts.
    """
    return column.T.take(indices, axis=1).T


def _matcher(request: PciRequest) -> Callable[[PoolKind], int]:
    """Return a function that returns `match_request` of a kind as bits."""

    def match(kind: PoolKind) -> int:
        answer = match_request(request, kind)
        return _MATCHES * answer.matches | _IS_USABLE * answer.is_usable

    return match


class PoolArrays:
    """States of hosts' pools, a row each; rows are added and never changed.

    One thread adds rows at a time; any thread may read rows at the same time.

    A row has room for as many pools as the host with the most: 20 bytes for each pool,
    and one byte. Each kind and each provider that occurs is stored once for all rows, a
    provider in about 0.2 kB. The capacity is up to twice the number of rows.
    """

    def __init__(self, n_pools: int = 0, n_hosts: int = 0) -> None:
        self._n = 0
        self._kinds = Interner()
        #: The NUMA node of each kind, by its code.
        self._nodes: list[int] = []
        self._providers: dict[str | None, int] = {None: NO_PROVIDER}
        shape = (n_pools, n_hosts)
        self._columns: dict[str, npt.NDArray[Any]] = {
            name: np.full(shape, padding, dtype)
            for name, (dtype, padding) in _COLUMNS.items()
        }
        self._has_split = np.zeros(n_hosts, bool)

    def __len__(self) -> int:
        return self._n

    @property
    def n_known(self) -> int:
        """How many providers have a code; once it grows, unknown ones may have one."""
        return len(self._providers)

    def provider_codes(self, uuids: Sequence[str | None]) -> Codes:
        """Return the codes of resource providers, NO_PROVIDER for None.

        A provider that no pool has gets UNKNOWN_PROVIDER.
        """
        codes = map(self._providers.get, uuids, itertools.repeat(UNKNOWN_PROVIDER))
        return np.fromiter(codes, np.int32, len(uuids))

    def extend(self, values: Sequence[HostPools]) -> None:
        """Add a row for the pools of each host, in their order."""
        end = self._n + len(values)
        self._reserve(end, max((len(value.pools) for value in values), default=0))
        new_rows = np.arange(self._n, end)
        rows = np.repeat(new_rows, [len(value.pools) for value in values])
        indices = [i for value in values for i in range(len(value.pools))]
        pools = [pool for value in values for pool in value.pools]
        columns = np.array([*map(self._values, pools)], np.int64).reshape(-1, 4)
        for name, column in zip(_COLUMNS, columns.T, strict=True):
            self._columns[name][indices, rows] = column
        self._has_split[new_rows] = [are_split(value.pools) for value in values]
        self._n = end

    def _values(self, pool: Pool) -> tuple[int, int, int, int]:
        """Return the values of a pool, in the order of the columns."""
        kind = self._kinds.code(pool.kind)
        if kind == len(self._nodes):
            self._nodes.append(_code_of_node(pool.kind.numa_node))
        provider = self._providers.setdefault(pool.rp_uuid, len(self._providers) - 1)
        return kind, pool.count, provider, self._nodes[kind]

    def _reserve(self, n: int, n_pools: int) -> None:
        """Grow if necessary, into new arrays: rows read earlier do not change."""
        old_pools, old_n = self._columns["kind"].shape
        if n <= old_n and n_pools <= old_pools:
            return
        capacity = max(n, 2 * self._n) if n > old_n else old_n
        shape = (max(n_pools, old_pools), capacity)
        self._has_split = grown(self._has_split, (capacity,), 0)
        # In one assignment: a concurrent reader gets columns of one shape.
        self._columns = {
            name: grown(self._columns[name], shape, padding)
            for name, (_, padding) in _COLUMNS.items()
        }

    def rows(self, start: int = 0) -> PoolRows:
        """Return the rows from `start` on; later additions do not change them."""
        # Rows that another thread adds after this line are not read.
        part = slice(start, self._n)
        columns = {name: array[:, part].T for name, array in self._columns.items()}
        return PoolRows(**columns, has_split=self._has_split[part], kinds=self._kinds)


def _code_of_node(node: int | None) -> int:
    return NO_NODE if node is None else node
