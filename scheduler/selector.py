# SPDX-License-Identifier: Apache-2.0
"""Selecting destinations: from a conductor's call to its answer and its record."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from oslo_config import cfg

from ..objects import RequestSpec, Selection
from . import logs, tracing
from .drivers.claims.peer_claims import ClaimState, PeerClaim, PublishClaims
from .drivers.decision import Decision
from .drivers.parts import Parts
from .drivers.plugins import PluginSet
from .drivers.prepared import Caller
from .drivers.record import DecisionRecord
from .notifications import CallNotifications, Notifier
from .rpc.endpoints import Destinations

LOG = logging.getLogger(__name__)


class Selector:
    """Selects destinations, and counts the claims of other schedulers.

    Parameters
    ----------
    conf : oslo_config.cfg.ConfigOpts
        For the claims of other schedulers.
    parts : Parts
        A decision reads them once: they are replaced as a whole.

    Attributes
    ----------
    publish_claims : callable
        Publishes claims to the other schedulers; see `moorage.scheduler.rpc.Peers`.
    """

    def __init__(self, conf: cfg.ConfigOpts, parts: Parts, notifier: Notifier) -> None:
        self._conf = conf
        self._notifier = notifier
        self.publish_claims: PublishClaims = parts.publish_claims
        self._parts = dataclasses.replace(parts, publish_claims=self._publish)

    def _publish(self, claims: Sequence[PeerClaim]) -> None:
        self.publish_claims(claims)

    @property
    def parts(self) -> Parts:
        """The current parts."""
        return self._parts

    def use(self, plugins: PluginSet) -> None:
        """Decide with other plugins from now on.

        Running decisions finish with the old ones.
        """
        self._parts = dataclasses.replace(
            self._parts,
            conf=plugins.conf,
            driver=plugins.driver,
            prefilters=plugins.prefilters,
            filters=plugins.filters,
            weighers=plugins.weighers,
        )

    def reseed_for_worker(self, number: int) -> None:
        """Use other tie breakers and retry delays than the parent process.

        Parameters
        ----------
        number : int
            0 or more, unique in each process. With ``random_seed`` the same number
            gives the same answers.
        """
        rng = self._parts.rng.spawn(number + 1)[number]
        self._parts = dataclasses.replace(
            self._parts, rng=rng, tie_seed=int(rng.integers(2**62))
        )

    def select_destinations(
        self,
        context: object,
        spec_obj: RequestSpec,
        instance_uuids: Sequence[str] | None,
        return_objects: bool,
        return_alternates: bool,
    ) -> Destinations:
        """Select hosts; see `Scheduler.select_destinations`."""
        uuids = tuple(instance_uuids or ())
        caller = Caller.of(context)

        def attributes() -> Mapping[str, tracing.AttributeValue]:
            return {
                "openstack.request_id": caller.request_id or "",
                "openstack.project_id": caller.project_id or "",
                "moorage.instances": uuids,
            }

        with (
            logs.request(context, uuids),
            tracing.request("select_destinations", context, attributes),
            self._parts.journal.answer_on_return(),
        ):
            selections = self._decide(
                caller,
                spec_obj,
                instance_uuids,
                return_objects and return_alternates,
                self._notifier.for_call(context, spec_obj),
            )
            if return_objects:
                return selections
            return [mine[0].to_dict() for mine in selections]

    def _decide(
        self,
        caller: Caller,
        spec_obj: RequestSpec,
        instance_uuids: Sequence[str] | None,
        return_alternates: bool,
        notifications: CallNotifications | None,
    ) -> list[list[Selection]]:
        """Decide a request, record the decision, and notify of its start and end."""
        parts = self._parts
        record = DecisionRecord(
            request_id=caller.request_id,
            instance_uuids=tuple(instance_uuids or ()),
            # A request that cannot be read may not have a number of instances.
            n_instances=len(instance_uuids or (None,)),
            started_at=parts.clock(),
            project_id=caller.project_id,
            n_known_hosts=len(parts.table),
            request=spec_obj,
        )
        decision = Decision(
            parts,
            caller,
            spec_obj,
            instance_uuids,
            record,
            return_alternates=return_alternates,
        )
        try:
            with decision.concluding():
                requirements = decision.query()
                if notifications is not None:
                    notifications.start(requirements)
                selections = decision.select()
        finally:
            decision.record_view()
            parts.decisions.add(record)
        if notifications is not None:
            placement = decision.last_placement()
            notifications.end(instance_uuids, selections, placement)
        return selections

    def apply_peer_claims(self, claims: Sequence[dict[str, Any]]) -> None:
        """Count the claims of another scheduler; log and skip malformed ones."""
        parts = self._parts
        for claim in claims:
            try:
                peer = PeerClaim.from_wire(claim, self._conf)
            except (KeyError, TypeError, ValueError) as e:
                LOG.warning(
                    "Skipping a claim of another scheduler that cannot be read: %r", e
                )
                continue
            if peer.state is ClaimState.WITHDRAWN:
                parts.table.claims.withdraw(peer.node_uuid, peer.instance_uuid)
                continue
            if peer.state is ClaimState.GRANTED:
                age_s = max(0.0, parts.clock() - peer.claimed_at)
                parts.candidates.count_claim([peer.allocation_request], age_s=age_s)
                parts.orphans.forget_claimed([peer.instance_uuid])
            parts.table.claims.consume(
                peer.node_uuid,
                peer.instance_uuid,
                peer.consumption,
                peer.claimed_at,
                is_reserved=peer.state is ClaimState.RESERVED,
            )
