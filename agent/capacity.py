# SPDX-License-Identifier: Apache-2.0
"""What a machine has and what of it is free, as its operating system tells."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import tempfile
import uuid
from pathlib import Path
from typing import Final

from oslo_config import cfg
from oslo_utils import netutils

from ..scheduler.errors import ConfigurationError
from ..scheduler.hosts import HostRecord

_KIB: Final = 1024
_MIB: Final = 1024 * 1024
_GIB_IN_MIB: Final = 1024
_MEMINFO: Final = Path("/proc/meminfo")
#: Of this and a cell's name inventory files make the UUID of a cell, too.
_NAMESPACE: Final = uuid.UUID("6d6f6f72-6167-5000-8000-696e76656e74")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


def record(conf: cfg.ConfigOpts, node_uuid: str) -> HostRecord:
    """Return this machine as it is now.

    What is free is what the operating system says is available, less what is reserved:
    guests that run are counted by what they use.

    Raises
    ------
    OSError
        The operating system does not tell; the message names the file or folder.
    """
    agent = conf.agent
    memory = memory_mb()
    disk_mb, free_disk_mb = disk(agent.disk_path)
    reserved_disk_mb = agent.reserved_disk_gb * _GIB_IN_MIB
    arch = platform.machine()
    hypervisor = "kvm" if os.path.exists("/dev/kvm") else "qemu"
    return HostRecord(
        host=conf.host,
        nodename=conf.host,
        hypervisor_hostname=conf.host,
        uuid=node_uuid,
        cell_uuid=cell_uuid(agent.cell),
        vcpus_total=cpus(),
        vcpus_used=0,
        total_usable_ram_mb=memory["MemTotal"],
        free_ram_mb=memory["MemAvailable"] - agent.reserved_memory_mb,
        total_usable_disk_gb=disk_mb // _GIB_IN_MIB,
        free_disk_mb=free_disk_mb - reserved_disk_mb,
        disk_mb_used=disk_mb - free_disk_mb,
        cpu_allocation_ratio=agent.cpu_allocation_ratio,
        ram_allocation_ratio=agent.ram_allocation_ratio,
        disk_allocation_ratio=agent.disk_allocation_ratio,
        num_instances=len(instances(agent.instances_path)),
        hypervisor_type="QEMU",
        supported_instances=((arch, hypervisor, "hvm"),),
        host_ip=netutils.get_my_ipv4(),
    )


def cpus() -> int:
    """Return how many CPUs this process may use."""
    with contextlib.suppress(AttributeError):  # no Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_mb(meminfo: Path = _MEMINFO) -> dict[str, int]:
    """Return MemTotal and MemAvailable, MiB.

    Raises
    ------
    OSError
        The file cannot be read, or has not both.
    """
    found = {}
    for line in meminfo.read_text("ascii").splitlines():
        name, _, amount = line.partition(":")
        if name in ("MemTotal", "MemAvailable"):
            found[name] = int(amount.split()[0]) * _KIB // _MIB
    if len(found) != 2:
        raise OSError(f"{meminfo} does not tell both MemTotal and MemAvailable")
    return found


def disk(path: str) -> tuple[int, int]:
    """Return (all, free) of the file system of a path, MiB.

    Raises
    ------
    OSError
        There is no such path.
    """
    told = os.statvfs(path)
    total = told.f_blocks * told.f_frsize // _MIB
    return total, told.f_bavail * told.f_frsize // _MIB


def instances(path: str | None) -> frozenset[str]:
    """Return the instances that have a folder there, named by their UUID.

    None where no path is given.

    Raises
    ------
    OSError
        There is no such path.
    """
    if not path:
        return frozenset()
    return frozenset(
        entry.name.lower()
        for entry in os.scandir(path)
        if _UUID.fullmatch(entry.name) and entry.is_dir()
    )


def cell_uuid(cell: str) -> str:
    """Return a cell's UUID: it is one, or the one that its name stands for."""
    if _UUID.fullmatch(cell):
        return cell.lower()
    return str(uuid.uuid5(_NAMESPACE, f"cell/{cell}"))


def kept_uuid(path: str) -> str:
    """Return the node's UUID, which is kept in a file; it is made where there is none.

    Raises
    ------
    ConfigurationError
        The file cannot be read or made, or holds no UUID.
    """
    file = Path(path)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.exists():
            _make_whole(file, f"{uuid.uuid4()}\n")
        text = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigurationError(
            f"[agent] node_uuid_file: {path} cannot be used: {e}"
        ) from e
    if not _UUID.fullmatch(text):
        raise ConfigurationError(
            f"[agent] node_uuid_file: {path} holds {text[:60]!r}, not a UUID. Write "
            "the node's UUID into it, or delete it: then the node is a new one"
        )
    return text.lower()


def _make_whole(file: Path, text: str) -> None:
    """Make a file unless another process has: nobody sees it without its text."""
    with tempfile.NamedTemporaryFile("w", dir=file.parent) as new:
        new.write(text)
        new.flush()
        os.fsync(new.fileno())
        os.chmod(new.name, 0o644)
        with contextlib.suppress(FileExistsError):
            os.link(new.name, file)
