# SPDX-License-Identifier: Apache-2.0
"""Do the host's aggregates allow the properties of the image?"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence

from oslo_config import cfg

from ..objects import ImageMetaProps, RequestSpec
from ..scheduler.hosts import HostAggregate, HostBatch, HostState
from .aggregate_metadata import merged_metadata
from .base import BaseHostFilter, Mask
from .rejection import Rejection
from .requested import image_properties, image_property

LOG = logging.getLogger(__name__)

REASON = "an aggregate is for images with other properties"

#: A key of the metadata, the image's value, the values that the aggregates allow.
Misfit = tuple[str, str, frozenset[str]]


class AggregateImagePropertiesIsolation(BaseHostFilter):
    """Pass hosts whose aggregates allow every property of the image.

    Metadata named as an image property lists the allowed values. An image without the
    property may go to any host. Keys that are not image properties are ignored; nova
    logs a warning for each of them, for each host and request.
    """

    REASON = REASON
    RUN_ON_REBUILD = True
    run_filter_once_per_request = True

    def __init__(
        self, conf: cfg.ConfigOpts, *, clock: Callable[[], float] = time.time
    ) -> None:
        super().__init__(conf, clock=clock)
        options = conf.filter_scheduler
        namespace = options.aggregate_image_properties_isolation_namespace
        separator = options.aggregate_image_properties_isolation_separator
        self._prefix = f"{namespace}{separator}" if namespace else ""
        if namespace:
            LOG.warning(
                "[filter_scheduler] aggregate_image_properties_isolation_namespace: "
                "no image property begins with %r, so that "
                "AggregateImagePropertiesIsolation passes all hosts; unset the option, "
                "or use [scheduler] enable_isolated_aggregate_filtering",
                self._prefix,
            )

    def passing(self, hosts: HostBatch, spec_obj: RequestSpec) -> Mask:
        """Return which hosts' aggregates allow the image, shape (n_hosts,)."""
        properties = image_properties(spec_obj)
        mask: Mask = hosts.map_distinct(
            "aggregates", lambda mine: not any(self._misfits(mine, properties)), bool
        )
        return mask

    def _misfits(
        self, aggregates: Sequence[HostAggregate], properties: ImageMetaProps
    ) -> Iterator[Misfit]:
        for key, allowed in merged_metadata(aggregates).items():
            if key.startswith(self._prefix):
                value = image_property(properties, key)
                if value and str(value) not in allowed:
                    yield key, str(value), allowed

    def explain_rejection(
        self, host_state: HostState, spec_obj: RequestSpec
    ) -> Rejection | None:
        """Return the image's property and the values that the aggregates allow."""
        rejection = super().explain_rejection(host_state, spec_obj)
        if rejection is None:
            return None
        misfits = self._misfits(host_state.aggregates, image_properties(spec_obj))
        key, value, allowed = next(misfits)
        return rejection.because(
            f"aggregates' {key}", required=value, available=allowed
        )
