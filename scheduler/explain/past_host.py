# SPDX-License-Identifier: Apache-2.0
"""A host at the time of a stored decision: its checks, its rank and its weight."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any, Self

from ...objects import RequestSpec
from ..drivers.claims.recorded import RecordedClaims
from ..drivers.record import DecisionRecord, InstanceRecord, ReplayKey, WeighedHost
from ..views import OfflineParts
from .explainer import Explainer
from .funnel import funnel
from .reasons import HostVerdict
from .replay import repeat_decision


@dataclasses.dataclass(frozen=True, slots=True)
class HostRank:
    """A compute node among the hosts that passed all filters, for the first instance.

    Attributes
    ----------
    rank : int
        From 1 for the host with the highest weight.
    parts : dict of str to (float, float)
        By weigher: its part of this host's weight and of the selected host's weight, if
        the two parts differ.
    """

    node: str
    rank: int
    weight: float
    is_selected: bool
    parts: dict[str, tuple[float, float]]


@dataclasses.dataclass(frozen=True, slots=True)
class PastHost:
    """A host at the time of a decision.

    Attributes
    ----------
    at : float
        When the decision was made, seconds since the epoch.
    nodes : tuple of HostVerdict
        The verdicts on its compute nodes then; empty: the decision has no stored view.
    n_ranked : int
        Hosts that passed all filters for the first instance.
    ranks : tuple of HostRank
        The compute nodes of the host that passed. Without a view, only those that are
        among the best hosts in the record.
    selected : str
        The host of the first instance; empty: no host was found.
    is_whole : bool
        Whether all ranks are known, from a view.
    """

    at: float
    nodes: tuple[HostVerdict, ...]
    n_ranked: int
    ranks: tuple[HostRank, ...]
    selected: str
    is_whole: bool

    @classmethod
    def of_record(cls, record: DecisionRecord, host: str) -> Self:
        """Return what the record of a decision says about a host or compute node."""
        first_instance = record.instances[0] if record.instances else None
        passed = [step.n_out for step in funnel(record) if step.instance == 1]
        return cls(
            record.started_at,
            (),
            passed[-1] if passed and first_instance else 0,
            () if first_instance is None else tuple(_ranks(first_instance, host)),
            "" if first_instance is None else first_instance.host,
            False,
        )

    @classmethod
    def of_view(
        cls,
        offline: OfflineParts,
        key: ReplayKey,
        record: DecisionRecord,
        spec_obj: RequestSpec,
        host: str,
    ) -> Self:
        """Return the verdicts and ranks of a host on the view of a decision.

        Raises
        ------
        UnknownHost
            The view has no such host.
        UnreadableView
            Plugins of the decision are missing, as a view may not import code.
        """
        context = {"request_id": record.request_id, "project_id": record.project_id}
        offline.now = key.at
        explainer = Explainer(lambda: offline.parts, offline.providers)
        nodes = explainer.why_not(context, copy.deepcopy(spec_obj), host)
        repeated = repeat_decision(
            offline,
            key,
            record,
            copy.deepcopy(spec_obj),
            RecordedClaims(record.claims[key.n_claims :]),
            n_top_hosts=len(offline.parts.table),
        )
        first_instance = repeated.instances[0] if repeated.instances else None
        return cls(
            record.started_at,
            tuple(nodes),
            0 if first_instance is None else len(first_instance.top_hosts),
            () if first_instance is None else tuple(_ranks(first_instance, host)),
            "" if first_instance is None else first_instance.host,
            True,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain data that JSON can hold."""
        ranks = [dataclasses.asdict(rank) for rank in self.ranks]
        nodes = [verdict.to_dict() for verdict in self.nodes]
        fields = ("at", "n_ranked", "selected", "is_whole")
        return {
            **{name: getattr(self, name) for name in fields},
            "nodes": nodes,
            "ranks": ranks,
        }


def _ranks(instance: InstanceRecord, host: str) -> list[HostRank]:
    ranked_hosts = instance.top_hosts
    selected = next((ranked for ranked in ranked_hosts if instance.is_on(ranked)), None)
    return [
        HostRank(
            ranked.node,
            rank,
            ranked.weight,
            ranked is selected,
            {} if selected is None else _differing_parts(ranked, selected),
        )
        for rank, ranked in enumerate(ranked_hosts, 1)
        if host in (ranked.host, ranked.node)
    ]


def _differing_parts(
    host: WeighedHost, selected: WeighedHost
) -> dict[str, tuple[float, float]]:
    selected_parts = {part.name: part.weighted for part in selected.parts}
    return {
        part.name: (part.weighted, selected_parts[part.name])
        for part in host.parts
        if part.weighted != selected_parts.get(part.name, part.weighted)
    }
