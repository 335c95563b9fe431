# SPDX-License-Identifier: Apache-2.0
"""The enumerations of field values: nova's names, and the values in nova's order.

Names, values and their order are part of an object's fingerprint.
"""

from __future__ import annotations

from typing import Final

from .fields import Enumeration

ARCHITECTURE: Final = Enumeration(
    "Architecture",
    "alpha armv6 armv7l armv7b aarch64 cris i686 ia64 lm32 m68k microblaze "
    "microblazeel mips mipsel mips64 mips64el openrisc parisc parisc64 ppc "
    "ppcle ppc64 ppc64le ppcemb s390 s390x sh4 sh4eb sparc sparc64 unicore32 "
    "x86_64 xtensa xtensaeb",
    any_case=True,
    old={
        "i386": "i686",
        "i486": "i686",
        "i586": "i686",
        "x86_32": "i686",
        "x86_32p": "i686",
        "amd64": "x86_64",
    },
)
BLOCK_DEVICE_ENCRYPTION_FORMAT_TYPE: Final = Enumeration(
    "BlockDeviceEncryptionFormatType", "plain luks luksv2"
)
BLOCK_DEVICE_TYPE: Final = Enumeration("BlockDeviceType", "cdrom disk floppy fs lun")
CPU_ALLOCATION_POLICY: Final = Enumeration(
    "CPUAllocationPolicy", "dedicated shared mixed"
)
CPU_EMULATOR_THREADS_POLICY: Final = Enumeration(
    "CPUEmulatorThreadsPolicy", "share isolate"
)
CPU_FEATURE_POLICY: Final = Enumeration(
    "CPUFeaturePolicy", "force require optional disable forbid"
)
CPU_MATCH: Final = Enumeration("CPUMatch", "minimum exact strict")
CPU_MODE: Final = Enumeration("CPUMode", "custom host-model host-passthrough")
CPU_THREAD_ALLOCATION_POLICY: Final = Enumeration(
    "CPUThreadAllocationPolicy", "prefer isolate require"
)
CONFIG_DRIVE_POLICY: Final = Enumeration("ConfigDrivePolicy", "optional mandatory")
DISK_BUS: Final = Enumeration("DiskBus", "fdc ide sata scsi usb virtio xen lxc uml")
FIRMWARE_TYPE: Final = Enumeration("FirmwareType", "uefi bios")
HV_TYPE: Final = Enumeration(
    "HVType",
    "baremetal bhyve docker fake hyperv ironic kqemu kvm lxc lxd openvz "
    "parallels phyp qemu test uml vbox vz vmware xen zvm prsm",
    any_case=True,
    old={"xapi": "xen"},
)
IMAGE_SIGNATURE_HASH_TYPE: Final = Enumeration(
    "ImageSignatureHashType", "SHA-224 SHA-256 SHA-384 SHA-512"
)
IMAGE_SIGNATURE_KEY_TYPE: Final = Enumeration(
    "ImageSignatureKeyType",
    "DSA ECC_SECP384R1 ECC_SECP521R1 ECC_SECT409K1 ECC_SECT409R1 ECC_SECT571K1 "
    "ECC_SECT571R1 RSA-PSS",
)
INPUT_BUS: Final = Enumeration("InputBus", "usb virtio")
MAX_PHY_ADDR_MODE: Final = Enumeration("MaxPhyAddrMode", "passthrough emulate")
MEM_ENCRYPTION_MODEL: Final = Enumeration(
    "MemEncryptionModel", "amd-sev amd-sev-es amd-sev-snp intel-tdx"
)
MONITOR_METRIC_TYPE: Final = Enumeration(
    "MonitorMetricType",
    "cpu.frequency cpu.user.time cpu.kernel.time cpu.idle.time cpu.iowait.time "
    "cpu.user.percent cpu.kernel.percent cpu.idle.percent cpu.iowait.percent "
    "cpu.percent numa.membw.max numa.membw.current",
)
OS_TYPE: Final = Enumeration("OSType", "linux windows", any_case=True)
PCI_NUMA_AFFINITY_POLICY: Final = Enumeration(
    "PCINUMAAffinityPolicy", "required legacy preferred socket"
)
PCI_DEVICE_STATUS: Final = Enumeration(
    "PciDeviceStatus",
    "available claimed allocated removed deleted unavailable unclaimable",
)
PCI_DEVICE_TYPE: Final = Enumeration("PciDeviceType", "type-PCI type-PF type-VF vdpa")
POINTER_MODEL_TYPE: Final = Enumeration("PointerModelType", "usbtablet")
RNG_MODEL: Final = Enumeration("RNGModel", "virtio")
SCSI_MODEL: Final = Enumeration(
    "SCSIModel",
    "buslogic ibmvscsi lsilogic lsisas1068 lsisas1078 virtio-scsi vmpvscsi",
    any_case=True,
    old={"lsilogicsas": "lsisas1068", "paravirtual": "vmpvscsi"},
)
SECURE_BOOT: Final = Enumeration("SecureBoot", "required disabled optional")
SOUND_MODEL_TYPE: Final = Enumeration(
    "SoundModelType", "sb16 es1370 pcspk ac97 ich6 ich9 usb virtio"
)
TPM_MODEL: Final = Enumeration("TPMModel", "tpm-tis tpm-crb")
TPM_VERSION: Final = Enumeration("TPMVersion", "1.2 2.0")
USB_CONTROLLER_MODEL_TYPE: Final = Enumeration(
    "USBControllerModelType", "none nec-xhci qemu-xhci"
)
VIF_MODEL: Final = Enumeration(
    "VIFModel",
    "virtio ne2k_pci pcnet rtl8139 e1000 e1000e netfront spapr-vlan lan9118 "
    "sriov vmxnet vmxnet3 igb",
    any_case=True,
    old={
        "virtuale1000": "e1000",
        "virtuale1000e": "e1000e",
        "virtualpcnet32": "pcnet",
        "virtualsriovethernetcard": "sriov",
        "virtualvmxnet": "vmxnet",
        "virtualvmxnet3": "vmxnet3",
    },
)
VIOMMU_MODEL: Final = Enumeration("VIOMMUModel", "intel smmuv3 virtio auto")
VM_MODE: Final = Enumeration(
    "VMMode",
    "hvm xen uml exe",
    any_case=True,
    old={"pv": "xen", "hv": "hvm", "baremetal": "hvm"},
)
VIDEO_MODEL: Final = Enumeration(
    "VideoModel", "cirrus qxl vga vmvga xen virtio gop none bochs"
)
WATCHDOG_ACTION: Final = Enumeration(
    "WatchdogAction", "none pause poweroff reset disabled"
)
