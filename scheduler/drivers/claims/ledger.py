# SPDX-License-Identifier: Apache-2.0
"""A decision's own ledger of allocation candidates: refused, reserved, available."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from ...candidates import (
    MICROVERSION,
    AllocationRequest,
    DecisionOffer,
    resources_of,
)
from ...placement.answers import ConsumerAllocations


class Ledger:
    """Tracks which candidates of a host are still available to a request.

    Candidates of one answer compete: what an earlier instance of the request reserves
    of a provider is not available to the later ones.

    Attributes
    ----------
    offer : DecisionOffer
        What Placement offers, less what was claimed or refused since the query.
    """

    def __init__(self, offer: DecisionOffer) -> None:
        self.offer = offer
        self._refused: set[int] = set()
        self._reserved: Counter[tuple[str, str]] = Counter()

    def next_candidate(
        self, node_uuid: str, among: Sequence[int] | None = None
    ) -> int | None:
        """Return the first candidate of a host that may still be granted.

        Parameters
        ----------
        among : sequence of int, optional
            The host's candidates that passed the filters; None: all of them.
        """
        if among is None:
            among = self.candidates_of(node_uuid)
        for index in among:
            if self.is_open(index) and self._fits(index):
                return index
        return None

    def is_open(self, index: int) -> bool:
        """Return whether a candidate was offered, and neither claimed nor refused."""
        return index not in self._refused and self.offer.may_claim(index)

    def free(self, provider: str, name: str) -> int:
        """Return what a provider has left of a class, less what is reserved."""
        return self.offer.free(provider, name) - self._reserved[provider, name]

    def _fits(self, index: int) -> bool:
        if not self._reserved:
            return True  # otherwise it would not be open
        return all(
            self.free(provider, name) >= amount
            for provider, resources in self.resources_of(index).items()
            for name, amount in resources.items()
        )

    def candidates_of(self, node_uuid: str) -> Sequence[int]:
        """Return all candidates of a host, including those no longer available."""
        return self.offer.numbers_of(node_uuid)

    def candidate_held_by(
        self, held: ConsumerAllocations, *, excluding: AbstractSet[str] = frozenset()
    ) -> int | None:
        """Return the candidate that equals a consumer's allocations, if there is one.

        Parameters
        ----------
        excluding : set of str, optional
            Root providers of hosts on which it may hold other resources (evacuation).
        """
        found = map(self.offer.root_of, held.resources)
        roots = {root for root in found if root is not None} - excluding
        numbers = (n for root in roots for n in self.candidates_of(root))
        is_it = (
            self._is_part_of if excluding & held.resources.keys() else self._is_all_of
        )
        return next((n for n in numbers if is_it(n, held)), None)

    def _is_all_of(self, index: int, held: ConsumerAllocations) -> bool:
        return held.matches(self.request(index))

    def _is_part_of(self, index: int, held: ConsumerAllocations) -> bool:
        parts = self.resources_of(index).items()
        return all(held.resources.get(uuid) == part for uuid, part in parts)

    def request(self, index: int) -> AllocationRequest:
        """Return a candidate as Placement returned it."""
        return self.offer.request(index)

    def resources_of(self, index: int) -> Mapping[str, Mapping[str, int]]:
        """Return a candidate's resources: {provider UUID: {resource class: amount}}."""
        return resources_of(self.request(index))

    def mappings_of(self, index: int) -> Mapping[str, Sequence[str]]:
        """Return a candidate's providers by request group."""
        mappings: Mapping[str, Sequence[str]] = self.request(index)["mappings"]
        return mappings

    def reserve(self, index: int) -> None:
        """Reserve a candidate's resources."""
        self._count(index, 1)

    def release(self, index: int) -> None:
        """Release a candidate's resources."""
        self._count(index, -1)

    def _count(self, index: int, sign: int) -> None:
        for provider, resources in self.resources_of(index).items():
            for name, amount in resources.items():
                self._reserved[provider, name] += sign * amount

    def mark_refused(self, index: int) -> None:
        """Exclude a candidate from now on: Placement refused it."""
        self._refused.add(index)

    def refuse_all(self, node_uuid: str) -> None:
        """Never name a candidate of this host again."""
        self._refused.update(self.candidates_of(node_uuid))

    @property
    def version(self) -> str:
        """The microversion to claim the candidates with."""
        return MICROVERSION
