# SPDX-License-Identifier: Apache-2.0
"""The image an instance boots from, and the properties that nova understands."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Self

from oslo_versionedobjects import fields as of

from . import enums
from .base import WireObject, register
from .envelope import version_tuple
from .fields import EnumField, Since, declare
from .image_names import image_properties


@register
class ImageMetaProps(WireObject):
    """The properties of an image; properties that the image lacks are unset."""

    VERSION = "1.44"
    fields = declare(
        hw_architecture=EnumField(enums.ARCHITECTURE),
        hw_auto_disk_config=of.StringField(),
        hw_boot_menu=of.FlexibleBooleanField(),
        hw_cdrom_bus=EnumField(enums.DISK_BUS),
        hw_cpu_cores=of.IntegerField(),
        hw_cpu_max_cores=of.IntegerField(),
        hw_cpu_max_sockets=of.IntegerField(),
        hw_cpu_max_threads=of.IntegerField(),
        hw_cpu_policy=EnumField(enums.CPU_ALLOCATION_POLICY),
        hw_cpu_realtime_mask=Since("1.10", of.StringField()),
        hw_cpu_sockets=of.IntegerField(),
        hw_cpu_thread_policy=Since(
            "1.9", EnumField(enums.CPU_THREAD_ALLOCATION_POLICY)
        ),
        hw_cpu_threads=of.IntegerField(),
        hw_device_id=of.IntegerField(),
        hw_disk_bus=EnumField(enums.DISK_BUS),
        hw_disk_type=of.StringField(),
        hw_emulation_architecture=Since("1.31", EnumField(enums.ARCHITECTURE)),
        hw_ephemeral_encryption=Since("1.32", of.FlexibleBooleanField()),
        hw_ephemeral_encryption_format=Since(
            "1.32", EnumField(enums.BLOCK_DEVICE_ENCRYPTION_FORMAT_TYPE)
        ),
        hw_ephemeral_encryption_secret_uuid=Since("1.37", of.UUIDField()),
        hw_firmware_stateless=Since("1.38", of.FlexibleBooleanField()),
        hw_firmware_type=Since("1.11", EnumField(enums.FIRMWARE_TYPE)),
        hw_floppy_bus=EnumField(enums.DISK_BUS),
        hw_input_bus=Since("1.29", EnumField(enums.INPUT_BUS)),
        hw_ipxe_boot=of.FlexibleBooleanField(),
        hw_locked_memory=Since("1.33", of.FlexibleBooleanField()),
        hw_machine_type=of.StringField(),
        hw_maxphysaddr_bits=Since("1.36", of.IntegerField()),
        hw_maxphysaddr_mode=Since("1.36", EnumField(enums.MAX_PHY_ADDR_MODE)),
        hw_mem_encryption=Since("1.24", of.FlexibleBooleanField()),
        hw_mem_encryption_model=Since("1.42", EnumField(enums.MEM_ENCRYPTION_MODEL)),
        hw_mem_page_size=of.StringField(),
        hw_numa_cpus=of.ListOfSetsOfIntegersField(),
        hw_numa_mem=of.ListOfIntegersField(),
        hw_numa_nodes=of.IntegerField(),
        hw_pci_numa_affinity_policy=Since(
            "1.25", EnumField(enums.PCI_NUMA_AFFINITY_POLICY)
        ),
        hw_pmu=Since("1.23", of.FlexibleBooleanField()),
        hw_pointer_model=Since("1.14", EnumField(enums.POINTER_MODEL_TYPE)),
        hw_qemu_guest_agent=of.FlexibleBooleanField(),
        hw_redirected_usb_ports=Since("1.41", of.IntegerField()),
        hw_rescue_bus=Since("1.15", EnumField(enums.DISK_BUS)),
        hw_rescue_device=Since("1.15", EnumField(enums.BLOCK_DEVICE_TYPE)),
        hw_rng_model=EnumField(enums.RNG_MODEL),
        hw_scsi_model=EnumField(enums.SCSI_MODEL),
        hw_serial_port_count=of.IntegerField(),
        hw_sound_model=Since("1.40", EnumField(enums.SOUND_MODEL_TYPE)),
        hw_time_hpet=Since("1.21", of.FlexibleBooleanField()),
        hw_tpm_model=Since("1.27", EnumField(enums.TPM_MODEL)),
        hw_tpm_version=Since("1.27", EnumField(enums.TPM_VERSION)),
        hw_usb_model=Since("1.41", EnumField(enums.USB_CONTROLLER_MODEL_TYPE)),
        hw_video_model=EnumField(enums.VIDEO_MODEL),
        hw_video_ram=of.IntegerField(),
        hw_vif_model=EnumField(enums.VIF_MODEL),
        hw_vif_multiqueue_enabled=Since("1.4", of.FlexibleBooleanField()),
        hw_viommu_model=Since("1.34", EnumField(enums.VIOMMU_MODEL)),
        hw_virtio_packed_ring=Since("1.35", of.FlexibleBooleanField()),
        hw_vm_mode=EnumField(enums.VM_MODE),
        hw_watchdog_action=EnumField(enums.WATCHDOG_ACTION),
        img_bdm_v2=of.FlexibleBooleanField(),
        img_bittorrent=of.FlexibleBooleanField(),
        img_block_device_mapping=of.ListOfDictOfNullableStringsField(),
        img_cache_in_nova=of.FlexibleBooleanField(),
        img_compression_level=of.IntegerField(),
        img_config_drive=Since("1.7", EnumField(enums.CONFIG_DRIVE_POLICY)),
        img_hide_hypervisor_id=Since("1.19", of.FlexibleBooleanField()),
        img_hv_requested_version=Since("1.2", of.VersionPredicateField()),
        img_hv_type=Since("1.2", EnumField(enums.HV_TYPE)),
        img_linked_clone=of.FlexibleBooleanField(),
        img_mappings=of.ListOfDictOfNullableStringsField(),
        img_owner_id=of.StringField(),
        img_root_device_name=of.StringField(),
        img_signature=of.StringField(),
        img_signature_certificate_uuid=of.UUIDField(),
        img_signature_hash_method=EnumField(enums.IMAGE_SIGNATURE_HASH_TYPE),
        img_signature_key_type=EnumField(enums.IMAGE_SIGNATURE_KEY_TYPE),
        img_use_agent=of.FlexibleBooleanField(),
        img_version=of.IntegerField(),
        os_admin_user=Since("1.5", of.StringField()),
        os_command_line=of.StringField(),
        os_distro=of.StringField(),
        os_require_quiesce=Since("1.1", of.FlexibleBooleanField()),
        os_secure_boot=Since("1.13", EnumField(enums.SECURE_BOOT)),
        os_skip_agent_inject_files_at_boot=of.FlexibleBooleanField(),
        os_skip_agent_inject_ssh=of.FlexibleBooleanField(),
        os_type=EnumField(enums.OS_TYPE),
        traits_required=Since("1.20", of.ListOfStringsField()),
    )
    ADDED_VALUES = MappingProxyType(
        {
            "hw_disk_bus": {"lxc": "1.6", "uml": "1.6"},
            "hw_video_model": {
                "gop": "1.22",
                "virtio": "1.22",
                "none": "1.22",
                "bochs": "1.30",
            },
            "hw_cpu_policy": {"mixed": "1.26"},
            "hw_pci_numa_affinity_policy": {"socket": "1.28"},
            "hw_vif_model": {"igb": "1.39"},
            "hw_mem_encryption_model": {"amd-sev-snp": "1.43", "intel-tdx": "1.44"},
        }
    )

    def get(self, name: str, defvalue: object = None) -> Any:
        """Return a property, or the default if the image does not have it."""
        return getattr(self, name) if self.obj_attr_is_set(name) else defvalue

    @classmethod
    def from_dict(cls, image_props: dict[str, Any]) -> Self:
        """Create it from Glance's properties, with current or old names."""
        return cls(**image_properties(image_props, cls.fields))

    def to_dict(self) -> dict[str, Any]:
        """Return the properties that are set."""
        return self.set_values()

    def obj_make_compatible(
        self, primitive: dict[str, Any], target_version: str
    ) -> None:
        """Remove a disabled watchdog from versions without that action."""
        is_older = version_tuple(target_version) < (1, 16)
        if is_older and primitive.get("hw_watchdog_action") == "disabled":
            del primitive["hw_watchdog_action"]
        super().obj_make_compatible(primitive, target_version)


# Nullable in Glance, but not in this object.
_NULL_TEXTS = ("name", "checksum", "owner", "container_format", "disk_format")
_NULL_NUMBERS = ("size", "virtual_size")


@register
class ImageMeta(WireObject):
    """An image as Glance describes it."""

    VERSION = "1.8"
    fields = declare(
        checksum=of.StringField(),
        container_format=of.StringField(),
        created_at=of.DateTimeField(nullable=True),
        direct_url=of.StringField(),
        disk_format=of.StringField(),
        id=of.UUIDField(),
        min_disk=of.IntegerField(),
        min_ram=of.IntegerField(),
        name=of.StringField(),
        owner=of.StringField(),
        properties=of.ObjectField("ImageMetaProps"),
        protected=of.FlexibleBooleanField(),
        size=of.IntegerField(),
        status=of.StringField(),
        tags=of.ListOfStringsField(),
        updated_at=of.DateTimeField(nullable=True),
        virtual_size=of.IntegerField(),
        visibility=of.StringField(),
    )

    @classmethod
    def from_dict(cls, image_meta: dict[str, Any] | None) -> Self:
        """Create it from an image dict; Glance's nulls become empty values."""
        values = dict(image_meta or {})
        values["properties"] = ImageMetaProps.from_dict(values.get("properties") or {})
        for names, empty in ((_NULL_TEXTS, ""), (_NULL_NUMBERS, 0)):
            for name in names:
                if name in values and values[name] is None:
                    values[name] = empty
        return cls(
            **{
                field_name: value
                for field_name, value in values.items()
                if field_name in cls.fields
            }
        )
