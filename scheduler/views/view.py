# SPDX-License-Identifier: Apache-2.0
"""A view: captured without copies, written as bytes, and read again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Self

from oslo_config import cfg

from ... import __version__
from ..candidates import CandidatesQuery, Offer
from ..drivers.parts import Parts
from ..hosts import Columns, HostTable, TableImage
from ..placement.cache import CachedOffer
from ..placement.memory import TableOffer
from ..placement.providers import ProviderView
from ..sources.report_columns import load_columns
from .frames import Frame, UnreadableView, checked, read_frames, write_frames
from .options import OptionValues, set_options
from .stored_hosts import HostsReader, frames_of_hosts
from .stored_offers import OffersReader, empty_offer, frames_of_offers
from .stored_providers import ProvidersReader, frames_of_providers

_HEADER: Final = "view"


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class CapturedView:
    """The state of a scheduler at one revision; it does not change.

    Attributes
    ----------
    at : float
        Seconds since the epoch.
    providers : ProviderView or None
        None: they are not in memory, and `offers` is all that is known of Placement.
    are_zones_checked : bool
    unknowns : sequence of str
        As the source of hosts says then.
    offers : sequence of CachedOffer
        The answers that one decision read.
    """

    image: TableImage
    columns: Columns
    at: float
    tie_seed: int
    conf: cfg.ConfigOpts
    are_zones_checked: bool
    unknowns: Sequence[str]
    providers: ProviderView | None
    offers: Sequence[CachedOffer] = ()

    @classmethod
    def of(
        cls,
        parts: Parts,
        *,
        offer: Offer | None = None,
        unanswered: Sequence[CandidatesQuery] = (),
    ) -> Self:
        """Return the state now, with the candidates that a decision read.

        Parameters
        ----------
        offer : Offer, optional
            None: it read none, or those of memory are captured as they are now.
        unanswered : sequence of CandidatesQuery
            Those for which Placement had no candidate.
        """
        read = () if offer is None else offer.offers
        cached = [each for each in read if isinstance(each, CachedOffer)]
        providers = parts.candidates.provider_view()
        states = [each.state for each in read if isinstance(each, TableOffer)]
        if providers is not None and states:
            providers = dataclasses.replace(providers, state=states[-1])
        if providers is None:
            cached += [empty_offer(query) for query in unanswered]
        return cls(
            parts.table.image(),
            parts.table.columns,
            parts.clock(),
            parts.tie_seed,
            parts.conf,
            parts.source.are_zones_checked,
            tuple(parts.source.unknowns()),
            providers,
            cached,
        )

    def encode(self) -> bytes:
        """Return the view as bytes: some 100 ms of work for 10,000 hosts."""
        return write_frames(self._frames())

    def _frames(self) -> Iterator[Frame]:
        header = {
            "at": self.at,
            "tie_seed": self.tie_seed,
            "options": set_options(self.conf),
            "are_zones_checked": self.are_zones_checked,
            "unknowns": list(self.unknowns),
            "moorage": __version__,
        }
        yield Frame(_HEADER, "", header)
        yield from frames_of_hosts(self.image, self.columns)
        if self.providers is not None:
            yield from frames_of_providers(self.providers)
        yield from frames_of_offers(self.offers)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class StoredView:
    """A view that was read.

    Attributes
    ----------
    options : mapping
        Values by group and option, for `apply_options`.
    are_zones_checked : bool
    unknowns : sequence of str
        As the source of hosts said then.
    """

    at: float
    tie_seed: int
    options: OptionValues
    are_zones_checked: bool
    unknowns: Sequence[str]
    providers: ProviderView | None
    offers: Sequence[CachedOffer]
    _hosts: HostsReader

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read the bytes of a view, which are not trusted.

        Raises
        ------
        UnreadableView
            The message, one line, goes on from "… cannot be read: ".
        """
        header: Any = None
        hosts = HostsReader(load_columns())
        providers, offers = ProvidersReader(), OffersReader()
        for frame in read_frames(data):
            if frame.kind == _HEADER:
                header = frame.data
            elif not (
                hosts.add(frame) or providers.add(frame) or offers.add(frame)
            ):  # fmt: skip
                raise UnreadableView("it has parts that this Moorage does not know")
        if header is None:
            raise UnreadableView("it is truncated")
        return cls(
            *checked(_read_header, header), providers.view(), offers.offers(), hosts
        )

    def table(self, clock: Callable[[], float]) -> HostTable:
        """Return a new host table of the view.

        Raises
        ------
        UnreadableView
        """
        return self._hosts.table(clock)


def _read_header(
    header: Any,  # noqa: ANN401 - untrusted
) -> tuple[float, int, OptionValues, bool, Sequence[str]]:
    options = {str(group): dict(values) for group, values in header["options"].items()}
    return (
        float(header["at"]),
        int(header["tie_seed"]),
        options,
        bool(header["are_zones_checked"]),
        [str(each) for each in header["unknowns"]],
    )
