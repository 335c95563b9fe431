# SPDX-License-Identifier: Apache-2.0
"""What is found of a question that Placement has no candidates for, and its wording."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from .constraints import ConstraintKind


class Cause(enum.StrEnum):
    """Why there are no candidates."""

    #: There are some by now.
    NONE = "none"
    #: Placement finds the question wrong: it does not know a trait or class.
    REFUSED = "refused"
    #: Placement has no resource providers.
    EMPTY = "empty"
    #: Some constraints leave no host even alone.
    ALONE = "alone"
    #: Each constraint leaves hosts, some of them together none.
    TOGETHER = "together"
    #: Hosts meet each constraint, but not with providers that give all at once.
    PROVIDERS = "providers"


@dataclass(frozen=True, slots=True)
class ConstraintFinding:
    """What one constraint does.

    Attributes
    ----------
    kind : ConstraintKind
    words : str
        The constraint, for people.
    n_hosts : int
        Hosts that it alone leaves; at least so many where it `is_truncated`.
    n_hosts_without : int or None
        Hosts that the others leave together, at most; None: there are no others whose
        hosts are known.
    n_unknown : int
        Trees that it leaves beside these, whose root is no host that the caller knows.
    is_shared : bool
        Whether a sharing provider meets it, too: then for hosts that nobody counted.
    is_truncated : bool
        Whether there are more than were read.
    """

    kind: ConstraintKind
    words: str
    n_hosts: int
    n_hosts_without: int | None = None
    n_unknown: int = 0
    is_shared: bool = False
    is_truncated: bool = False

    def __str__(self) -> str:
        hosts = _hosts(self.n_hosts)
        text = f"{self.description}: {'at least ' if self.is_truncated else ''}{hosts}"
        if self.is_shared:
            text += " and those that share a provider"
        if self.n_unknown:
            text += f" and {self.n_unknown} that the scheduler does not know"
        if self.n_hosts_without is not None:
            at_most = "at most " if self.n_hosts_without else ""
            text += f"; without it {at_most}{_hosts(self.n_hosts_without)}"
        return text


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Why Placement has no allocation candidates for one question.

    Attributes
    ----------
    cause : Cause
    findings : tuple of ConstraintFinding
        One a constraint that was asked.
    culprits : tuple of ConstraintFinding
        ALONE: each of those that leave no host; TOGETHER: constraints that together
        leave none, while without any one of these the others of them leave some.
    refusal : str
        What Placement found wrong, where it is REFUSED.
    n_together : int or None
        Hosts that meet each constraint, where PROVIDERS is the cause; None: unknown.
    n_not_asked : int
        Constraints beyond the bound.
    """

    cause: Cause
    findings: tuple[ConstraintFinding, ...] = ()
    culprits: tuple[ConstraintFinding, ...] = ()
    refusal: str = ""
    n_together: int | None = None
    n_not_asked: int = 0

    def __str__(self) -> str:
        lines = [self._headline(), *(f"  {finding}" for finding in self.findings)]
        if self.n_not_asked:
            lines.append(f"  and {self.n_not_asked} more constraint(s), not asked")
        return "\n".join(lines)

    def _headline(self) -> str:
        culprits = "; ".join(finding.description for finding in self.culprits)
        n = "Some" if self.n_together is None else self.n_together
        return {
            Cause.NONE: "Placement has allocation candidates now; if the request fits "
            "nowhere, its decision record tells which filter says so.",
            Cause.REFUSED: f"Placement refuses the question: {self.refusal}",
            Cause.EMPTY: "Placement has no resource providers: no compute service has "
            "registered yet.",
            Cause.ALONE: f"No host is left even alone by: {culprits}",
            Cause.TOGETHER: f"No host is left by these together: {culprits}",
            Cause.PROVIDERS: f"{n} host(s) may meet each constraint, but none has "
            "providers that give all of it at once.",
        }[self.cause]


def _hosts(n_hosts: int) -> str:
    return {0: "no host", 1: "1 host"}.get(n_hosts, f"{n_hosts} hosts")
