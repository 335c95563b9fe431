# SPDX-License-Identifier: Apache-2.0
"""Write the host table as frames, and read it from frames."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, cast

import numpy as np

from ..hosts import (
    Columns,
    Consumption,
    HostAggregate,
    HostTable,
    PlacementPlace,
    TableImage,
)
from .frames import (
    Frame,
    UnreadableView,
    array_data,
    checked,
    read_array,
    read_indices,
)
from .host_values import reader_of, writer_of

#: The maximum number of values in one frame: about a millisecond of work.
_CHUNK: Final = 500
#: The maximum number of instances in one frame.
_INSTANCES: Final = 5000

NUMBERS: Final = "numbers"
CODES: Final = "codes"
VALUES: Final = "values"
AGGREGATES: Final = "aggregates"
INSTANCES: Final = "instances"
PROPERTIES: Final = "properties"
CLAIMS: Final = "claims"
CELLS: Final = "cells"
#: A column that hosts do not report, and that cannot be derived from reported columns.
_PLACEMENT_PLACES: Final = "placement_places"


def frames_of_hosts(image: TableImage, columns: Columns) -> Iterator[Frame]:
    """Yield the frames of a host table."""
    for aggregate in image.aggregates:
        data = [
            aggregate.id,
            aggregate.uuid,
            aggregate.name,
            sorted(aggregate.hosts),
            dict(aggregate.metadata),
        ]
        yield Frame(AGGREGATES, "", data)
    yield Frame(CELLS, "", dict(image.cell_names))
    view = image.view
    for name, array in view.numbers.items():
        if name in columns:
            yield Frame(NUMBERS, name, array_data(array))
    for name, codes in view.codes.items():
        if name in columns or name == _PLACEMENT_PLACES:
            write = _write_places if name not in columns else writer_of(columns[name])
            present, inverse = np.unique(codes, return_inverse=True)
            yield Frame(CODES, name, array_data(inverse.astype(np.int32)))
            values = view.interners[name].values
            for chunk in _chunks(present.tolist(), _CHUNK):
                yield Frame(VALUES, name, [write(values[code]) for code in chunk])
    located = ((uuid, host) for uuid, hosts in image.hosts_of.items() for host in hosts)
    for chunk in _chunks(located, _INSTANCES):
        uuids, hosts = zip(*chunk, strict=True)
        names = {name: code for code, name in enumerate(dict.fromkeys(hosts))}
        codes = np.fromiter(map(names.__getitem__, hosts), np.int32, len(hosts))
        data = [_packed(uuids), list(names), array_data(codes)]
        yield Frame(INSTANCES, "", data)
    for chunk in _chunks(image.properties.items(), _CHUNK):
        yield Frame(PROPERTIES, "", {uuid: sorted(pairs) for uuid, pairs in chunk})
    for chunk in _chunks(image.claims, _CHUNK):
        rows = [
            [claim.node_uuid, claim.instance_uuid, claim.claimed_at] for claim in chunk
        ]
        yield Frame(CLAIMS, "", rows)


def _chunks(values: Iterable[Any], size: int) -> Iterator[list[Any]]:
    remaining = iter(values)
    while chunk := list(itertools.islice(remaining, size)):
        yield chunk


def _packed(uuids: Sequence[str]) -> bytes | Sequence[str]:
    """Return UUIDs as 16 bytes each; if one is not a UUID, return the texts."""
    digits = "".join(uuids).replace("-", "")
    try:
        data = bytes.fromhex(digits)
    except ValueError:
        return uuids
    is_canonical = data.hex() == digits and set(map(len, uuids)) == {36}
    return data if is_canonical and len(data) == 16 * len(uuids) else uuids


def _unpacked(data: object) -> list[str]:
    if not isinstance(data, bytes):
        return [str(text) for text in cast(Iterable[object], data)]
    digits = data.hex()
    return [
        f"{digits[i : i + 8]}-{digits[i + 8 : i + 12]}-{digits[i + 12 : i + 16]}-"
        f"{digits[i + 16 : i + 20]}-{digits[i + 20 : i + 32]}"
        for i in range(0, len(digits), 32)
    ]


class HostsReader:
    """Collects the frames of a host table.

    Parameters
    ----------
    columns : mapping
        The declarations of all columns; other columns of a view are ignored.
    """

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._numbers: dict[str, Any] = {}
        self._codes: dict[str, object] = {}
        self._values: defaultdict[str, list[Any]] = defaultdict(list)
        self._aggregates: list[HostAggregate] = []
        self._instances: defaultdict[str, set[str]] = defaultdict(set)
        self._properties: dict[str, list[Any]] = {}
        self._claims: list[Any] = []
        self._cell_names: dict[str, str] = {}

    def add(self, frame: Frame) -> bool:
        """Take a frame; return whether it belongs to a host table."""
        is_column = frame.name in self._columns or frame.name == _PLACEMENT_PLACES
        if frame.kind in (NUMBERS, CODES, VALUES) and not is_column:
            return True
        add = self._adders().get(frame.kind)
        if add is not None:
            checked(add, frame)
        return add is not None

    def _adders(self) -> dict[str, Callable[[Frame], object]]:
        return {
            NUMBERS: lambda frame: self._numbers.update({frame.name: frame.data}),
            CODES: lambda frame: self._codes.update({frame.name: frame.data}),
            VALUES: self._add_values,
            AGGREGATES: lambda frame: self._aggregates.append(_aggregate(*frame.data)),
            INSTANCES: lambda frame: self._add_instances(*frame.data),
            PROPERTIES: lambda frame: self._properties.update(frame.data),
            CLAIMS: lambda frame: self._claims.extend(frame.data),
            CELLS: lambda frame: self._cell_names.update(
                (str(uuid), str(name)) for uuid, name in frame.data.items()
            ),
        }

    def _add_values(self, frame: Frame) -> None:
        column = self._columns.get(frame.name)
        read = _read_places if column is None else reader_of(column)
        self._values[frame.name].extend(map(read, frame.data))

    def _add_instances(self, packed: object, hosts: list[str], codes: object) -> None:
        names = [str(host) for host in hosts]
        name_indices = read_indices(codes, len(names)).tolist()
        for uuid, name_index in zip(_unpacked(packed), name_indices, strict=True):
            self._instances[names[name_index]].add(uuid)

    def table(self, clock: Callable[[], float]) -> HostTable:
        """Return a host table with the rows of the view, in the same order.

        Raises
        ------
        UnreadableView
            The frames are damaged.
        """
        return checked(self._table, clock)

    def _table(self, clock: Callable[[], float]) -> HostTable:
        table = HostTable(clock, self._columns)
        table.put_aggregates(self._aggregates)
        table.put_cell_names(self._cell_names)
        columns = dict(self._read_columns())
        self._put(table, columns)
        table.put_placement_places(self._placement_places(columns["uuid"]))
        table.set_instances_of(self._instances)
        for uuid, pairs in self._properties.items():
            properties = frozenset((str(name), str(text)) for name, text in pairs)
            table.instances.set_image_properties(uuid, properties)
        return table

    def _placement_places(
        self, uuids: Sequence[str]
    ) -> dict[str, tuple[PlacementPlace, ...]]:
        if _PLACEMENT_PLACES not in self._codes:
            return {}
        values = self._values[_PLACEMENT_PLACES]
        codes = read_indices(self._codes[_PLACEMENT_PLACES], len(values)).tolist()
        pairs = zip(uuids, [values[code] for code in codes], strict=True)
        return {uuid: places for uuid, places in pairs if places}

    def _put(self, table: HostTable, columns: dict[str, list[Any]]) -> None:
        """Put the rows, then the claims, which the amounts in the rows include.

        As each claim adds an instance, it is first subtracted from `num_instances`.
        """
        n_claims = Counter(node for node, _, _ in self._claims)
        columns["num_instances"] = [
            number - n_claims[uuid]
            for uuid, number in zip(
                columns["uuid"], columns["num_instances"], strict=True
            )
        ]
        table.put_columns(columns)
        for node, instance, claimed_at in self._claims:
            no_consumption = Consumption(memory_mb=0, disk_mb=0, vcpus=0, io_ops=0)
            table.claims.consume(node, str(instance), no_consumption, float(claimed_at))

    def _read_columns(self) -> Iterator[tuple[str, list[Any]]]:
        n_rows = len(read_array(self._codes.get("uuid"), np.int32))
        for name, column in self._columns.items():
            if column.is_interned and name in self._codes:
                values = self._values[name]
                codes = read_indices(self._codes[name], len(values))
                row_values = [values[code] for code in codes.tolist()]
            elif not column.is_interned and name in self._numbers:
                row_values = read_array(self._numbers[name], column.kind.dtype).tolist()
            elif column.has_default:
                row_values = [column.default] * n_rows
            else:
                raise UnreadableView(f"it is damaged: it has no column {name}")
            if len(row_values) != n_rows:
                raise UnreadableView(
                    f"it is damaged: {name} has {len(row_values)} rows"
                )
            yield name, row_values
        if len(set(self._values["uuid"])) != n_rows:
            raise UnreadableView("it is damaged: a compute node has two rows")


def _aggregate(
    id_: int, uuid: str, name: str, hosts: list[str], metadata: dict[str, str]
) -> HostAggregate:
    texts = {str(key): str(value) for key, value in metadata.items()}
    return HostAggregate(
        int(id_), str(uuid), str(name), frozenset(map(str, hosts)), texts
    )


def _write_places(value: Iterable[PlacementPlace]) -> list[list[str]]:
    return [list(place) for place in value]


def _read_places(data: Iterable[Sequence[object]]) -> tuple[PlacementPlace, ...]:
    return tuple(PlacementPlace(*map(str, place)) for place in data)
