# SPDX-License-Identifier: Apache-2.0
"""Can the host run an image of this architecture, hypervisor type and VM mode?"""

from __future__ import annotations

import copy
import functools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
from oslo_config import cfg
from oslo_utils import versionutils

from ..objects import ImageMetaProps, RequestSpec
from ..scheduler.errors import ConfigurationError
from ..scheduler.hosts import HostBatch, HostState
from ..scheduler.request import Request
from .base import BaseHostFilter, Mask, all_hosts
from .rejection import Mismatch
from .remedy import Remedy, without_image_property

#: The properties that a triple of the host must contain, in the order of the triple.
_TRIPLE: Final = ("hw_architecture", "img_hv_type", "hw_vm_mode")


def _default_architecture(conf: cfg.ConfigOpts) -> str | None:
    name = conf.filter_scheduler.image_properties_default_architecture
    try:
        return _canonical_architecture(name)
    except ValueError as e:
        raise ConfigurationError(
            "[filter_scheduler] image_properties_default_architecture: there is no "
            f"architecture {name!r}"
        ) from e


class ImagePropertiesFilter(BaseHostFilter):
    """Pass hosts that support what the image's properties require.

    One of the host's triples (architecture, hypervisor type, VM mode) must contain all
    of these values that the image has, the hypervisor's version must satisfy
    ``img_hv_requested_version``, and the host must have at least
    ``hw_maxphysaddr_bits`` physical address bits. If the image has none of the three
    values, all hosts pass.

    Raises
    ------
    ConfigurationError
        ``image_properties_default_architecture`` is not an architecture.
    """

    REASON = (
        "architecture, hypervisor type, VM mode or version does not match the image"
    )
    RUN_ON_REBUILD = True
    run_filter_once_per_request = True
    ROWWISE = True

    def __init__(
        self, conf: cfg.ConfigOpts, *, clock: Callable[[], float] = time.time
    ) -> None:
        super().__init__(conf, clock=clock)
        self._default_architecture = _default_architecture(conf)
        #: The architecture, hypervisor type and VM mode, as far as the image has them.
        self._required: tuple[str, ...] = ()
        self._version: str | None = None
        self._address_bits: int | None = None

    def prepare(self, spec_obj: RequestSpec) -> Self:
        """Return a copy that holds what the image requires."""
        prepared = copy.copy(self)
        properties = Request.of(spec_obj).settings.properties
        triple = [properties.get(name) for name in _TRIPLE]
        triple[0] = triple[0] or self._default_architecture
        prepared._version = properties.get("img_hv_requested_version")
        prepared._address_bits = properties.get("hw_maxphysaddr_bits")
        prepared._required = tuple(value for value in triple if value)
        return prepared

    def passing(self, hosts: HostBatch, spec_obj: RequestSpec) -> Mask:
        """Return which hosts support the image, shape (n_hosts,)."""
        passing = all_hosts(hosts)
        for _attribute, _required, mask in self._checks(hosts):
            passing &= mask
        return passing

    def _checks(self, hosts: HostBatch) -> Iterator[tuple[str, str, Mask]]:
        """Yield an attribute, its required value, and the hosts that have it."""
        if not self._required:
            return
        supports = hosts.map_distinct("supported_instances", self._supports, bool)
        yield "supported_instances", ", ".join(self._required), supports
        if version := self._version:
            yield "hypervisor_version", version, _has_version(hosts, version)
        if bits := self._address_bits:
            has_bits = hosts.map_distinct(
                "cpu_info", lambda cpu_info: _has_bits(cpu_info, bits), bool
            )
            yield "cpu_info", f"maxphysaddr bits >= {bits}", has_bits

    def mismatch(self, host_state: HostState, spec_obj: RequestSpec) -> Mismatch:
        """Return the first of the host's attributes that does not match."""
        checks = self._checks(host_state.as_batch())
        attribute, required = next(
            (attribute, required) for attribute, required, mask in checks if not mask[0]
        )
        value = getattr(host_state, attribute)
        return attribute, required, _readable(attribute, value)

    def remedies(
        self, hosts: HostBatch, spec_obj: RequestSpec, rejected: Mask
    ) -> Iterator[Remedy]:
        """Yield the change of each property of the image that hosts do not support."""
        properties = Request.of(spec_obj).settings.properties
        unsupported = np.zeros(len(hosts), np.bool_)
        for index, name in enumerate(_TRIPLE):
            value = properties.get(name) or (
                self._default_architecture if index == 0 else None
            )
            if not value:
                continue
            fails = ~hosts.map_distinct(
                "supported_instances",
                functools.partial(_contains, value=value),
                bool,
            )
            unsupported |= fails
            values = functools.partial(_supported, index=index)
            if properties.get(name):
                yield without_image_property(name, value, fails, values)
            else:
                option = "[filter_scheduler] image_properties_default_architecture"
                text = f"another image, with {name}, or another {option} than {value}"
                yield Remedy(fails, text, needs_operator=True, values=values)
        for attribute, required, mask in self._checks(hosts):
            if attribute == "supported_instances":
                names = tuple(name for name in _TRIPLE if properties.get(name))
                yield Remedy(
                    ~mask & ~unsupported,
                    f"another image, with another combination of {', '.join(names)}",
                    image_properties=names,
                    values=lambda hosts: hosts.map_distinct(
                        "supported_instances",
                        lambda supported: "; ".join(
                            _readable("supported_instances", supported)
                        ),
                        object,
                    ),
                )
            elif attribute == "hypervisor_version":
                yield without_image_property(
                    "img_hv_requested_version", required, ~mask, _versions
                )
            else:
                yield without_image_property(
                    "hw_maxphysaddr_bits", self._address_bits, ~mask
                )

    def _supports(self, supported: Sequence[Sequence[str]]) -> bool:
        return any(
            all(value in triple for value in self._required) for triple in supported
        )


def _canonical_architecture(name: str | None) -> str | None:
    if name is None:
        return None
    canonical: str = ImageMetaProps(hw_architecture=name).hw_architecture
    return canonical


def _readable(attribute: str, value: Any) -> Any:  # noqa: ANN401 - a column's value
    """Return the value of a host's attribute as operators read it."""
    if attribute == "supported_instances":
        return [" ".join(triple) for triple in value]
    if attribute == "hypervisor_version":
        return versionutils.convert_version_to_str(value)
    return value


def _contains(supported: Sequence[Sequence[str]], value: str) -> bool:
    return any(value in triple for triple in supported)


def _supported(hosts: HostBatch, index: int) -> npt.NDArray[Any]:
    """Return the values at an index of the hosts' triples, shape (n_hosts,)."""
    texts: npt.NDArray[Any] = hosts.map_distinct(
        "supported_instances",
        lambda supported: (
            ", ".join(sorted({triple[index] for triple in supported})) or "nothing"
        ),
        object,
    )
    return texts


def _versions(hosts: HostBatch) -> npt.NDArray[Any]:
    """Return the text of the hosts' hypervisor versions, shape (n_hosts,)."""
    to_text = versionutils.convert_version_to_str
    return np.array(list(map(to_text, hosts.hypervisor_version.tolist())), object)


def _has_version(hosts: HostBatch, predicate: str) -> Mask:
    """Return which hosts' versions satisfy a predicate, or are not reported."""
    required = versionutils.VersionPredicate(predicate)

    def satisfies(version: int) -> bool:
        text = versionutils.convert_version_to_str(version)
        return version == 0 or required.satisfied_by(text)

    versions = sorted(set(hosts.hypervisor_version.tolist()))
    accepted = [version for version in versions if satisfies(version)]
    mask: Mask = (hosts.hypervisor_version[:, None] == accepted).any(axis=1)
    return mask


def _has_bits(cpu_info: str | None, required: int) -> bool:
    """Return whether a host has enough address bits, or does not report them."""
    try:
        bits = int(json.loads(cpu_info or "{}")["maxphysaddr"]["bits"])
    except (ValueError, LookupError, TypeError):
        return True
    return bits == 0 or bits >= required
