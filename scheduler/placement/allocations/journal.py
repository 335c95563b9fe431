# SPDX-License-Identifier: Apache-2.0
"""The journal of unsettled claims, so that a killed process leaves none behind.

A claim is recorded before it is sent, recorded again with its generation once Placement
has granted it, and settled once it is refused, released, or the answer that names it is
about to be sent. An entry that is not settled when its process ends may have been
claimed for a request that was never answered: the next process that reads the file
hands it to `Orphans`.

One interval is ambiguous: between recording that an answer is about to be sent and the
moment at which the broker has it, some 0.1 ms, a killed process leaves a claim that may
have been answered. It stays: an allocation that an answer may have named is never
released. Nor does the broker's having the answer prove that the caller received it.

Entries are not synced to the disk: they survive the process, not a machine crash.
"""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import itertools
import json
import logging
import os
import re
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from ...candidates import AllocationRequest
from ...errors import ConfigurationError
from ...waiting import Spawner, ThreadSpawner
from ..client import ConsumerAllocations
from .claims import Claim
from .limits import JOURNAL_MAX_READS
from .orphans import Orphan, Orphans

LOG = logging.getLogger(__name__)

#: Minimum size in bytes before a file is replaced by one with unsettled entries only.
MAX_BYTES: Final = 1 << 20

_PREFIX: Final = "claims-"
_NAME: Final = re.compile(rf"{_PREFIX}(\d+)-\w+")


@dataclasses.dataclass(slots=True, eq=False)
class JournalEntry:
    """The journal entry of one consumer's claim.

    Attributes
    ----------
    number : int
        Identifies the entry within this process.
    request : mapping
        The allocations that are claimed.
    owner : mapping
        project_id and user_id.
    named : int or None
        The consumer generation that the claim names.
    written : int or None
        The consumer generation after the last write; None: after the first one.
    granted : int or None
        The generation at which the claim rests, once Placement has granted it.
    before : ConsumerAllocations or None
        What the consumer held before, where the claim is added to it (evacuation).
    """

    journal: Journal
    number: int
    consumer_uuid: str
    request: AllocationRequest
    owner: Mapping[str, str]
    named: int | None = None
    written: int | None = None
    granted: int | None = None
    before: ConsumerAllocations | None = None
    is_suspected: bool = False
    is_watched: bool = False

    def record_retry(self, named: int, before: ConsumerAllocations | None) -> None:
        """Record the generation that the claim is about to be sent with again."""
        self.named, self.written, self.before = named, named + 1, before
        self.journal.write([self])

    def record_rewrite(self, named: int) -> None:
        """Record that the claim is about to be written once more."""
        self.written = named + 1
        self.journal.write([self])

    def record_grant(self, generation: int | None) -> None:
        """Record that Placement has granted the claim."""
        self.granted = generation
        self.journal.write([self])

    def record_release(self) -> None:
        """Record the release: the consumer may belong to another request after it."""
        if self.granted is not None:
            self.record_grant(None)

    def mark_suspected(self) -> None:
        """Record that no evidence shows whether the allocation is in use."""
        self.is_suspected = True
        self.journal.write([self])

    def settle(self) -> None:
        """Record that nothing remains to be done about the claim."""
        self.journal.settle([self])

    def to_line(self) -> bytes:
        """Return the entry as a line of the file."""
        allocations = {
            uuid: {"resources": dict(part["resources"])}
            for uuid, part in self.request["allocations"].items()
        }
        fields: dict[str, Any] = {
            "claim": self.number,
            "consumer": self.consumer_uuid,
            "allocations": allocations,
            "owner": self.owner,
        }
        if self.named is not None:
            fields["named"] = self.named
        if self.written is not None:
            fields["written"] = self.written
        if self.granted is not None:
            fields["granted"] = self.granted
        if self.is_suspected:
            fields["suspected"] = True
        if self.is_watched:
            fields["watched"] = True
        if self.before is not None:
            fields["before"] = dataclasses.asdict(self.before)
        return _line(fields)

    def to_orphan(self, claim: Claim | None = None) -> Orphan:
        """Return the claim as an orphan, which settles the entry once it is settled.

        Parameters
        ----------
        claim : Claim, optional
            What is known of the claim; None: what the entry says.
        """
        if claim is not None and claim.generation is None:
            self.record_release()
        is_ours = self.granted is not None
        recorded = Claim(
            self.request,
            self.before,
            self.granted,
            is_ours,
            self.named,
            self.written,
            is_late=not is_ours or self.is_watched,
        )
        return Orphan(
            claim or recorded,
            dict(self.owner),
            self.is_watched,
            on_settled=self.settle,
            on_released=self.record_release,
            on_suspected=self.mark_suspected,
        )


class PendingAnswer:
    """The claims of one request, made in one thread, until the request is answered.

    Created by `Journal.track_answer`; the sender of the answer reports its progress.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._entries: dict[int, JournalEntry] = {}
        self._is_settled = False

    def add(self, entries: Iterable[JournalEntry]) -> None:
        """Add claims that are about to be sent."""
        self._entries.update((entry.number, entry) for entry in entries)

    def drop(self, entries: Iterable[JournalEntry]) -> None:
        """Remove claims that were refused or released, or that `Orphans` has."""
        for entry in entries:
            self._entries.pop(entry.number, None)

    def mark_sending(self) -> None:
        """Record that the answer is about to be sent: from now on it may arrive."""
        if self._entries and not self._is_settled:
            self._is_settled = True
            self._journal.settle(self._entries.values(), keep_in_answer=True)

    def mark_not_sent(self) -> None:
        """Record that the answer did not arrive, and cannot any more."""
        if self._is_settled:
            self._is_settled = False
            self._journal.write(self._entries.values())

    def close(self, orphans: Orphans) -> None:
        """Release the claims of a request whose answer was not sent."""
        entries, self._entries = self._entries, {}
        if not entries or self._is_settled:
            return
        LOG.warning(
            "The answer of a request was not sent; releasing its %d claims",
            len(entries),
        )  # fmt: skip
        for entry in entries.values():
            orphans.add(entry.consumer_uuid, entry.to_orphan())


class Journal:
    """Record the claims of this process; release those of killed processes.

    Without a folder it tracks unsettled claims in memory only, for answers that cannot
    be sent. Threads may share it; one request makes all of its claims in one thread.

    Parameters
    ----------
    orphans : Orphans
        Releases claims that were never answered.
    """

    def __init__(self, orphans: Orphans, *, spawner: Spawner | None = None) -> None:
        self._orphans = orphans
        self._numbers = itertools.count(1)
        self._lock = (spawner or ThreadSpawner()).lock()
        self._unsettled: dict[int, bytes] = {}
        self._file: _File | None = None
        self._is_failing = False
        self._limit_bytes = MAX_BYTES
        self._of_thread = threading.local()

    @property
    def path(self) -> Path | None:
        """The file of this process."""
        return self._file.path if self._file else None

    def open(self, folder: Path) -> None:
        """Create a file in a folder, and take over those of processes that have ended.

        Call it after a fork, not before. A missing folder is created for its owner
        only; all schedulers that share a folder must use the same Placement.

        Raises
        ------
        ConfigurationError
            The folder cannot be used.
        """
        make_folder(folder)
        with _report_unusable(folder):
            with self._lock:
                self._file = _File(folder)
            for path in sorted(folder.iterdir()):
                if path != self.path and _NAME.fullmatch(path.name):
                    self._take_over(path)

    def close(self) -> None:
        """Remove the file, unless it has unsettled entries for the next start.

        If so, this process keeps it until it ends: running threads may still answer.
        """
        with self._lock:
            if self._file is not None and not self._unsettled:
                self._file.close()
                self._file = None

    @contextmanager
    def track_answer(self) -> Iterator[PendingAnswer]:
        """Associate claims of this thread with one answer.

        At the end, claims whose answer certainly was not sent are released.
        """
        answer = self._of_thread.answer = PendingAnswer(self)
        try:
            yield answer
        finally:
            self._of_thread.answer = None
            answer.close(self._orphans)

    @contextmanager
    def answer_on_return(self) -> Iterator[None]:
        """Count claims as answered once the caller returns, where no reply is sent."""
        if self._answer is not None:
            yield
            return
        with self.track_answer() as answer:
            yield
            answer.mark_sending()

    @property
    def _answer(self) -> PendingAnswer | None:
        answer: PendingAnswer | None = getattr(self._of_thread, "answer", None)
        return answer

    def record(
        self, requests: Mapping[str, AllocationRequest], owner: Mapping[str, str]
    ) -> dict[str, JournalEntry]:
        """Record claims, by consumer, that are about to be sent."""
        entries = {
            uuid: JournalEntry(self, next(self._numbers), uuid, request, owner)
            for uuid, request in requests.items()
        }
        self.write(entries.values())
        if (answer := self._answer) is not None:
            answer.add(entries.values())
        return entries

    def watch(
        self, consumer_uuid: str, claim: Claim, owner: Mapping[str, str]
    ) -> Orphan:
        """Record an answered claim, of which a write may arrive late."""
        entry = JournalEntry(
            self,
            next(self._numbers),
            consumer_uuid,
            claim.request,
            owner,
            claim.named,
            granted=claim.generation,
            before=claim.before,
            is_watched=True,
        )
        self.write([entry])
        return entry.to_orphan(claim)

    def detach_from_answer(self, entry: JournalEntry) -> JournalEntry:
        """Remove a claim from this thread's answer: `Orphans` handles it now."""
        if (answer := self._answer) is not None:
            answer.drop([entry])
        return entry

    def write(self, entries: Iterable[JournalEntry]) -> None:
        """Write entries, new ones or new versions."""
        lines = {entry.number: entry.to_line() for entry in entries}
        with self._lock:
            self._unsettled.update(lines)
            self._append(b"".join(lines.values()))

    def settle(
        self, entries: Iterable[JournalEntry], *, keep_in_answer: bool = False
    ) -> None:
        """Settle claims; `keep_in_answer`: this thread's answer may restore them."""
        entries = list(entries)
        if not keep_in_answer and (answer := self._answer) is not None:
            answer.drop(entries)
        if not entries:
            return
        numbers = [entry.number for entry in entries]
        with self._lock:
            for number in numbers:
                self._unsettled.pop(number, None)
            self._append(_line({"struck": numbers}))

    def _append(self, lines: bytes) -> None:
        if self._file is None:
            return
        try:
            if self._is_failing or self._file.n_bytes > self._limit_bytes:
                self._rewrite_file(self._file)  # with the new lines, too
            else:
                self._file.append(lines)
        except OSError as e:
            # A claim that cannot be settled would be released although it is in use.
            # Unsettled entries are written again once there is space on the disk.
            self._file.empty()
            if not self._is_failing:
                LOG.error(
                    "%s cannot be written: %s. A kill of this process may leave "
                    "orphaned allocations behind", self._file.path, e,
                )  # fmt: skip
            self._is_failing = True
        else:
            self._is_failing = False

    def _rewrite_file(self, old: _File) -> None:
        new = _File(old.path.parent)
        try:
            # A kill now leaves the entries in both files: releasing twice is safe.
            new.append(b"".join(self._unsettled.values()))
        except OSError:
            new.close()
            raise
        self._file = new
        # Twice the unsettled size, so that not each new entry replaces the file.
        self._limit_bytes = max(MAX_BYTES, 2 * new.n_bytes)
        old.close()

    def _take_over(self, path: Path) -> None:
        """Hand the unsettled claims of a file to `Orphans`, unless its process runs."""
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return  # another process was faster
        try:
            if not _try_lock(fd, path):
                return
            left = list(_unsettled_in(_read_all(fd), path))
            for entry in left:
                entry.journal, entry.number = self, next(self._numbers)
            self.write(left)
            path.unlink()
        finally:
            os.close(fd)
        LOG.log(
            logging.WARNING if left else logging.INFO,
            "Process %s has ended with %d unsettled claims: they are released unless "
            "they were answered", _NAME.fullmatch(path.name)[1], len(left),  # type: ignore[index]
        )  # fmt: skip
        for entry in left:
            self._orphans.add(entry.consumer_uuid, entry.to_orphan())


class _File:
    """A file that only this process writes to; it is locked while it is open."""

    def __init__(self, folder: Path) -> None:
        while True:
            # Readable by its owner only.
            fd, name = tempfile.mkstemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=folder)
            self.path, self._fd = Path(name), fd
            # Otherwise another process took it over, and is about to remove it.
            if _try_lock(fd, self.path):
                break
            os.close(fd)
        self.n_bytes = 0

    def append(self, lines: bytes) -> None:
        n_written = os.write(self._fd, lines)
        self.n_bytes += n_written
        if n_written < len(lines):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def empty(self) -> None:
        os.ftruncate(self._fd, 0)
        os.lseek(self._fd, 0, os.SEEK_SET)
        self.n_bytes = 0

    def close(self) -> None:
        self.path.unlink(missing_ok=True)
        os.close(self._fd)


def make_folder(folder: Path) -> None:
    """Create a folder for its owner only, if it is missing.

    Raises
    ------
    ConfigurationError
        The folder cannot be used.
    """
    with _report_unusable(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)


@contextmanager
def _report_unusable(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as e:
        raise ConfigurationError(
            f"Unsettled claims cannot be recorded in {folder}: {e}. [moorage] "
            "claims_directory must be a folder that this user may write to"
        ) from e


def suspected_in(folder: Path) -> list[JournalEntry]:
    """Return the entries of suspected orphans in the journals of a folder.

    Raises
    ------
    OSError
        The folder or a file cannot be read.
    """
    for _ in range(JOURNAL_MAX_READS - 1):
        with suppress(FileNotFoundError):  # a process has replaced its file
            return _suspected_in(folder)
    return _suspected_in(folder)


def _suspected_in(folder: Path) -> list[JournalEntry]:
    paths = [path for path in folder.iterdir() if _NAME.fullmatch(path.name)]
    entries = [
        n for path in sorted(paths) for n in _unsettled_in(path.read_bytes(), path)
    ]
    return [entry for entry in entries if entry.is_suspected]


def _try_lock(fd: int, path: Path) -> bool:
    """Lock an open file; False: another process has locked it, or it is gone."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.fstat(fd).st_ino == path.stat().st_ino
    except (BlockingIOError, FileNotFoundError):
        return False


def _read_all(fd: int) -> bytes:
    with os.fdopen(os.dup(fd), "rb") as file:
        return file.read()


def _unsettled_in(content: bytes, path: Path) -> Iterator[JournalEntry]:
    """Yield the entries that are not settled; they belong to no journal yet."""
    found: dict[int, JournalEntry] = {}
    # An incomplete last line was still being written: nothing relies on it yet.
    for line in content.split(b"\n")[:-1]:
        try:
            fields = json.loads(line)
            if "struck" in fields:
                for number in fields["struck"]:
                    found.pop(number, None)
            else:
                entry = _parse_entry(fields)
                found[entry.number] = entry
        except (ValueError, LookupError, TypeError) as e:
            LOG.error("A line of %s cannot be read: %r", path, e)
    yield from found.values()


def _parse_entry(fields: Mapping[str, Any]) -> JournalEntry:
    before = fields.get("before")
    return JournalEntry(
        journal=None,  # type: ignore[arg-type]  # the reader sets it
        number=fields["claim"],
        consumer_uuid=fields["consumer"],
        request={"allocations": fields["allocations"]},
        owner=fields["owner"],
        named=fields.get("named"),
        written=fields.get("written"),
        granted=fields.get("granted"),
        is_suspected=fields.get("suspected", False),
        is_watched=fields.get("watched", False),
        before=ConsumerAllocations(**before) if before else None,
    )


def _line(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"
