# SPDX-License-Identifier: Apache-2.0
"""A guest's settings in the flavor and the image of a request.

An operator writes ``hw:name`` (or ``os:name``) into a flavor's extra specs, a user
``hw_name`` into an image's properties; both are the same setting. An empty value
counts as unset.

CPU policies, and the traits and resources of a guest's features, follow the rules of
nova 34 (``nova.virt.hardware``, ``nova.scheduler.utils``). nova's API has applied them
before, so only a request that bypassed it can fail on them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import os_resource_classes as orc
import os_traits
from oslo_log import log as logging
from oslo_utils import strutils

from ..errors import InvalidRequest, excerpt

if TYPE_CHECKING:
    from ...objects import RequestSpec
    from ...objects.base import WireObject

LOG = logging.getLogger(__name__)

#: The settings from which CPU policies and features are read, as an image spells them.
#: A guest that has none of them, as most, needs no more than its flavor's amounts.
CPU_AND_FEATURE_SETTINGS: Final = frozenset(
    {
        "hw_cpu_policy",
        "hw_cpu_thread_policy",
        "hw_emulator_threads_policy",
        "hw_firmware_stateless",
        "hw_maxphysaddr_mode",
        "hw_mem_encryption",
        "hw_pci_numa_affinity_policy",
        "hw_pmem",
        "hw_tpm_version",
        "os_secure_boot",
    }
)


def get_field(obj: WireObject | None, name: str) -> Any:  # noqa: ANN401 - of its field's type
    """Return a versioned object's field, None if it is not set or `obj` is None."""
    return getattr(obj, name) if obj is not None and name in obj else None


@dataclass(frozen=True, slots=True)
class FlavorAndImage:
    """The flavor's and the image's settings for one guest.

    Attributes
    ----------
    n_vcpus : int
        The flavor's vCPUs.
    extra_specs : mapping
        The flavor's extra specs.
    properties : mapping
        The image properties that are set.
    """

    n_vcpus: int
    extra_specs: Mapping[str, str]
    properties: Mapping[str, Any]

    @classmethod
    def of(cls, spec_obj: RequestSpec) -> FlavorAndImage:
        """Return the settings of a request's guest."""
        flavor = get_field(spec_obj, "flavor")
        properties = get_field(get_field(spec_obj, "image"), "properties")
        return cls(
            n_vcpus=get_field(flavor, "vcpus") or 0,
            extra_specs=get_field(flavor, "extra_specs") or {},
            properties={} if properties is None else properties.set_values(),
        )

    def sets_any(self, names: frozenset[str]) -> bool:
        """Return whether flavor or image has a setting; `names` are those of images."""
        in_flavor = (key.replace(":", "_", 1) for key in self.extra_specs)
        return not (names.isdisjoint(self.properties) and names.isdisjoint(in_flavor))

    def both(self, name: str, prefix: str = "hw") -> tuple[str | None, Any]:
        """Return a setting's value in the flavor and in the image, None if unset."""
        in_flavor = self.extra_specs.get(f"{prefix}:{name}") or None
        return in_flavor, self.properties.get(f"{prefix}_{name}") or None

    def agreed(
        self, name: str, allowed: Collection[str], prefix: str = "hw"
    ) -> str | None:
        """Return the value of a setting; None if neither flavor nor image has it.

        Raises
        ------
        InvalidRequest
            Flavor and image contradict each other, or the value is not among
            `allowed`.
        """
        in_flavor, in_image = self.both(name, prefix)
        if in_flavor is None and in_image is None:
            return None
        if in_flavor and in_image and in_flavor != in_image:
            raise contradiction(name, in_flavor, in_image, prefix)
        return one_of(f"{prefix}:{name}", in_flavor or in_image, allowed)

    def agreed_flag(self, name: str) -> bool:
        """Return whether flavor or image enables a feature.

        Raises
        ------
        InvalidRequest
            One of the two enables it and the other disables it.
        """
        values = (self.extra_specs.get(f"hw:{name}"), self.properties.get(f"hw_{name}"))
        flags = [
            None if value is None else bool(strutils.bool_from_string(value))
            for value in values
        ]
        if None not in flags and flags[0] != flags[1]:
            raise contradiction(name, str(flags[0]), str(flags[1]))
        return any(flags)


def one_of(key: str, value: str | None, allowed: Collection[str]) -> str | None:
    """Return `value` if it is allowed or None; InvalidRequest otherwise."""
    if value is not None and value not in allowed:
        raise InvalidRequest(
            f"{key} is {excerpt(value)}; it must be one of {', '.join(allowed)}"
        )
    return value


def contradiction(
    name: str, in_flavor: str, in_image: str, prefix: str = "hw"
) -> InvalidRequest:
    """Return the error for a flavor and an image that contradict each other."""
    return InvalidRequest(
        f"{prefix}:{name} is {excerpt(in_flavor)} in the flavor and {prefix}_{name} is "
        f"{excerpt(in_image)} in the image; remove one of them, or make them equal"
    )


#: No host has more CPUs than this; it limits the size of sets of CPUs.
MAX_CPUS = 65536


class CPUPolicy(StrEnum):
    """Which of a guest's vCPUs have a dedicated host CPU, ordered from none to all."""

    SHARED = "shared"
    MIXED = "mixed"
    DEDICATED = "dedicated"


class ThreadPolicy(StrEnum):
    """How a pinned guest uses the threads of a core."""

    PREFER = "prefer"
    ISOLATE = "isolate"
    REQUIRE = "require"


class EmulatorPolicy(StrEnum):
    """Whether the emulator's threads have a dedicated host CPU."""

    SHARE = "share"
    ISOLATE = "isolate"


_RANK: dict[str, int] = {policy: rank for rank, policy in enumerate(CPUPolicy)}


def cpu_policy(guest: FlavorAndImage) -> CPUPolicy | None:
    """Return the flavor's CPU policy, or else the image's.

    Raises
    ------
    InvalidRequest
        A policy is unknown, or the image requests more dedicated CPUs than the flavor
        grants.
    """
    in_flavor, in_image = guest.both("cpu_policy")
    one_of("hw:cpu_policy", in_flavor, list(CPUPolicy))
    one_of("hw_cpu_policy", in_image, list(CPUPolicy))
    if in_flavor and in_image and _RANK[in_image] > _RANK[in_flavor]:
        raise contradiction("cpu_policy", in_flavor, in_image)
    chosen = in_flavor or in_image
    return CPUPolicy(chosen) if chosen else None


def thread_policy(guest: FlavorAndImage) -> ThreadPolicy | None:
    """Return the thread policy; "prefer" in the flavor overrides the image's.

    Raises
    ------
    InvalidRequest
        A policy is unknown, or the image contradicts the flavor.
    """
    in_flavor, in_image = guest.both("cpu_thread_policy")
    one_of("hw:cpu_thread_policy", in_flavor, list(ThreadPolicy))
    one_of("hw_cpu_thread_policy", in_image, list(ThreadPolicy))
    if in_flavor not in (None, ThreadPolicy.PREFER, in_image or in_flavor):
        raise contradiction("cpu_thread_policy", str(in_flavor), in_image)
    chosen = in_flavor or in_image
    return ThreadPolicy(chosen) if chosen else None


def emulator_policy(guest: FlavorAndImage) -> EmulatorPolicy | None:
    """Return the policy for the emulator's threads, which only a flavor can set."""
    key = "hw:emulator_threads_policy"
    chosen = one_of(key, guest.extra_specs.get(key) or None, list(EmulatorPolicy))
    return EmulatorPolicy(chosen) if chosen else None


def dedicated_cpus(guest: FlavorAndImage) -> set[int]:
    """Return the dedicated vCPUs of a mixed guest.

    Raises
    ------
    InvalidRequest
        A mask is malformed, selects no vCPU or one that the flavor does not have, or
        selects all of them where one must be left out.
    """
    realtime = set[int]()
    if strutils.bool_from_string(guest.extra_specs.get("hw:cpu_realtime")):
        key = "hw:cpu_realtime_mask"
        in_flavor, in_image = guest.both("cpu_realtime_mask")
        mask = in_image or in_flavor or f"0-{guest.n_vcpus - 1}"
        realtime = _cpus_of_mask(key, mask, guest.n_vcpus)
        if len(realtime) == guest.n_vcpus and emulator_policy(guest) is None:
            raise _bad_mask(
                key, mask, "leave out a vCPU, unless hw:emulator_threads_policy is set"
            )
    key = "hw:cpu_dedicated_mask"
    if mask := guest.extra_specs.get(key):
        cpus = _cpus_of_mask(key, mask, guest.n_vcpus)
        if len(cpus) == guest.n_vcpus:
            raise _bad_mask(key, mask, "leave at least one vCPU shared")
        return cpus
    return realtime


def _cpus_of_mask(key: str, mask: str, n_vcpus: int) -> set[int]:
    # A mask that begins with an exclusion starts from all vCPUs.
    all_cpus = f"0-{n_vcpus - 1}," if mask.strip().startswith("^") else ""
    try:
        cpus = parse_cpu_mask(all_cpus + mask)
    except ValueError:
        raise _bad_mask(key, mask, 'be a list such as "1-4,^3,6"') from None
    if not cpus or max(cpus) >= n_vcpus:
        raise _bad_mask(key, mask, f"choose some of the vCPUs 0 to {n_vcpus - 1}")
    return cpus


def _bad_mask(key: str, mask: str, remedy: str) -> InvalidRequest:
    return InvalidRequest(f"{key} is {excerpt(mask)}; it must {remedy}")


def parse_cpu_mask(mask: str) -> set[int]:
    """Return the CPUs of a mask such as ``1-4,^3,6``; ``^`` excludes.

    Raises
    ------
    ValueError
        The mask is malformed, or names a CPU above 65535.
    """
    included: set[int] = set()
    excluded: set[int] = set()
    for part in filter(None, map(str.strip, mask.split(","))):
        target = excluded if part.startswith("^") else included
        target |= _cpu_range(part.removeprefix("^"))
    return included - excluded


def _cpu_range(part: str) -> set[int]:
    first, dash, last = part.partition("-")
    start = int(first)
    end = int(last) if dash else start
    if not 0 <= start <= end < MAX_CPUS:
        raise ValueError(part)
    return set(range(start, end + 1))


# -- features --------------------------------------------------------------------------

_MEMORY_ENCRYPTION_TRAITS = {
    "amd-sev": os_traits.HW_CPU_X86_AMD_SEV,
    "amd-sev-es": os_traits.HW_CPU_X86_AMD_SEV_ES,
    "amd-sev-snp": os_traits.HW_CPU_X86_AMD_SEV_SNP,
    "intel-tdx": os_traits.HW_CPU_X86_INTEL_TDX,
}
_NEED_STATELESS_FIRMWARE = frozenset({"amd-sev-snp", "intel-tdx"})
_NEED_NO_VIDEO = frozenset({"intel-tdx"})
_TPM_VERSION_TRAITS = {
    "1.2": os_traits.COMPUTE_SECURITY_TPM_1_2,
    "2.0": os_traits.COMPUTE_SECURITY_TPM_2_0,
}
_TPM_MODEL_TRAITS = {
    "tpm-tis": os_traits.COMPUTE_SECURITY_TPM_TIS,
    "tpm-crb": os_traits.COMPUTE_SECURITY_TPM_CRB,
}
_MAXPHYSADDR_TRAITS = {
    "passthrough": os_traits.COMPUTE_ADDRESS_SPACE_PASSTHROUGH,
    "emulate": os_traits.COMPUTE_ADDRESS_SPACE_EMULATED,
}
_PCI_POLICIES = ("required", "legacy", "preferred", "socket")
_SECURE_BOOT = ("required", "disabled", "optional")


def feature_traits(guest: FlavorAndImage) -> set[str]:
    """Return the traits that a host needs for all of a guest's features.

    Raises
    ------
    InvalidRequest
        A value is unknown, flavor and image contradict each other, or the image does
        not support the requested memory encryption.
    """
    traits = tpm_traits(guest)
    if guest.agreed_flag("mem_encryption"):
        model = guest.agreed("mem_encryption_model", _MEMORY_ENCRYPTION_TRAITS)
        model = model or "amd-sev"
        _check_encryptable(guest, model)
        traits.add(_MEMORY_ENCRYPTION_TRAITS[model])
    # The host has to place PCI devices and CPUs on one socket.
    if guest.agreed("pci_numa_affinity_policy", _PCI_POLICIES) == "socket":
        traits.add(os_traits.COMPUTE_SOCKET_PCI_NUMA_AFFINITY)
    if guest.agreed("secure_boot", _SECURE_BOOT, prefix="os") == "required":
        traits.add(os_traits.COMPUTE_SECURITY_UEFI_SECURE_BOOT)
    # How wide the guest's physical addresses are.
    if mode := guest.agreed("maxphysaddr_mode", _MAXPHYSADDR_TRAITS):
        traits.add(_MAXPHYSADDR_TRAITS[mode])
    if guest.properties.get("hw_firmware_stateless"):
        if guest.properties.get("hw_firmware_type") == "uefi":
            traits.add(os_traits.COMPUTE_SECURITY_STATELESS_FIRMWARE)
        else:
            LOG.warning(
                "hw_firmware_stateless is ignored: hw_firmware_type is not uefi"
            )
    return traits


def _check_encryptable(guest: FlavorAndImage, model: str) -> None:
    """Reject an image that does not support memory encryption."""
    image = guest.properties
    machine_type = image.get("hw_machine_type")
    needs = [
        ("hw_firmware_type", image.get("hw_firmware_type") == "uefi", "'uefi'"),
        # Without a machine type, the compute service checks its default.
        ("hw_machine_type", machine_type is None or "q35" in machine_type, "a q35"),
    ]
    if model in _NEED_STATELESS_FIRMWARE:
        is_stateless = image.get("hw_firmware_stateless") is True
        needs.append(("hw_firmware_stateless", is_stateless, "True"))
    if model in _NEED_NO_VIDEO:
        needs.append(
            ("hw_video_model", image.get("hw_video_model") == "none", "'none'")
        )
    for name, is_met, expected in needs:
        if not is_met:
            raise InvalidRequest(
                f"{name} of the image is {excerpt(image.get(name))}; it must be "
                f"{expected} for memory encryption with {model}"
            )


def tpm_traits(guest: FlavorAndImage) -> set[str]:
    """Return the traits of a virtual TPM's version and model, TIS if none is named.

    Raises
    ------
    InvalidRequest
        Version or model is unknown or contradictory, or CRB is requested with 1.2.
    """
    version = guest.agreed("tpm_version", _TPM_VERSION_TRAITS)
    if version is None:
        return set()
    model = guest.agreed("tpm_model", _TPM_MODEL_TRAITS) or "tpm-tis"
    if model == "tpm-crb" and version != "2.0":
        raise InvalidRequest(
            f"hw:tpm_model is 'tpm-crb' with hw:tpm_version {excerpt(version)}; "
            "it must be 'tpm-tis', or the version '2.0'"
        )
    return {_TPM_VERSION_TRAITS[version], _TPM_MODEL_TRAITS[model]}


def feature_resources(guest: FlavorAndImage) -> dict[str, int]:
    """Return the resources of a guest's features: encryption contexts, pmem."""
    labels = map(str.strip, (guest.extra_specs.get("hw:pmem") or "").split(","))
    names = (f"PMEM_NAMESPACE_{label}" for label in labels if label)
    resources = dict(Counter(map(orc.normalize_name, names)))
    if guest.agreed_flag("mem_encryption"):
        resources[orc.MEM_ENCRYPTION_CONTEXT] = 1
    return resources
