# SPDX-License-Identifier: Apache-2.0
"""Break one rule of the product at a time, and show that seeds find each.

python -m tests.simulation.mutations             all; as many at once as there are cores
python -m tests.simulation.mutations NAME …      some of them

A line has the first seed that fails, after how many seconds of processor time, and why.
The first ones are those that have failed once, which the deep tests run each time.
Each mutation runs in a process of its own, in which one piece of a module's text is
replaced as the module is imported. Nothing on the disk changes.
"""

from __future__ import annotations

import importlib
import itertools
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final

#: Seconds of processor time within which seeds have to find a mutation.
_LIMIT_S: Final = float(os.environ.get("MOORAGE_MUTATION_SECONDS", "120"))
_CHILD: Final = "--run"
_ALLOCATIONS: Final = "moorage.scheduler.placement.allocations"
_CLAIMS: Final = "moorage.scheduler.drivers.claims"


@dataclass(frozen=True, slots=True)
class Mutation:
    """One rule of the product that is broken.

    Attributes
    ----------
    rule : str
        What holds without the mutation.
    module : str
    old, new : str
        The text of the module that is replaced, which it has once, and the text in its
        place.
    """

    name: str
    rule: str
    module: str
    old: str
    new: str

    def applied(self, source: str) -> str:
        """Return the text of a module with the rule broken.

        Raises
        ------
        ValueError
            The module has the text never, or several times.
        """
        if source.count(self.old) != 1:
            raise ValueError(
                f"{self.module} has {self.old!r} {source.count(self.old)} times: "
                f"correct the mutation {self.name}"
            )
        return source.replace(self.old, self.new)


MUTATIONS: Final = (
    Mutation(
        "final-at-any-generation",
        "an allocation in use is at an odd generation",
        f"{_ALLOCATIONS}.engine",
        "self.n_done and generation % 2 == 1 and generation >= lowest_final",
        "self.n_done and generation >= lowest_final",
    ),
    Mutation(
        "release-at-any-generation",
        "a release is sent at an even generation only",
        f"{_ALLOCATIONS}.releases",
        "self.removes = is_even or not self.may_bump",
        "self.removes = True",
    ),
    Mutation(
        "found-claim-not-rewritten",
        "a claim that is found is written again before it is answered",
        f"{_ALLOCATIONS}.engine",
        "if not self.n_done and not self.takes_over:",
        "if not self.n_done:",
    ),
    Mutation(
        "release-of-a-claim-taken-over",
        "a claim that another request has taken over is not released",
        f"{_ALLOCATIONS}.claims",
        "return generation == self.generation or is_next",
        "return True",
    ),
    Mutation(
        "unanswered-writes-forgotten",
        "a write without an answer is watched for",
        f"{_ALLOCATIONS}.engine",
        "if e.is_in_flight:",
        "if False:",
    ),
    Mutation(
        "lost-answer-is-a-refusal",
        "a write without an answer is in doubt until the consumer is read",
        f"{_ALLOCATIONS}.engine",
        "                self._mark_in_doubt()\n                if",
        "                raise\n                if",
    ),
    Mutation(
        "no-fence",
        "late copies of a refused write are refused",
        f"{_ALLOCATIONS}.engine",
        "if self.unanswered and not is_done:",
        "if False:",
    ),
    Mutation(
        "release-without-evidence",
        "an allocation of unknown ownership is released with evidence only",
        f"{_ALLOCATIONS}.orphans",
        "if not is_ours and state not in _NOT_IN_USE:",
        "if False:",
    ),
    Mutation(
        "evidence-outlives-a-lost-answer",
        "a release by evidence that gets no answer is begun again with new evidence",
        f"{_ALLOCATIONS}.releases",
        "continues_in_doubt=claimed.is_ours",
        "continues_in_doubt=True",
    ),
    Mutation(
        "evidence-outlives-a-slow-write",
        "a release by evidence reads it again once the generation is even",
        f"{_ALLOCATIONS}.orphans",
        "return claim.is_ours or self._location(uuid, orphan).state is evidence",
        "return True",
    ),
    Mutation(
        "answers-settle-other-claims",
        "an answer leaves orphans of other claims of its instance alone",
        f"{_ALLOCATIONS}.orphans",
        "if resources_of(orphan.claim.request) != resources:",
        "if False:",
    ),
    Mutation(
        "beginnings-of-releases-not-recorded",
        "a record says that a release by evidence has begun",
        f"{_ALLOCATIONS}.orphans",
        "                orphan.on_rewrite(generation)\n",
        "",
    ),
    Mutation(
        "late-writes-not-watched",
        "a late write is watched for ten minutes",
        f"{_ALLOCATIONS}.orphans",
        "return self._age_s(orphan) >= LATE_WRITE_S",
        "return True",
    ),
    Mutation(
        "late-writes-forgotten-at-a-stop",
        "the next start watches for the late writes of a scheduler that was stopped",
        f"{_ALLOCATIONS}.orphans",
        "                if not orphan.is_watched and orphan in self._orphans_of(uuid)"
        ":\n",
        "                if orphan.is_watched:\n"
        "                    self._resolve(uuid, orphan)\n"
        "                elif orphan in self._orphans_of(uuid):\n",
    ),
    Mutation(
        "claims-of-unsent-answers-kept",
        "the claims of an answer that the broker did not take are released",
        f"{_ALLOCATIONS}.journal",
        "            if entries and not answer.is_sent:\n",
        "            if False:\n",
    ),
    Mutation(
        "damaged-line-proves-grants",
        "before a damaged line, no record proves that a claim is not in use",
        f"{_ALLOCATIONS}.journal_entry",
        "                entry.doubt_grant()\n",
        "                pass\n",
    ),
    Mutation(
        "suspicions-not-recorded",
        "a suspected orphan is listed",
        f"{_ALLOCATIONS}.journal",
        "        entry.is_suspected = True\n",
        "",
    ),
    Mutation(
        "late-writes-of-answers-not-watched",
        "an answered claim is watched for writes that arrive late",
        f"{_CLAIMS}.placement_backend",
        "            if claimed.is_in_flight:\n",
        "            if False:\n",
    ),
    Mutation(
        "released-claims-not-watched",
        "a released claim is watched for writes that arrive late",
        f"{_CLAIMS}.placement_backend",
        "if released.is_in_flight or not was_held:",
        "if False:",
    ),
    Mutation(
        "failed-request-keeps-its-claims",
        "the claims of a request that failed are released",
        f"{_CLAIMS}.placement_backend",
        "                    self.release(uuid)\n                except",
        "                    del self._claimed[uuid]\n"
        "                    self._remove_from_journal([uuid])\n                except",
    ),
    Mutation(
        "claims-not-recorded",
        "a claim is recorded before it is sent",
        f"{_ALLOCATIONS}.journal",
        "        self.write(entries.values())\n        if (answer",
        "        if (answer",
    ),
    Mutation(
        "answers-not-recorded",
        "a record says that an answer is about to be sent",
        f"{_ALLOCATIONS}.journal",
        "self.journal.resolve(self.entries.values(), keep_in_answer=True)",
        "pass",
    ),
    Mutation(
        "journals-not-taken-over",
        "the journal of a killed process is taken over",
        f"{_ALLOCATIONS}.journal",
        "                    self._take_over(path)",
        "                    pass",
    ),
    Mutation(
        "journals-of-running-processes-taken-over",
        "the journal of a process that runs is left alone",
        f"{_ALLOCATIONS}.journal",
        "if not try_lock(fd, path):",
        "if False:",
    ),
    Mutation(
        "torn-line-is-malformed",
        "an incomplete last line of a journal is not read",
        f"{_ALLOCATIONS}.journal_entry",
        'content.split(b"\\n")[:-1]',
        'content.split(b"\\n")',
    ),
    Mutation(
        "grants-survive-a-crash",
        "after a crash of the machine, no record proves that a claim is not in use",
        f"{_ALLOCATIONS}.journal_entry",
        "if not boot_id or self.boot_id != boot_id:",
        "if False:",
    ),
    Mutation(
        "releases-of-killed-processes-forgotten",
        "a write of a release that a killed process had begun is watched for",
        f"{_ALLOCATIONS}.journal_entry",
        "            self.is_in_flight = True\n",
        "            pass\n",
    ),
    Mutation(
        "granted-claims-outlive-later-ones",
        "once a later claim of an instance is released, an earlier one is not ours",
        f"{_ALLOCATIONS}.orphans",
        "if other.claim is claim and not claim.is_still_ours(generation):",
        "if False:",
    ),
    Mutation(
        "granted-claims-outlive-repeated-requests",
        "a repeated request's claim is final above that of the first, which still runs",
        f"{_ALLOCATIONS}.orphans",
        "                    if (claim := claims.get(uuid))\n",
        "                    if False and (claim := claims.get(uuid))\n",
    ),
    Mutation(
        "instances-that-leave-use-what-is-held",
        "an orphan is watched on while its instance may be leaving the host",
        f"{_ALLOCATIONS}.orphans",
        "orphan.is_watched = claim.is_in_flight or not location.is_settled",
        "orphan.is_watched = claim.is_in_flight",
    ),
    Mutation(
        "added-beside-others-forgotten",
        "what was added to a claim is recognized beside what others have added since",
        f"{_ALLOCATIONS}.claims",
        '        added = self.request["allocations"].keys()\n        kept = {',
        '        added = self.request["allocations"].keys()\n'
        "        if held.resources.keys() - added - self.before.resources.keys():\n"
        "            return None\n        kept = {",
    ),
    Mutation(
        "own-earlier-claims-followed",
        "no instance follows what an earlier request had claimed for its own ones",
        f"{_CLAIMS}.levels",
        "self._own = dict.fromkeys(prepared.instance_uuids, frozenset[str]())",
        "self._own = dict[str, frozenset[str]]()",
    ),
    Mutation(
        "writes-of-running-requests-unknown",
        "a new claim is final above the late writes of requests that still wait",
        f"{_ALLOCATIONS}.orphans",
        "in_flight = [*self._being_written.get(uuid, ())]",
        "in_flight = list[int]()",
    ),
    Mutation(
        "ended-evacuation-hides-what-was-added",
        "what was added is still released once the evacuated host was removed",
        f"{_ALLOCATIONS}.orphans",
        "if not is_released and claim.as_held(held) is not None:",
        "if not is_released and held.matches(claim.combined_request):",
    ),
    Mutation(
        "earlier-claim-kept-beside-a-later-one",
        "a repeated request keeps a claim only beside those that were made later",
        f"{_CLAIMS}.checks",
        ", beside_all=True)",
        ")",
    ),
    Mutation(
        "claims-at-lower-generations-are-ours",
        "a claim at a lower generation than ours is another request's",
        f"{_ALLOCATIONS}.claims",
        "return generation == self.generation or is_next",
        "return generation <= (self.generation or 0) or is_next",
    ),
    Mutation(
        "partial-writes-not-noticed",
        "a journal on a full disk is emptied, and written anew later",
        f"{_ALLOCATIONS}.journal_file",
        "if n_written < len(lines):",
        "if False:",
    ),
    Mutation(
        "groups-not-checked-after-the-claim",
        "the policy of a server group holds after concurrent claims",
        f"{_CLAIMS}.groups",
        "if self._may_keep(assignment):",
        "if True:",
    ),
    Mutation(
        "places-not-checked-after-the-claim",
        "rules about places hold after concurrent claims",
        f"{_CLAIMS}.levels",
        "        if not self._unreported:\n            return None\n        uuid",
        "        if True:\n            return None\n        uuid",
    ),
    Mutation(
        "late-writes-of-grants-forgotten",
        "a record says that a write of a granted claim may arrive late",
        f"{_ALLOCATIONS}.journal",
        "entry.is_watched or entry.is_in_flight,",
        "entry.is_watched,",
    ),
    Mutation(
        "rest-of-an-evacuation-forgotten",
        "a claim is released although the evacuated host was removed since",
        f"{_ALLOCATIONS}.orphans",
        "claim = orphan.claim.as_held(held)",
        "claim = (\n            orphan.claim\n"
        "            if held.matches(orphan.claim.combined_request)\n"
        "            else None\n        )",
    ),
    Mutation(
        "evacuated-host-released",
        "the release of a claim keeps what the instance held before it",
        f"{_ALLOCATIONS}.claims",
        "return (self.before or NOTHING).request",
        "return NOTHING.request",
    ),
    Mutation(
        "moved-instance-holds-nothing-else",
        "the claim for an evacuation is added to what the instance holds",
        f"{_ALLOCATIONS}.claims",
        "DesiredAllocations(combine_allocations(consumer, request), self.owner)",
        "DesiredAllocations(request, self.owner)",
    ),
    Mutation(
        "devices-not-reserved",
        "a PCI device is reserved before a claim is sent",
        f"{_CLAIMS}.checks",
        "if host in table.instances.hosts_of(uuid):",
        "if True:",
    ),
    Mutation(
        "found-claims-not-checked",
        "a claim that is found is checked against later reservations",
        f"{_CLAIMS}.checks",
        "        if reserved is None or not reserved.has_fitted:",
        "        if answer.is_found or reserved is None or not reserved.has_fitted:",
    ),
    Mutation(
        "candidates-not-checked-again",
        "traits of a host are read again before a claim by a cached candidate",
        f"{_CLAIMS}.checks",
        'if self._providers.still_fits(answer, number, host["uuid"]):',
        "if True:",
    ),
    Mutation(
        "claims-counted-after-reports",
        "a claim is not counted any more once a report includes it",
        "moorage.scheduler.hosts.claims",
        "for uuid in self._claims_on(node_uuid).keys() & set(reported):",
        "for uuid in self._claims_on(node_uuid).keys() & set():",
    ),
    Mutation(
        "late-beginnings-of-moves",
        "a late copy of a move's beginning is refused once the move has begun",
        "moorage.conductor.moves",
        "            marker_uuid: DesiredAllocations.empty(instance, _MIGRATION),\n",
        "",
    ),
    Mutation(
        "unconfirmed-claims-are-ours",
        "what another request may have claimed by the same write is not our claim",
        "moorage.scheduler.placement.allocations.engine",
        "            self.is_found = True\n            for uuid in self.wanted:",
        "            for uuid in self.wanted:",
    ),
)


class _MutatedLoader(SourceFileLoader):
    """Load one module with a mutation."""

    def __init__(self, mutation: Mutation, path: str) -> None:
        super().__init__(mutation.module, path)
        self._mutation = mutation

    def get_code(self, fullname: str) -> CodeType:
        """Return the code of the mutated text; no compiled file is read."""
        source = self._mutation.applied(Path(self.path).read_text())
        code: CodeType = compile(source, self.path, "exec", dont_inherit=True)
        return code


class _MutatedFinder:
    """Find the module of a mutation before others do."""

    def __init__(self, mutation: Mutation) -> None:
        self._mutation = mutation

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Return the specification of the module, with its own loader."""
        if fullname != self._mutation.module:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = _MutatedLoader(self._mutation, spec.origin)
        return spec


def find(mutation: Mutation, limit_s: float) -> str:
    """Run seeds in this process, which is mutated for good; return what fails first.

    Returns
    -------
    str
        "": no seed has failed within `limit_s` seconds of processor time.
    """
    sys.meta_path.insert(0, _MutatedFinder(mutation))
    # After the finder is there: both import the module of the mutation.
    simulation: Any = importlib.import_module(".simulation", __package__)
    model: Any = importlib.import_module("..fixtures.placement_model", __package__)
    began = time.process_time()
    for seed in itertools.chain(simulation.failed_seeds(), itertools.count()):
        if time.process_time() - began > limit_s:
            break
        with tempfile.TemporaryDirectory() as folder:
            outcome = simulation.simulate(seed, model.PlacementModel(), Path(folder))
        if outcome.violations:
            elapsed_s = time.process_time() - began
            return f"seed {seed}, {elapsed_s:.0f} s: {outcome.violations[0]}"
    return ""


def _find_in_process(mutation: Mutation) -> str:
    """Run `find` in a process of its own, and print its result."""
    done = subprocess.run(
        [sys.executable, "-m", __spec__.name, _CHILD, mutation.name],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{mutation.name} cannot be run: {done.stderr[-2000:]}")
    found = done.stdout.strip()
    print(f"{mutation.name:42} {found or 'NOT FOUND'}", flush=True)
    return found


def main(arguments: Sequence[str]) -> int:
    """Find the named mutations, or all; return how many are not found."""
    by_name = {each.name: each for each in MUTATIONS}
    if arguments[:1] == [_CHILD]:
        logging.getLogger("moorage").addHandler(logging.NullHandler())
        print(find(by_name[arguments[1]], _LIMIT_S))
        return 0
    if unknown := set(arguments) - by_name.keys():
        print(f"no such mutation: {', '.join(unknown)}; one of {', '.join(by_name)}")
        return 2
    chosen = [by_name[name] for name in arguments] or list(MUTATIONS)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(_find_in_process, chosen))
    print(f"{sum(map(bool, found))} of {len(found)} found within {_LIMIT_S:.0f} s each")
    return found.count("")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
