# SPDX-License-Identifier: Apache-2.0
"""Traces of requests: when instances arrive and leave, and what they ask for."""

from __future__ import annotations

import copy
import csv
import dataclasses
import gzip
import math
import sqlite3
import uuid
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final, TextIO

import numpy as np
import numpy.typing as npt
import os_resource_classes as orc

from ..objects import (
    Flavor,
    ImageMeta,
    ImageMetaProps,
    InstanceGroup,
    InstancePCIRequest,
    InstancePCIRequests,
    RequestSpec,
)
from ..scheduler.display import safe
from ..scheduler.request import get_field

#: The namespace of the UUIDs of instances that a trace names by other ids.
_NAMESPACE: Final = uuid.UUID("6d6f6f72-6167-5000-8000-747261636573")
_DAY_S: Final = 86400.0
_MIB_PER_GIB: Final = 1024
#: The resolution of traces that give CPUs, memory and disk as shares of a host.
_SHARE: Final = 10_000
#: The amounts of instances; of bare metal, a flavor requests 0 of each.
_AMOUNTS: Final = (orc.VCPU, orc.MEMORY_MB, orc.DISK_GB)
#: The largest amount of a resource; Placement's inventories have no larger one either.
MAX_AMOUNT: Final = 2**31 - 1
#: Seconds by which `Trace.jittered` moves an arrival at most.
MAX_JITTER_S: Final = 300.0
#: Vendor and product of the GPUs of traces and of their hosts; any would do.
GPU: Final = {"vendor_id": "10de", "product_id": "20b0", "dev_type": "type-PCI"}
#: Lines that are named in a message, of those that were skipped.
_MAX_NAMED: Final = 3
#: Characters of a message that quote a file, such as the names of its columns.
_MAX_LISTED: Final = 300


class TraceError(ValueError):
    """Raised when a trace cannot be read; the message names the file and the cause."""


@dataclasses.dataclass(frozen=True, slots=True)
class Units:
    """What a trace's amounts of CPUs and memory are, for hosts of the same units.

    Attributes
    ----------
    vcpus_per_core : int
        How many `vcpus` of the trace a core of a host has; 100 if the trace gives
        hundredths of cores.
    memory_per_gib : int
        How many `memory_mb` of the trace a GiB of a host has.
    """

    vcpus_per_core: int = 1
    memory_per_gib: int = _MIB_PER_GIB


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Instances in the order of their arrival.

    A request for several instances, such as one of one's own history, is as many rows
    of one request spec, one after another.

    Attributes
    ----------
    name : str
    uuids : sequence of str, length n
        The instances' UUIDs.
    arrivals, departures : ndarray of float64, shape (n,), seconds
        When each instance is requested and deleted; infinite: it stays. Instances with
        an arrival before 0 are the cloud's population when the trace begins.
    specs : sequence of RequestSpec
        The distinct requests.
    spec_of : ndarray of int32, shape (n,)
        The index of each instance's request in `specs`.
    skipped : mapping
        How many lines were left out, by cause, and the first of them.
    """

    name: str
    units: Units
    uuids: Sequence[str]
    arrivals: npt.NDArray[np.float64]
    departures: npt.NDArray[np.float64]
    specs: Sequence[RequestSpec]
    spec_of: npt.NDArray[np.int32]
    skipped: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.uuids)

    def amounts(self) -> npt.NDArray[np.int64]:
        """Return CPUs, memory and disk of each instance, shape (n, 3).

        0 of bare metal, for which the sizes of a flavor are nominal.
        """
        of_spec = []
        for spec in self.specs:
            flavor = spec.flavor
            extra_specs = get_field(flavor, "extra_specs") or {}
            if all(extra_specs.get(f"resources:{name}") == "0" for name in _AMOUNTS):
                of_spec.append((0, 0, 0))
                continue
            # The root disk of a volume-backed instance is not on its host.
            root_gb = 0 if get_field(spec, "is_bfv") else flavor.root_gb
            disk_gb = root_gb + flavor.ephemeral_gb
            of_spec.append((flavor.vcpus, flavor.memory_mb, disk_gb))
        return np.array(of_spec, np.int64).reshape(-1, 3)[self.spec_of]

    def peak(self) -> npt.NDArray[np.int64]:
        """Return the most CPUs, memory and disk that are requested at one time."""
        amounts = self.amounts()
        leaves = np.isfinite(self.departures)
        times = np.concatenate([self.arrivals, self.departures[leaves]])
        changes = np.concatenate([amounts, -amounts[leaves]])
        # Of equal times, departures come first, as in the simulation.
        is_arrival = np.arange(len(times)) < len(self.arrivals)
        order = np.lexsort((is_arrival, times))
        peak: npt.NDArray[np.int64] = np.cumsum(changes[order], axis=0).max(
            axis=0, initial=0
        )
        return peak

    def jittered(self, seed: int) -> Trace:
        """Return the trace with each arrival moved by up to `MAX_JITTER_S`.

        Lifetimes stay. One moved arrival changes where all later instances go, so that
        the runs of several seeds show how much of a figure is chance. Only requests
        for one instance are moved, and not the population of the beginning.
        """
        rng = np.random.default_rng(seed)
        n_instances = np.array([spec.num_instances for spec in self.specs])[
            self.spec_of
        ]
        may_move = (self.arrivals >= 0) & (n_instances == 1)
        moves = rng.uniform(-MAX_JITTER_S, MAX_JITTER_S, len(self)) * may_move
        moves = np.maximum(moves, np.where(may_move, -self.arrivals, 0))
        arrivals = self.arrivals + moves
        order = np.argsort(arrivals, kind="stable")
        return dataclasses.replace(
            self,
            uuids=[self.uuids[row] for row in order.tolist()],
            arrivals=arrivals[order],
            departures=(self.departures + moves)[order],
            spec_of=self.spec_of[order],
        )

    def repeated(self) -> Trace:
        """Return the trace with other instances and server groups.

        So that the requests of a cloud can come again, beside its instances.
        """
        specs = [copy.copy(spec) for spec in self.specs]
        for spec in specs:
            group: InstanceGroup | None = get_field(spec, "instance_group")
            if group is not None:
                spec.instance_group = group = copy.copy(group)
                group.uuid = _again(str(group.uuid))
                group.members = [_again(uuid) for uuid in group.members or ()]
        uuids = [_again(uuid) for uuid in self.uuids]
        return dataclasses.replace(self, uuids=uuids, specs=specs)

    def first(self, n_requests: int) -> Trace:
        """Return the first requests only, each with all of its instances."""
        end = 0
        for _ in range(n_requests):
            if end >= len(self):
                break
            end += self.specs[self.spec_of[end]].num_instances
        part = slice(0, end)
        return dataclasses.replace(
            self,
            uuids=self.uuids[part],
            arrivals=self.arrivals[part],
            departures=self.departures[part],
            spec_of=self.spec_of[part],
        )


def _again(id_: str) -> str:
    return str(uuid.uuid5(_NAMESPACE, id_))


# -- what readers share ----------------------------------------------------------------


class _Builder:
    """Collects the instances of a trace, and counts the lines that are left out."""

    def __init__(self, name: str, units: Units) -> None:
        self._name = name
        self._units = units
        self._rows: list[tuple[float, float, str, int]] = []
        self._spec_of: dict[tuple[int, int, int, str, str, int], int] = {}
        self._specs: list[RequestSpec] = []
        self._skipped: Counter[str] = Counter()
        self._named: dict[str, list[str]] = {}
        self._uuids: set[str] = set()

    def skip(self, where: str, cause: str) -> None:
        """Count a line that is left out."""
        self._skipped[cause] += 1
        named = self._named.setdefault(cause, [])
        if len(named) < _MAX_NAMED:
            named.append(where)

    def add(  # noqa: PLR0913 - the columns of a trace
        self,
        where: str,
        id_: str,
        arrival_s: float,
        departure_s: float,
        vcpus: float,
        memory_mb: float,
        *,
        disk_gb: float = 0,
        flavor: str = "",
        project_id: str = "trace",
        n_gpus: float = 0,
    ) -> None:
        """Add an instance; leave it out, and count it, if a value is not possible."""
        amounts = vcpus, memory_mb, disk_gb, n_gpus
        if not all(map(math.isfinite, (arrival_s, *amounts))):
            return self.skip(where, "with a value that is missing or no number")
        if vcpus <= 0 or memory_mb <= 0 or min(disk_gb, n_gpus) < 0:
            return self.skip(where, "without CPUs or memory, or with negative amounts")
        if max(amounts) > MAX_AMOUNT:
            return self.skip(where, f"with more than {MAX_AMOUNT:,} of a resource")
        if math.isnan(departure_s) or departure_s <= arrival_s:
            return self.skip(where, "that end before they start")
        if not id_ or id_ in self._uuids:
            return self.skip(where, "without an id, or with one that came before")
        self._uuids.add(id_)
        sizes = math.ceil(vcpus), math.ceil(memory_mb), math.ceil(disk_gb)
        key = (*sizes, flavor, project_id, math.ceil(n_gpus))
        if key not in self._spec_of:
            self._spec_of[key] = len(self._specs)
            self._specs.append(request_spec(*key))
        self._rows.append((arrival_s, departure_s, id_, self._spec_of[key]))
        return None

    def trace(self) -> Trace:
        """Return the trace, sorted by arrival; of equal arrivals, in the file's order.

        Raises
        ------
        TraceError
            No line could be used.
        """
        skipped = {
            cause: f"{n_lines} ({', '.join(self._named[cause])}"
            f"{', …' if n_lines > _MAX_NAMED else ''})"
            for cause, n_lines in self._skipped.items()
        }
        if not self._rows:
            causes = "; ".join(f"{text} {cause}" for cause, text in skipped.items())
            raise TraceError(
                f"{self._name}: no instance can be read: {causes or 'it is empty'}"
            )
        arrivals = np.array([row[0] for row in self._rows])
        order = np.argsort(arrivals, kind="stable")
        rows = [self._rows[i] for i in order.tolist()]
        return Trace(
            self._name,
            self._units,
            [str(uuid.uuid5(_NAMESPACE, row[2])) for row in rows],
            arrivals[order],
            np.array([row[1] for row in rows]),
            self._specs,
            np.array([row[3] for row in rows], np.int32),
            skipped,
        )


def request_spec(
    vcpus: int,
    memory_mb: int,
    disk_gb: int,
    flavor: str = "",
    project_id: str = "trace",
    n_gpus: int = 0,
) -> RequestSpec:
    """Return a request for one instance of a flavor, with whole GPUs as PCI devices."""
    name = flavor or f"{vcpus}x{memory_mb}"
    gpus = InstancePCIRequests(
        requests=[
            InstancePCIRequest(
                count=n_gpus,
                spec=[GPU],
                alias_name="gpu",
                is_new=False,
                numa_policy="legacy",
                request_id=str(uuid.uuid5(_NAMESPACE, "gpu")),
                requester_id=None,
            )
        ]
    )
    return RequestSpec(
        flavor=Flavor(
            name=name,
            flavorid=name,
            vcpus=vcpus,
            memory_mb=memory_mb,
            root_gb=disk_gb,
            ephemeral_gb=0,
            swap=0,
            extra_specs={},
        ),
        image=ImageMeta(properties=ImageMetaProps()),
        num_instances=1,
        project_id=project_id,
        user_id=project_id,
        availability_zone=None,
        scheduler_hints={},
        is_bfv=False,
        ignore_hosts=None,
        force_hosts=None,
        force_nodes=None,
        instance_group=None,
        numa_topology=None,
        pci_requests=gpus if n_gpus else None,
        requested_destination=None,
    )


def _number(
    text: str | None, *, if_empty: float = math.nan, if_text: float = math.nan
) -> float:
    if text is None or not text.strip():
        return if_empty
    try:
        return float(text)
    except ValueError:
        return if_text


def _open_text(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


# -- the formats -----------------------------------------------------------------------


def _read_cospot(name: str, rows: Iterable[Mapping[str, str]]) -> Trace:
    """Read a sample of CoSpot: cores in hundredths, memory in quarters of a GB, days.

    The format is that of github.com/DCResourceManage/cospot-socc2022.
    """
    builder = _Builder(name, Units(vcpus_per_core=100, memory_per_gib=4))
    for number, row in enumerate(rows, start=2):
        builder.add(
            f"line {number}",
            row["vmId"],
            _number(row["starttime"]) * _DAY_S,
            _number(row["endtime"], if_empty=math.inf) * _DAY_S,
            _number(row["cores"]),
            _number(row["ram"]),
            project_id=row.get("tenantId") or "trace",
        )
    return builder.trace()


def _read_huawei(name: str, rows: Iterable[Mapping[str, str]]) -> Trace:
    """Read Huawei-East-1: a line for each creation (type 0) and deletion (type 1).

    The format is that of github.com/huaweicloud/VM-placement-dataset: memory in GB,
    time in seconds.
    """
    builder = _Builder(name, Units())
    created: dict[str, tuple[int, Mapping[str, str]]] = {}

    def add(number: int, row: Mapping[str, str], ended_at: float) -> None:
        builder.add(
            f"line {number}", row["vmid"], _number(row["time"]), ended_at,
            _number(row["cpu"]), _number(row["memory"]) * _MIB_PER_GIB,
        )  # fmt: skip

    for number, row in enumerate(rows, start=2):
        id_, kind = row["vmid"], _number(row["type"])
        if kind == 0:
            if id_ in created:
                builder.skip(f"line {number}", "that create an instance again")
                continue
            created[id_] = number, row
        elif kind == 1 and id_ in created:
            add(*created.pop(id_), _number(row["time"]))
        else:
            builder.skip(f"line {number}", "that delete an unknown instance")
    for number, row in created.values():
        add(number, row, math.inf)
    return builder.trace()


#: What a pod without a GPU has in the column of GPUs.
_NO_GPU: Final = (None, "", "0")


def _read_openb(name: str, rows: Iterable[Mapping[str, str]]) -> Trace:
    """Read the pods of Alibaba's openb trace: thousandths of CPUs, MiB, seconds.

    The format is that of github.com/alibaba/clusterdata, cluster-trace-gpu-v2023. A pod
    that shares a GPU gets a whole one, as nova does not share PCI devices; the models
    of GPUs are not distinguished.
    """
    builder = _Builder(name, Units(vcpus_per_core=1000))
    for number, row in enumerate(rows, start=2):
        builder.add(
            f"line {number}",
            row["name"],
            _number(row["creation_time"]),
            _number(row["deletion_time"], if_empty=math.inf),
            _number(row["cpu_milli"]),
            _number(row["memory_mib"]),
            flavor=f"{row['cpu_milli']}m-{row['memory_mib']}Mi"
            + (f"-{row['num_gpu']}gpu" if row.get("num_gpu") not in _NO_GPU else ""),
            n_gpus=_number(row.get("num_gpu"), if_empty=0),
        )
    return builder.trace()


#: The columns by which a CSV file's format is recognized, and its reader.
_FORMATS: Final = {
    ("vmId", "cores", "ram", "starttime", "endtime"): _read_cospot,
    ("vmid", "cpu", "memory", "time", "type"): _read_huawei,
    ("name", "cpu_milli", "memory_mib", "creation_time", "deletion_time"): _read_openb,
}

#: The columns that `--columns` can name: those that any trace needs come first.
COLUMNS: Final = (
    "id", "arrival_s", "departure_s", "vcpus", "memory_mb", "disk_gb", "flavor",
    "project_id",
)  # fmt: skip
_NEEDED: Final = COLUMNS[:5]


def _read_columns(
    name: str, rows: Iterable[Mapping[str, str]], columns: Mapping[str, str]
) -> Trace:
    builder = _Builder(name, Units())
    for number, row in enumerate(rows, start=2):
        values = {ours: row.get(theirs) for ours, theirs in columns.items()}
        builder.add(
            f"line {number}",
            values["id"] or "",
            _number(values["arrival_s"]),
            _number(values["departure_s"], if_empty=math.inf),
            _number(values["vcpus"]),
            _number(values["memory_mb"]),
            disk_gb=_number(values.get("disk_gb"), if_empty=0),
            flavor=values.get("flavor") or "",
            project_id=values.get("project_id") or "trace",
        )
    return builder.trace()


def read_trace(path: Path, columns: Mapping[str, str] | None = None) -> Trace:
    """Read a trace; its format is recognized by its columns or tables.

    Parameters
    ----------
    path : Path
        A CSV file, also compressed with gzip, of CoSpot, Huawei-East-1 or Alibaba's
        openb, or of the columns that `columns` names; or the SQLite file of the Azure
        Packing Trace.
    columns : mapping, optional
        For any other CSV file: its column for each of `COLUMNS`, of which the first
        five are needed. An empty departure means that the instance stays.

    Raises
    ------
    TraceError
        The file cannot be read, has an unknown format, or no instance that can be used.
    """
    try:
        with path.open("rb") as file:
            is_sqlite = file.read(15) == b"SQLite format 3"
        if is_sqlite:
            return _read_azure(path)
        with _open_text(path) as text:
            rows = csv.DictReader(text)
            names = set(rows.fieldnames or ())
            if columns is not None:
                missing = [name for name in columns.values() if name not in names]
                if missing:
                    raise TraceError(
                        f"{path}: there is no column {', '.join(missing)}; its columns "
                        f"are {_listed(names) or 'none'}"
                    )
                return _read_columns(safe(path.name), rows, columns)
            for needed, read in _FORMATS.items():
                if names.issuperset(needed):
                    return read(safe(path.name), rows)
    except (
        OSError, EOFError, UnicodeDecodeError, csv.Error, sqlite3.Error, zlib.error
    ) as e:  # fmt: skip
        raise TraceError(f"{path}: cannot be read: {safe(e, _MAX_LISTED)}") from e
    raise TraceError(
        f"{path}: the columns {_listed(names) or '(none)'} are of no known "
        "format: name them with --columns "
        + ",".join(f"{name}=COLUMN" for name in _NEEDED)
    )


def _listed(columns: Iterable[str]) -> str:
    return safe(", ".join(sorted(columns)), _MAX_LISTED)


def parse_columns(text: str) -> dict[str, str]:
    """Return the columns of ``id=vm,arrival_s=start,…``.

    Raises
    ------
    TraceError
        A name is unknown, or one of the first five of `COLUMNS` is missing.
    """
    pairs = [item.partition("=") for item in text.split(",")]
    columns = {ours.strip(): theirs.strip() for ours, _, theirs in pairs}
    unknown = [name for name in columns if name not in COLUMNS or not columns[name]]
    missing = [name for name in _NEEDED if name not in columns]
    if unknown or missing:
        wrong = (
            f"unknown {', '.join(unknown)}" if unknown else f"no {', '.join(missing)}"
        )
        raise TraceError(
            f"--columns {text}: {wrong}; the names are {', '.join(COLUMNS)}, of which "
            f"{', '.join(_NEEDED)} are needed"
        )
    return columns


def _read_azure(path: Path) -> Trace:
    """Read the SQLite file of the Azure Packing Trace 2020.

    A VM type's amounts are shares of each machine that can host it; those of the
    machine that hosts most types are used, so that a host has 10,000 `vcpus` and
    10,000 `memory_mb`. VMs of other types are left out, and counted.
    """
    builder = _Builder(safe(path.name), Units(_SHARE, _SHARE))
    with closing(
        sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    ) as database:
        shares = list(
            database.execute("SELECT vmTypeId, machineId, core, memory FROM vmType")
        )
        machines = Counter(machine for _, machine, _, _ in shares)
        # Of equal counts, the lowest id; SQLite's columns may have values of any type.
        machine = min(
            machines,
            key=lambda m: (-machines[m], _number(str(m), if_text=math.inf), str(m)),
            default=None,
        )
        by_type = {kind: row for kind, m, *row in shares if m == machine}
        vms = database.execute(
            "SELECT vmId, tenantId, vmTypeId, starttime, endtime FROM vm ORDER BY vmId"
        )
        for id_, tenant, kind, start, end in vms:
            where = f"vmId {id_}"
            if kind not in by_type:
                builder.skip(where, f"of types that machine {machine} cannot host")
                continue
            core, memory = (
                _number(str(share or 0)) * _SHARE for share in by_type[kind]
            )
            builder.add(
                where, str(id_),
                _number(str(start)) * _DAY_S,
                math.inf if end is None else _number(str(end)) * _DAY_S,
                core, memory, flavor=f"type {kind}", project_id=str(tenant),
            )  # fmt: skip
    return builder.trace()


# -- traces that are made here ---------------------------------------------------------

#: The flavors of a synthetic trace, vCPUs and GiB, and their shares: nova's m1 flavors,
#: and a large one, which a spread cloud soon has no room for.
_MIX: Final = (
    (1, 2, 0.40), (2, 4, 0.25), (4, 8, 0.15), (4, 16, 0.10), (8, 16, 0.06),
    (16, 64, 0.035), (32, 192, 0.005),
)  # fmt: skip


def synthetic_trace(
    n_requests: int, *, rate_per_h: float, mean_lifetime_h: float, seed: int
) -> Trace:
    """Return requests of a Poisson process with lognormal lifetimes.

    Parameters
    ----------
    rate_per_h : float
        Arrivals an hour.
    mean_lifetime_h : float
        The mean lifetime; the shape 2.0 gives most instances a short life and a few a
        very long one, as in the Azure Packing Trace.
    """
    rng = np.random.default_rng(seed)
    shape = 2.0
    arrivals = np.cumsum(rng.exponential(3600 / rate_per_h, n_requests))
    location = math.log(mean_lifetime_h * 3600) - shape**2 / 2
    lifetimes = rng.lognormal(location, shape, n_requests) + 1.0
    shares = np.array([share for _, _, share in _MIX])
    kinds = rng.choice(len(_MIX), n_requests, p=shares / shares.sum())
    builder = _Builder("synthetic", Units())
    for number in range(n_requests):
        vcpus, memory_gib, _ = _MIX[kinds[number]]
        arrival_s, lifetime_s = float(arrivals[number]), float(lifetimes[number])
        builder.add(
            f"request {number}", str(number), arrival_s, arrival_s + lifetime_s,
            vcpus, memory_gib * _MIB_PER_GIB, disk_gb=20,
        )  # fmt: skip
    return builder.trace()


def history_trace(
    decisions: Iterable[tuple[float, Sequence[str], RequestSpec]], name: str
) -> Trace:
    """Return stored decisions as a trace: each instance arrives when it was requested.

    A store does not know when instances were deleted: they stay.

    Parameters
    ----------
    decisions : iterable of (seconds since the epoch, instance UUIDs, RequestSpec)
        In any order. Of several decisions on an instance, such as a later move, the
        first one counts.

    Raises
    ------
    TraceError
        There is no decision.
    """
    known: set[str] = set()
    uuids: list[str] = []
    specs: list[RequestSpec] = []
    spec_of: list[int] = []
    arrivals: list[float] = []
    for decided_at, instance_uuids, spec in sorted(decisions, key=lambda d: d[0]):
        new = [uuid for uuid in instance_uuids if uuid not in known]
        if new:
            known.update(new)
            spec.num_instances = len(new)
            uuids += new
            spec_of += [len(specs)] * len(new)
            arrivals += [decided_at] * len(new)
            specs.append(spec)
    if not specs:
        raise TraceError(f"{name}: no decision with its request is stored")
    return Trace(
        name,
        Units(),
        uuids,
        np.array(arrivals) - arrivals[0],
        np.full(len(uuids), math.inf),
        specs,
        np.array(spec_of, np.int32),
    )
