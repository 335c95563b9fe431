# SPDX-License-Identifier: Apache-2.0
"""The relay: writes the hosts of a source to Kafka's topics, for many schedulers.

election ─▶ fence the old leader ─▶ read the topics ─▶ start the source ─▶ write changes
"""

from .relay import Relay
from .status import RelayRole, RelayStatus

__all__ = ["Relay", "RelayRole", "RelayStatus"]
