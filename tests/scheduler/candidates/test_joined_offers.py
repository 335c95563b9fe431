# SPDX-License-Identifier: Apache-2.0
"""The offers of a request with two queries, such as that of a pinned guest."""

from __future__ import annotations

from typing import Any

import numpy as np

from moorage.scheduler.candidates import Offer

from ...fixtures.clouds import offer


def _answer(*devices: str, group: str) -> dict[str, Any]:
    """An answer with one candidate for each device, on one host."""
    requests = [
        {
            "allocations": {device: {"resources": {"CUSTOM_GPU": 1}}},
            "mappings": {group: [device]},
        }
        for device in devices
    ]
    summaries = {
        device: {"root_provider_uuid": "host", "resources": {}, "traits": []}
        for device in devices
    }
    return {"allocation_requests": requests, "provider_summaries": summaries}


class _Coder:
    """Numbers devices by the digit in their name; -1: no device."""

    n_known = 3

    def provider_codes(self, uuids: Any) -> Any:
        return np.array([-1 if u is None else int(u[-1]) for u in uuids], np.int32)


def test_group_of_one_answer_has_no_providers_in_the_other() -> None:
    [first] = offer(_answer("gpu1", "gpu2", group="_a")).offers
    [second] = offer(_answer("gpu0", group="_b")).offers
    [empty] = offer({"allocation_requests": [], "provider_summaries": {}}).offers
    for joined, codes in (
        (Offer([first, second]), [1, 2, -1]),
        (Offer([first, empty]), [1, 2]),
        (Offer([empty, first]), [1, 2]),
    ):
        numbers = np.array(joined.numbers_of("host"))
        assert joined.provider_codes("_a", numbers, _Coder()).tolist() == codes
