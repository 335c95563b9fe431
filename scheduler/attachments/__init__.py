# SPDX-License-Identifier: Apache-2.0
"""Where the volumes and ports of a request are, as Cinder and Neutron answer."""

from .lookups import (
    BACKEND_KEY,
    HOST_CLUE,
    LOOKUP_MAX_AGE_S,
    PHYSICAL_NETWORK_KEY,
    SEGMENT_KEY,
    Attachment,
    Clue,
    Lookup,
    LookupFailed,
    Lookups,
)
from .reader import make_port_reader, make_volume_reader

__all__ = [
    "BACKEND_KEY",
    "HOST_CLUE",
    "LOOKUP_MAX_AGE_S",
    "PHYSICAL_NETWORK_KEY",
    "SEGMENT_KEY",
    "Attachment",
    "Clue",
    "Lookup",
    "LookupFailed",
    "Lookups",
    "make_port_reader",
    "make_volume_reader",
]
