# SPDX-License-Identifier: Apache-2.0
"""The capacity of a machine and its free part, as the operating system reports it."""

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
#: Namespace for the UUID of a cell from its name; inventory files use it, too.
_NAMESPACE: Final = uuid.UUID("6d6f6f72-6167-5000-8000-696e76656e74")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


def record(conf: cfg.ConfigOpts, node_uuid: str) -> HostRecord:
    """Return the current state of this machine.

    The free amounts are those that the operating system reports as available, less the
    reserved amounts: running guests count with their actual usage.

    Raises
    ------
    OSError
        A file or folder, which the message names, cannot be read.
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
    """Return the number of CPUs that this process may use."""
    with contextlib.suppress(AttributeError):  # not Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_mb(meminfo: Path = _MEMINFO) -> dict[str, int]:
    """Return MemTotal and MemAvailable, MiB.

    Raises
    ------
    OSError
        The file cannot be read, or lacks MemTotal or MemAvailable.
    """
    memory = {}
    for line in meminfo.read_text("ascii").splitlines():
        name, _, amount = line.partition(":")
        if name in ("MemTotal", "MemAvailable"):
            memory[name] = int(amount.split()[0]) * _KIB // _MIB
    if len(memory) != 2:
        raise OSError(f"{meminfo} lacks MemTotal or MemAvailable")
    return memory


def disk(path: str) -> tuple[int, int]:
    """Return the total and the free size of the file system of a path, MiB.

    Raises
    ------
    OSError
        The path does not exist.
    """
    stat = os.statvfs(path)
    total_mb = stat.f_blocks * stat.f_frsize // _MIB
    return total_mb, stat.f_bavail * stat.f_frsize // _MIB


def instances(path: str | None) -> frozenset[str]:
    """Return the UUIDs that are names of folders in `path`, one for each instance.

    Without a path, the result is empty.

    Raises
    ------
    OSError
        The path does not exist.
    """
    if not path:
        return frozenset()
    return frozenset(
        entry.name.lower()
        for entry in os.scandir(path)
        if _UUID.fullmatch(entry.name) and entry.is_dir()
    )


def cell_uuid(cell: str) -> str:
    """Return a cell's UUID, which is `cell` itself or derived from it as a name."""
    if _UUID.fullmatch(cell):
        return cell.lower()
    return str(uuid.uuid5(_NAMESPACE, f"cell/{cell}"))


def read_node_uuid(path: str) -> str:
    """Return the node's UUID from a file; create the file if it does not exist.

    Raises
    ------
    ConfigurationError
        The file cannot be read or created, or does not contain a UUID.
    """
    file = Path(path)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.exists():
            _create_atomically(file, f"{uuid.uuid4()}\n")
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


def _create_atomically(file: Path, text: str) -> None:
    """Create a file atomically, unless another process has created it."""
    with tempfile.NamedTemporaryFile("w", dir=file.parent) as new_file:
        new_file.write(text)
        new_file.flush()
        os.fsync(new_file.fileno())
        os.chmod(new_file.name, 0o644)
        with contextlib.suppress(FileExistsError):
            os.link(new_file.name, file)
