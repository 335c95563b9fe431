# SPDX-License-Identifier: Apache-2.0
"""The source "file": host state from an inventory file."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from oslo_config import cfg

from ..errors import ConfigurationError
from ..hosts import COLUMNS, Columns, HostTable
from .base import BaseHostSource
from .inventory import Inventory, read_inventory

LOG = logging.getLogger(__name__)

_NO_REPORTS: Final = (
    "The inventory file has no reports of usage: claims and aggregates that schedulers "
    "received before this process started are not counted unless the file has them."
)


class FileSource(BaseHostSource):
    """Fill the host table from ``[moorage] inventory_file``.

    Services count as up unless the file marks them down: a file has no heartbeats.
    """

    is_reporting = False

    def __init__(self, conf: cfg.ConfigOpts | None = None) -> None:
        super().__init__(conf)
        self._columns: Columns = COLUMNS
        self._inventory: Inventory | None = None

    @property
    def inventory(self) -> Inventory:
        """The inventory as last read; the first access reads the file.

        Raises
        ------
        ConfigurationError
            No file is configured, or the file is not usable.
        """
        if self._inventory is None:
            self._inventory = self._read()
        return self._inventory

    def _read(self) -> Inventory:
        path = self.conf.moorage.inventory_file
        if not path:
            raise ConfigurationError(
                "[moorage] inventory_file is not set; the source 'file' needs the path "
                "of a YAML or JSON inventory of hosts"
            )
        return read_inventory(path, self._columns)

    def start(self, table: HostTable) -> None:
        """Put every host and aggregate of the file into the table."""
        if table.columns != self._columns:
            self._columns, self._inventory = table.columns, None
        self._put_all(table, _instances(self.inventory))

    def _put_all(
        self, table: HostTable, instances: Mapping[str, Collection[str]]
    ) -> None:
        inventory = self.inventory
        for aggregate in inventory.aggregates:
            table.put_aggregate(aggregate)
        for host in inventory.hosts:
            table.put(host.record, instances.get(host.record.host))
        LOG.info(
            "%d hosts of %d cells read from %s",
            len(inventory.hosts),
            len(inventory.cells),
            self.conf.moorage.inventory_file,
        )

    def cell_names(self) -> Mapping[str, str]:
        """Return the names in the file."""
        return {uuid: name for name, uuid in self.inventory.cells.items()}

    def unknowns(self) -> Sequence[str]:
        """Return a text that says that usage is not reported."""
        return (_NO_REPORTS,)

    def refresh(self, table: HostTable) -> None:
        """Read the file again; drop hosts and aggregates that were removed from it."""
        before, after = self.inventory, self._read()
        self._inventory = after
        for id_ in {a.id for a in before.aggregates} - {a.id for a in after.aggregates}:
            table.drop_aggregate(id_)
        nodes = {host.record.uuid for host in after.hosts}
        for uuid in {host.record.uuid for host in before.hosts} - nodes:
            table.drop(uuid)
        # Hosts whose instances were removed from the file must lose them in the table.
        removed = dict.fromkeys(_instances(before), frozenset[str]())
        self._put_all(table, {**removed, **_instances(after)})


def _instances(inventory: Inventory) -> Mapping[str, Collection[str]]:
    """Return the instances of each service host that has any in the file."""
    instances: defaultdict[str, set[str]] = defaultdict(set)
    for host in inventory.hosts:
        if host.instances:
            instances[host.record.host] |= host.instances
    return instances
