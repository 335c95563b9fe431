# SPDX-License-Identifier: Apache-2.0
"""What a source of host state is."""

from __future__ import annotations

import abc

from oslo_config import cfg

from ..hosts import HostTable


class BaseHostSource(abc.ABC):
    """Fill the host table and keep it fresh.

    Parameters
    ----------
    conf : oslo_config.cfg.ConfigOpts
        Options with their values.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self.conf = conf

    @abc.abstractmethod
    def start(self, table: HostTable) -> None:
        """Fill the table, once, before the first decision.

        Raises
        ------
        ConfigurationError
            The state of hosts cannot be had; the message says from where, and why.
        """

    def refresh(self, table: HostTable) -> None:
        """Look again, as SIGHUP asks; what cannot be read changes nothing."""
        self.start(table)

    def stop(self) -> None:
        """Let go of what `start` took; by default nothing."""
        return
