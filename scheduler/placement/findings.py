# SPDX-License-Identifier: Apache-2.0
"""The result of diagnosing a query without candidates, and its text."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from .constraints import ConstraintKind


class Cause(enum.StrEnum):
    """Why there are no candidates."""

    #: There are candidates now.
    NONE = "none"
    #: Placement refuses the query: it does not know a trait or resource class.
    REFUSED = "refused"
    #: Placement has no resource providers.
    EMPTY = "empty"
    #: Some constraints alone leave no host.
    ALONE = "alone"
    #: Each constraint leaves hosts, but some of them together leave none.
    TOGETHER = "together"
    #: Hosts meet each constraint, but no set of their providers meets all at once.
    PROVIDERS = "providers"


@dataclass(frozen=True, slots=True)
class ConstraintFinding:
    """The effect of one constraint.

    Attributes
    ----------
    kind : ConstraintKind
    description : str
        The constraint as text.
    n_hosts : int
        Hosts that it alone leaves; at least this many if `is_truncated`.
    n_hosts_without : int or None
        Hosts that the other constraints leave together, at most; None: there are no
        others whose hosts are known.
    n_unknown : int
        Further trees that it leaves, whose root is not a host that the caller knows.
    is_shared : bool
        Whether a sharing provider meets it too, for hosts that were not counted.
    is_truncated : bool
        Whether there are more hosts than were read.
    """

    kind: ConstraintKind
    description: str
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
    """Why Placement has no allocation candidates for one query.

    Attributes
    ----------
    cause : Cause
    findings : tuple of ConstraintFinding
        One per constraint that was queried.
    culprits : tuple of ConstraintFinding
        ALONE: each of those that leave no host; TOGETHER: a minimal set of constraints
        that together leave none.
    refusal : str
        Placement's error text, if REFUSED.
    n_together : int or None
        Hosts that meet each constraint, if PROVIDERS; None: unknown.
    n_not_queried : int
        Constraints beyond `MAX_CONSTRAINTS`.
    """

    cause: Cause
    findings: tuple[ConstraintFinding, ...] = ()
    culprits: tuple[ConstraintFinding, ...] = ()
    refusal: str = ""
    n_together: int | None = None
    n_not_queried: int = 0

    def __str__(self) -> str:
        lines = [self._headline(), *(f"  {finding}" for finding in self.findings)]
        if self.n_not_queried:
            lines.append(f"  and {self.n_not_queried} more constraint(s), not queried")
        return "\n".join(lines)

    def _headline(self) -> str:
        culprits = "; ".join(finding.description for finding in self.culprits)
        n = "Some" if self.n_together is None else self.n_together
        return {
            Cause.NONE: "Placement has allocation candidates now; if the request still "
            "fails, its decision record shows which filter rejected the hosts.",
            Cause.REFUSED: f"Placement refuses the query: {self.refusal}",
            Cause.EMPTY: "Placement has no resource providers: no compute service has "
            "registered yet.",
            Cause.ALONE: f"No host meets any of: {culprits}",
            Cause.TOGETHER: f"No host meets these together: {culprits}",
            Cause.PROVIDERS: f"{n} host(s) may meet each constraint, but none has "
            "providers that meet all of them at once.",
        }[self.cause]


def _hosts(n_hosts: int) -> str:
    return {0: "no host", 1: "1 host"}.get(n_hosts, f"{n_hosts} hosts")
