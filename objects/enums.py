# SPDX-License-Identifier: Apache-2.0
"""The closed lists of values that fields take, in nova's order.

The order is part of an object's fingerprint. A value that a newer nova adds is
accepted from a peer whose object is newer than ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from oslo_versionedobjects import base as ovo
from oslo_versionedobjects import fields as of


class Enumerated(of.Enum):
    """One of `VALUES`."""

    VALUES: ClassVar[tuple[str, ...]]

    def __init__(self) -> None:
        """Take the values from the class."""
        super().__init__(valid_values=self.VALUES)

    def stringify(self, value: str) -> str:
        """Show the value, a newer nova's too."""
        return f"'{value}'"


class Lowered(Enumerated):
    """One of `VALUES`, in any case or under an old name from `OLD`."""

    OLD: ClassVar[Mapping[str, str]] = {}

    def coerce(self, obj: ovo.VersionedObject | None, attr: str, value: object) -> str:
        """Give the value its name of today."""
        lowered = str(value).lower()
        coerced: str = super().coerce(obj, attr, self.OLD.get(lowered, lowered))
        return coerced


class EnumField(of.BaseEnumField):
    """A field that takes one of an enumeration's values."""

    def __init__(self, kind: Enumerated, **kwargs: Any) -> None:
        """Take the enumeration, then what every field takes."""
        self.AUTO_TYPE = kind
        super().__init__(**kwargs)


class Architecture(Lowered):
    """CPU architectures, by libvirt's names."""

    VALUES = (
        "alpha",
        "armv6",
        "armv7l",
        "armv7b",
        "aarch64",
        "cris",
        "i686",
        "ia64",
        "lm32",
        "m68k",
        "microblaze",
        "microblazeel",
        "mips",
        "mipsel",
        "mips64",
        "mips64el",
        "openrisc",
        "parisc",
        "parisc64",
        "ppc",
        "ppcle",
        "ppc64",
        "ppc64le",
        "ppcemb",
        "s390",
        "s390x",
        "sh4",
        "sh4eb",
        "sparc",
        "sparc64",
        "unicore32",
        "x86_64",
        "xtensa",
        "xtensaeb",
    )
    OLD: ClassVar[Mapping[str, str]] = {
        "i386": "i686",
        "i486": "i686",
        "i586": "i686",
        "x86_32": "i686",
        "x86_32p": "i686",
        "amd64": "x86_64",
    }


class BlockDeviceEncryptionFormatType(Enumerated):
    """How a disk is encrypted."""

    VALUES = ("plain", "luks", "luksv2")


class BlockDeviceType(Enumerated):
    """What a block device looks like to the guest."""

    VALUES = ("cdrom", "disk", "floppy", "fs", "lun")


class CPUAllocationPolicy(Enumerated):
    """Whether guest CPUs are pinned."""

    VALUES = ("dedicated", "shared", "mixed")


class CPUEmulatorThreadsPolicy(Enumerated):
    """Where the emulator threads run."""

    VALUES = ("share", "isolate")


class CPUFeaturePolicy(Enumerated):
    """What a guest wants of one CPU feature."""

    VALUES = ("force", "require", "optional", "disable", "forbid")


class CPUMatch(Enumerated):
    """How exactly a guest CPU must match."""

    VALUES = ("minimum", "exact", "strict")


class CPUMode(Enumerated):
    """How a guest CPU model is chosen."""

    VALUES = ("custom", "host-model", "host-passthrough")


class CPUThreadAllocationPolicy(Enumerated):
    """What pinned CPUs do with sibling threads."""

    VALUES = ("prefer", "isolate", "require")


class ConfigDrivePolicy(Enumerated):
    """Whether an image asks for a config drive."""

    VALUES = ("optional", "mandatory")


class DiskBus(Enumerated):
    """Buses a disk can sit on."""

    VALUES = ("fdc", "ide", "sata", "scsi", "usb", "virtio", "xen", "lxc", "uml")


class FirmwareType(Enumerated):
    """Firmware a guest boots with."""

    VALUES = ("uefi", "bios")


class HVType(Lowered):
    """Hypervisor types."""

    VALUES = (
        "baremetal",
        "bhyve",
        "docker",
        "fake",
        "hyperv",
        "ironic",
        "kqemu",
        "kvm",
        "lxc",
        "lxd",
        "openvz",
        "parallels",
        "phyp",
        "qemu",
        "test",
        "uml",
        "vbox",
        "vz",
        "vmware",
        "xen",
        "zvm",
        "prsm",
    )
    OLD: ClassVar[Mapping[str, str]] = {"xapi": "xen"}


class ImageSignatureHashType(Enumerated):
    """Hashes an image is signed with."""

    VALUES = ("SHA-224", "SHA-256", "SHA-384", "SHA-512")


class ImageSignatureKeyType(Enumerated):
    """Keys an image is signed with."""

    VALUES = (
        "DSA",
        "ECC_SECP384R1",
        "ECC_SECP521R1",
        "ECC_SECT409K1",
        "ECC_SECT409R1",
        "ECC_SECT571K1",
        "ECC_SECT571R1",
        "RSA-PSS",
    )


class InputBus(Enumerated):
    """Buses of input devices."""

    VALUES = ("usb", "virtio")


class MaxPhyAddrMode(Enumerated):
    """Where the width of guest addresses comes from."""

    VALUES = ("passthrough", "emulate")


class MemEncryptionModel(Enumerated):
    """How guest memory is encrypted."""

    VALUES = ("amd-sev", "amd-sev-es", "amd-sev-snp", "intel-tdx")


class MonitorMetricType(Enumerated):
    """What a compute monitor measures."""

    VALUES = (
        "cpu.frequency",
        "cpu.user.time",
        "cpu.kernel.time",
        "cpu.idle.time",
        "cpu.iowait.time",
        "cpu.user.percent",
        "cpu.kernel.percent",
        "cpu.idle.percent",
        "cpu.iowait.percent",
        "cpu.percent",
        "numa.membw.max",
        "numa.membw.current",
    )


class OSType(Lowered):
    """Families of guest systems."""

    VALUES = ("linux", "windows")


class PCINUMAAffinityPolicy(Enumerated):
    """How near a PCI device must be."""

    VALUES = ("required", "legacy", "preferred", "socket")


class PciDeviceStatus(Enumerated):
    """Where a PCI device is in its life."""

    VALUES = (
        "available",
        "claimed",
        "allocated",
        "removed",
        "deleted",
        "unavailable",
        "unclaimable",
    )


class PciDeviceType(Enumerated):
    """What a PCI device is."""

    VALUES = ("type-PCI", "type-PF", "type-VF", "vdpa")


class PointerModelType(Enumerated):
    """Pointer devices."""

    VALUES = ("usbtablet",)


class RNGModel(Enumerated):
    """Random number devices."""

    VALUES = ("virtio",)


class SCSIModel(Lowered):
    """SCSI controllers."""

    VALUES = (
        "buslogic",
        "ibmvscsi",
        "lsilogic",
        "lsisas1068",
        "lsisas1078",
        "virtio-scsi",
        "vmpvscsi",
    )
    OLD: ClassVar[Mapping[str, str]] = {
        "lsilogicsas": "lsisas1068",
        "paravirtual": "vmpvscsi",
    }


class SecureBoot(Enumerated):
    """Whether an image wants secure boot."""

    VALUES = ("required", "disabled", "optional")


class SoundModelType(Enumerated):
    """Sound cards."""

    VALUES = ("sb16", "es1370", "pcspk", "ac97", "ich6", "ich9", "usb", "virtio")


class TPMModel(Enumerated):
    """TPM devices."""

    VALUES = ("tpm-tis", "tpm-crb")


class TPMVersion(Enumerated):
    """TPM versions."""

    VALUES = ("1.2", "2.0")


class USBControllerModelType(Enumerated):
    """USB controllers."""

    VALUES = ("none", "nec-xhci", "qemu-xhci")


class VIFModel(Lowered):
    """Network cards."""

    VALUES = (
        "virtio",
        "ne2k_pci",
        "pcnet",
        "rtl8139",
        "e1000",
        "e1000e",
        "netfront",
        "spapr-vlan",
        "lan9118",
        "sriov",
        "vmxnet",
        "vmxnet3",
        "igb",
    )
    OLD: ClassVar[Mapping[str, str]] = {
        "virtuale1000": "e1000",
        "virtuale1000e": "e1000e",
        "virtualpcnet32": "pcnet",
        "virtualsriovethernetcard": "sriov",
        "virtualvmxnet": "vmxnet",
        "virtualvmxnet3": "vmxnet3",
    }


class VIOMMUModel(Enumerated):
    """Virtual IOMMUs."""

    VALUES = ("intel", "smmuv3", "virtio", "auto")


class VMMode(Lowered):
    """How a guest calls its host."""

    VALUES = ("hvm", "xen", "uml", "exe")
    OLD: ClassVar[Mapping[str, str]] = {"pv": "xen", "hv": "hvm", "baremetal": "hvm"}


class VideoModel(Enumerated):
    """Video cards."""

    VALUES = ("cirrus", "qxl", "vga", "vmvga", "xen", "virtio", "gop", "none", "bochs")


class WatchdogAction(Enumerated):
    """What a watchdog does."""

    VALUES = ("none", "pause", "poweroff", "reset", "disabled")
