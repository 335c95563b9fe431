# SPDX-License-Identifier: Apache-2.0
"""The enumerations of field values, in nova's order.

The order is part of an object's fingerprint. An unknown value is accepted from a peer
whose object is newer than ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from oslo_versionedobjects import base as ovo
from oslo_versionedobjects import fields as of


class Enumeration(of.Enum):
    """One of `VALUES`."""

    VALUES: ClassVar[tuple[str, ...]]

    def __init__(self) -> None:
        """Allow the values of the class."""
        super().__init__(valid_values=self.VALUES)

    def stringify(self, value: str) -> str:
        """Quote the value, without a check: a newer nova may have more."""
        return f"'{value}'"


class CaseInsensitiveEnumeration(Enumeration):
    """One of `VALUES`, in upper or lower case, or an old name from `OLD`."""

    OLD: ClassVar[Mapping[str, str]] = {}

    def coerce(self, obj: ovo.VersionedObject | None, attr: str, value: object) -> str:
        """Return the current name of the value."""
        lowered = str(value).lower()
        coerced: str = super().coerce(obj, attr, self.OLD.get(lowered, lowered))
        return coerced


class EnumField(of.BaseEnumField):
    """A field with one of an enumeration's values."""

    def __init__(self, kind: Enumeration, **kwargs: Any) -> None:
        """Set the enumeration; `kwargs` are those of every field."""
        self.AUTO_TYPE = kind
        super().__init__(**kwargs)


class Architecture(CaseInsensitiveEnumeration):
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


class BlockDeviceEncryptionFormatType(Enumeration):
    """Formats of disk encryption."""

    VALUES = ("plain", "luks", "luksv2")


class BlockDeviceType(Enumeration):
    """Types of block device that a guest sees."""

    VALUES = ("cdrom", "disk", "floppy", "fs", "lun")


class CPUAllocationPolicy(Enumeration):
    """Policies for pinning guest CPUs."""

    VALUES = ("dedicated", "shared", "mixed")


class CPUEmulatorThreadsPolicy(Enumeration):
    """Policies for placing the emulator threads."""

    VALUES = ("share", "isolate")


class CPUFeaturePolicy(Enumeration):
    """Policies of a guest for a CPU feature."""

    VALUES = ("force", "require", "optional", "disable", "forbid")


class CPUMatch(Enumeration):
    """How exactly a guest CPU must match."""

    VALUES = ("minimum", "exact", "strict")


class CPUMode(Enumeration):
    """How a guest CPU model is chosen."""

    VALUES = ("custom", "host-model", "host-passthrough")


class CPUThreadAllocationPolicy(Enumeration):
    """Policies of pinned CPUs for sibling threads."""

    VALUES = ("prefer", "isolate", "require")


class ConfigDrivePolicy(Enumeration):
    """Policies of an image for a config drive."""

    VALUES = ("optional", "mandatory")


class DiskBus(Enumeration):
    """Buses of disks."""

    VALUES = ("fdc", "ide", "sata", "scsi", "usb", "virtio", "xen", "lxc", "uml")


class FirmwareType(Enumeration):
    """Types of firmware."""

    VALUES = ("uefi", "bios")


class HVType(CaseInsensitiveEnumeration):
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


class ImageSignatureHashType(Enumeration):
    """Hash methods of image signatures."""

    VALUES = ("SHA-224", "SHA-256", "SHA-384", "SHA-512")


class ImageSignatureKeyType(Enumeration):
    """Key types of image signatures."""

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


class InputBus(Enumeration):
    """Buses of input devices."""

    VALUES = ("usb", "virtio")


class MaxPhyAddrMode(Enumeration):
    """Modes of the width of guest physical addresses."""

    VALUES = ("passthrough", "emulate")


class MemEncryptionModel(Enumeration):
    """Models of memory encryption."""

    VALUES = ("amd-sev", "amd-sev-es", "amd-sev-snp", "intel-tdx")


class MonitorMetricType(Enumeration):
    """Metrics of compute monitors."""

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


class OSType(CaseInsensitiveEnumeration):
    """Families of guest operating systems."""

    VALUES = ("linux", "windows")


class PCINUMAAffinityPolicy(Enumeration):
    """NUMA affinity policies of PCI devices."""

    VALUES = ("required", "legacy", "preferred", "socket")


class PciDeviceStatus(Enumeration):
    """States of a PCI device."""

    VALUES = (
        "available",
        "claimed",
        "allocated",
        "removed",
        "deleted",
        "unavailable",
        "unclaimable",
    )


class PciDeviceType(Enumeration):
    """Types of PCI device."""

    VALUES = ("type-PCI", "type-PF", "type-VF", "vdpa")


class PointerModelType(Enumeration):
    """Pointer devices."""

    VALUES = ("usbtablet",)


class RNGModel(Enumeration):
    """Random number devices."""

    VALUES = ("virtio",)


class SCSIModel(CaseInsensitiveEnumeration):
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


class SecureBoot(Enumeration):
    """Policies of an image for secure boot."""

    VALUES = ("required", "disabled", "optional")


class SoundModelType(Enumeration):
    """Sound cards."""

    VALUES = ("sb16", "es1370", "pcspk", "ac97", "ich6", "ich9", "usb", "virtio")


class TPMModel(Enumeration):
    """TPM devices."""

    VALUES = ("tpm-tis", "tpm-crb")


class TPMVersion(Enumeration):
    """TPM versions."""

    VALUES = ("1.2", "2.0")


class USBControllerModelType(Enumeration):
    """USB controllers."""

    VALUES = ("none", "nec-xhci", "qemu-xhci")


class VIFModel(CaseInsensitiveEnumeration):
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


class VIOMMUModel(Enumeration):
    """Virtual IOMMUs."""

    VALUES = ("intel", "smmuv3", "virtio", "auto")


class VMMode(CaseInsensitiveEnumeration):
    """Modes of virtualization."""

    VALUES = ("hvm", "xen", "uml", "exe")
    OLD: ClassVar[Mapping[str, str]] = {"pv": "xen", "hv": "hvm", "baremetal": "hvm"}


class VideoModel(Enumeration):
    """Video cards."""

    VALUES = ("cirrus", "qxl", "vga", "vmvga", "xen", "virtio", "gop", "none", "bochs")


class WatchdogAction(Enumeration):
    """Actions of a watchdog."""

    VALUES = ("none", "pause", "poweroff", "reset", "disabled")
