# SPDX-License-Identifier: Apache-2.0
"""The journal entry of a claim, and the lines of a file that hold entries."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from ...candidates import AllocationRequest
from ..answers import ConsumerAllocations


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
    named_generation : int or None
        The consumer generation that the claim names.
    written_generation : int or None
        The consumer generation after the last write; None: after the first one.
    granted_generation : int or None
        The generation at which the claim is final, once Placement has granted it; see
        `Claim.generation`.
    before : ConsumerAllocations or None
        What the consumer held before, where the claim is added to it (evacuation).
    boot_id : str
        The boot of the machine at which the entry was written; "": it is not known.
    is_suspected : bool
        Whether the claim is reported as a suspected orphan.
    is_watched : bool
        Whether only a late write of the claim remains to be watched for; see `Orphan`.
    is_in_flight : bool
        Whether a write of the claim got no answer before Placement granted it, and may
        still arrive.
    """

    number: int
    consumer_uuid: str
    request: AllocationRequest
    owner: Mapping[str, str]
    named_generation: int | None = None
    written_generation: int | None = None
    granted_generation: int | None = None
    before: ConsumerAllocations | None = None
    boot_id: str = ""
    is_suspected: bool = False
    is_watched: bool = False
    is_in_flight: bool = False

    def survive(self, boot_id: str) -> None:
        """Keep what is certain after the entry's process has ended.

        The process may have been releasing a claim that was granted: the write with
        which a release begins names the generation of the grant, and may still arrive.

        If the machine has booted since, the newest lines of the file may be lost. One
        of them may have resolved the entry because the conductor was answered with the
        claim, so that an instance uses it: the grant is doubted. Two may have recorded
        the writes that take a new claim over, which may still arrive and name 1 and 2.
        The same holds if either boot is not known.

        Parameters
        ----------
        boot_id : str
            The machine's present boot.
        """
        if not boot_id or self.boot_id != boot_id:
            self.doubt_grant()
            self.written_generation = max(self.written_generation or 0, 3)
        elif (
            self.granted_generation is not None
            # An even one: the second write of the release was about to be sent. What is
            # in use is at an odd one, so that write need not be watched for.
            and self.granted_generation % 2
            and self.before is None  # else the generations do not restart
            and not self.is_watched
        ):
            if not self.is_in_flight:
                self.named_generation = self.granted_generation
            self.written_generation = self.granted_generation + 1
            self.is_in_flight = True
        self.boot_id = boot_id

    def doubt_grant(self) -> None:
        """Forget the grant: the conductor may have got the claim as an answer since."""
        if self.granted_generation is not None and not self.is_watched:
            # One more, as a release of it may have begun.
            self.written_generation = self.granted_generation + 1
            self.granted_generation = None

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
        if self.named_generation is not None:
            fields["named"] = self.named_generation
        if self.written_generation is not None:
            fields["written"] = self.written_generation
        if self.granted_generation is not None:
            fields["granted"] = self.granted_generation
        if self.is_suspected:
            fields["suspected"] = True
        if self.is_watched:
            fields["watched"] = True
        if self.is_in_flight:
            fields["in_flight"] = True
        if self.before is not None:
            fields["before"] = dataclasses.asdict(self.before)
        return _line(fields)


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
    in_flight: bool = False
    before: ConsumerAllocations | None = None


class _ResolvedLine(msgspec.Struct):
    """A line that resolves entries."""

    settled: list[int]


_read_claim: Final = msgspec.json.Decoder(_ClaimLine).decode
_read_resolved: Final = msgspec.json.Decoder(_ResolvedLine).decode
_RESOLVED: Final = b'{"settled":'


def unresolved_in(content: bytes) -> tuple[list[JournalEntry], dict[bytes, str]]:
    """Return the entries that are not resolved, and the malformed lines.

    A malformed line may have resolved the entries before it: their claims may be in
    use, so none of them counts as granted.

    Returns
    -------
    tuple of (list of JournalEntry, dict of bytes to str)
        The dict has each malformed line, and what is wrong with it.
    """
    entries: dict[int, JournalEntry] = {}
    malformed: dict[bytes, str] = {}
    # An incomplete last line was still being written: nothing relies on it yet.
    for line in content.split(b"\n")[:-1]:
        try:
            if line.startswith(_RESOLVED):
                for number in _read_resolved(line).settled:
                    entries.pop(number, None)
            else:
                entry = _entry_of(_read_claim(line))
                entries[entry.number] = entry
        except (msgspec.MsgspecError, ValueError, RecursionError) as e:
            malformed[line] = str(e)
            for entry in entries.values():
                entry.doubt_grant()
    return list(entries.values()), malformed


def _entry_of(line: _ClaimLine) -> JournalEntry:
    allocations = {
        uuid: {"resources": part.resources} for uuid, part in line.allocations.items()
    }
    return JournalEntry(
        number=line.claim,
        consumer_uuid=line.consumer,
        request={"allocations": allocations},
        owner=line.owner,
        named_generation=line.named,
        written_generation=line.written,
        granted_generation=line.granted,
        is_suspected=line.suspected,
        is_watched=line.watched,
        is_in_flight=line.in_flight,
        before=line.before,
        boot_id=line.boot,
    )


def resolved_line(numbers: Sequence[int]) -> bytes:
    """Return the line of a file that resolves the entries of these numbers."""
    return _line({"settled": numbers})


def _line(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"
