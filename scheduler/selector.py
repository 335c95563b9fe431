# SPDX-License-Identifier: Apache-2.0
"""Selecting destinations: from a conductor's call to its answer and its record."""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Sequence
from typing import Any

from oslo_config import cfg

from ..objects import RequestSpec, UnsetField
from . import logs, tracing
from .drivers.claims.peer_claims import PeerClaim, PublishClaims
from .drivers.decision import Decision
from .drivers.parts import Parts
from .drivers.plugins import PluginSet
from .drivers.prepared import Caller
from .drivers.record import DecisionRecord
from .errors import InvalidRequest
from .notifications import Notifier
from .rpc.endpoints import Destinations

LOG = logging.getLogger(__name__)


class Selector:
    """Selects destinations, and counts the claims of other schedulers.

    Parameters
    ----------
    notifier : Notifier or None
        None: decisions are not published.

    Attributes
    ----------
    conf : oslo_config.cfg.ConfigOpts
        The options.
    parts : Parts
        The parts that decide. They are replaced as a whole, and each decision reads
        this attribute only once.
    """

    def __init__(
        self, conf: cfg.ConfigOpts, parts: Parts, notifier: Notifier | None
    ) -> None:
        self.conf = conf
        self.parts = parts
        self._notifier = notifier
        self._lock = threading.Lock()

    @property
    def publish_claims(self) -> PublishClaims | None:
        """Publishes claims to the other schedulers; see `moorage.scheduler.rpc.Peers`.

        None: claims are not published.
        """
        return self.parts.publish_claims

    @publish_claims.setter
    def publish_claims(self, publish: PublishClaims) -> None:
        self._replace_parts(publish_claims=publish)

    def use(self, plugins: PluginSet) -> None:
        """Decide with other plugins from now on.

        Running decisions finish with the previous plugins.
        """
        self._replace_parts(
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
            The number of the worker: 0 or more, another one in each process. With
            ``random_seed`` the same number gives the same answers.
        """
        rng = self.parts.rng.spawn(number + 1)[number]
        self._replace_parts(rng=rng, tie_seed=int(rng.integers(2**62)))

    def _replace_parts(self, **changes: Any) -> None:  # noqa: ANN401 - of any part
        # A thread that starts serving and one that reloads must not undo each other.
        with self._lock:
            self.parts = dataclasses.replace(self.parts, **changes)

    def select_destinations(
        self,
        context: object,
        spec_obj: RequestSpec,
        instance_uuids: Sequence[str] | None = None,
        return_objects: bool = False,
        return_alternates: bool = False,
    ) -> Destinations:
        """Select a host, and alternates, for each instance of a request.

        Parameters
        ----------
        context : mapping or object
            The request context: the dict of the wire, or nova's RequestContext.
        spec_obj : RequestSpec
            The request.
        instance_uuids : sequence of str, optional
            One UUID for each instance; None: the caller is an old conductor, which
            claims the resources itself.
        return_objects : bool
            Whether to return Selection objects; otherwise dicts with host, nodename
            and limits, without alternates.
        return_alternates : bool
            Whether to return alternates with each selected host.

        Returns
        -------
        list of list of Selection, or list of dict

        Raises
        ------
        NoValidHost
            At least one instance fits nowhere; no claim remains.
        InvalidRequest
            The request is malformed or contradictory.
        PlacementError
            Placement failed.
        """
        parts, caller = self.parts, Caller.of(context)
        uuids = tuple(instance_uuids or ())
        attributes: dict[str, tracing.AttributeValue] = {
            "openstack.request_id": caller.request_id or "",
            "openstack.project_id": caller.project_id or "",
            "moorage.instances": uuids,
        }
        with (
            logs.request(context, uuids),
            tracing.request("select_destinations", context, attributes),
            parts.journal.answer_on_return(),
        ):
            notifications = None
            if self._notifier is not None:
                notifications = self._notifier.for_call(context, spec_obj)
            record = DecisionRecord(
                request_id=caller.request_id,
                instance_uuids=uuids,
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
                return_alternates=return_objects and return_alternates,
            )
            try:
                with decision.concluding():
                    requirements = decision.query()
                    if notifications is not None:
                        notifications.start(requirements)
                    selections = decision.select()
            finally:
                parts.decisions.add(record)
            if notifications is not None:
                placement = decision.last_placement()
                notifications.end(instance_uuids, selections, placement)
            if return_objects:
                return selections
            return [
                instance_selections[0].to_dict() for instance_selections in selections
            ]

    def apply_peer_claims(self, claims: Sequence[dict[str, Any]]) -> None:
        """Count the claims of another scheduler; log and skip malformed ones."""
        parts = self.parts
        for claim in claims:
            try:
                peer = PeerClaim.from_wire(claim, self.conf)
            except (
                InvalidRequest, KeyError, TypeError, UnsetField, ValueError
            ) as e:  # fmt: skip
                LOG.warning(
                    "Skipping a claim of another scheduler that cannot be read: %r", e
                )
                continue
            peer.apply(parts.table, parts.candidates, parts.orphans, parts.clock())
