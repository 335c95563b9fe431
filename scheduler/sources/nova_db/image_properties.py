# SPDX-License-Identifier: Apache-2.0
"""Which image properties the instances of a cell have, read where that can matter.

nova keeps them in ``instance_system_metadata``, which is the largest table that is read
here and has an index by instance only. So they are read by instance: of those that came
to a host, of those whose row changed, as at a rebuild, and once in a while of all.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Final

import sqlalchemy as sa
from oslo_config import cfg

from ....objects import Instance
from ...hosts import HostTable, properties_of_instance
from ...hosts.image_properties import NO_PROPERTIES, ImageProperties
from .changes import CellChanges
from .instances import chunks
from .schema import Moment, instance_system_metadata, instances

_MULTIPLIER: Final = "image_props_weight_multiplier"

#: Of a cell's time limit: what is not read in it is read at the next looks.
_SHARE: Final = 0.25
#: Instances in one statement.
_CHUNK: Final = 500
#: Seconds for which a row may change again and keep its time: its second, and a commit.
_HOT_S: Final = 3.0
#: Seconds by which a row may be committed later than another one of the same time.
_OVERLAP_S: Final = 60.0
_US_PER_S: Final = 1_000_000
_MAX_IMAGES: Final = 4096

#: What nova notes of every image, and weighs nowhere.
_NEVER_COUNTED: Final = tuple(
    f"image_{name}"
    for name in (
        "base_image_ref", "container_format", "disk_format", "min_disk", "min_ram",
        "block_device_mapping", "img_block_device_mapping", "img_mappings", "mappings",
    )
)  # fmt: skip

#: What is kept of an image: (key, value) pairs, in the order of their keys.
Kept = tuple[tuple[str, str], ...]
#: Image properties by instance.
Described = Mapping[str, ImageProperties]


def are_weighed(conf: cfg.ConfigOpts, table: HostTable) -> bool:
    """Return whether ImagePropertiesWeigher multiplies any host by anything."""
    return bool(conf.filter_scheduler[_MULTIPLIER]) or any(
        _MULTIPLIER in aggregate.metadata for aggregate in table.aggregates
    )


def describe(table: HostTable, described: Described) -> None:
    """Tell the table; instances that are on no host there are left out."""
    for some in chunks(described):  # decisions go on in between
        # Nothing comes to a host by this: each is described where it is.
        table.add_instances("", (), {uuid: described[uuid] for uuid in some})


class ImagePropertiesReader:
    """The image properties of one cell's instances; used by one thread at a time.

    After a failure a new one has to be made, together with the cell's reader.
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
    _late = sa.select(instances.c.uuid, instances.c.updated_at).where(
        instances.c.deleted == 0,
        instances.c.host.is_not(None),
        instances.c.updated_at >= sa.bindparam("since", type_=Moment),
    )

    def __init__(self) -> None:
        self._of_host: dict[str, frozenset[str]] = {}
        self._is_on = False
        #: Instances to be read: at once, and when there is time.
        self._urgent: set[str] = set()
        self._later: set[str] = set()
        #: Times of the rows that changed of late, and since when they are so.
        self._versions: dict[str, tuple[int, float]] = {}
        self._mark_us = 0
        self._parsed: dict[Kept, ImageProperties] = {}

    def look(
        self,
        connection: sa.Connection,
        changes: CellChanges,
        *,
        is_on: bool,
        limit_s: float,
        in_full: bool = False,
    ) -> Described:
        """Return what there is to tell of instances that came or changed.

        Parameters
        ----------
        changes : CellChanges
            What the same look found.
        is_on : bool
            Whether they are weighed; otherwise nothing is read.
        limit_s : float
            The cell's time limit; a part of it is taken at most, and the rest is read
            at the next looks.
        in_full : bool
            Read those of all instances again, a few at each look.
        """
        came = self._come(changes)
        was_on, self._is_on = self._is_on, is_on
        if not is_on:
            self._urgent.clear()
            self._later.clear()
            return {}
        if not was_on:
            self._versions.clear()
            came = self._all()
        elif in_full:
            self._later = self._all()
        self._urgent.update(came)
        self._urgent.update(self._changed(connection, changes.began_at))
        return self._read(connection, time.monotonic() + _SHARE * limit_s)

    def _all(self) -> set[str]:
        return set().union(*self._of_host.values())

    def _come(self, changes: CellChanges) -> set[str]:
        """Return the instances that are new on their hosts."""
        came: set[str] = set()
        for host, uuids in changes.instances.items():
            before = self._of_host.pop(host, frozenset())
            if uuids:
                self._of_host[host] = uuids
                came |= uuids - before
        return came

    def _changed(self, connection: sa.Connection, now: float) -> set[str]:
        """Return the instances whose rows changed, or did a moment ago."""
        since_us = max(0, self._mark_us - int(_OVERLAP_S * _US_PER_S))
        if not self._mark_us:
            since_us = int((now - _OVERLAP_S) * _US_PER_S)
        before, self._versions = self._versions, {}
        changed: set[str] = set()
        for uuid, version_us in connection.execute(self._late, {"since": since_us}):
            known = before.get(uuid)
            if known is None or known[0] != version_us:
                known = (version_us, now)
            self._versions[uuid] = known
            if abs(now - known[1]) < _HOT_S:
                changed.add(uuid)
            # One row whose time is ahead must not hide the others' changes.
            if self._mark_us < version_us <= now * _US_PER_S:
                self._mark_us = version_us
        return changed

    def _read(self, connection: sa.Connection, ends_at: float) -> Described:
        found: dict[str, ImageProperties] = {}
        while self._urgent and (not found or time.monotonic() < ends_at):
            found.update(self._read_some(connection, self._urgent))
        if self._later and not self._urgent:
            found.update(self._read_some(connection, self._later))
        return found

    def _read_some(self, connection: sa.Connection, wanted: set[str]) -> Described:
        some = [wanted.pop() for _ in range(min(_CHUNK, len(wanted)))]
        kept: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
        for uuid, key, value in connection.execute(self._query, {"uuids": some}):
            if value is not None:
                kept[uuid].append((key, value))
        return {uuid: self._properties(uuid, tuple(kept[uuid])) for uuid in some}

    def _properties(self, uuid: str, kept: Kept) -> ImageProperties:
        """Return what is kept of an image, read once for all of its instances."""
        properties = self._parsed.get(kept)
        if properties is None:
            if len(self._parsed) >= _MAX_IMAGES:
                self._parsed.clear()
            instance = Instance(uuid=uuid, system_metadata=dict(kept))
            properties = properties_of_instance(instance) or NO_PROPERTIES
            self._parsed[kept] = properties
        return properties
