# SPDX-License-Identifier: Apache-2.0
"""What Moorage would make of a nova's configuration, finding by finding.

Nothing is written anywhere, and no finding has a value that may hold a password.
"""

from __future__ import annotations

import difflib
import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from keystoneauth1 import exceptions as ks_errors
from keystoneauth1 import loading as ks_loading
from oslo_config import cfg
from oslo_messaging.opts import list_opts as messaging_opts
from oslo_utils import strutils

from ..conf import list_opts, registered_opts
from ..conf.values import wrong_value
from ..entry_points import load_plugin
from ..errors import ConfigurationError, SchedulerError
from ..prefilters.networks import check_network
from ..prefilters.neutron import make_network_client
from ..sources.inventory import read_inventory
from ..sources.nova_db.heartbeats import heartbeats_of
from .checks_files import FileOptions
from .checks_finding import Finding
from .checks_options import FATES, Fate, Key, Verdict, fate_of
from .checks_plugins import available_filters, enabled_filters, weight_classes
from .checks_reach import database_findings, placement_findings

_OWN: Final = Verdict(Fate.HONOURED, "an option of Moorage's own")
_AUTH: Final = Verdict(Fate.HONOURED, "keystoneauth1 reads it, by an auth_section")
_SOURCE: Final = "Source of hosts"
#: How much alike the names of two groups are for one to be a mistake, of 1.
_NEARLY: Final = 0.8
#: Groups whose options are keystoneauth1's, but for those in the table.
_SERVICES: Final = ("placement", "neutron")
#: Groups all of whose options are known: another name is a mistake.
_STRICT: Final = frozenset(
    {"scheduler", "filter_scheduler", "metrics", "moorage", "agent", "telemetry"}
)


def examine(conf: cfg.ConfigOpts) -> Iterator[Finding]:
    """Yield what is to be said of the files that `conf` was loaded from.

    Parameters
    ----------
    conf : oslo_config.cfg.ConfigOpts
        With all options of ours.

    Raises
    ------
    oslo_config.cfg.Error
        A file cannot be read.
    """
    files = FileOptions.of(conf)
    wrong = {key: told for key in files if (told := _wrong_value(conf, key))}
    if not _is_any_in(wrong, "moorage", "placement", "api_database", "database"):
        yield _source(conf, files)
        yield from placement_findings(conf, files)
        if conf.moorage.source == "nova_db":
            yield from database_findings(conf, files)
    if not _is_any_in(wrong, "scheduler", "neutron"):
        yield from _network(conf, files)
    for key in files:
        if key in wrong:
            yield Finding.failure(_name(key), wrong[key])
        elif finding := _option(conf, files, key):
            yield finding
    yield from _mistyped_groups(files)
    yield from _others(conf, files)


def _is_any_in(wrong: Mapping[Key, str], *groups: str) -> bool:
    return any(group in groups for group, _ in wrong)


def _name(key: Key) -> str:
    group, option = key
    return f"[{group}] {option}"


# -- option by option ------------------------------------------------------------------


def _option(conf: cfg.ConfigOpts, files: FileOptions, key: Key) -> Finding | None:
    if key in _SPECIAL and (finding := _specially(conf, files, key)):
        return finding
    if key[0] in _SERVICES and key not in FATES and not _is_of_service(conf, key):
        return _unknown(key)
    verdict = fate_of(*key) or (_OWN if key in _registered() else None)
    if verdict is None and key[0] in _auth_sections(conf):
        verdict = _AUTH
    if verdict is None:
        return _unknown(key) if key[0] in _STRICT else None
    if verdict.fate is Fate.IGNORED:
        return Finding.warning(_name(key), f"{verdict}.")
    return Finding.success(_name(key), f"{verdict}.")


def _specially(conf: cfg.ConfigOpts, files: FileOptions, key: Key) -> Finding | None:
    try:
        return _SPECIAL[key](conf, files)
    except cfg.Error:  # an option that goes with it; the report has that, too
        return Finding.warning(
            _name(key), "It cannot be judged while another value cannot be used."
        )


def _unknown(key: Key) -> Finding:
    group, option = key
    known = {name for in_group, name in {*FATES, *_registered()} if in_group == group}
    close = difflib.get_close_matches(option, known, n=1)
    guess = f" Is {close[0]} meant?" if close else ""
    return Finding.warning(
        _name(key), f"Neither nova 34 nor Moorage has such an option.{guess}"
    )


def _auth_sections(conf: cfg.ConfigOpts) -> frozenset[str]:
    named = (conf[group].auth_section for group in _SERVICES)
    return frozenset(name for name in named if name)


def _is_of_service(conf: cfg.ConfigOpts, key: Key) -> bool:
    """Tell whether keystoneauth1 knows an option, with what auth_type adds."""
    group, option = key
    if key in _registered() or not conf[group].auth_type:
        return key in _registered()
    try:
        added = ks_loading.get_auth_plugin_conf_options(conf[group].auth_type)
    except ks_errors.NoMatchingPlugin:
        return True  # the check of the service says so
    names = {opt.name for opt in added}
    names |= {old.name for opt in added for old in opt.deprecated_opts if old.name}
    return option in {name.replace("-", "_") for name in names}


@functools.cache
def _registered() -> frozenset[Key]:
    return frozenset(
        (group, opt.name.replace("-", "_"))
        for group, opts in list_opts()
        for opt in opts
    )


def _wrong_value(conf: cfg.ConfigOpts, key: Key) -> str | None:
    """Return what is wrong with a value that cannot be read, if it is read."""
    group, name = key
    for in_group, opt, _ in registered_opts(conf):
        if (in_group or "DEFAULT", opt.dest) == (group, name):
            wrong = wrong_value(conf, in_group, opt)
            return wrong and f"The start would stop: {wrong}"
    return None


def _mistyped_groups(files: FileOptions) -> Iterator[Finding]:
    """Yield a warning for each group whose name is nearly that of one that is read."""
    known = {group for group, _ in (*list_opts(), *messaging_opts())} - {None}
    for group in dict.fromkeys(group for group, _ in files):
        close = difflib.get_close_matches(group, known, n=1, cutoff=_NEARLY)
        if close and group not in known:
            yield Finding.warning(
                f"[{group}]", f"Nothing reads such a group. Is [{close[0]}] meant?"
            )


def _others(conf: cfg.ConfigOpts, files: FileOptions) -> Iterator[Finding]:
    known = _registered()
    read = _STRICT | _auth_sections(conf)
    others = Counter(
        group
        for group, option in files
        if (group, option) not in known
        and fate_of(group, option) is None
        and group not in read
    )
    if others:
        told = ", ".join(f"{n} of [{group}]" for group, n in sorted(others.items()))
        yield Finding.success(
            "Other options", f"None of a scheduler's business: {told}."
        )


# -- where hosts come from -------------------------------------------------------------


def _source(conf: cfg.ConfigOpts, files: FileOptions) -> Finding:
    name, inventory = conf.moorage.source, conf.moorage.inventory_file
    if name == "file" and not inventory:
        return Finding.failure(
            _SOURCE,
            "[moorage] source is not set, nor is [moorage] inventory_file. For a nova: "
            "[moorage] source = nova_db.",
        )
    try:
        load_plugin("moorage.sources", name, option="[moorage] source")
        if name == "file":
            read_inventory(inventory)
    except ConfigurationError as e:
        return Finding.failure(_SOURCE, files.scrubbed(e))
    if name in ("file", "push") and ("api_database", "connection") in files:
        return Finding.warning(
            _SOURCE,
            f"Hosts come from {name!r}, and not from nova's databases, which "
            "[api_database] names: nova's computes are not among them unless told.",
        )
    return Finding.success(_SOURCE, f"{name}")


def _network(conf: cfg.ConfigOpts, files: FileOptions) -> Iterator[Finding]:
    try:
        client = make_network_client(conf)
        check_network(conf, client)
    except ConfigurationError as e:
        told = files.scrubbed(e)
        yield Finding.failure("Neutron", f"The start would stop: {told}.")
        return
    if client is not None:
        yield Finding.success("Neutron", "It is asked where a request needs it.")


# -- options whose value decides -------------------------------------------------------


def _heartbeats(conf: cfg.ConfigOpts, files: FileOptions) -> Finding | None:
    name, source = "[DEFAULT] servicegroup_driver", conf.moorage.source
    if conf.servicegroup_driver == "db":
        return None
    if source != "nova_db":
        return Finding.success(name, f"Heartbeats come from the source {source!r}.")
    try:
        if heartbeats := heartbeats_of(conf):
            heartbeats.read("compute", [conf.host])
    except ConfigurationError as e:
        return Finding.failure(name, files.scrubbed(f"The start would stop: {e}."))
    except Exception as e:  # whatever a plugin or its client raises
        why = files.scrubbed(f"{type(e).__name__}: {e}")
        return Finding.failure(
            name, f"Heartbeats cannot be read, and every host counts as down: {why}."
        )
    return Finding.success(name, f"Heartbeats are read by {conf.servicegroup_driver}.")


def _backend(_conf: cfg.ConfigOpts, files: FileOptions) -> Finding | None:
    if files.get("DEFAULT", "concurrency_backend") != "eventlet":
        return None
    return Finding.warning(
        "[DEFAULT] concurrency_backend",
        "Ignored: threads are used, never eventlet. Plugins of your own that rely on "
        "greenlets have to be changed.",
    )


def _tracking(conf: cfg.ConfigOpts, files: FileOptions) -> Finding | None:
    text = files.get("filter_scheduler", "track_instance_changes")
    if strutils.bool_from_string(text, default=True):
        return None
    if conf.moorage.source != "file":
        return None
    return Finding.warning(
        "[filter_scheduler] track_instance_changes",
        "It is off on the computes, too: they do not tell of their instances, and a "
        "file knows those only that it lists. Affinity is judged by these.",
    )


def _discovery(conf: cfg.ConfigOpts, _files: FileOptions) -> Finding | None:
    name, interval = (
        "[scheduler] discover_hosts_in_cells_interval",
        conf.scheduler.discover_hosts_in_cells_interval,
    )
    if interval >= 0 and conf.moorage.source != "nova_db":
        return Finding.warning(
            name, f"Ignored: the source {conf.moorage.source!r} has no host mappings."
        )
    return None


def _periodic(conf: cfg.ConfigOpts, files: FileOptions) -> Finding | None:
    is_on = strutils.bool_from_string(files.get("DEFAULT", "periodic_enable"), True)
    if is_on or conf.scheduler.discover_hosts_in_cells_interval < 0:
        return None
    return Finding.warning(
        "[DEFAULT] periodic_enable",
        "Ignored: hosts are discovered all the same. To end that, set [scheduler] "
        "discover_hosts_in_cells_interval = -1.",
    )


def _record(conf: cfg.ConfigOpts, _files: FileOptions) -> Finding | None:
    if not conf.moorage.register_service:
        return None
    name = "[moorage] register_service"
    if conf.moorage.source != "nova_db":
        return Finding.warning(
            name, f"Ignored: the source {conf.moorage.source!r} has no such table."
        )
    if not conf.database.connection:
        return Finding.failure(
            name, "The start would stop: [database] connection is not set."
        )
    return None


def _driver(conf: cfg.ConfigOpts, files: FileOptions) -> Finding | None:
    try:
        load_plugin("moorage.drivers", conf.moorage.driver)
    except SchedulerError as e:
        return Finding.failure("[moorage] driver", files.scrubbed(e))
    return None


_Special = Callable[[cfg.ConfigOpts, FileOptions], Finding | None]

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
        ("moorage", "register_service"): _record,
        ("scheduler", "discover_hosts_in_cells_interval"): _discovery,
    }
)
