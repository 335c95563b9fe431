# SPDX-License-Identifier: Apache-2.0
"""Services that hang or are away, limits, and replays: each with a cloud of its own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from moorage.objects import NetworkRequest, NetworkRequestList
from moorage.scheduler.attachments import lookups
from moorage.scheduler.errors import InvalidRequest

from ...conftest import instance_uuid
from ...fixtures.attached_services import ServiceFault
from ...fixtures.attaching_clouds import (
    DEFAULT,
    PLACES,
    attaching_cloud,
    attaching_spec,
    place,
)
from ...fixtures.clouds import CONTEXT, new_uuids
from ...fixtures.ports import refusing_url
from ...fixtures.replayed_views import ReplayedViews

NETWORK = instance_uuid("network")


def _networks(*ports: str) -> NetworkRequestList:
    return NetworkRequestList(objects=[NetworkRequest(port_id=p) for p in ports])


def test_closest_of_several_places_counts(tmp_path: Path) -> None:
    everywhere = [place("rack", f"s{i}", h, volume_backend="x@y") for i, h in
                  enumerate("ad")]  # fmt: skip
    with attaching_cloud(tmp_path, [*everywhere, place("rack", "s3", "bce")]) as cloud:
        cloud.cinder.volume(cloud.volume, "x@y")
        assert set(cloud.select({"near_volume": cloud.volume})[:2]) == {"a", "d"}


def test_service_that_hangs_costs_one_timeout_and_delays_no_other_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookups, "RETRY_S", 3600.0)
    with attaching_cloud(tmp_path, locality__lookup_timeout=5.0) as cloud:
        cloud.cinder.fault = ServiceFault.HANGS
        hints = {"near_volume": cloud.volume}
        explainer = cloud.scheduler.explainer
        with ThreadPoolExecutor() as pool:
            asking = pool.submit(explainer.dry_run, CONTEXT, attaching_spec(hints), 1)
            assert cloud.first() == DEFAULT
            assert not asking.done()
            [note] = asking.result().attachments
        assert note.detail == "Cinder did not answer within 5 s"
        for hint in ("near_volume", "same_rack_volume", "near_volume"):
            cloud.select({hint: new_uuids()[0]})
            assert cloud.detail == "Cinder did not answer within 5 s"
        assert len(cloud.cinder.asked) == 1


def test_service_that_is_away_drops_a_preference_at_once(tmp_path: Path) -> None:
    with attaching_cloud(tmp_path, cinder__endpoint_template=refusing_url()) as cloud:
        assert cloud.first({"near_volume": cloud.volume}) == DEFAULT
        assert "Cinder got no answer" in cloud.detail


def test_services_that_are_not_configured(tmp_path: Path) -> None:
    with attaching_cloud(
        tmp_path, cinder__endpoint_template=None, neutron__endpoint_override=None
    ) as cloud:
        assert cloud.first({"near_volume": cloud.volume}) == DEFAULT
        assert cloud.detail.startswith("Cinder is not configured")
        assert "cannot be looked up" in cloud.refused({"same_row_port": cloud.port})
        assert cloud.detail.startswith("Neutron is not configured")


def test_number_of_volumes_and_ports_is_limited(tmp_path: Path) -> None:
    with attaching_cloud(tmp_path) as cloud:
        hints = {"near_volume": new_uuids(10), "near_port": new_uuids(1)}
        with pytest.raises(
            InvalidRequest, match="name more than 10, the last of them near"
        ):
            cloud.select(hints)
        assert cloud.asked == []


def test_ports_beyond_the_limit_do_not_count(tmp_path: Path) -> None:
    with attaching_cloud(tmp_path) as cloud:
        ports, networks = new_uuids(13), new_uuids(13)
        for port, network in zip(ports, networks, strict=True):
            cloud.neutron.port(port, network_id=network)
            cloud.neutron.network(network)
        assert cloud.first(requested_networks=_networks(*ports)) in {"c", "d"}
        assert sorted(cloud.asked) == sorted(
            f"/v2.0/networks/{n}" for n in networks[:10]
        )


@pytest.mark.parametrize(
    ("places", "options"),
    [(PLACES, {"locality__automatic": []}), (PLACES[2:3], {})],
    ids=["off", "not mapped"],
)
def test_nothing_is_asked_without_a_hint(
    tmp_path: Path, places: Any, options: dict[str, Any]
) -> None:
    with attaching_cloud(tmp_path, places, **options) as cloud:
        cloud.neutron.port(cloud.port, network_id=NETWORK)
        cloud.first(is_bfv=True, requested_networks=_networks(cloud.port))
        assert cloud.asked == []
        assert cloud.noted == []


@pytest.mark.parametrize("hint", ["near_volume", "same_rack_volume"])
def test_replay_needs_no_service(tmp_path: Path, hint: str) -> None:
    with attaching_cloud(tmp_path) as cloud:
        cloud.cinder.volume(cloud.volume, "ceph@ssd")
        views = ReplayedViews(cloud.scheduler)
        views.decide(attaching_spec({hint: cloud.volume}))
        cloud.cinder.fault = ServiceFault.BROKEN
        again = views.replayed()
        assert again.is_identical
        assert again.recorded.instances[0].host in {"a", "b"}
        assert len(cloud.cinder.asked) == 1
