# SPDX-License-Identifier: Apache-2.0
"""How many instances of the host have images like the requested one?"""

from __future__ import annotations

import time
from collections.abc import Callable

from oslo_config import cfg

from ..objects import RequestSpec
from ..scheduler.conf.factors import factors
from ..scheduler.hosts import HostBatch, properties_of_image
from .base import BaseHostWeigher, Weights

_OPTION = "image_props_weight_setting"


class ImagePropertiesWeigher(BaseHostWeigher):
    """Weigh by the image properties that instances of the host share with the request.

    For each property that has exactly the requested value, an instance adds 1 to the
    weight of its host. If ``image_props_weight_setting`` is set, an instance adds the
    factor of the property instead, and nothing for a property without a factor.

    nova 34 weighs all hosts the same if the option of the multiplier is 0, even if
    aggregates override it; here an aggregate's multiplier suffices. nova reads the
    instances from a database for each host and request; here the host table has them.
    """

    MULTIPLIER = "image_props_weight_multiplier"
    ROWWISE = True

    def __init__(
        self, conf: cfg.ConfigOpts, *, clock: Callable[[], float] = time.time
    ) -> None:
        super().__init__(conf, clock=clock)
        setting = conf.filter_scheduler[_OPTION]
        self._factors = dict(factors(f"[filter_scheduler] {_OPTION}", setting))

    def weigh_all(self, hosts: HostBatch, spec_obj: RequestSpec) -> Weights:
        """Return the sum of factors for each host, shape (n_hosts,)."""
        image = spec_obj.image if "image" in spec_obj else None
        default = 0.0 if self._factors else 1.0
        requested = {
            prop: self._factors.get(prop[0], default)
            for prop in properties_of_image(image)
        }
        return hosts.sum_image_properties(
            {prop: factor for prop, factor in requested.items() if factor}
        )
