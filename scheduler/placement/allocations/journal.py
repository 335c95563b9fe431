# SPDX-License-Identifier: Apache-2.0
"""Which claims are under way: written down, so that a kill leaves none behind.

A claim is noted before it is sent, noted again with its generation once Placement has
granted it, and struck out once it is refused, released, or the answer that names it is
about to be sent. What is noted and not struck out when a process ends may have been
claimed for a request that was never answered: the next process that reads the file
hands it to `Orphans`.

One point cannot be told from the other: between the note that an answer is about to be
sent and the moment at which the broker has it, some 0.1 ms, a killed process leaves a
claim that may have been answered. It stays: an allocation that an answer may have named
is never released. Nor is the answer known to have reached the caller once the
broker has it.

Notes are not synced to the disk: they outlive a process, not the machine's crash.
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

from ...errors import ConfigurationError
from ...waiting import Spawner, ThreadSpawner
from ..candidates import AllocationRequest
from ..client import ConsumerAllocations
from .claims import Claim
from .limits import JOURNAL_READS
from .orphans import Orphan, Orphans

LOG = logging.getLogger(__name__)

#: Bytes after which a file is begun anew at the earliest, with what is under way only.
MAX_BYTES: Final = 1 << 20

_PREFIX: Final = "claims-"
_NAME: Final = re.compile(rf"{_PREFIX}(\d+)-\w+")


@dataclasses.dataclass(slots=True, eq=False)
class Note:
    """One claim of one consumer.

    Attributes
    ----------
    number : int
        Its own, in this process.
    request : mapping
        The allocations that are claimed.
    owner : mapping
        project_id and user_id.
    named : int or None
        The consumer's generation that the claim names.
    written : int or None
        The generation that it has after the last write; None: after a first one.
    granted : int or None
        The generation at which it rests, once Placement has granted it.
    before : ConsumerAllocations or None
        What the consumer held, where the claim is added to it (evacuation).
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

    def adapt(self, named: int, before: ConsumerAllocations | None) -> None:
        """Note how the claim is sent again: it is about to be."""
        self.named, self.written, self.before = named, named + 1, before
        self.journal.write([self])

    def rest(self, named: int) -> None:
        """Note that the claim is about to be written once more."""
        self.written = named + 1
        self.journal.write([self])

    def grant(self, generation: int | None) -> None:
        """Note that Placement has granted the claim."""
        self.granted = generation
        self.journal.write([self])

    def revoke(self) -> None:
        """Note that the claim is released: what is held after that may be another's."""
        if self.granted is not None:
            self.grant(None)

    def suspect(self) -> None:
        """Note that no evidence shows whether the allocation is in use."""
        self.is_suspected = True
        self.journal.write([self])

    def strike(self) -> None:
        """Note that nothing has to be done about the claim any more."""
        self.journal.strike([self])

    def line(self) -> bytes:
        """Return it as it stands in a file."""
        allocations = {
            uuid: {"resources": dict(part["resources"])}
            for uuid, part in self.request["allocations"].items()
        }
        told: dict[str, Any] = {
            "claim": self.number,
            "consumer": self.consumer_uuid,
            "allocations": allocations,
            "owner": self.owner,
        }
        if self.named is not None:
            told["named"] = self.named
        if self.written is not None:
            told["written"] = self.written
        if self.granted is not None:
            told["granted"] = self.granted
        if self.is_suspected:
            told["suspected"] = True
        if self.is_watched:
            told["watched"] = True
        if self.before is not None:
            told["before"] = dataclasses.asdict(self.before)
        return _line(told)

    def orphan(self, claim: Claim | None = None) -> Orphan:
        """Return it as an orphan; it is struck out once that is settled.

        Parameters
        ----------
        claim : Claim, optional
            What is known of it; None: what is noted.
        """
        if claim is not None and claim.generation is None:
            self.revoke()
        is_ours = self.granted is not None
        noted = Claim(
            self.request,
            self.before,
            self.granted,
            is_ours,
            self.named,
            self.written,
            is_late=not is_ours or self.is_watched,
        )
        return Orphan(
            claim or noted,
            dict(self.owner),
            self.is_watched,
            settled=self.strike,
            released=self.revoke,
            suspected=self.suspect,
        )


class Answer:
    """What was claimed for one request, until it is answered; of one thread.

    It is made by `Journal.taking`, which tells what becomes of it.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._notes: dict[int, Note] = {}
        self._is_struck = False

    def add(self, notes: Iterable[Note]) -> None:
        """Take claims that are about to be sent."""
        self._notes.update((note.number, note) for note in notes)

    def drop(self, notes: Iterable[Note]) -> None:
        """Forget claims that were refused or released, or that `Orphans` has."""
        for note in notes:
            self._notes.pop(note.number, None)

    def sending(self) -> None:
        """Note that the answer is about to be sent: from now on it may arrive."""
        if self._notes and not self._is_struck:
            self._is_struck = True
            self._journal.strike(self._notes.values(), keep=True)

    def not_sent(self) -> None:
        """Note that it did not arrive, and cannot any more."""
        if self._is_struck:
            self._is_struck = False
            self._journal.write(self._notes.values())

    def close(self, orphans: Orphans) -> None:
        """Have released what was claimed for nobody."""
        notes, self._notes = self._notes, {}
        if not notes or self._is_struck:
            return
        LOG.warning(
            "A request ends without its answer having been sent: %d claims are "
            "released", len(notes),
        )  # fmt: skip
        for note in notes.values():
            orphans.add(note.consumer_uuid, note.orphan())


class Journal:
    """Note the claims of this process; see to those of processes that were killed.

    Without a folder it knows only what is under way, for answers that cannot be sent.
    As safe for threads as has to be; what a request claims is claimed in its thread.

    Parameters
    ----------
    orphans : Orphans
        Releases what was claimed for nobody.
    """

    def __init__(self, orphans: Orphans, *, spawner: Spawner | None = None) -> None:
        self._orphans = orphans
        self._numbers = itertools.count(1)
        self._lock = (spawner or ThreadSpawner()).lock()
        self._under_way: dict[int, bytes] = {}
        self._file: _File | None = None
        self._is_failing = False
        self._limit_bytes = MAX_BYTES
        self._mine = threading.local()

    @property
    def path(self) -> Path | None:
        """This process's file."""
        return self._file.path if self._file else None

    def open(self, folder: Path) -> None:
        """Begin a file in a folder, and see to those whose processes live no more.

        It is called after a fork, not before. The folder is made if it is missing, for
        its owner only; all schedulers of it have the same Placement.

        Raises
        ------
        ConfigurationError
            The folder cannot be used.
        """
        make_folder(folder)
        with _telling(folder):
            with self._lock:
                self._file = _File(folder)
            for left in sorted(folder.iterdir()):
                if left != self.path and _NAME.fullmatch(left.name):
                    self._adopt(left)

    def close(self) -> None:
        """Remove the file, unless there is something in it for the next start.

        Then it is this process's until that ends: threads that go on may yet answer.
        """
        with self._lock:
            if self._file is not None and not self._under_way:
                self._file.close()
                self._file = None

    @contextmanager
    def taking(self) -> Iterator[Answer]:
        """Have claims of this thread belong to one answer.

        At the end those are released whose answer certainly was not sent.
        """
        answer = self._mine.answer = Answer(self)
        try:
            yield answer
        finally:
            self._mine.answer = None
            answer.close(self._orphans)

    @contextmanager
    def returning(self) -> Iterator[None]:
        """Have claims be answered once the caller has them, where nobody sends them."""
        if self._answer is not None:
            yield
            return
        with self.taking() as answer:
            yield
            answer.sending()

    @property
    def _answer(self) -> Answer | None:
        answer: Answer | None = getattr(self._mine, "answer", None)
        return answer

    def begin(
        self, requests: Mapping[str, AllocationRequest], owner: Mapping[str, str]
    ) -> dict[str, Note]:
        """Note claims, by consumer, that are about to be sent."""
        notes = {
            uuid: Note(self, next(self._numbers), uuid, request, owner)
            for uuid, request in requests.items()
        }
        self.write(notes.values())
        if (answer := self._answer) is not None:
            answer.add(notes.values())
        return notes

    def watch(
        self, consumer_uuid: str, claim: Claim, owner: Mapping[str, str]
    ) -> Orphan:
        """Note a claim that is answered, and of which a write may arrive late."""
        note = Note(
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
        self.write([note])
        return note.orphan(claim)

    def hand_over(self, note: Note) -> Note:
        """Have a claim belong to `Orphans` instead of this thread's answer."""
        if (answer := self._answer) is not None:
            answer.drop([note])
        return note

    def write(self, notes: Iterable[Note]) -> None:
        """Note claims, or note them anew."""
        lines = {note.number: note.line() for note in notes}
        with self._lock:
            self._under_way.update(lines)
            self._append(b"".join(lines.values()))

    def strike(self, notes: Iterable[Note], *, keep: bool = False) -> None:
        """Strike claims out; with `keep`, this thread's answer keeps them in mind."""
        notes = list(notes)
        if not keep and (answer := self._answer) is not None:
            answer.drop(notes)
        if not notes:
            return
        numbers = [note.number for note in notes]
        with self._lock:
            for number in numbers:
                self._under_way.pop(number, None)
            self._append(_line({"struck": numbers}))

    def _append(self, lines: bytes) -> None:
        if self._file is None:
            return
        try:
            if self._is_failing or self._file.n_bytes > self._limit_bytes:
                self._begin_anew(self._file)  # with the new lines, too
            else:
                self._file.append(lines)
        except OSError as e:
            # A claim that cannot be struck out would be released though it is in use.
            # What is under way is written again once there is room.
            self._file.empty()
            if not self._is_failing:
                LOG.error(
                    "%s cannot be written: %s. A kill of this process may leave "
                    "allocations behind that nobody owns", self._file.path, e,
                )  # fmt: skip
            self._is_failing = True
        else:
            self._is_failing = False

    def _begin_anew(self, old: _File) -> None:
        new = _File(old.path.parent)
        try:
            # A kill now leaves what is under way in both: to see to it twice is safe.
            new.append(b"".join(self._under_way.values()))
        except OSError:
            new.close()
            raise
        self._file = new
        # Twice what is under way, so that it is not written again for each new note.
        self._limit_bytes = max(MAX_BYTES, 2 * new.n_bytes)
        old.close()

    def _adopt(self, path: Path) -> None:
        """See to what the process of a file has left, unless it lives."""
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return  # somebody else was faster
        try:
            if not _locked(fd, path):
                return
            left = list(_left_in(_all_of(fd), path))
            for note in left:
                note.journal, note.number = self, next(self._numbers)
            self.write(left)
            path.unlink()
        finally:
            os.close(fd)
        LOG.log(
            logging.WARNING if left else logging.INFO,
            "Process %s has ended with %d claims under way: they are released unless "
            "they were answered", _NAME.fullmatch(path.name)[1], len(left),  # type: ignore[index]
        )  # fmt: skip
        for note in left:
            self._orphans.add(note.consumer_uuid, note.orphan())


class _File:
    """A file that nobody else writes to: it is locked for as long as it is open."""

    def __init__(self, folder: Path) -> None:
        while True:
            # For its owner only.
            fd, name = tempfile.mkstemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=folder)
            self.path, self._fd = Path(name), fd
            # Else somebody took it for one that was left, and is about to remove it.
            if _locked(fd, self.path):
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
    """Make a folder for its owner only, if it is missing.

    Raises
    ------
    ConfigurationError
        It cannot be used.
    """
    with _telling(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)


@contextmanager
def _telling(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as e:
        raise ConfigurationError(
            f"Claims under way cannot be noted in {folder}: {e}. [moorage] "
            "claims_directory has to be a folder that this user may write to"
        ) from e


def suspected_in(folder: Path) -> list[Note]:
    """Return the notes of suspected orphans that processes have in a folder.

    Raises
    ------
    OSError
        It cannot be read.
    """
    for _ in range(JOURNAL_READS - 1):
        with suppress(FileNotFoundError):  # a process has replaced its file
            return _suspected_in(folder)
    return _suspected_in(folder)


def _suspected_in(folder: Path) -> list[Note]:
    paths = [path for path in folder.iterdir() if _NAME.fullmatch(path.name)]
    notes = [n for path in sorted(paths) for n in _left_in(path.read_bytes(), path)]
    return [note for note in notes if note.is_suspected]


def _locked(fd: int, path: Path) -> bool:
    """Lock a file that is open; False: another process has it, or it is gone."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.fstat(fd).st_ino == path.stat().st_ino
    except (BlockingIOError, FileNotFoundError):
        return False


def _all_of(fd: int) -> bytes:
    with os.fdopen(os.dup(fd), "rb") as file:
        return file.read()


def _left_in(content: bytes, path: Path) -> Iterator[Note]:
    """Yield the claims that are not struck out; they belong to no journal yet."""
    found: dict[int, Note] = {}
    # What follows the last line's end was being written: it was not acted upon.
    for line in content.split(b"\n")[:-1]:
        try:
            told = json.loads(line)
            if "struck" in told:
                for number in told["struck"]:
                    found.pop(number, None)
            else:
                note = _note(told)
                found[note.number] = note
        except (ValueError, LookupError, TypeError) as e:
            LOG.error("A line of %s cannot be read: %r", path, e)
    yield from found.values()


def _note(told: Mapping[str, Any]) -> Note:
    before = told.get("before")
    return Note(
        journal=None,  # type: ignore[arg-type]  # whoever reads it has one
        number=told["claim"],
        consumer_uuid=told["consumer"],
        request={"allocations": told["allocations"]},
        owner=told["owner"],
        named=told.get("named"),
        written=told.get("written"),
        granted=told.get("granted"),
        is_suspected=told.get("suspected", False),
        is_watched=told.get("watched", False),
        before=ConsumerAllocations(**before) if before else None,
    )


def _line(told: Mapping[str, Any]) -> bytes:
    return json.dumps(told, separators=(",", ":")).encode() + b"\n"
