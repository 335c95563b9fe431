# SPDX-License-Identifier: Apache-2.0
"""Claims that are noted: what a killed process leaves is released, an answer never."""

from __future__ import annotations

import copy
import errno
import json
import os
import random
import stat
import threading
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.scheduler.errors import ConfigurationError
from moorage.scheduler.instances import InstanceLocation, InstanceState
from moorage.scheduler.placement.allocations import journal as journals
from moorage.scheduler.placement.allocations.claims import Claim
from moorage.scheduler.placement.allocations.journal import Journal, suspected_in
from moorage.scheduler.placement.allocations.journal_entry import (
    JournalEntry,
    unresolved_in,
)
from moorage.scheduler.placement.allocations.orphans import Orphan, Orphans
from moorage.scheduler.placement.allocations.releases import release
from moorage.scheduler.placement.answers import ConsumerAllocations

from ....fixtures.allocations import OWNER, claim_one, request_of
from ....fixtures.hand_time import HandTime
from ....fixtures.placement_servers import (
    EmbeddedPlacementFixture,
    MisbehavingServer,
    Misbehaviour,
)
from ....fixtures.waiting import wait_until
from ..two_hosts import HOST, OTHER


class Process:
    """The parts of one scheduler process.

    Parameters
    ----------
    state : InstanceState
        What is known of every instance.
    """

    def __init__(
        self,
        placement: EmbeddedPlacementFixture,
        folder: Path,
        state: InstanceState = InstanceState.UNKNOWN,
    ) -> None:
        self.client = placement.client
        self.orphans = Orphans(
            placement.client,
            rng=random.Random(1),
            locate=lambda _uuid, _providers: InstanceLocation(state),
        )
        self.journal = Journal(self.orphans)
        self.folder = folder
        self.journal.open(folder)

    def claim(
        self,
        consumer: str,
        provider: str = HOST,
        *,
        is_answered: bool = True,
        **more: Any,
    ) -> JournalEntry:
        """Claim as a decision does, or is killed before it has the answer."""
        request = request_of(provider)
        note = self.journal.record({consumer: request}, OWNER)[consumer]

        def before_write(generations: Any, held: Any, before: Any) -> None:
            named, mine = generations[consumer], held[consumer]
            claimed = Claim(request, before.get(consumer))
            if named is not None and mine.matches(claimed.combined_request):
                self.journal.record_rewrite(note, named, claimed.before)
            elif named is not None:
                self.journal.record_retry(note, named, mine)

        answer = claim_one(
            self.client, consumer, request, before_write=before_write, **more
        )
        if is_answered:
            self.journal.record_grant(note, answer.claims[consumer])
        return note

    @property
    def path(self) -> Path:
        """The journal's file, which is open."""
        assert self.journal.path is not None
        return self.journal.path

    def kill(self) -> None:
        """Leave a file as a kill does: it is not locked any more."""
        _kill(self.journal)

    def held(self, consumer: str) -> dict[str, Any]:
        return dict(self.client.allocations(consumer).resources)


def _kill(journal: Journal) -> None:
    path = journal.path
    assert path is not None
    content = path.read_bytes()
    path.unlink()
    path.with_name("claims-1-killed").write_bytes(content)


def _unresolved(process: Process) -> list[JournalEntry]:
    entries, _ = unresolved_in(process.path.read_bytes())
    return entries


def _watched_generations(process: Process) -> list[int | None]:
    return [
        entry.named_generation for entry in _unresolved(process) if entry.is_watched
    ]


def _files(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def _consumer() -> str:
    return str(uuid.uuid4())


def test_claim_of_a_process_that_ended_is_released(
    placement: EmbeddedPlacementFixture, tmp_path: Path
) -> None:
    consumer = _consumer()
    killed = Process(placement, tmp_path)
    killed.claim(consumer)
    assert killed.held(consumer)
    killed.kill()
    after = Process(placement, tmp_path)
    wait_until(lambda: not after.held(consumer))
    # It may have been releasing the claim.
    wait_until(lambda: _watched_generations(after) == [1])
    assert after.orphans.late_generations([consumer]) == {consumer: 1}


@pytest.mark.parametrize("state", InstanceState, ids=lambda state: state.name)
def test_claim_of_another_request_after_a_release_that_a_kill_cut_off_needs_evidence(
    placement: EmbeddedPlacementFixture, tmp_path: Path, state: InstanceState
) -> None:
    """The process is killed after the write that removes the claim, and does not know.

    The claim of the other request is at the generation at which the removed one was.
    """
    consumer = _consumer()
    killed = Process(placement, tmp_path)
    entry = killed.claim(consumer)
    orphan = killed.journal.orphan_of(entry)

    def before_removal(claim: Claim) -> None:
        orphan.claim = claim
        orphan.on_removal()

    release(
        placement.client,
        consumer,
        orphan.claim,
        rng=random.Random(1),
        watch=lambda _late: None,
        before_removal=before_removal,
    )
    killed.kill()
    claim_one(placement.client, consumer, request_of(HOST))
    after = Process(placement, tmp_path, state)
    # The write before that was answered: the generation of this claim need not rise.
    assert after.orphans.late_generations([consumer]) == {}
    after.orphans.stop()
    is_gone = state in (InstanceState.GONE, InstanceState.ELSEWHERE)
    assert bool(after.held(consumer)) is not is_gone


def test_unanswered_first_write_of_a_release_is_recorded_before_the_removal(
    placement: EmbeddedPlacementFixture,
) -> None:
    """A kill after the removal must not leave a late one of it without a watch."""
    consumer = _consumer()
    claimed = claim_one(placement.client, consumer, request_of(HOST)).claims[consumer]
    steps: list[tuple[str, int | None]] = []
    with MisbehavingServer(placement.placement.wsgi_app) as server:
        server.misbehave(Misbehaviour.LOST, verb="PUT")
        assert release(
            server.client(),
            consumer,
            claimed,
            rng=random.Random(1),
            waiter=HandTime(),
            watch=lambda late: steps.append(("watch", late.named_generation)),
            before_removal=lambda claim: steps.append(("remove", claim.generation)),
        )
    assert steps == [("watch", 1), ("remove", 2)]


def test_first_write_of_a_release_on_evidence_is_watched_for_after_a_kill(
    placement: EmbeddedPlacementFixture, tmp_path: Path
) -> None:
    consumer = _consumer()
    killed = Process(placement, tmp_path, InstanceState.GONE)
    entry = killed.claim(consumer, is_answered=False)
    for _ in range(2):  # two requests take it over: it is at generation 5
        claim_one(placement.client, consumer, request_of(HOST))
    content: list[bytes] = []
    put = killed.client.write

    def and_note(*args: Any, **more: Any) -> Any:
        content.append(killed.path.read_bytes())
        return put(*args, **more)

    killed.client.write = and_note
    killed.journal.hand_to_orphans(entry)
    wait_until(lambda: not killed.held(consumer))
    killed.orphans.stop()
    killed.client.write = put
    killed.path.unlink()
    (tmp_path / "claims-1-killed").write_bytes(content[0])
    after = Process(placement, tmp_path, InstanceState.PENDING)
    assert after.orphans.late_generations([consumer]) == {consumer: 5}
    after.orphans.stop()


@pytest.mark.parametrize("state", InstanceState, ids=lambda state: state.name)
def test_claim_that_was_not_known_to_be_granted_needs_evidence(
    placement: EmbeddedPlacementFixture, tmp_path: Path, state: InstanceState
) -> None:
    consumer = _consumer()
    killed = Process(placement, tmp_path)
    killed.claim(consumer, is_answered=False)
    killed.kill()
    after = Process(placement, tmp_path, state)
    after.orphans.stop()
    is_gone = state in (InstanceState.GONE, InstanceState.ELSEWHERE)
    # Nothing refuses what is late where the instance is ELSEWHERE: nova may write it.
    is_over = state in (InstanceState.GONE, InstanceState.ON_HOST)
    assert len(after.orphans) == (0 if is_over else 1)
    assert bool(after.held(consumer)) is not is_gone


@pytest.mark.deep
@pytest.mark.parametrize("state", InstanceState, ids=lambda state: state.name)
@pytest.mark.parametrize("boot", ["another", "older version", "this"])
@pytest.mark.parametrize("n_boots", [1, 2])
def test_claim_that_was_granted_before_another_boot_needs_evidence(
    placement: EmbeddedPlacementFixture,
    tmp_path: Path,
    boot: str,
    n_boots: int,
    state: InstanceState,
) -> None:
    """A crash of the machine may lose that a granted claim was answered."""
    consumer = _consumer()
    process = Process(placement, tmp_path)
    process.claim(consumer)
    for _ in range(n_boots):
        process.kill()
        _set_boot(tmp_path, boot)
        kept = RecordingOrphans()
        journal = Journal(kept)  # type: ignore[arg-type]  # it has what is called
        journal.open(tmp_path)
        [(_, orphan)] = kept.orphans
        assert orphan.claim.is_ours is (boot == "this")
        is_known = boot == "this"
        assert orphan.claim.generation == (1 if is_known else None)
        # Of a release that has begun, or of a request that has taken the claim over.
        assert orphan.claim.late_write_generation == (1 if is_known else 2)
        process.journal = journal
    process.kill()
    after = Process(placement, tmp_path, state)
    after.orphans.stop()
    is_in_use = state is InstanceState.ON_HOST
    is_gone = state in (InstanceState.GONE, InstanceState.ELSEWHERE)
    is_released = is_gone or (boot == "this" and not is_in_use)
    assert bool(after.held(consumer)) is not is_released
    # Nothing refuses what is late where the instance is ELSEWHERE: nova may write it.
    is_over = state in (InstanceState.GONE, InstanceState.ON_HOST) or boot == "this"
    assert len(after.orphans) == (0 if is_over else 1)


def _set_boot(folder: Path, boot: str) -> None:
    """Make all entries of a folder another boot's, or those of an older version."""
    if boot == "this":
        return
    for path in _files(folder):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for fields in lines:
            if "boot" in fields and boot == "another":
                fields["boot"] = str(uuid.uuid4())
            else:
                fields.pop("boot", None)
        path.write_text("".join(json.dumps(fields) + "\n" for fields in lines))


def test_what_was_granted_is_known_after_each_kill(
    placement: EmbeddedPlacementFixture, tmp_path: Path
) -> None:
    consumer = _consumer()
    killed = Process(placement, tmp_path)
    killed.claim(consumer)
    killed.kill()
    kept = RecordingOrphans()
    next_one = Journal(kept)  # type: ignore[arg-type]  # it has what is called
    next_one.open(tmp_path)
    [(_, orphan)] = kept.orphans
    assert orphan.claim.is_ours
    assert orphan.claim.generation == 1
    _kill(next_one)
    after = Process(placement, tmp_path)
    wait_until(lambda: not after.held(consumer))
    # It may have been releasing the claim.
    wait_until(lambda: _watched_generations(after) == [1])
    assert after.orphans.late_generations([consumer]) == {consumer: 1}


def test_every_entry_of_an_instance_is_handled(
    placement: EmbeddedPlacementFixture, tmp_path: Path
) -> None:
    """One claim that was granted, and one that may have been sent."""
    consumer = _consumer()
    killed = Process(placement, tmp_path)
    killed.journal.record({consumer: request_of(OTHER)}, OWNER)
    killed.claim(consumer)
    killed.kill()
    after = Process(placement, tmp_path)
    assert len(after.orphans) == 2
    wait_until(lambda: not after.held(consumer))
    wait_until(lambda: not len(after.orphans))
    after.orphans.stop()
    after.journal.close()
    left = _unresolved(after)
    assert [entry.granted_generation for entry in left] == [None, None]
    assert [entry.is_watched for entry in left] == [False, True]


def test_next_start_watches_for_the_late_writes_of_a_process_that_was_stopped(
    placement: EmbeddedPlacementFixture, tmp_path: Path
) -> None:
    consumer = _consumer()
    stopped = Process(placement, tmp_path)
    stopped.claim(consumer)
    claim = Claim(request_of(HOST), generation=1, is_in_flight=True)
    stopped.orphans.add(consumer, stopped.journal.watch(consumer, claim, OWNER))
    [answered, _] = _unresolved(stopped)
    stopped.journal.resolve([answered])
    stopped.orphans.stop()
    stopped.journal.close()
    stopped.kill()
    placement.client.delete_allocations(consumer)
    after = Process(placement, tmp_path, InstanceState.GONE)
    after.orphans.stop()
    late = {**request_of(HOST), "consumer_generation": None, **OWNER}
    assert not placement.client.put_allocations(consumer, late).is_done


def test_suspected_orphan_is_listed_until_it_is_resolved(
    placement: EmbeddedPlacementFixture, tmp_path: Path
) -> None:
    suspect, other = _consumer(), _consumer()
    process = Process(placement, tmp_path)
    requests = dict.fromkeys((suspect, other), request_of(HOST))
    notes = process.journal.record(requests, OWNER)
    process.journal.orphan_of(notes[suspect]).on_suspected()
    assert [note.consumer_uuid for note in suspected_in(tmp_path)] == [suspect]
    process.journal.orphan_of(notes[suspect]).on_resolved()
    assert list(suspected_in(tmp_path)) == []
    process.journal.resolve([notes[other]])
    process.journal.close()


def test_claim_of_a_process_that_lives_is_left_alone(
    placement: EmbeddedPlacementFixture, tmp_path: Path
) -> None:
    consumer = _consumer()
    living = Process(placement, tmp_path)
    living.claim(consumer)
    other = Process(placement, tmp_path)
    assert not len(other.orphans)
    other.journal.close()
    assert _files(tmp_path) == [living.journal.path]
    living.journal.close()


def test_claim_whose_answer_may_have_been_sent_is_never_released(
    placement: EmbeddedPlacementFixture, tmp_path: Path
) -> None:
    consumer = _consumer()
    killed = Process(placement, tmp_path)
    with killed.journal.track_answer() as answer:
        killed.claim(consumer)
        answer.mark_sending()
        killed.kill()
    after = Process(placement, tmp_path)
    assert not len(after.orphans)
    assert after.held(consumer)
    after.journal.close()


def test_answer_that_was_not_sent_is_released(
    placement: EmbeddedPlacementFixture, tmp_path: Path
) -> None:
    consumer = _consumer()
    process = Process(placement, tmp_path)
    with process.journal.track_answer() as answer:
        process.claim(consumer)
        answer.mark_sending()
        answer.mark_not_sent()
    wait_until(lambda: not process.held(consumer))
    wait_until(lambda: not _unresolved(process))
    process.journal.close()
    assert not _files(tmp_path)


def test_claim_that_is_returned_in_process_stays_and_one_of_a_failure_goes(
    placement: EmbeddedPlacementFixture, tmp_path: Path
) -> None:
    process = Process(placement, tmp_path)
    kept, gone = _consumer(), _consumer()
    with process.journal.answer_on_return():
        process.claim(kept)

    def fail() -> None:
        with process.journal.answer_on_return():
            process.claim(gone)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    wait_until(lambda: not process.held(gone))
    assert process.held(kept)
    wait_until(lambda: not _unresolved(process))
    process.journal.close()
    assert not _files(tmp_path)


def test_late_write_of_a_granted_claim_is_refused_after_a_kill(
    placement: EmbeddedPlacementFixture, tmp_path: Path
) -> None:
    consumer, request = _consumer(), request_of(HOST)
    killed = Process(placement, tmp_path)
    note = killed.journal.record({consumer: request}, OWNER)[consumer]
    granted = claim_one(killed.client, consumer, request).claims[consumer]
    killed.journal.record_grant(note, replace(granted, is_in_flight=True))
    killed.kill()
    after = Process(placement, tmp_path, InstanceState.PENDING)
    wait_until(lambda: not len(after.orphans))
    body = {"allocations": request["allocations"], **OWNER, "consumer_generation": None}
    late = after.client.put_allocations(consumer, body)
    after.orphans.stop()
    after.journal.close()
    assert late.is_consumer_conflict, late
    assert not after.held(consumer)


def test_grant_is_forgotten_once_it_is_released_with_a_write_still_late(
    placement: EmbeddedPlacementFixture, tmp_path: Path
) -> None:
    consumer, request = _consumer(), request_of(HOST)
    killed = Process(placement, tmp_path)
    note = killed.journal.record({consumer: request}, OWNER)[consumer]
    granted = claim_one(killed.client, consumer, request).claims[consumer]
    killed.journal.record_grant(note, granted)
    killed.journal.hand_to_orphans(note, replace(granted, is_in_flight=True))
    wait_until(lambda: not killed.held(consumer))
    wait_until(lambda: b"granted" not in killed.path.read_bytes().splitlines()[-1])
    killed.kill()
    killed.orphans.stop()
    claim_one(killed.client, consumer, request)  # for a later request
    after = Process(placement, tmp_path)
    after.orphans.stop()  # checks a last time
    assert after.held(consumer), "the later request's claim"
    after.journal.close()


def test_suspected_orphan_is_listed_while_a_file_is_replaced(
    placement: EmbeddedPlacementFixture,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(journals, "MAX_BYTES", 0)
    consumer = _consumer()
    process = Process(placement, tmp_path)
    notes = process.journal.record({consumer: request_of(HOST)}, OWNER)
    process.journal.orphan_of(notes[consumer]).on_suspected()
    is_over = threading.Event()

    def replace_files() -> None:
        while not is_over.wait(0.0005):
            process.journal.record_suspicion(notes[consumer])

    thread = threading.Thread(target=replace_files)
    thread.start()
    try:
        for _ in range(2000):
            listed = {note.consumer_uuid for note in suspected_in(tmp_path)}
            assert listed == {consumer}
    finally:
        is_over.set()
        thread.join()
    process.journal.close()


def test_what_is_handed_on_is_noted_until_it_is_resolved(
    placement: EmbeddedPlacementFixture, tmp_path: Path
) -> None:
    consumer = _consumer()
    process = Process(placement, tmp_path)
    note = process.journal.record({consumer: request_of(HOST)}, OWNER)[consumer]
    process.journal.record_grant(note, Claim(request_of(HOST), generation=1))
    process.journal.hand_to_orphans(note)
    assert consumer in process.path.read_text()
    process.orphans.stop()
    process.journal.close()
    assert not _files(tmp_path)


def test_evacuated_instance_keeps_what_it_held_before(
    placement: EmbeddedPlacementFixture, tmp_path: Path
) -> None:
    consumer = _consumer()
    before = Process(placement, tmp_path)
    with before.journal.answer_on_return():
        before.claim(consumer)
    before.journal.close()
    killed = Process(placement, tmp_path)
    killed.claim(consumer, OTHER, evacuated_from={HOST})
    assert killed.held(consumer).keys() == {HOST, OTHER}
    killed.kill()
    after = Process(placement, tmp_path)
    wait_until(lambda: after.held(consumer).keys() == {HOST})
    wait_until(lambda: not len(after.orphans))
    after.journal.close()


def test_claim_that_comes_after_its_process_has_ended_is_refused(
    placement: EmbeddedPlacementFixture, tmp_path: Path
) -> None:
    consumer = _consumer()
    killed = Process(placement, tmp_path)
    killed.journal.record({consumer: request_of(HOST)}, OWNER)
    killed.kill()
    after = Process(placement, tmp_path, InstanceState.PENDING)
    wait_until(lambda: not len(after.orphans))
    late = {**request_of(HOST), **OWNER, "consumer_generation": None}
    assert not after.client.put_allocations(consumer, late).is_done
    assert not after.held(consumer)
    after.journal.close()


def test_file_is_kept_and_locked_while_threads_may_answer(
    placement: EmbeddedPlacementFixture, tmp_path: Path
) -> None:
    process = Process(placement, tmp_path)
    [note] = process.journal.record({_consumer(): request_of(HOST)}, OWNER).values()
    process.journal.close()
    other = Process(placement, tmp_path)
    assert not len(other.orphans)
    process.journal.resolve([note])
    for each in (process, other):
        each.journal.close()
    assert not _files(tmp_path)


def test_file_is_for_its_owner_only(
    placement: EmbeddedPlacementFixture, tmp_path: Path
) -> None:
    process = Process(placement, tmp_path / "a" / "b")
    assert stat.S_IMODE(os.stat(process.path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(process.folder).st_mode) == 0o700
    process.journal.close()


def test_large_file_is_rewritten_with_its_open_entries(
    placement: EmbeddedPlacementFixture,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(journals, "MAX_BYTES", 2000)
    process = Process(placement, tmp_path)
    under_way = _consumer()
    process.journal.record({under_way: request_of(HOST)}, OWNER)
    for _ in range(100):
        with process.journal.answer_on_return():
            process.journal.record({_consumer(): request_of(HOST)}, OWNER)
    [file] = _files(tmp_path)
    assert file == process.path
    assert file.stat().st_size < 3000
    left = [
        json.loads(line)["consumer"]
        for line in file.read_text().splitlines()
        if "consumer" in line
    ]
    assert left.count(under_way) == 1
    process.kill()
    after = Process(placement, tmp_path)
    assert len(after.orphans) == 1
    after.orphans.stop()
    after.journal.close()


def test_folder_that_cannot_be_used_is_reported(
    placement: EmbeddedPlacementFixture, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match=r"\[moorage\] claims_directory must"):
        Process(placement, tmp_path / "file")


def test_full_disk_forgets_all_rather_than_what_was_answered(
    placement: EmbeddedPlacementFixture,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    process = Process(placement, tmp_path)
    path = process.path

    def full(_fd: int, _data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with process.journal.track_answer() as answer:
        process.claim(consumer := _consumer())
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", full)
            answer.mark_sending()
        assert path.read_bytes() == b""
    assert "No space left on device" in caplog.text
    process.kill()
    after = Process(placement, tmp_path)
    assert not len(after.orphans)
    assert after.held(consumer)
    after.journal.close()


_GOOD = {
    "claim": 7,
    "consumer": "6c84fb90-12c4-11e1-840d-7b25c5ee775a",
    "allocations": {HOST: {"resources": {"VCPU": 1}}},
    "owner": OWNER,
}

#: Lines that no version of the scheduler has written, by what is wrong.
MALFORMED: dict[str, object] = {
    "no object": [1],
    "a number for a consumer": {**_GOOD, "consumer": 5},
    "a path for a consumer": {**_GOOD, "consumer": "../resource_providers"},
    "a list for a number": {**_GOOD, "claim": [1]},
    "a number for allocations": {**_GOOD, "allocations": 1},
    "a number for a provider's part": {**_GOOD, "allocations": {HOST: 1}},
    "a text for an amount": {
        **_GOOD,
        "allocations": {HOST: {"resources": {"VCPU": "1"}}},
    },
    "no owner": {name: value for name, value in _GOOD.items() if name != "owner"},
    "a number for the owner": {**_GOOD, "owner": 5},
    "a text for a generation": {**_GOOD, "granted": "1"},
    "a list for what it held": {**_GOOD, "before": [1]},
    "unknown fields of what it held": {**_GOOD, "before": {"x": 1}},
    "a text for settled": {"settled": "all"},
    "no JSON": None,
}


@pytest.mark.deep
@pytest.mark.parametrize("wrong", MALFORMED)
def test_malformed_line_is_set_aside_and_named(
    placement: EmbeddedPlacementFixture,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    wrong: str,
) -> None:
    before, after = _consumer(), _consumer()
    killed = Process(placement, tmp_path)
    killed.claim(before)
    content = MALFORMED[wrong]
    line = b"\xff{" if content is None else json.dumps(content).encode()
    line = line.replace(b'{"settled": ', b'{"settled":')
    n_before = killed.path.stat().st_size
    killed.claim(after)
    killed.kill()
    file = tmp_path / "claims-1-killed"
    whole = file.read_bytes()
    file.write_bytes(whole[:n_before] + line + b"\n" + whole[n_before:])
    next_one = Process(placement, tmp_path)
    wait_until(lambda: not next_one.held(after))
    assert next_one.held(before), "the malformed line may have settled it"
    [kept] = tmp_path.glob("malformed-*")
    assert kept.read_bytes() == line + b"\n"
    assert str(kept) in caplog.text
    if isinstance(content, dict) and content.get("consumer") == _GOOD["consumer"]:
        assert f"consumer {_GOOD['consumer']} holds" in caplog.text
    wait_until(lambda: len(next_one.orphans) == 1)
    next_one.orphans.stop()

    kept.unlink()
    again = Process(placement, tmp_path)
    assert not list(tmp_path.glob("malformed-*")), "it is set aside once"
    again.orphans.stop()


class RecordingOrphans:
    """Stands in for `Orphans`, and records its arguments."""

    def __init__(self) -> None:
        self.orphans: list[tuple[str, Orphan]] = []

    def add(self, consumer_uuid: str, orphan: Orphan) -> None:
        self.orphans.append((consumer_uuid, orphan))


def _of(orphan: Orphan) -> tuple[Claim, bool]:
    """Return the facts that must be known of an orphan after a kill."""
    return orphan.claim, orphan.is_watched


@given(
    data=st.data(),
    ends=st.lists(
        st.sampled_from(
            ["resolved", "kept", "again", "rewritten", "granted", "watched"]
        ),
        max_size=8,
    ),
)
def test_file_truncated_anywhere_keeps_its_open_entries(
    data: st.DataObject, ends: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A write that was cut off by a kill was not acted upon."""
    folder = tmp_path_factory.mktemp("journal")
    journal = Journal(RecordingOrphans())  # type: ignore[arg-type]  # it has what is called
    journal.open(folder)
    path = journal.path
    assert path is not None
    written: list[tuple[int, dict[str, Any]]] = [(0, {})]
    under_way: dict[str, Any] = {}

    def done(note: JournalEntry) -> None:
        survivor = copy.copy(note)
        survivor.survive(note.boot_id)
        under_way[note.consumer_uuid] = _of(journal.orphan_of(survivor))
        written.append((path.stat().st_size, dict(under_way)))

    before = ConsumerAllocations({OTHER: {"VCPU": 1}}, 1, "p", "u")
    for end in ends:
        consumer = _consumer()
        [note] = journal.record({consumer: request_of(HOST)}, OWNER).values()
        done(note)
        if end == "again":
            journal.record_retry(note, 3, before)
        elif end == "rewritten":
            journal.record_rewrite(note, 3, before)
        elif end == "granted":
            journal.record_grant(note, Claim(request_of(HOST), generation=5))
        elif end == "watched":
            late = Claim(
                request_of(HOST), generation=3, is_ours=True, is_in_flight=True
            )
            in_use = "1" * 32
            under_way[in_use] = _of(journal.watch(in_use, late, OWNER))
            written.append((path.stat().st_size, dict(under_way)))
        elif end == "resolved":
            journal.resolve([note])
            del under_way[consumer]
            written.append((path.stat().st_size, dict(under_way)))
            continue
        done(note)
    content = path.read_bytes()
    cut = data.draw(st.integers(0, len(content)))
    (folder / "claims-1-cut").write_bytes(content[:cut])
    expected = [left for size, left in written if size <= cut][-1]
    kept = RecordingOrphans()
    reader = Journal(kept)  # type: ignore[arg-type]  # it has what is called
    reader.open(folder)
    assert {uuid: _of(orphan) for uuid, orphan in kept.orphans} == expected
    for each in (journal, reader):
        each.close()
