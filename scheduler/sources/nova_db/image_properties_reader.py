# SPDX-License-Identifier: Apache-2.0
"""Reading the image properties of a cell's instances, only if they are weighed.

nova stores them in ``instance_system_metadata``, the largest table read here, which has
an index by instance only. So they are read by instance: for instances that are new on a
host, for instances whose row changed, as at a rebuild, and for all instances at each
full comparison.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Final

import sqlalchemy as sa
from cachetools import LRUCache
from oslo_config import cfg

from ....objects import Instance
from ...hosts import HostTable, properties_of_instance
from ...hosts.instances import NO_PROPERTIES, ImageProperties
from ...polling.polled_table import chunks
from .changes import CellChanges
from .schema import instance_system_metadata

_MULTIPLIER: Final = "image_props_weight_multiplier"

#: Most of a cell's time limit that a poll spends here, as a share; later polls read the
#: remaining properties.
_MAX_SHARE: Final = 0.25
#: Most instances in one statement.
_CHUNK: Final = 500
_MAX_IMAGES: Final = 4096

#: Properties that nova stores of every image and never weighs.
_NEVER_COUNTED: Final = tuple(
    f"image_{name}"
    for name in (
        "base_image_ref", "container_format", "disk_format", "min_disk", "min_ram",
        "block_device_mapping", "img_block_device_mapping", "img_mappings", "mappings",
    )
)  # fmt: skip

#: The metadata of an image: (key, value) pairs, sorted by key.
MetadataItems = tuple[tuple[str, str], ...]
#: Image properties by instance.
PropertiesByInstance = Mapping[str, ImageProperties]


def are_weighed(conf: cfg.ConfigOpts, table: HostTable) -> bool:
    """Return whether ImagePropertiesWeigher has a multiplier for any host."""
    return bool(conf.filter_scheduler[_MULTIPLIER]) or any(
        _MULTIPLIER in aggregate.metadata for aggregate in table.aggregates
    )


def write_properties(table: HostTable, properties: PropertiesByInstance) -> None:
    """Write properties to the table, except of instances that it has on no host."""
    for uuids in chunks(properties):  # decisions may run in between
        table.set_image_properties({uuid: properties[uuid] for uuid in uuids})


class ImagePropertiesReader:
    """The image properties of one cell's instances; used by one thread at a time.

    A reader must be replaced after a failure, together with the cell's reader.
    """

    _c = instance_system_metadata.c
    _query = (
        sa.select(_c.instance_uuid, _c.key, _c.value)
        .where(
            _c.instance_uuid.in_(sa.bindparam("uuids", expanding=True)),
            _c.deleted == 0,
            _c.key.startswith("image_", autoescape=True),
            _c.key.not_in(_NEVER_COUNTED),
        )
        .order_by(_c.instance_uuid, _c.key)
    )

    def __init__(self) -> None:
        self._of_host: dict[str, frozenset[str]] = {}
        self._is_on = False
        #: Instances to read in this poll, and instances to read once none of these is
        #: left.
        self._urgent: set[str] = set()
        self._later: set[str] = set()
        self._parsed = LRUCache[MetadataItems, ImageProperties](_MAX_IMAGES)

    def read_changes(
        self,
        connection: sa.Connection,
        changes: CellChanges,
        *,
        is_on: bool,
        limit_s: float,
        in_full: bool = False,
    ) -> PropertiesByInstance:
        """Return the properties of instances that are new on a host or changed.

        Parameters
        ----------
        changes : CellChanges
            The changes that the same poll found.
        is_on : bool
            Whether properties are weighed; otherwise nothing is read.
        limit_s : float
            The cell's time limit; at most a share of it is used, and the rest is read
            at the next polls.
        in_full : bool
            Read the properties of all instances again, a few at each poll.
        """
        arrived = self._new_on_hosts(changes)
        was_on, self._is_on = self._is_on, is_on
        if not is_on:
            self._urgent.clear()
            self._later.clear()
            return {}
        if not was_on:
            arrived = self._all()
        elif in_full:
            self._later = self._all()
        self._urgent.update(arrived)
        self._urgent.update(changes.recently_written)
        return self._read(connection, time.monotonic() + _MAX_SHARE * limit_s)

    def _all(self) -> set[str]:
        return set().union(*self._of_host.values())

    def _new_on_hosts(self, changes: CellChanges) -> set[str]:
        """Return the instances that are new on their hosts."""
        arrived: set[str] = set()
        for host, uuids in changes.instances.items():
            before = self._of_host.pop(host, frozenset())
            if uuids:
                self._of_host[host] = uuids
                arrived |= uuids - before
        return arrived

    def _read(self, connection: sa.Connection, ends_at: float) -> PropertiesByInstance:
        properties: dict[str, ImageProperties] = {}
        while self._urgent and (not properties or time.monotonic() < ends_at):
            properties.update(self._read_some(connection, self._urgent))
        if self._later and not self._urgent:
            properties.update(self._read_some(connection, self._later))
        return properties

    def _read_some(
        self, connection: sa.Connection, wanted: set[str]
    ) -> PropertiesByInstance:
        uuids = [wanted.pop() for _ in range(min(_CHUNK, len(wanted)))]
        items: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
        for uuid, key, value in connection.execute(self._query, {"uuids": uuids}):
            if value is not None:
                items[uuid].append((key, value))
        return {uuid: self._parse(uuid, tuple(items[uuid])) for uuid in uuids}

    def _parse(self, uuid: str, items: MetadataItems) -> ImageProperties:
        """Return the properties of an image, parsed once for all of its instances."""
        properties = self._parsed.get(items)
        if properties is None:
            instance = Instance(uuid=uuid, system_metadata=dict(items))
            properties = properties_of_instance(instance) or NO_PROPERTIES
            self._parsed[items] = properties
        return properties
