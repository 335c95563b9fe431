# SPDX-License-Identifier: Apache-2.0
"""The journal entry of a claim, and the lines of a file that hold entries."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import Meta

from ...candidates import AllocationRequest
from ..answers import ConsumerAllocations
from .claims import Claim
from .orphans import Orphan

if TYPE_CHECKING:  # an entry writes itself to its journal
    from .journal import Journal


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
    boot_id : str
        That of the machine when the entry was written; "": it is not known.
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
    boot_id: str = ""
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

    def survive(self, boot_id: str) -> None:
        """Keep what is certain after its process has ended, at a boot of the machine.

        A crash of the machine may have kept the grant and lost a later line, which
        settled the claim because an answer named it. So its claimer is unknown then.
        An entry without a boot counts as one of another boot.
        """
        is_same_boot = boot_id and self.boot_id == boot_id
        if not is_same_boot and self.granted is not None and not self.is_watched:
            self.written, self.granted = self.granted, None
        self.boot_id = boot_id

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
            "boot": self.boot_id,
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
            watch=lambda late: self.journal.watch(self.consumer_uuid, late, self.owner),
        )


class _Part(msgspec.Struct):
    """What a line claims of one provider."""

    resources: dict[str, Annotated[int, Meta(ge=0)]]


class _ClaimLine(msgspec.Struct):
    """A line with an entry, as `JournalEntry.to_line` returns it."""

    claim: int
    consumer: Annotated[str, Meta(pattern="^[0-9a-fA-F-]{32,36}$")]
    allocations: dict[str, _Part]
    owner: dict[str, str]
    boot: str = ""
    named: int | None = None
    written: int | None = None
    granted: int | None = None
    suspected: bool = False
    watched: bool = False
    before: ConsumerAllocations | None = None


class _SettledLine(msgspec.Struct):
    """A line that settles entries."""

    settled: list[int]


_read_claim: Final = msgspec.json.Decoder(_ClaimLine).decode
_read_settled: Final = msgspec.json.Decoder(_SettledLine).decode
_SETTLED: Final = b'{"settled":'


def unsettled_in(content: bytes) -> tuple[list[JournalEntry], dict[bytes, str]]:
    """Return the entries that are not settled, and the malformed lines.

    The entries belong to no journal yet. A malformed line may have settled those before
    it: their claims may be in use, so none of them counts as granted.

    Returns
    -------
    tuple of (list of JournalEntry, dict of bytes to str)
        The second one has the line and what is wrong with it.
    """
    found: dict[int, JournalEntry] = {}
    malformed: dict[bytes, str] = {}
    # An incomplete last line was still being written: nothing relies on it yet.
    for line in content.split(b"\n")[:-1]:
        try:
            if line.startswith(_SETTLED):
                for number in _read_settled(line).settled:
                    found.pop(number, None)
            else:
                entry = _entry_of(_read_claim(line))
                found[entry.number] = entry
        except (msgspec.MsgspecError, ValueError, RecursionError) as e:
            malformed[line] = str(e)
            for entry in found.values():
                if entry.granted is not None and not entry.is_watched:
                    entry.written, entry.granted = entry.granted, None
    return list(found.values()), malformed


def _entry_of(line: _ClaimLine) -> JournalEntry:
    allocations = {
        uuid: {"resources": part.resources} for uuid, part in line.allocations.items()
    }
    return JournalEntry(
        journal=None,  # type: ignore[arg-type]  # the reader sets it
        number=line.claim,
        consumer_uuid=line.consumer,
        request={"allocations": allocations},
        owner=line.owner,
        named=line.named,
        written=line.written,
        granted=line.granted,
        is_suspected=line.suspected,
        is_watched=line.watched,
        before=line.before,
        boot_id=line.boot,
    )


def settled_line(numbers: Sequence[int]) -> bytes:
    """Return the line of a file that settles the entries of these numbers."""
    return _line({"settled": numbers})


def _line(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"
