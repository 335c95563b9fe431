# SPDX-License-Identifier: Apache-2.0
"""Check a nova configuration for use with Moorage.

The checks write nothing, and no result contains a value that may hold a password.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from keystoneauth1 import exceptions as ks_errors
from keystoneauth1 import loading as ks_loading
from oslo_config import cfg
from oslo_messaging.opts import list_opts as messaging_opts
from oslo_upgradecheck.upgradecheck import Code
from oslo_utils import strutils

from ...conf import list_opts, registered_opts
from ...conf.keystoneauth import has_endpoint
from ...conf.presets import PRESETS, multiplier
from ...conf.values import wrong_value
from ...drivers.plugins import load_driver
from ...entry_points import load_plugin
from ...errors import ConfigurationError, SchedulerError
from ...kafka_client import client_settings
from ...prefilters.networks import check_network
from ...prefilters.neutron import make_network_client
from ...sources.inventory import read_inventory
from ...sources.nova_db.heartbeats import heartbeats_of
from ...sources.report_columns import load_columns
from .files import FileOptions
from .option_table import (
    STRICT,
    TREATMENTS,
    Key,
    OptionTreatment,
    Treatment,
    treatment_of,
    unknown_option,
)
from .places import OfPlacement, PlacementMembers, place_findings
from .plugins import available_filters, enabled_filters, weight_classes
from .providers import host_findings, provider_findings
from .result import CheckResult
from .services import database_findings, placement_findings
from .stores import broker_finding, kafka_finding, store_findings, uses_kafka

_OWN: Final = OptionTreatment(Treatment.HONOURED, "Moorage's own option")
_AUTH: Final = OptionTreatment(
    Treatment.HONOURED, "keystoneauth1 reads it, by an auth_section"
)
_SERVICE: Final = OptionTreatment(Treatment.HONOURED, "keystoneauth1 reads it")
_SOURCE: Final = "Source of hosts"
#: The sources that read none of nova's databases.
_WITHOUT_DATABASES: Final = ("file", "kafka", "push")
#: Groups that the checks of other services read.
_CONNECTED: Final = (
    "moorage", "placement", "placement_database", "api_database", "database", "kafka"
)  # fmt: skip
#: Groups whose options the check of the broker reads, beside [DEFAULT].
_OF_MESSAGING: Final = (
    "oslo_messaging_rabbit", "oslo_messaging_kafka", "oslo_messaging_notifications"
)  # fmt: skip
#: The similarity of two group names, 0 to 1, from which one counts as misspelt.
_MIN_SIMILARITY: Final = 0.8
#: Groups whose options are keystoneauth1's, except for those in the table.
_SERVICES: Final = ("placement", "neutron", "nova", "cinder")


def run_checks(conf: cfg.ConfigOpts) -> Iterator[CheckResult]:
    """Yield the results of all checks of the files that `conf` was loaded from.

    Parameters
    ----------
    conf : oslo_config.cfg.ConfigOpts
        With all of Moorage's options registered.

    Raises
    ------
    oslo_config.cfg.Error
        A file is unreadable.
    """
    files = FileOptions.of(conf)
    errors = {key: why for key in files if (why := _wrong_value(conf, key))}
    if not _is_any_in(errors, *_CONNECTED):
        findings = list(_connected(conf, files))
        yield from findings
        if _is_comparable(conf, findings):
            yield from host_findings(conf, files)
    if not _is_any_in(errors, "DEFAULT", *_OF_MESSAGING):
        yield broker_finding(conf, files)
    if not _is_any_in(errors, "scheduler", "neutron"):
        yield from _network(conf, files)
    for key in files:
        if key in errors:
            yield CheckResult.failure(_name(key), errors[key])
        elif finding := _option(conf, files, key):
            yield finding
    yield from _misspelt_groups(files)
    yield from _other_options(conf, files)


def _connected(conf: cfg.ConfigOpts, files: FileOptions) -> Iterator[CheckResult]:
    """Check the sources of hosts and candidates, and the stores of decisions."""
    source = _source(conf, files)
    yield source
    if source.code is not Code.FAILURE and uses_kafka(conf):
        yield kafka_finding(conf, files)
    members = PlacementMembers(conf, files)
    yield from members.findings
    yield from _places(conf, members.places)
    yield from placement_findings(conf, files)
    yield from provider_findings(conf, files)
    if conf.moorage.source == "nova_db":
        yield from database_findings(conf, files, members.places)
    yield from store_findings(conf, files)


def _is_comparable(conf: cfg.ConfigOpts, findings: Collection[CheckResult]) -> bool:
    """Return whether hosts and providers can be read, as far as `findings` show."""
    return has_endpoint(conf, "placement") and not any(
        finding.code is Code.FAILURE for finding in findings
    )


def _is_any_in(errors: Mapping[Key, str], *groups: str) -> bool:
    """Return whether an option with an invalid value is in one of the groups."""
    return any(group in groups for group, _ in errors)


def _name(key: Key) -> str:
    group, option = key
    return f"[{group}] {option}"


# -- option by option ------------------------------------------------------------------


def _option(conf: cfg.ConfigOpts, files: FileOptions, key: Key) -> CheckResult | None:
    """Return how an option is treated; None: it is unrelated to the scheduler."""
    if key in _SPECIAL and (finding := _special_result(conf, files, key)):
        return finding
    if (
        key[0] in _SERVICES
        and key not in TREATMENTS
        and not _is_service_option(conf, key)
    ):
        return _unknown(key)
    treated = treatment_of(*key) or (_OWN if key in _registered() else None)
    if treated is None and key[0] in _auth_sections(conf):
        treated = _AUTH
    if treated is None and key[0] in _SERVICES:
        treated = _SERVICE
    if treated is None:
        return _unknown(key) if key[0] in STRICT else None
    source = conf.moorage.source
    if treated.source == "nova_db" and source in _WITHOUT_DATABASES:
        why = f"only the source nova_db reads it, and the source is {source!r}"
        treated = OptionTreatment(Treatment.NEEDLESS, why)
    if treated.treatment in (Treatment.IGNORED, Treatment.REMOVED):
        return CheckResult.warning(_name(key), f"{treated}.")
    return CheckResult.success(_name(key), f"{treated}.")


def _special_result(
    conf: cfg.ConfigOpts, files: FileOptions, key: Key
) -> CheckResult | None:
    try:
        return _SPECIAL[key](conf, files)
    except cfg.Error:  # a related option is invalid, which is reported for that option
        return CheckResult.warning(
            _name(key), "It cannot be checked while a related value is invalid."
        )


def _unknown(key: Key) -> CheckResult:
    return CheckResult.warning(_name(key), unknown_option(key, _registered()))


def _auth_sections(conf: cfg.ConfigOpts) -> frozenset[str]:
    """Return the groups that options auth_section name."""
    sections = (conf[group].auth_section for group in _SERVICES)
    return frozenset(name for name in sections if name)


def _is_service_option(conf: cfg.ConfigOpts, key: Key) -> bool:
    """Return whether keystoneauth1, or the plugin of the auth_type, has an option."""
    group, option = key
    if key in _registered() or not conf[group].auth_type:
        return key in _registered()
    try:
        plugin_opts = ks_loading.get_auth_plugin_conf_options(conf[group].auth_type)
    except ks_errors.NoMatchingPlugin:
        return True  # the check of the service reports it
    names = {opt.name for opt in plugin_opts}
    names |= {
        deprecated.name
        for opt in plugin_opts
        for deprecated in opt.deprecated_opts
        if deprecated.name
    }
    return option in {name.replace("-", "_") for name in names}


@functools.cache
def _registered() -> frozenset[Key]:
    return frozenset(
        (group, opt.name.replace("-", "_"))
        for group, opts in list_opts()
        for opt in opts
    )


def _wrong_value(conf: cfg.ConfigOpts, key: Key) -> str | None:
    """Return the error of an invalid value of a registered option, or None."""
    group, name = key
    for in_group, opt, _ in registered_opts(conf):
        if (in_group or "DEFAULT", opt.dest) == (group, name):
            error = wrong_value(conf, in_group, opt)
            return error and f"The scheduler would not start: {error}"
    return None


def _misspelt_groups(files: FileOptions) -> Iterator[CheckResult]:
    """Yield a warning for each unknown group whose name resembles a known one."""
    known_groups = {group for group, _ in (*list_opts(), *messaging_opts())} - {None}
    for group in dict.fromkeys(group for group, _ in files):
        similar_groups = difflib.get_close_matches(
            group, known_groups, n=1, cutoff=_MIN_SIMILARITY
        )
        if similar_groups and group not in known_groups:
            yield CheckResult.warning(
                f"[{group}]",
                f"This group is not read. Did you mean [{similar_groups[0]}]?",
            )


def _other_options(conf: cfg.ConfigOpts, files: FileOptions) -> Iterator[CheckResult]:
    """Yield one result that counts the options that are unrelated to the scheduler."""
    registered = _registered()
    reported_groups = STRICT | _auth_sections(conf) | {*_SERVICES}
    unrelated = Counter(
        group
        for group, option in files
        if (group, option) not in registered
        and treatment_of(group, option) is None
        and group not in reported_groups
    )
    if unrelated:
        listing = ", ".join(
            f"{count} of [{group}]" for group, count in sorted(unrelated.items())
        )
        yield CheckResult.success(
            "Other options", f"Unrelated to the scheduler: {listing}."
        )


# -- where hosts come from -------------------------------------------------------------


def _source(conf: cfg.ConfigOpts, files: FileOptions) -> CheckResult:
    name, inventory = conf.moorage.source, conf.moorage.inventory_file
    if name == "file" and not inventory:
        return CheckResult.failure(
            _SOURCE,
            "Neither [moorage] source nor [moorage] inventory_file is set. For a nova "
            "cloud, set [moorage] source = nova_db.",
        )
    try:
        load_plugin("moorage.sources", name, option="[moorage] source")
        columns = load_columns()
        if name == "file":
            read_inventory(inventory, columns)
        if uses_kafka(conf):
            client_settings(conf)  # checks the options of [kafka]
    except ConfigurationError as e:
        return CheckResult.failure(_SOURCE, files.redacted(e))
    if name in _WITHOUT_DATABASES and ("api_database", "connection") in files:
        return CheckResult.warning(
            _SOURCE,
            f"Hosts come from {name!r}, and not from nova's databases, which "
            "[api_database] names: nova's computes are not included automatically.",
        )
    return CheckResult.success(_SOURCE, f"{name}")


def _places(conf: cfg.ConfigOpts, of_placement: OfPlacement) -> Iterator[CheckResult]:
    """Check the places of the inventory file, if it is readable, and of Placement."""
    if conf.moorage.source != "file" or not conf.moorage.inventory_file:
        if of_placement and conf.moorage.source != "nova_db":
            yield from place_findings(conf, (), {}, of_placement)
        return
    with contextlib.suppress(ConfigurationError):  # `_source` has reported it
        inventory = read_inventory(conf.moorage.inventory_file, load_columns())
        reported = {host.record.host: host.record.places for host in inventory.hosts}
        yield from place_findings(conf, inventory.aggregates, reported, of_placement)


def _network(conf: cfg.ConfigOpts, files: FileOptions) -> Iterator[CheckResult]:
    try:
        client = make_network_client(conf)
        check_network(conf, client)
    except ConfigurationError as e:
        why = files.redacted(e)
        yield CheckResult.failure("Neutron", f"The scheduler would not start: {why}.")
        return
    if client is not None:
        yield CheckResult.success("Neutron", "Queried if a request needs it.")


# -- options whose value decides -------------------------------------------------------


def _heartbeats(conf: cfg.ConfigOpts, files: FileOptions) -> CheckResult | None:
    name, source = "[DEFAULT] servicegroup_driver", conf.moorage.source
    if conf.servicegroup_driver == "db":
        return None
    if source != "nova_db":
        return CheckResult.success(name, f"Heartbeats come from the source {source!r}.")
    try:
        if heartbeats := heartbeats_of(conf):
            heartbeats.read("compute", [conf.host])
    except ConfigurationError as e:
        why = files.redacted(f"The scheduler would not start: {e}.")
        return CheckResult.failure(name, why)
    except Exception as e:  # a plugin or its client may raise anything
        why = files.redacted(f"{type(e).__name__}: {e}")
        return CheckResult.failure(
            name, f"Heartbeats cannot be read, and every host counts as down: {why}."
        )
    return CheckResult.success(
        name, f"Heartbeats are read by {conf.servicegroup_driver}."
    )


def _backend(_conf: cfg.ConfigOpts, files: FileOptions) -> CheckResult | None:
    if files.get("DEFAULT", "concurrency_backend") != "eventlet":
        return None
    return CheckResult.warning(
        "[DEFAULT] concurrency_backend",
        "Ignored: Moorage always uses threads, never eventlet. Third-party plugins "
        "that rely on greenlets must be changed.",
    )


def _tracking(conf: cfg.ConfigOpts, files: FileOptions) -> CheckResult | None:
    text = files.get("filter_scheduler", "track_instance_changes")
    if strutils.bool_from_string(text, default=True):
        return None
    if conf.moorage.source != "file":
        return None
    return CheckResult.warning(
        "[filter_scheduler] track_instance_changes",
        "It is off on the computes, too: they do not report their instances, so that "
        "affinity is checked only against the instances listed in the inventory file.",
    )


def _discovery(conf: cfg.ConfigOpts, _files: FileOptions) -> CheckResult | None:
    name, interval = (
        "[scheduler] discover_hosts_in_cells_interval",
        conf.scheduler.discover_hosts_in_cells_interval,
    )
    if interval >= 0 and conf.moorage.source != "nova_db":
        return CheckResult.warning(
            name, f"Ignored: the source {conf.moorage.source!r} has no host mappings."
        )
    return None


def _periodic(conf: cfg.ConfigOpts, files: FileOptions) -> CheckResult | None:
    is_on = strutils.bool_from_string(files.get("DEFAULT", "periodic_enable"), True)
    if is_on or conf.scheduler.discover_hosts_in_cells_interval < 0:
        return None
    return CheckResult.warning(
        "[DEFAULT] periodic_enable",
        "Ignored: hosts are discovered nevertheless. To disable that, set [scheduler] "
        "discover_hosts_in_cells_interval = -1.",
    )


def _record(conf: cfg.ConfigOpts, _files: FileOptions) -> CheckResult | None:
    if not conf.moorage.register_service:
        return None
    name = "[moorage] register_service"
    if conf.moorage.source != "nova_db":
        return CheckResult.warning(
            name, f"Ignored: the source {conf.moorage.source!r} has no such table."
        )
    if not conf.database.connection:
        return CheckResult.failure(
            name, "The scheduler would not start: [database] connection is not set."
        )
    return None


def _driver(conf: cfg.ConfigOpts, files: FileOptions) -> CheckResult | None:
    try:
        load_driver(conf)
    except SchedulerError as e:
        return CheckResult.failure("[moorage] driver", files.redacted(e))
    return None


def _preset(conf: cfg.ConfigOpts, _files: FileOptions) -> CheckResult:
    preset = PRESETS[conf.moorage.preset]
    applied: list[str] = []
    outranked: list[str] = []
    for group, name in preset.multipliers:
        value, origin = multiplier(conf, group, name)
        text = f"[{group}] {name} = {value:g}"
        (applied if origin else outranked).append(text)
    sets = f"It sets {', '.join(applied)}." if applied else "It sets nothing."
    but = f" Set themselves: {', '.join(outranked)}." if outranked else ""
    return CheckResult.success("[moorage] preset", f"{_OWN}. {sets}{but}")


_Special = Callable[[cfg.ConfigOpts, FileOptions], CheckResult | None]

_SPECIAL: Final[Mapping[Key, _Special]] = MappingProxyType(
    {
        ("DEFAULT", "concurrency_backend"): _backend,
        ("DEFAULT", "periodic_enable"): _periodic,
        ("DEFAULT", "servicegroup_driver"): _heartbeats,
        ("filter_scheduler", "available_filters"): available_filters,
        ("filter_scheduler", "enabled_filters"): enabled_filters,
        ("filter_scheduler", "track_instance_changes"): _tracking,
        ("filter_scheduler", "weight_classes"): weight_classes,
        ("moorage", "driver"): _driver,
        ("moorage", "preset"): _preset,
        ("moorage", "register_service"): _record,
        ("scheduler", "discover_hosts_in_cells_interval"): _discovery,
    }
)
