# SPDX-License-Identifier: Apache-2.0
"""The journal of unresolved claims, so that a killed process leaves none behind.

A claim is recorded before it is sent, recorded again with its generation once Placement
has granted it, and resolved once it is refused, released, or the answer that names it
is about to be sent. If an entry is not resolved when its process ends, its claim may
belong to a request that was never answered: the next process that reads the file hands
the claim to `Orphans`.

One interval is ambiguous: between recording that an answer is about to be sent and the
moment at which the broker has it, some 0.1 ms, a killed process leaves a claim that may
have been answered. It stays: an allocation that an answer may have named is never
released. Even an answer that the broker has may not have reached the caller.

A disk failure never fails a request; the file is emptied instead: if an entry could not
be resolved, its claim would be released although it is in use. All unresolved entries
are written to a new file as soon as that succeeds.

Entries are not synced to the disk: they survive the process, but a crash of the machine
may lose the last ones. So each names the boot of the machine at which it was written,
and after another boot an entry that was granted does not prove that no answer named it.
"""

from __future__ import annotations

import itertools
import logging
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ...candidates import AllocationRequest
from ...errors import excerpt
from ...waiting import Spawner, ThreadSpawner
from ..answers import ConsumerAllocations
from .claims import Claim
from .journal_entry import JournalEntry, resolved_line, unresolved_in
from .journal_file import (
    JOURNAL_NAME,
    JournalFile,
    make_folder,
    read_all,
    report_unusable,
    try_lock,
)
from .limits import JOURNAL_MAX_READS
from .orphans import Orphan, Orphans

LOG = logging.getLogger(__name__)

#: The file whose content differs after each start of the machine.
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
#: The consumer that a malformed line names.
_CONSUMER: Final = re.compile(rb'"consumer": *"([0-9a-fA-F-]{32,36})"')

#: Minimum size in bytes before a file is replaced by one with unresolved entries only.
MAX_BYTES: Final = 1 << 20


@dataclass(slots=True, eq=False)
class PendingAnswer:
    """The claims of one request, made in one thread, until the request is answered.

    Created by `Journal.track_answer`; the sender of the answer reports its progress.

    Attributes
    ----------
    entries : dict
        By number; the entries of claims that are not refused, released, or handed to
        `Orphans`.
    is_sent : bool
        Whether the answer may have arrived.
    """

    journal: Journal
    entries: dict[int, JournalEntry] = field(default_factory=dict)
    is_sent: bool = False

    def mark_sending(self) -> None:
        """Record that the answer is about to be sent: from now on it may arrive."""
        if self.entries and not self.is_sent:
            self.is_sent = True
            self.journal.resolve(self.entries.values(), keep_in_answer=True)

    def mark_not_sent(self) -> None:
        """Record that the answer did not arrive, and cannot any more."""
        if self.is_sent:
            self.is_sent = False
            self.journal.write(self.entries.values())


class Journal:
    """Record the claims of this process; release those of killed processes.

    Without a folder it only tracks the claims of answers that cannot be sent. Threads
    may share it; one request makes all of its claims in one thread.

    Parameters
    ----------
    orphans : Orphans
        Releases claims that were never answered.
    """

    def __init__(self, orphans: Orphans, *, spawner: Spawner | None = None) -> None:
        self._orphans = orphans
        self._numbers = itertools.count(1)
        self._lock = (spawner or ThreadSpawner()).lock()
        self._unresolved: dict[int, bytes] = {}
        self._file: JournalFile | None = None
        #: How many writes to the disk have failed.
        self.n_failures = 0
        self._failure = ""
        self._limit_bytes = MAX_BYTES
        self._boot_id = ""
        with suppress(OSError):
            self._boot_id = _BOOT_ID.read_text().strip()
        #: The answer that the claims of a thread belong to.
        self._answer: ContextVar[PendingAnswer | None] = ContextVar(
            "answer", default=None
        )

    @property
    def path(self) -> Path | None:
        """The file of this process."""
        return self._file.path if self._file else None

    @property
    def note(self) -> str:
        """Why claims are not recorded now; "" if they are, or need not be."""
        return self._failure

    def open(self, folder: Path) -> None:
        """Create a file in a folder; take over the files of processes that have ended.

        Call it after a fork, not before. A missing folder is created for its owner
        only; all schedulers that share a folder must use the same Placement.

        Raises
        ------
        ConfigurationError
            The folder cannot be used.
        """
        make_folder(folder)
        with report_unusable(folder):
            with self._lock:
                self._file = JournalFile(folder)
            for path in sorted(folder.iterdir()):
                if path != self.path and JOURNAL_NAME.fullmatch(path.name):
                    self._take_over(path)

    def close(self) -> None:
        """Remove the file, unless it has unresolved entries for the next start.

        If it has, this process keeps the file until the process ends: running threads
        may still answer.
        """
        with self._lock:
            if self._file is not None and not self._unresolved:
                self._remove(self._file)
                self._file = None

    @contextmanager
    def track_answer(self) -> Iterator[PendingAnswer]:
        """Associate claims of this thread with one answer.

        At the end, claims whose answer certainly was not sent are released.
        """
        answer = PendingAnswer(self)
        self._answer.set(answer)
        try:
            yield answer
        finally:
            self._answer.set(None)
            entries, answer.entries = answer.entries, {}
            if entries and not answer.is_sent:
                LOG.warning(
                    "The answer of a request was not sent; releasing its %d claims",
                    len(entries),
                )  # fmt: skip
                for entry in entries.values():
                    self.hand_to_orphans(entry)

    @contextmanager
    def answer_on_return(self) -> Iterator[None]:
        """Count claims as answered once the caller returns, where no reply is sent."""
        if self._answer.get() is not None:
            yield
            return
        with self.track_answer() as answer:
            yield
            answer.mark_sending()

    def record(
        self, requests: Mapping[str, AllocationRequest], owner: Mapping[str, str]
    ) -> dict[str, JournalEntry]:
        """Record claims, by consumer, that are about to be sent."""
        entries = {
            uuid: JournalEntry(
                next(self._numbers), uuid, request, owner, boot_id=self._boot_id
            )
            for uuid, request in requests.items()
        }
        self.write(entries.values())
        if (answer := self._answer.get()) is not None:
            answer.entries.update((entry.number, entry) for entry in entries.values())
        return entries

    def record_retry(
        self, entry: JournalEntry, generation: int, before: ConsumerAllocations | None
    ) -> None:
        """Record the generation that a claim is about to be sent with again."""
        entry.named_generation, entry.written_generation = generation, generation + 1
        entry.before = before
        self.write([entry])

    def record_rewrite(
        self, entry: JournalEntry, generation: int, before: ConsumerAllocations | None
    ) -> None:
        """Record that a claim is about to be written once more."""
        entry.written_generation, entry.before = generation + 1, before
        self.write([entry])

    def record_grant(self, entry: JournalEntry, claim: Claim) -> None:
        """Record that Placement has granted a claim."""
        entry.granted_generation = claim.generation
        entry.is_in_flight = claim.is_in_flight
        self.write([entry])

    def record_release(self, entry: JournalEntry, *, is_watched: bool = False) -> None:
        """Record a release: the consumer may belong to another request after it."""
        if entry.granted_generation is not None:
            entry.granted_generation, entry.is_watched = None, is_watched
            self.write([entry])

    def record_removal(self, entry: JournalEntry, claim: Claim) -> None:
        """Record that a write is about to remove a claim; see `Claim.being_removed`."""
        if entry.granted_generation is not None:
            entry.granted_generation = claim.generation
            self.write([entry])

    def record_suspicion(self, entry: JournalEntry) -> None:
        """Record that no evidence shows whether an allocation is in use."""
        entry.is_suspected = True
        self.write([entry])

    def watch(
        self, consumer_uuid: str, claim: Claim, owner: Mapping[str, str]
    ) -> Orphan:
        """Record an answered claim, of which a write may arrive late."""
        entry = JournalEntry(
            next(self._numbers),
            consumer_uuid,
            claim.request,
            owner,
            claim.named_generation,
            claim.written_generation,
            claim.generation,
            before=claim.before,
            boot_id=self._boot_id,
            is_watched=True,
        )
        self.write([entry])
        return self.orphan_of(entry, claim)

    def hand_to_orphans(self, entry: JournalEntry, claim: Claim | None = None) -> None:
        """Remove a claim from this thread's answer, and give it to `Orphans`.

        Parameters
        ----------
        claim : Claim, optional
            What is known of the claim; None: what the entry says.
        """
        if (answer := self._answer.get()) is not None:
            answer.entries.pop(entry.number, None)
        self._orphans.add(entry.consumer_uuid, self.orphan_of(entry, claim))

    def orphan_of(self, entry: JournalEntry, claim: Claim | None = None) -> Orphan:
        """Return the orphan of a claim; once it is resolved, it resolves the entry."""
        if claim is not None and claim.generation is None:
            self.record_release(entry)
        is_ours = entry.granted_generation is not None
        recorded = Claim(
            entry.request,
            entry.before,
            entry.granted_generation,
            is_ours,
            entry.named_generation,
            entry.written_generation,
            is_in_flight=not is_ours or entry.is_watched or entry.is_in_flight,
        )
        orphan = Orphan(
            claim or recorded,
            dict(entry.owner),
            entry.is_watched,
            on_resolved=lambda: self.resolve([entry]),
            on_released=lambda: self.record_release(
                entry, is_watched=orphan.is_watched
            ),
            on_suspected=lambda: self.record_suspicion(entry),
            on_rewrite=lambda generation: self.record_rewrite(
                entry, generation, entry.before
            ),
            on_removal=lambda: self.record_removal(entry, orphan.claim),
            watch=lambda unanswered: self.watch(
                entry.consumer_uuid, unanswered, entry.owner
            ),
        )
        return orphan

    def write(self, entries: Iterable[JournalEntry]) -> None:
        """Write new entries, or new versions of entries."""
        if self._file is None:
            return
        lines = {entry.number: entry.to_line() for entry in entries}
        with self._lock:
            self._unresolved.update(lines)
            self._append(b"".join(lines.values()))

    def resolve(
        self, entries: Iterable[JournalEntry], *, keep_in_answer: bool = False
    ) -> None:
        """Record that nothing remains to be done about claims.

        With `keep_in_answer`, this thread's answer keeps the entries: it writes them
        again if it is not sent.
        """
        numbers = [entry.number for entry in entries]
        if not keep_in_answer and (answer := self._answer.get()) is not None:
            for number in numbers:
                answer.entries.pop(number, None)
        if not numbers or self._file is None:
            return
        with self._lock:
            for number in numbers:
                self._unresolved.pop(number, None)
            self._append(resolved_line(numbers))

    def _append(self, lines: bytes) -> None:
        """Append lines, or write all unresolved entries to a new file; lock held."""
        file = self._file
        if file is None:
            return
        try:
            if not self._failure and file.n_bytes <= self._limit_bytes:
                file.append(lines)
                return
            new_file = JournalFile(file.path.parent)
            try:
                # The new lines are among the unresolved ones. A kill now leaves the
                # entries in both files: releasing twice is safe.
                new_file.append(b"".join(self._unresolved.values()))
            except OSError:
                self._remove(new_file)
                raise
        except OSError as e:
            self._fail(file, e)
            return
        self._file = new_file
        # Twice the size of unresolved entries: not each new entry replaces the file.
        self._limit_bytes = max(MAX_BYTES, 2 * new_file.n_bytes)
        self._remove(file)
        if self._failure:
            LOG.warning("Unsettled claims are recorded again, in %s", new_file.path)
            self._failure = ""

    def _fail(self, file: JournalFile, cause: OSError) -> None:
        """Empty a file that cannot be written; log and count the failure."""
        self.n_failures += 1
        outcome = "A kill of this process may leave orphaned allocations behind"
        try:
            file.empty()
        except OSError as e:
            outcome = (
                f"It cannot be emptied either ({e.strerror}): if this process ends "
                "before its claims are recorded again, remove the file before the next "
                "start, which would release claims that are in use"
            )
        if not self._failure:
            LOG.error("%s cannot be written: %s. %s", file.path, cause, outcome)
        self._failure = (
            f"Unsettled claims cannot be recorded in {file.path.parent}: "
            f"{cause.strerror}."
        )

    def _remove(self, file: JournalFile) -> None:
        """Close and remove a file; log and count a failure."""
        try:
            file.close()
        except OSError as e:
            self.n_failures += 1
            LOG.error("%s cannot be removed: %s", file.path, e)

    def _take_over(self, path: Path) -> None:
        """Hand unresolved claims of a file to `Orphans`, unless its process runs."""
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return  # another process has taken it over
        try:
            if not try_lock(fd, path):
                return
            entries, malformed = unresolved_in(read_all(fd))
            if malformed:
                _set_aside(path, malformed)
            for entry in entries:
                entry.number = next(self._numbers)
                entry.survive(self._boot_id)
            self.write(entries)
            path.unlink()
        finally:
            os.close(fd)
        n_watched = sum(entry.is_watched for entry in entries)
        n_unsettled = len(entries) - n_watched
        LOG.log(
            logging.WARNING if n_unsettled else logging.INFO,
            "Process %s has ended with %d unsettled claims: they are released unless "
            "they were answered. Late writes of %d others are watched for",
            JOURNAL_NAME.fullmatch(path.name)[1], n_unsettled, n_watched,  # type: ignore[index]
        )  # fmt: skip
        for entry in entries:
            self._orphans.add(entry.consumer_uuid, self.orphan_of(entry))


def suspected_in(
    folder: Path, malformed: dict[Path, int] | None = None
) -> list[JournalEntry]:
    """Return the entries of suspected orphans in the journals of a folder.

    Parameters
    ----------
    malformed : dict of Path to int, optional
        Receives the number of malformed lines of each file that has any, which
        otherwise are logged.

    Raises
    ------
    OSError
        The folder or a file cannot be read.
    """
    for _ in range(JOURNAL_MAX_READS - 1):
        with suppress(FileNotFoundError):  # a process has replaced its file
            return _suspected_in(folder, malformed)
    return _suspected_in(folder, malformed)


def _suspected_in(
    folder: Path, malformed_lines: dict[Path, int] | None
) -> list[JournalEntry]:
    paths = [path for path in folder.iterdir() if JOURNAL_NAME.fullmatch(path.name)]
    entries = []
    for path in sorted(paths):
        unresolved, malformed = unresolved_in(path.read_bytes())
        entries += unresolved
        if malformed and malformed_lines is not None:
            malformed_lines[path] = len(malformed)
        elif malformed:
            LOG.error("%s has %d malformed lines", path, len(malformed))
    return [entry for entry in entries if entry.is_suspected]


def _set_aside(path: Path, malformed: Mapping[bytes, str]) -> None:
    """Keep malformed lines of a journal beside it, and log whose claims they may be."""
    kept_path: Path | None = None
    try:
        fd, name = tempfile.mkstemp(prefix="malformed-", dir=path.parent)
        with os.fdopen(fd, "wb") as file:
            file.writelines(line + b"\n" for line in malformed)
        kept_path = Path(name)
    except OSError as e:
        LOG.error("Malformed lines of %s cannot be kept: %s", path, e)
    for line, why in malformed.items():
        consumer = _CONSUMER.search(line)
        LOG.error(
            "A line of %s is malformed: %s. It is kept in %s: %s. Check in Placement "
            "what consumer %s holds, then remove the file",
            path, why, kept_path or "no file", excerpt(line.decode(errors="replace")),
            consumer[1].decode() if consumer else "(unknown)",
        )  # fmt: skip
