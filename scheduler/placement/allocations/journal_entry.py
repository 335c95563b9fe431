# SPDX-License-Identifier: Apache-2.0
"""The journal entry of a claim, and the lines of a file that hold entries."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...candidates import AllocationRequest
from ..answers import ConsumerAllocations
from .claims import Claim
from .orphans import Orphan

if TYPE_CHECKING:  # an entry writes itself to its journal
    from .journal import Journal

LOG = logging.getLogger(__name__)


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
        """
        if self.boot_id != boot_id and self.granted is not None and not self.is_watched:
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
        )


def unsettled_in(content: bytes, path: Path) -> Iterator[JournalEntry]:
    """Yield the entries that are not settled; they belong to no journal yet."""
    found: dict[int, JournalEntry] = {}
    # An incomplete last line was still being written: nothing relies on it yet.
    for line in content.split(b"\n")[:-1]:
        try:
            fields = json.loads(line)
            if "settled" in fields:
                for number in fields["settled"]:
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
        boot_id=fields.get("boot", ""),
    )


def settled_line(numbers: Sequence[int]) -> bytes:
    """Return the line of a file that settles the entries of these numbers."""
    return _line({"settled": numbers})


def _line(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"
