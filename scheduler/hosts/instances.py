# SPDX-License-Identifier: Apache-2.0
"""The instances of each service host, counted by their image properties."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from ...objects import ImageMeta, ImageMetaProps, Instance

LOG = logging.getLogger(__name__)

#: A property's current name, and its value as text.
ImageProperty = tuple[str, str]
ImageProperties = frozenset[ImageProperty]

NO_PROPERTIES: Final[ImageProperties] = frozenset()

_PREFIX = "image_"

#: Properties with structured data, which nova does not store with an instance.
_SKIPPED = frozenset(
    {"mappings", "block_device_mapping", "img_mappings", "img_block_device_mapping"}
)


def properties_of_image(image: ImageMeta | None) -> ImageProperties:
    """Return an image's properties; none where there is no image."""
    if image is None or "properties" not in image:
        return NO_PROPERTIES
    return _pairs(image.properties)


def properties_of_instance(instance: Instance) -> ImageProperties | None:
    """Return the image properties that an instance has in its system metadata.

    None where the instance has no system metadata.
    """
    if "system_metadata" not in instance:
        return None
    metadata: Mapping[str, str | None] = instance.system_metadata
    properties = {
        name: value
        for key, value in metadata.items()
        if key.startswith(_PREFIX) and value is not None
        if (name := key.removeprefix(_PREFIX)) not in _SKIPPED
    }
    try:
        return _pairs(ImageMetaProps.from_dict(properties))
    except ValueError as e:
        LOG.warning("The image properties of %s are not counted: %s", instance.uuid, e)
        return NO_PROPERTIES


def _pairs(properties: ImageMetaProps) -> ImageProperties:
    """Return the properties that are set, each with a text that equal values share."""
    pairs = []
    for name, value in properties.set_values().items():
        if isinstance(value, list):  # perhaps of sets of CPUs, which have no order
            items = [sorted(item) if isinstance(item, set) else item for item in value]
            pairs.append((name, str(items)))
        else:
            pairs.append((name, str(value)))
    return frozenset(pairs)


#: The most properties that are also counted in arrays; the oldest array is evicted.
_MAX_COLUMNS = 256


class InstanceMap:
    """Instance UUIDs by service host, as nova keys them, and hosts by instance.

    All nodes of one service host share its instances, as with Ironic. An instance that
    is being moved is on two hosts. Instances may have image properties; the number of
    a host's instances with each property is updated as they are added and removed.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        #: The number of the last change, and of the last change of each host.
        self._revision = 0
        self._changed_at: dict[str, int] = {}
        self._of_host: dict[str, set[str]] = {}
        #: Hosts that an instance has left since `take_freed`.
        self._freed: set[str] = set()
        self._hosts_of: dict[str, tuple[str, ...]] = {}
        #: Hosts where instances are only claimed, by instance.
        self._claimed_on: dict[str, frozenset[str]] = {}
        self._properties: dict[str, ImageProperties] = {}
        self._index_of: dict[str, int] = {}
        #: Numbers of instances, by property and by host index; zeros are left out.
        self._counts: dict[ImageProperty, dict[int, int]] = {}
        #: The same numbers as arrays by host index, for properties that were requested.
        self._columns: dict[ImageProperty, npt.NDArray[np.float64]] = {}

    def copied(self) -> InstanceMap:
        """Return a copy, which later changes leave as it is."""
        copied = InstanceMap()
        with self._lock:
            copied._revision = self._revision
            copied._changed_at = self._changed_at.copy()
            copied._of_host = {
                host: uuids.copy() for host, uuids in self._of_host.items()
            }
            copied._hosts_of = self._hosts_of.copy()
            copied._claimed_on = self._claimed_on.copy()
            copied._properties = self._properties.copy()
            copied._index_of = self._index_of.copy()
            copied._counts = {
                pair: counts.copy() for pair, counts in self._counts.items()
            }
        return copied

    def __len__(self) -> int:
        return len(self._hosts_of)

    @property
    def revision(self) -> int:
        """The number of the last change; it only increases."""
        return self._revision

    def set_host(self, host: str, uuids: Collection[str]) -> None:
        """Replace all instances of a host."""
        with self._lock:
            on_host = self._of_host.setdefault(host, set())
            for uuid in on_host.difference(uuids):
                self.remove(host, uuid)
            only_host = (host,)  # one object for nearly all instances of the host
            new_uuids = set(uuids).difference(on_host)
            if new_uuids:
                self._record_change(host)
            for uuid in new_uuids:
                if uuid in self._hosts_of:
                    self.add(host, uuid)
                else:  # a new instance, which has no image properties
                    self._hosts_of[uuid] = only_host
                    on_host.add(uuid)

    def add(
        self,
        host: str,
        uuid: str,
        properties: ImageProperties = NO_PROPERTIES,
        *,
        is_claimed: bool = False,
    ) -> None:
        """Add an instance to a host; other hosts that it is on stay as they are.

        Parameters
        ----------
        is_claimed : bool
            Whether the instance was claimed there, and the host has not reported it.
        properties : frozenset of (property, text)
            The instance's image properties; empty: they are unknown or unchanged.
        """
        with self._lock:
            hosts = self._hosts_of.get(uuid, ())
            if host not in hosts:
                self._hosts_of[uuid] = (*hosts, host)
                self._of_host.setdefault(host, set()).add(uuid)
                known_properties = self._properties.get(uuid, NO_PROPERTIES)
                self._record_change(host, known_properties, 1)
                if is_claimed:
                    claimed_on = self._claimed_on.get(uuid, frozenset())
                    self._claimed_on[uuid] = claimed_on | {host}
            if not is_claimed:
                self.end_claim(host, uuid)
            if properties:
                self.set_image_properties(uuid, properties)

    def end_claim(self, host: str, uuid: str) -> None:
        """Record that a host has reported an instance that was claimed there."""
        with self._lock:
            if claimed_on := self._claimed_on.pop(uuid, frozenset()) - {host}:
                self._claimed_on[uuid] = claimed_on

    def remove(self, host: str, uuid: str) -> None:
        """Remove an instance from a host; do nothing if it is not on that host."""
        with self._lock:
            hosts = self._hosts_of.get(uuid, ())
            if host not in hosts:
                return
            self.end_claim(host, uuid)
            self._of_host[host].discard(uuid)
            self._freed.add(host)
            known_properties = self._properties.get(uuid, NO_PROPERTIES)
            self._record_change(host, known_properties, -1)
            remaining = tuple(other_host for other_host in hosts if other_host != host)
            if remaining:
                self._hosts_of[uuid] = remaining
            else:
                del self._hosts_of[uuid]
                self._properties.pop(uuid, None)

    def _record_change(
        self, host: str, properties: ImageProperties = NO_PROPERTIES, change: int = 0
    ) -> None:
        """Record a change of a host, and add `change` to its counts of `properties`."""
        self._revision += 1
        self._changed_at[host] = self._revision
        index = self._index_of.setdefault(host, len(self._index_of))
        for pair in properties:
            counts = self._counts.setdefault(pair, {})
            counts[index] = counts.get(index, 0) + change
            if not counts[index]:
                del counts[index]
            if not counts:
                del self._counts[pair]
            column = self._columns.get(pair)
            if column is not None and index < len(column):
                column[index] += change
            elif column is not None:
                del self._columns[pair]

    def changed_since(self, revision: int) -> tuple[int, frozenset[str]]:
        """Return the present revision, and the hosts that changed since `revision`.

        A host changes with its instances, and with their image properties.
        """
        with self._lock:
            changed = (
                host
                for host, changed_at in self._changed_at.items()
                if changed_at > revision
            )
            return self._revision, frozenset(changed)

    def contents(
        self,
    ) -> tuple[dict[str, tuple[str, ...]], dict[str, ImageProperties]]:
        """Return copies: the hosts of each instance, and its image properties."""
        with self._lock:
            # dict() takes ten times as long where entries were deleted.
            return self._hosts_of.copy(), self._properties.copy()

    def take_freed(self) -> set[str]:
        """Return the hosts that an instance has left since the last call."""
        with self._lock:
            freed, self._freed = self._freed, set()
            return freed

    def of_host(self, host: str) -> frozenset[str]:
        """Return the UUIDs of a host's instances."""
        with self._lock:
            return frozenset(self._of_host.get(host, ()))

    def hosts_of(self, uuid: str) -> tuple[str, ...]:
        """Return the hosts that an instance is on."""
        with self._lock:
            return self._hosts_of.get(uuid, ())

    def reported_hosts_of(self, uuid: str) -> frozenset[str]:
        """Return the hosts that an instance is on, without those it is claimed on.

        A claim that no host has reported may be that of a request whose answer was
        lost, and its allocation may be deleted.
        """
        with self._lock:
            claimed_on = self._claimed_on.get(uuid, frozenset())
            return frozenset(self._hosts_of.get(uuid, ())) - claimed_on

    def is_known(self, uuid: str) -> bool:
        """Return whether an instance is on a host."""
        with self._lock:
            return bool(self._hosts_of.get(uuid))

    def count(self, uuids: Iterable[str]) -> Counter[str]:
        """Return how many of these instances each host has; unknown ones are omitted.

        The result is consistent: the map does not change during the lookup.
        """
        with self._lock:
            return Counter(
                host for uuid in set(uuids) for host in self._hosts_of.get(uuid, ())
            )

    # -- image properties --------------------------------------------------------------

    def set_image_properties(self, uuid: str, properties: ImageProperties) -> None:
        """Set an instance's image properties; unknown instances are ignored."""
        with self._lock:
            previous = self._properties.get(uuid)
            hosts = self._hosts_of.get(uuid, ())
            # An empty set is recorded, too: it differs from properties not known yet.
            if not hosts or properties == previous:
                return
            counted = previous or NO_PROPERTIES
            for host in hosts:
                self._record_change(host, counted - properties, -1)
                self._record_change(host, properties - counted, 1)
            self._properties[uuid] = properties

    def image_properties_of(self, host: str) -> dict[str, ImageProperties]:
        """Return the known image properties of a host's instances, by instance."""
        with self._lock:
            properties = self._properties
            return {
                uuid: properties[uuid]
                for uuid in self._of_host.get(host, ())
                if uuid in properties
            }

    def index_of(self, host: str) -> int:
        """Return a host's index in the result of `sum_properties`; it never changes."""
        with self._lock:
            return self._index_of.setdefault(host, len(self._index_of))

    def sum_properties(
        self, factors: Mapping[ImageProperty, float]
    ) -> npt.NDArray[np.float64]:
        """Return, by host, the sum of each property's instances times its factor.

        Returns
        -------
        ndarray of float64, shape (hosts that have an index,)
        """
        with self._lock:
            sums = np.zeros(len(self._index_of))
            for pair, factor in factors.items():
                if pair in self._counts:
                    column = self._column(pair)
                    sums[: len(column)] += factor * column
            return sums

    def _column(self, pair: ImageProperty) -> npt.NDArray[np.float64]:
        """Return the number of instances with a property, by host index.

        Hosts that got their index later than the array are missing at its end.
        """
        column = self._columns.get(pair)
        if column is None:
            counts = self._counts[pair]
            column = self._columns[pair] = np.zeros(len(self._index_of))
            indices = np.fromiter(counts, np.intp, len(counts))
            column[indices] = np.fromiter(counts.values(), np.float64, len(counts))
            if len(self._columns) > _MAX_COLUMNS:
                del self._columns[next(iter(self._columns))]
        return column
