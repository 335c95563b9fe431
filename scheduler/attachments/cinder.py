# SPDX-License-Identifier: Apache-2.0
"""Where a volume is: its backend, as Cinder names it to administrators."""

from __future__ import annotations

from typing import Final

from oslo_config import cfg

from ..conf.cinder import cinder_adapter
from .answers import BACKEND_KEY, HOST_CLUE, Attachment, Clue
from .reader import ObjectReader

_HOST: Final = "os-vol-host-attr:host"
_PROJECT: Final = "os-vol-tenant-attr:tenant_id"


def make_volume_reader(conf: cfg.ConfigOpts) -> VolumeReader | None:
    """Return a reader configured by ``[cinder]``; None if that has no endpoint.

    Raises
    ------
    ConfigurationError
        An option is invalid.
    """
    adapter = cinder_adapter(conf, timeout_s=conf.locality.lookup_timeout)
    if adapter is None:
        return None
    return VolumeReader(ObjectReader("Cinder", "cinder", adapter))


class VolumeReader:
    """Reads volumes."""

    def __init__(self, objects: ObjectReader) -> None:
        self._objects = objects

    def __call__(self, uuid: str) -> Attachment:
        """Return a volume.

        Raises
        ------
        LookupFailed
        """
        path = f"/volumes/{uuid}"
        volume = self._objects.get(path, "volume")
        host, project_id = volume.get(_HOST), volume.get(_PROJECT)
        # None: it has no backend yet.
        if _HOST not in volume or not isinstance(host, str | None):
            raise self._objects.malformed(path, f"no {_HOST}")
        if not isinstance(project_id, str):
            raise self._objects.malformed(path, f"no {_PROJECT}")
        return Attachment(project_id, _clues(host) if host else ())


def _clues(host: str) -> tuple[Clue, ...]:
    """Return what ``host@backend#pool`` may be mapped by, the most exact first.

    A backend on a compute host, such as LVM, is in that host's places.
    """
    backend, name = host.partition("#")[0], host.partition("@")[0]
    names = dict.fromkeys((host, backend, name))
    mapped = (Clue(BACKEND_KEY, frozenset({each})) for each in names)
    return (*mapped, Clue(HOST_CLUE, frozenset({name})))
