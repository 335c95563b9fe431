# SPDX-License-Identifier: Apache-2.0
"""Random decisions with devices, groups and refused claims are replayed exactly."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st

from moorage.scheduler.drivers.prepared import Caller
from moorage.scheduler.errors import PlacementUnavailable
from moorage.scheduler.explain import Explainer, Replay, dry_run
from moorage.scheduler.views import OfflineParts, StoredView

from ...fixtures.clouds import CONTEXT, new_uuids, request
from ...fixtures.placement_servers import EmbeddedPlacementFixture
from ...fixtures.property_tests import examples
from ...fixtures.replayed_views import ReplayedViews
from ..drivers.test_sources_agree import Pair, random_request


class Refusing:
    """An adapter to Placement that refuses the next writes, as it is told."""

    def __init__(self, adapter: Any) -> None:
        self._adapter = adapter
        self.answers: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._adapter, name)

    def put(self, url: str, **options: Any) -> Any:
        # A response of status 409 is false.
        refusal = self._refusal()
        return self._adapter.put(url, **options) if refusal is None else refusal

    def post(self, url: str, **options: Any) -> Any:
        refusal = self._refusal()
        return self._adapter.post(url, **options) if refusal is None else refusal

    def _refusal(self) -> requests.Response | None:
        answer = self.answers.pop(0) if self.answers else ""
        if not answer:
            return None
        error = {"status": 409, "title": "Conflict", "code": answer, "detail": "Full."}
        response = requests.Response()
        response.status_code = 409
        response.headers["Content-Type"] = "application/json"
        response.raw = io.BytesIO(json.dumps({"errors": [error]}).encode())
        return response


class DeviceCloud:
    """A cloud with NUMA cells and PCI devices, decided on with both candidates."""

    def __init__(self, pair: Pair, refusing: Refusing) -> None:
        self.pair = pair
        self.refusing = refusing
        self.views = [ReplayedViews(pair.queried), ReplayedViews(pair.in_memory)]
        self.members: list[str] = []

    def decide(self, rng: random.Random) -> Replay:
        """Decide a random request, with random refusals; return its replay."""
        views = rng.choice(self.views)
        uuids = new_uuids(rng.choice([1, 1, 2, 3]))
        refusals = ["", "placement.undefined_code", "placement.concurrent_update"]
        n_answers = rng.choice([0, 0, 0, 1, 3, 8])
        self.refusing.answers = [rng.choice(refusals) for _ in range(n_answers)]
        asked = random_request(rng, self.members, len(uuids))
        hosts = self.pair.select(views.scheduler, asked, uuids)
        self.refusing.answers.clear()
        if rng.random() < 0.9:
            self.pair.undo(views.scheduler, hosts, uuids[: len(hosts)])
        else:
            self.members += uuids[: len(hosts)]
        self.pair.read_again()
        return views.replayed()


@pytest.fixture(scope="module")
def devices(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeviceCloud]:
    folder = tmp_path_factory.mktemp("replay")
    with EmbeddedPlacementFixture(str(folder / "placement.sqlite")) as placement:
        refusing = Refusing(placement.adapter)
        pair = Pair(folder, placement.client, refusing, random.Random(1))
        for scheduler, name, value in (
            (pair.queried, "host_subset_size", 3),
            (pair.in_memory, "shuffle_best_same_weighed_hosts", True),
        ):
            scheduler.conf.set_override(name, value, "filter_scheduler")
        yield DeviceCloud(pair, refusing)
        pair.queried.stop()
        pair.in_memory.stop()


@pytest.mark.deep
@examples(1.0)
@given(seed=st.integers(0, 2**32))
def test_a_replay_is_the_same_to_the_last_bit(devices: DeviceCloud, seed: int) -> None:
    made = devices.decide(random.Random(seed))
    assert made.differences == ()
    assert made.n_assumed == 0


def test_without_providers_only_the_stored_request_can_be_decided(
    devices: DeviceCloud,
) -> None:
    views = devices.views[0]
    views.decide(request())
    assert views.replayed().is_identical
    view = StoredView.decode(views.views[str(len(views.views))])
    offline = OfflineParts(view)
    with pytest.raises(PlacementUnavailable, match="Placement's part is missing"):
        dry_run(offline.parts, Caller(), request(vcpus=3), 1)
    explainer = Explainer(lambda: offline.parts, offline.providers)
    with pytest.raises(PlacementUnavailable, match="has no Placement"):
        explainer.why_not(CONTEXT, request(), "h1")
