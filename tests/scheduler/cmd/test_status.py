# SPDX-License-Identifier: Apache-2.0
"""`moorage-status upgrade check` on files of options, and beside what they lead to."""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import string
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import oslo_messaging.opts
import pytest
import sqlalchemy as sa
from oslo_log import _options as oslo_log_options

from moorage.scheduler.cmd.checks.option_table import (
    TREATMENTS,
    Treatment,
    treatment_of,
)
from moorage.scheduler.cmd.checks.report import run
from moorage.scheduler.conf import list_opts
from moorage.scheduler.decision_store import DecisionStore
from moorage.scheduler.kafka_client import TopicNames
from moorage.scheduler.placement.seed import Provider, seed
from moorage.scheduler.sources.inventory import read_inventory
from moorage.scheduler.sources.nova_db import schema
from moorage.scheduler.sources.push.store import HostStore
from moorage.testing.builders import node_uuid

from ...fixtures.clouds import host, write_inventory
from ...fixtures.database_servers import Database
from ...fixtures.kafka import Kafka
from ...fixtures.memcached import Memcached
from ...fixtures.nova_databases import Kind, NovaDatabases
from ...fixtures.nova_peer import peer_or_skip
from ...fixtures.placement_servers import (
    EmbeddedPlacementFixture,
    MisbehavingServer,
    Misbehaviour,
)
from ...fixtures.ports import free_port
from ...fixtures.rabbitmq import Broker
from ..sources.nova_db.databases import Nova

SUCCESS, WARNING, FAILURE = range(3)


class Found(NamedTuple):
    """One check of a report."""

    code: int
    details: str


class Report(NamedTuple):
    """Return the output of the command, from JSON."""

    status: int
    checks: Mapping[str, Found]
    text: str


Check = Callable[..., Report]


@pytest.fixture
def check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Check:
    """Run the check on files of these texts."""

    def run_it(*texts: str) -> Report:
        arguments = []
        for number, text in enumerate(texts):
            path = tmp_path / f"{number}.conf"
            path.write_text(text)
            arguments += ["--config-file", str(path)]
        status = run([*arguments, "upgrade", "check", "--json"])
        printed = capsys.readouterr().out
        found = {
            each["check"]: Found(each["result"], each["details"])
            for each in json.loads(printed)["checks"]
        }
        return Report(status, found, printed)

    return run_it


# -- the table -------------------------------------------------------------------------

#: Those whose options all have a line of their own.
WHOLE_GROUPS = (
    "scheduler", "filter_scheduler", "metrics", "notifications", "upgrade_levels",
    "workarounds",
)  # fmt: skip
OTHER_GROUPS = (
    "api_database", "cache", "compute", "conductor", "database", "neutron", "pci",
    "placement", "quota", "service_user",
)  # fmt: skip
#: Registered by oslo.db with all the others, and of no use.
OF_OSLO_DB = {
    (group, name) for group, name in TREATMENTS if group in ("database", "api_database")
}


def ours() -> set[tuple[str, str]]:
    """The options that our own modules register in groups of nova's."""
    pairs = ((group, opt.name) for group, opts in list_opts() for opt in opts)
    return {(group, name.replace("-", "_")) for group, name in pairs}


def oslos() -> set[tuple[str, str]]:
    logging = (opt for _, opts in oslo_log_options.list_opts() for opt in opts)
    messaging = (
        opt for group, opts in oslo_messaging.opts.list_opts() if not group
        for opt in opts
    )  # fmt: skip
    names = (opt.name for opt in itertools.chain(logging, messaging))
    return {("DEFAULT", name.replace("-", "_")) for name in names}


def test_every_option_that_is_registered_is_honoured() -> None:
    groups = {
        group
        for (group, _), treated in TREATMENTS.items()
        if treated.treatment is not Treatment.REMOVED
    }
    reported = {
        key: treatment_of(*key) for key in ours() - OF_OSLO_DB if key[0] in groups
    }
    assert {
        k for k, v in reported.items() if not v or v.treatment is not Treatment.HONOURED
    } == set()


def test_every_option_that_is_honoured_is_registered() -> None:
    honoured = {
        k
        for k, v in TREATMENTS.items()
        if v.treatment is Treatment.HONOURED and k[1] != "*"
    }
    assert honoured - ours() - oslos() == set()


def test_every_verdict_but_honoured_has_a_reason() -> None:
    unexplained = {k for k, v in TREATMENTS.items() if not v.why}
    assert {TREATMENTS[key].treatment for key in unexplained} == {Treatment.HONOURED}


PROGRAM = """
import json
import nova.conf

reported = {}
for info, group in nova.conf.CONF._all_opt_infos():
    reported.setdefault(group.name if group else "DEFAULT", []).append(info["opt"].name)
print(json.dumps(reported))
"""


@pytest.fixture(scope="module")
def novas() -> Mapping[str, list[str]]:
    """The options of nova 34, by group."""
    python = peer_or_skip()
    answer = subprocess.run(
        [python, "-W", "ignore", "-c", PROGRAM],
        env={**os.environ, "OS_NOVA_DISABLE_EVENTLET_PATCHING": "1"},
        stdout=subprocess.PIPE,
        check=True,
        timeout=120,
    )
    found: Mapping[str, list[str]] = json.loads(answer.stdout)
    return found


@pytest.mark.deep
@pytest.mark.peer
def test_every_option_of_novas_groups_has_a_treatment(
    novas: Mapping[str, list[str]],
) -> None:
    every = {
        (group, name.replace("-", "_"))
        for group in (*WHOLE_GROUPS, *OTHER_GROUPS)
        for name in novas[group]
    }
    assert {key for key in every if treatment_of(*key) is None} == set()
    whole = {key for key in every if key[0] in WHOLE_GROUPS}
    assert whole - TREATMENTS.keys() == set()


@pytest.mark.deep
@pytest.mark.peer
def test_table_names_no_option_that_nova_does_not_have(
    novas: Mapping[str, list[str]],
) -> None:
    nova = {(g, name.replace("-", "_")) for g, names in novas.items() for name in names}
    named = {
        key
        for key, treated in TREATMENTS.items()
        if key[1] != "*" and treated.treatment is not Treatment.REMOVED
    } - oslos()
    named = {key for key in named if key[0] != "oslo_reports"}  # registered late
    of_placement = {
        k for k in named if TREATMENTS[k].why == "Placement itself reads it"
    }
    ours = {k for k in named if TREATMENTS[k].why == "Moorage's own option"}
    dropped_by_nova = {(g, "use_db_reconnect") for g in ("database", "api_database")}
    assert named - nova - of_placement - ours == dropped_by_nova
    assert not ours & nova


# -- what a file says ------------------------------------------------------------------

HOSTS = "[DEFAULT]\ntransport_url = fake://\n[moorage]\ninventory_file = {inventory}\n"


@pytest.fixture
def hosts(tmp_path: Path) -> str:
    """Options with which everything would start."""
    return HOSTS.format(inventory=write_inventory(tmp_path, host("h1")))


def test_files_with_nothing_wrong_are_a_success_but_for_the_embedded_placement(
    check: Check, hosts: str
) -> None:
    report = check(hosts)
    assert report.status == WARNING
    assert report.checks["Source of hosts"] == (SUCCESS, "file")
    embedded = report.checks.pop("Placement")  # type: ignore[attr-defined]  # a dict
    assert embedded.code == WARNING
    assert "embedded Placement would run" in embedded.details
    assert {found.code for found in report.checks.values()} == {SUCCESS}


@pytest.mark.parametrize(
    ("line", "code", "details"),
    [
        pytest.param("[scheduler] max_attempts = 5", SUCCESS, "Honoured", id="read"),
        pytest.param(
            "[filter_scheduler] pci_in_placement = true",
            SUCCESS,
            "Honoured elsewhere: nova's API and conductor",
            id="elsewhere",
        ),
        pytest.param("[quota] cores = 5", SUCCESS, "Honoured elsewhere", id="group"),
        pytest.param(
            "[DEFAULT] my_ip = 10.0.0.1", SUCCESS, "Not needed", id="needless"
        ),
        pytest.param("[DEFAULT] debug = true", SUCCESS, "oslo.log", id="oslo"),
        pytest.param(
            "[database] slave_connection = x", WARNING, "Ignored: only", id="ignored"
        ),
        pytest.param(
            "[DEFAULT] concurrency_backend = eventlet",
            WARNING,
            "never eventlet",
            id="eventlet",
        ),
        pytest.param(
            "[DEFAULT] concurrency_backend = threading",
            SUCCESS,
            "threads are always used",
            id="threading",
        ),
        pytest.param(
            "[DEFAULT] servicegroup_driver = mc",
            SUCCESS,
            "from the source 'file'",
            id="memcached-with-a-file",
        ),
        pytest.param(
            "[filter_scheduler] track_instance_changes = false",
            WARNING,
            "affinity is checked only against",
            id="untracked",
        ),
        pytest.param(
            "[filter_scheduler] track_instance_changes = true",
            SUCCESS,
            "are always processed",
            id="tracked",
        ),
        pytest.param(
            "[scheduler] discover_hosts_in_cells_interval = 0",
            WARNING,
            "the source 'file' has no host mappings",
            id="discovery-0",
        ),
        pytest.param(
            "[scheduler] discover_hosts_in_cells_interval = 60",
            WARNING,
            "the source 'file' has no host mappings",
            id="discovery-file",
        ),
        pytest.param(
            "[scheduler] discover_hosts_in_cells_interval = -1",
            SUCCESS,
            "Honoured",
            id="discovery-off",
        ),
        pytest.param(
            "[scheduler] max_attempts = 0", FAILURE, "max_attempts", id="out-of-range"
        ),
        pytest.param(
            "[scheduler] max_attemps = 2",
            WARNING,
            "Did you mean max_attempts?",
            id="unknown",
        ),
        pytest.param(
            "[scheduler] driver = filter_scheduler",
            WARNING,
            "Neither nova 34 nor Moorage",
            id="of-an-old-nova",
        ),
        pytest.param(
            "[moorage] sorce = file",
            WARNING,
            "Did you mean source?",
            id="unknown-of-ours",
        ),
        pytest.param(
            "[moorage] pid_file = /run/moorage.pid",
            WARNING,
            "Removed: the service manager knows the process",
            id="removed",
        ),
        pytest.param(
            "[web] threads = 1",
            WARNING,
            "Removed: the HTTP API answers four requests",
            id="removed-threads",
        ),
        pytest.param(
            "[locality] max_lookups = 1",
            WARNING,
            "Removed: ten volumes and ports",
            id="removed-max_lookups",
        ),
        pytest.param(
            "[moorage] placement_timeout = 1",
            WARNING,
            "Removed: set [placement] timeout",
            id="removed-placement_timeout",
        ),
        pytest.param(
            "[kafka] hosts_topic = 1",
            WARNING,
            "Removed: topic_prefix begins the names",
            id="removed-hosts_topic",
        ),
        pytest.param(
            "[moorage] driver = none", FAILURE, "there is no plugin 'none'", id="driver"
        ),
        pytest.param(
            "[moorage] register_service = true",
            WARNING,
            "the source 'file' has no such table",
            id="service-record-with-a-file",
        ),
        pytest.param(
            "[moorage] register_service = false",
            SUCCESS,
            "Moorage's own",
            id="no-service-record",
        ),
        pytest.param(
            "[placement] auth_ulr = x", WARNING, "no", id="unknown-of-keystoneauth"
        ),
        pytest.param(
            "[nova] auth_section = placement", SUCCESS, "own option", id="compute-api"
        ),
    ],
)
def test_option_is_reported_by_name(
    check: Check, hosts: str, line: str, code: int, details: str
) -> None:
    group, _, rest = line.partition(" ")
    report = check(hosts, f"{group}\n{rest}\n")
    found = report.checks[f"{group} {rest.partition(' ')[0]}"]
    assert found.code == code
    assert details.lower() in found.details.lower()


def test_file_that_comes_later_wins(check: Check, hosts: str) -> None:
    two = (f"[DEFAULT]\nconcurrency_backend = {x}\n" for x in ("eventlet", "threading"))
    report = check(hosts, *two)
    assert report.checks["[DEFAULT] concurrency_backend"].code == SUCCESS


def test_name_may_have_dashes(check: Check, hosts: str) -> None:
    report = check(hosts, "[scheduler]\nmax-attempts = 5\n")
    assert report.checks["[scheduler] max_attempts"].code == SUCCESS


def test_options_of_others_are_only_counted(check: Check, hosts: str) -> None:
    others = "[libvirt]\nvirt_type = kvm\ncpu_mode = none\n[glance]\ntimeout = 3\n"
    report = check(hosts, others)
    assert "1 of [glance], 2 of [libvirt]" in report.checks["Other options"].details
    assert not any("virt_type" in name for name in report.checks)


def test_periodic_tasks_cannot_be_switched_off_as_a_whole(
    check: Check, hosts: str
) -> None:
    on = "[scheduler]\ndiscover_hosts_in_cells_interval = 60\n"
    for text, code in (("true", SUCCESS), ("false", WARNING)):
        report = check(hosts, on, f"[DEFAULT]\nperiodic_enable = {text}\n")
        assert report.checks["[DEFAULT] periodic_enable"].code == code


def test_value_that_is_wrong_does_not_hide_the_others(check: Check, hosts: str) -> None:
    wrong = "[scheduler]\ndiscover_hosts_in_cells_interval = soon\nmax_attempts = 3\n"
    report = check(hosts, wrong, "[DEFAULT]\nperiodic_enable = false\n")
    found = report.checks["[scheduler] discover_hosts_in_cells_interval"]
    assert (found.code, report.status) == (FAILURE, FAILURE)
    assert "= soon: not a number" in found.details
    assert "LocationInfo" not in found.details
    assert report.checks["[scheduler] max_attempts"].code == SUCCESS
    assert report.checks["[DEFAULT] periodic_enable"].code == WARNING


# -- plugins ---------------------------------------------------------------------------

ENABLED = "[filter_scheduler]\nenabled_filters = ComputeFilter,{}\n"


@pytest.mark.parametrize(
    ("names", "code", "details"),
    [
        pytest.param("NUMATopologyFilter", SUCCESS, "Honoured", id="known"),
        pytest.param("RamFilter", WARNING, "RamFilter (replacement:", id="old"),
        pytest.param("TrustedFilter", FAILURE, "a trait", id="refused"),
        pytest.param("NoFilter", FAILURE, "'NoFilter'; there are Aggr", id="unknown"),
    ],
)
def test_filters_are_reported_by_name(
    check: Check, hosts: str, names: str, code: int, details: str
) -> None:
    report = check(hosts, ENABLED.format(names))
    found = report.checks["[filter_scheduler] enabled_filters"]
    assert found.code == code
    assert details in found.details


def test_all_filters_that_are_wrong_are_reported_at_once(
    check: Check, hosts: str
) -> None:
    report = check(hosts, ENABLED.format("NoFilter,RamFilter,TrustedFilter,OtherOne"))
    reported = report.checks["[filter_scheduler] enabled_filters"].details
    for part in ("'NoFilter'", "RamFilter", "TrustedFilter", "'OtherOne'"):
        assert part in reported
    assert reported.count("there are ") == 1


def test_dotted_path_that_cannot_be_imported_is_a_failure(
    check: Check, hosts: str
) -> None:
    paths = ("nova.scheduler.filters.all_filters", "away.Filter", "json.Nothing")
    lines = "".join(f"available_filters = {path}\n" for path in paths)
    report = check(hosts, f"[filter_scheduler]\n{lines}enabled_filters=ComputeFilter\n")
    found = report.checks["[filter_scheduler] available_filters"]
    assert found.code == FAILURE
    assert "No module named 'away'" in found.details
    assert "json.Nothing" in found.details
    enabled = report.checks["[filter_scheduler] enabled_filters"]
    assert enabled.code == SUCCESS


FOREIGN = """
class Foreign:
    def host_passes(self, host_state, spec_obj):
        return True
"""


def test_filter_of_ones_own_by_dotted_path_is_honoured(
    check: Check, hosts: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "of_an_operator.py").write_text(FOREIGN)
    monkeypatch.syspath_prepend(tmp_path)
    path = "available_filters = of_an_operator.Foreign\n"
    report = check(hosts, ENABLED.format("Foreign") + path)
    for name in ("enabled_filters", "available_filters"):
        assert report.checks[f"[filter_scheduler] {name}"].code == SUCCESS


def test_weighers_that_are_wrong_are_reported(check: Check, hosts: str) -> None:
    classes = "nova.scheduler.weights.all_weighers,NoWeigher,away.Weigher"
    report = check(hosts, f"[filter_scheduler]\nweight_classes = {classes}\n")
    found = report.checks["[filter_scheduler] weight_classes"]
    assert found.code == FAILURE
    assert "'NoWeigher'" in found.details
    assert "away.Weigher cannot be used" in found.details


# -- where hosts come from -------------------------------------------------------------


def test_without_a_source_there_are_no_hosts(check: Check) -> None:
    report = check("[DEFAULT]\ndebug = false\n")
    found = report.checks["Source of hosts"]
    assert found.code == FAILURE
    assert "source = nova_db" in found.details


@pytest.mark.parametrize(
    ("text", "details"),
    [
        pytest.param("source = nowhere", "there is no plugin 'nowhere'", id="unknown"),
        pytest.param("inventory_file = /away.yaml", "/away.yaml", id="no-inventory"),
        pytest.param(
            "source = kafka\n[kafka]\nbootstrap_servers = k:1\nsasl_username = u",
            "sasl_username has no effect with [kafka] security_protocol = plaintext",
            id="user-without-sasl",
        ),
    ],
)
def test_source_that_cannot_be_used_is_a_failure(
    check: Check, text: str, details: str
) -> None:
    found = check(f"[moorage]\n{text}\n").checks["Source of hosts"]
    assert found.code == FAILURE
    assert details in found.details


def test_file_of_hosts_beside_novas_databases_is_a_warning(
    check: Check, hosts: str
) -> None:
    report = check(hosts, "[api_database]\nconnection = sqlite:////nova_api\n")
    assert report.checks["Source of hosts"].code == WARNING


@pytest.mark.parametrize("source", ["file", "kafka", "push"])
def test_databases_of_nova_are_not_needed_by_other_sources(
    check: Check, source: str
) -> None:
    report = check(
        f"[moorage]\nsource = {source}\n"
        "[api_database]\nconnection = sqlite:////nova_api\n"
        "[database]\nconnection = sqlite:////nova\n"
    )
    assert "API database" not in report.checks
    for name in ("[api_database] connection", "[database] connection"):
        assert report.checks[name] == (
            SUCCESS,
            f"Not needed: only the source nova_db reads it, and the source is "
            f"'{source}'.",
        )


MEMCACHED = "[DEFAULT]\nservicegroup_driver = mc\n[moorage]\nsource = nova_db\n"
CACHE = "[cache]\nenabled = true\nbackend = dogpile.cache.pymemcache\n"


def test_heartbeats_in_memcached_need_its_servers(check: Check) -> None:
    found = check(MEMCACHED).checks["[DEFAULT] servicegroup_driver"]
    assert found.code == FAILURE
    assert "needs [cache] enabled = true and [cache] memcache_servers" in found.details


def test_memcached_that_does_not_answer_is_reported(check: Check) -> None:
    servers = f"memcache_servers = 127.0.0.1:{free_port()}\n"
    found = check(MEMCACHED, CACHE + servers).checks["[DEFAULT] servicegroup_driver"]
    assert found.code == FAILURE
    assert "every host counts as down: ConnectionRefusedError" in found.details


@pytest.mark.memcached
def test_memcached_that_answers_is_well(check: Check) -> None:
    with Memcached() as memcached:
        servers = f"memcache_servers = {memcached.server}\n"
        found = check(MEMCACHED, CACHE + servers)
    assert found.checks["[DEFAULT] servicegroup_driver"].code == SUCCESS


def test_routed_networks_need_neutron(check: Check, hosts: str) -> None:
    gate = "[scheduler]\nquery_placement_for_routed_network_aggregates = true\n"
    assert check(hosts, gate).checks["Neutron"].code == FAILURE
    there = "[neutron]\nendpoint_override = http://127.0.0.1:1\n"
    assert check(hosts, gate, there).checks["Neutron"].code == SUCCESS


# -- Placement -------------------------------------------------------------------------


def placement(url: str, **more: object) -> str:
    """Options of a Placement that requires a token, and accepts that of its tests."""
    options = {
        "auth_type": "admin_token", "endpoint": url, "token": "admin",
        "endpoint_override": url, **more,
    }  # fmt: skip
    return "[placement]\n" + "".join(f"{k} = {v}\n" for k, v in options.items())


def test_placement_that_answers_is_a_success_and_is_only_read(
    check: Check, hosts: str, server: MisbehavingServer
) -> None:
    report = check(hosts, placement(server.url))
    found = report.checks["Placement"]
    assert found.code == SUCCESS
    assert "1.36 is needed" in found.details
    assert {verb for verb, *_ in server.seen} == {"GET"}
    assert report.checks["[placement] token"].code == SUCCESS


@pytest.mark.parametrize(
    ("what", "details"),
    [
        pytest.param(Misbehaviour.NOT_ACCEPTABLE, "1.30", id="too-old"),
        pytest.param(Misbehaviour.UNAUTHORIZED, "credentials", id="unauthorized"),
        pytest.param(Misbehaviour.HTML, "not JSON", id="a-proxy"),
        pytest.param(Misbehaviour.HANG, "got no answer", id="hangs"),
    ],
)
def test_placement_that_cannot_do_its_part_is_a_failure(
    check: Check,
    hosts: str,
    server: MisbehavingServer,
    what: Misbehaviour,
    details: str,
) -> None:
    server.misbehave(what, times=4)
    found = check(hosts, placement(server.url, timeout=1)).checks["Placement"]
    assert found.code == FAILURE
    assert details in found.details


def test_nova_without_placement_would_get_the_embedded_one(check: Check) -> None:
    found = check("[moorage]\nsource = nova_db\n").checks["Placement"]
    assert found.code == FAILURE
    assert "embedded" in found.details


@pytest.mark.parametrize(("count", "code"), [("1", SUCCESS), ("10", WARNING)])
def test_placements_own_retries_are_reported_from_its_file(
    check: Check, hosts: str, server: MisbehavingServer, count: str, code: int
) -> None:
    text = f"[placement]\nallocation_conflict_retry_count = {count}\n"
    report = check(hosts, placement(server.url), text)
    assert report.checks["Placement's own retries"].code == code


def test_placements_own_retries_are_warned_of_where_they_are_unknown(
    check: Check, hosts: str, server: MisbehavingServer
) -> None:
    found = check(hosts, placement(server.url)).checks["Placement's own retries"]
    assert found.code == WARNING
    assert "allocation_conflict_retry_count = 1" in found.details


# -- providers in memory ---------------------------------------------------------------


@pytest.fixture
def followed(tmp_path: Path) -> Iterator[MisbehavingServer]:
    """A Placement of two hosts, whose database is a file."""
    with EmbeddedPlacementFixture(str(tmp_path / "placement.sqlite")) as embedded:
        vcpus = {"VCPU": {"total": 8}}
        names = map(node_uuid, ("a", "b"))
        seed(embedded.client, [Provider(uuid, uuid, vcpus) for uuid in names])
        with MisbehavingServer(embedded.placement.wsgi_app) as server:
            yield server


def placement_database(path: Path) -> str:
    return f"[placement_database]\nconnection = sqlite:///{path}\n"


def test_database_of_the_same_placement_is_well(
    check: Check, hosts: str, followed: MisbehavingServer, tmp_path: Path
) -> None:
    text = placement_database(tmp_path / "placement.sqlite")
    found = check(hosts, placement(followed.url), text).checks["Placement's database"]
    assert (found.code, found.details) == (
        SUCCESS, "Readable; it has the API's 2 root providers."
    )  # fmt: skip


@pytest.mark.usefixtures("followed")
def test_database_of_another_placement_is_a_failure(
    check: Check, hosts: str, server_of_none: str, tmp_path: Path
) -> None:
    text = placement_database(tmp_path / "placement.sqlite")
    found = check(hosts, placement(server_of_none), text).checks["Placement's database"]
    assert found.code == FAILURE
    assert "2 root providers, and Placement's API 0" in found.details
    assert "two different Placements" in found.details


@pytest.fixture
def server_of_none() -> Iterator[str]:
    """The API of a Placement that has no providers."""

    def answer(environ: Any, start_response: Any) -> Any:
        start_response("200 OK", [("Content-Type", "application/json")])
        if environ["PATH_INFO"] == "/resource_providers":
            return [b'{"resource_providers": []}']
        return [b'{"versions": [{"min_version": "1.0", "max_version": "1.39"}]}']

    with MisbehavingServer(answer) as server:
        yield server.url


def test_database_that_is_not_placements_is_a_failure(
    check: Check, hosts: str, server: MisbehavingServer, tmp_path: Path
) -> None:
    (tmp_path / "other.sqlite").touch()
    text = placement_database(tmp_path / "other.sqlite")
    found = check(hosts, placement(server.url), text).checks["Placement's database"]
    assert found.code == FAILURE


def test_memory_needs_a_database(
    check: Check, hosts: str, server: MisbehavingServer
) -> None:
    text = "[moorage]\ncandidates = memory\n"
    found = check(hosts, text, placement(server.url)).checks["Placement's database"]
    assert found.code == FAILURE
    assert "[placement_database] connection" in found.details


def test_database_is_not_read_where_placement_is_queried(
    check: Check, hosts: str, server: MisbehavingServer, tmp_path: Path
) -> None:
    text = placement_database(tmp_path / "missing.sqlite")
    wanted = "[moorage]\ncandidates = placement\n"
    report = check(hosts, wanted, text, placement(server.url))
    assert "Placement's database" not in report.checks


# -- hosts and providers ---------------------------------------------------------------


def _compared(check: Check, hosts: str, server: MisbehavingServer) -> Found:
    return check(hosts, placement(server.url)).checks["Hosts and providers"]


def test_hosts_without_a_provider_and_providers_without_a_host_are_named(
    check: Check, embedded: EmbeddedPlacementFixture, tmp_path: Path
) -> None:
    path = write_inventory(tmp_path, *(host(name) for name in ("h1", "h2", "h3")))
    hosts = HOSTS.format(inventory=path)
    rows = {each.record.host: each.record.uuid for each in read_inventory(path).hosts}
    vcpus = {"VCPU": {"total": 8}}
    pool = Provider(
        node_uuid("pool"),
        "pool",
        {"DISK_GB": {"total": 100}},
        traits=frozenset({"MISC_SHARES_VIA_AGGREGATE"}),
    )
    known = [Provider(uuid, name, vcpus) for name, uuid in rows.items()]
    child = Provider(node_uuid("n0"), "n0", vcpus, parent_uuid=known[0].uuid)
    seed(embedded.client, [known[0], child, pool])
    with MisbehavingServer(embedded.placement.wsgi_app) as server:
        assert _compared(check, hosts, server) == (
            WARNING,
            "2 of 3 hosts have no resource provider, and get no instance: h2, h3.",
        )
        seed(embedded.client, known)
        assert _compared(check, hosts, server) == (
            SUCCESS, "3 hosts have a resource provider."
        )  # fmt: skip
        seed(embedded.client, [Provider(node_uuid("gone"), "gone", vcpus)])
        assert _compared(check, hosts, server) == (
            WARNING,
            "1 root providers have no host, and their candidates are rejected: gone.",
        )


def test_hosts_of_the_store_are_compared_with_providers(
    check: Check, embedded: EmbeddedPlacementFixture, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'hosts.sqlite'}"
    text = f"{FAKE}[moorage]\nsource = push\nstore_connection = {url}\n"
    store = HostStore(url)
    store.upgrade()
    store.close()
    vcpus = {"VCPU": {"total": 8}}
    seed(embedded.client, [Provider(node_uuid("h1"), "h1", vcpus)])
    with MisbehavingServer(embedded.placement.wsgi_app) as server:
        found = _compared(check, text, server)
    assert found.code == WARNING
    assert found.details.startswith("1 root providers have no host")
    assert found.details.endswith("h1.")


def test_hosts_of_a_cell_are_compared_with_providers(
    check: Check, embedded: EmbeddedPlacementFixture, tmp_path: Path
) -> None:
    with Nova(tmp_path) as nova:
        nova.host("h1")
        text = FAKE + databases(nova.connections["api"])
        with MisbehavingServer(embedded.placement.wsgi_app) as server:
            found = _compared(check, text, server)
    assert found.code == WARNING
    assert found.details.startswith("1 of 1 hosts have no resource provider")


# -- the broker and the stores ---------------------------------------------------------

FAKE = "[DEFAULT]\ntransport_url = fake://\n"


def test_broker_that_is_away_is_a_failure(check: Check) -> None:
    url = f"rabbit://moorage:hush@127.0.0.1:{free_port()}/"
    report = check(f"[DEFAULT]\ntransport_url = {url}\n")
    found = report.checks["Message broker"]
    assert found.code == FAILURE
    assert "refused" in found.details
    assert "hush" not in report.text


def test_broker_that_is_not_named_is_a_warning(check: Check) -> None:
    found = check("[DEFAULT]\ndebug = true\n").checks["Message broker"]
    assert found.code == WARNING
    assert "[DEFAULT] transport_url is not set" in found.details


@pytest.mark.broker
def test_broker_that_takes_messages_is_well(check: Check) -> None:
    with Broker() as broker:
        text = f"[DEFAULT]\ntransport_url = {broker.transport_url}\n"
        found = check(text).checks["Message broker"]
    assert found == (SUCCESS, "It accepts messages.")


def test_kafka_that_is_away_is_a_failure(check: Check) -> None:
    servers = f"127.0.0.1:{free_port()}"
    found = check(
        "[moorage]\nsource = kafka\n"
        f"[kafka]\nbootstrap_servers = {servers}\ntimeout = 1\n"
    ).checks["Kafka"]
    assert found.code == FAILURE
    assert f"[kafka] bootstrap_servers = {servers} answers" in found.details


@pytest.mark.kafka
@pytest.mark.deep
@pytest.mark.xdist_group("kafka")
def test_topics_of_kafka_must_exist(check: Check) -> None:
    with Kafka() as kafka:
        options = "".join(f"{k} = {v}\n" for k, v in kafka.options().items())
        text = f"[moorage]\nsource = kafka\n[kafka]\n{options}"
        found = check(text).checks["Kafka"]
        assert found.code == FAILURE
        assert f"The Kafka topic '{kafka.name}-hosts' does not exist" in found.details
        topics = [f"{kafka.name}-{name}" for name in TopicNames._fields]
        for topic in topics:
            kafka.add_topic(topic)
        found = check(text).checks["Kafka"]
        assert found == (SUCCESS, f"It has the topics {', '.join(sorted(topics))}.")
        claims = check(f"{text}claims_topic = {kafka.name}-claims\n").checks["Kafka"]
        assert claims.code == FAILURE
        assert f"The Kafka topic '{kafka.name}-claims' does not exist" in claims.details


class StoreKind(NamedTuple):
    """One of the two stores, and the code of a check while it is away."""

    name: str
    options: str
    first_table: str
    away: int
    upgrade: Callable[[str], None]


def _upgrade_decisions(url: str) -> None:
    store = DecisionStore(url)
    store.prepare()
    store.stop()


def _upgrade_hosts(url: str) -> None:
    store = HostStore(url)
    store.upgrade()
    store.close()


STORES = (
    StoreKind(
        "Store of decisions",
        "[moorage]\ndecision_store_connection = {url}\n",
        "decisions",
        WARNING,
        _upgrade_decisions,
    ),
    StoreKind(
        "Store of hosts",
        "[moorage]\nsource = push\nstore_connection = {url}\n",
        "hosts",
        FAILURE,
        _upgrade_hosts,
    ),
)


@pytest.fixture
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the file name the store of decisions, which the tests otherwise unset."""
    monkeypatch.delenv("OS_MOORAGE__DECISION_STORE_CONNECTION")


@pytest.mark.usefixtures("no_environment")
@pytest.mark.parametrize("kind", STORES, ids=["decisions", "hosts"])
def test_store_is_checked_and_not_made(
    check: Check, kind: StoreKind, tmp_path: Path
) -> None:
    path = tmp_path / "stores" / "new.sqlite"
    url = f"sqlite:///{path}"
    text = FAKE + kind.options.format(url=url)
    found = check(text).checks[kind.name]
    assert (found.code, "created or upgraded" in found.details) == (SUCCESS, True)
    assert not path.parent.exists()
    kind.upgrade(url)
    before = path.read_bytes()
    assert check(text).checks[kind.name] == (SUCCESS, f"{url} can be read.")
    assert path.read_bytes() == before


@pytest.mark.usefixtures("no_environment")
@pytest.mark.parametrize("kind", STORES, ids=["decisions", "hosts"])
def test_store_of_another_program_is_a_failure(
    check: Check, kind: StoreKind, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'other.sqlite'}"
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sa.text(f"CREATE TABLE {kind.first_table} (id INTEGER)"))
    engine.dispose()
    found = check(FAKE + kind.options.format(url=url)).checks[kind.name]
    assert found.code == FAILURE
    assert "of another program" in found.details


@pytest.mark.usefixtures("no_environment")
@pytest.mark.parametrize("kind", STORES, ids=["decisions", "hosts"])
def test_store_that_is_away_is_reported_without_its_password(
    check: Check, kind: StoreKind
) -> None:
    url = f"mysql+pymysql://moorage:hush@127.0.0.1:{free_port()}/moorage"
    report = check(FAKE + kind.options.format(url=url))
    found = report.checks[kind.name]
    assert found.code == kind.away
    assert "refused" in found.details
    assert "hush" not in report.text


# -- databases -------------------------------------------------------------------------

LETTERS = string.ascii_letters + "+" + string.digits
NOVA_DB = "[moorage]\nsource = nova_db\ncell_timeout = {timeout_s}\n"


def databases(api: object, local: object = "", *, timeout_s: float = 10.0) -> str:
    text = NOVA_DB.format(timeout_s=timeout_s)
    text += f"[api_database]\nconnection = {api}\n"
    return text + (f"[database]\nconnection = {local}\n" if local else "")


class Files:
    """An API database and a cell's, as SQLite files with our idea of nova's tables."""

    def __init__(self, folder: Path) -> None:
        self.api = folder / "api.sqlite"
        self.cell = folder / "cell.sqlite"
        for path, tables in ((self.api, schema.API), (self.cell, schema.CELL)):
            engine = sa.create_engine(f"sqlite:///{path}")
            tables.create_all(engine)
            engine.dispose()

    @property
    def text(self) -> str:
        return databases(f"sqlite:///{self.api}")

    def map_cell(self, connection: str, name: str = "cell1") -> None:
        engine = sa.create_engine(f"sqlite:///{self.api}")
        row = {"uuid": name, "name": name, "database_connection": connection}
        with engine.begin() as connected:
            connected.execute(schema.cell_mappings.insert(), [row])
        engine.dispose()


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_databases_are_read_and_left_as_they_are(check: Check, files: Files) -> None:
    files.map_cell(f"sqlite:///{files.cell}")
    before = [path.read_bytes() for path in (files.api, files.cell)]
    report = check(files.text)
    assert report.checks["API database"] == (SUCCESS, "1 enabled cells, 0 aggregates")
    assert report.checks["Cell cell1"] == (WARNING, "It has no compute nodes.")
    assert before == [path.read_bytes() for path in (files.api, files.cell)]


def test_database_file_that_is_missing_is_not_made(
    check: Check, files: Files, tmp_path: Path
) -> None:
    missing = tmp_path / "missing.sqlite"
    files.map_cell(f"sqlite:///{missing}")
    found = check(files.text).checks["Cell cell1"]
    assert found.code == FAILURE
    assert "there is no file" in found.details
    assert not missing.exists()


def test_api_database_has_to_be_named(check: Check) -> None:
    found = check("[moorage]\nsource = nova_db\n").checks["API database"]
    assert found.code == FAILURE
    assert "[api_database] connection is not set" in found.details


def test_nova_without_cells_has_no_hosts(check: Check, files: Files) -> None:
    found = check(files.text).checks["API database"]
    assert found.code == FAILURE
    assert "no enabled cell" in found.details


def test_template_of_a_cell_needs_the_other_url(check: Check, files: Files) -> None:
    files.map_cell("{scheme}:///" + str(files.cell))
    found = check(files.text).checks["API database"]
    assert found.code == FAILURE
    assert "cell1 are templates" in found.details
    local = f"[database]\nconnection = sqlite:///{files.cell}\n"
    assert check(files.text, local).checks["Cell cell1"].code == WARNING


@pytest.mark.parametrize(
    ("url", "details"),
    [
        pytest.param("mysql+pymysql://u:p@127.0.0.1:1/x", "Can't connect", id="away"),
        pytest.param("no URL at all", "Its URL cannot be used", id="no-url"),
        pytest.param("nodb://u@h/x", "Its URL cannot be used", id="no-dialect"),
    ],
)
def test_database_that_cannot_be_read_is_a_failure(
    check: Check, url: str, details: str
) -> None:
    found = check(databases(url)).checks["API database"]
    assert found.code == FAILURE
    assert details in found.details


def test_file_that_is_no_database_of_nova_is_a_failure(
    check: Check, files: Files
) -> None:
    found = check(databases(f"sqlite:///{files.cell}")).checks["API database"]
    assert found.code == FAILURE
    assert "no such table: cell_mappings" in found.details
    assert "SELECT" not in found.details


@pytest.mark.parametrize("driver", ["mysql+pymysql", "postgresql"])
def test_database_that_hangs_is_not_waited_for_long(check: Check, driver: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"{driver}://nova:pass@127.0.0.1:{silent.getsockname()[1]}/nova_api"
        found = check(databases(url, timeout_s=0.5)).checks["API database"]
    assert found.code == FAILURE


def test_service_record_needs_its_database(check: Check, files: Files) -> None:
    own = "[moorage]\nregister_service = true\n"
    found = check(files.text, own).checks["[moorage] register_service"]
    assert found.code == FAILURE
    assert "[database] connection is not set" in found.details
    local = f"[database]\nconnection = sqlite:///{files.cell}\n"
    found = check(files.text, own, local).checks["[moorage] register_service"]
    assert found.code == SUCCESS


def test_preset_is_reported_with_what_outranks_it(check: Check, files: Files) -> None:
    own = "[moorage]\npreset = balanced\n[filter_scheduler]\n"
    found = check(files.text, own + "ram_weight_multiplier = 1\n")
    details = found.checks["[moorage] preset"].details
    assert "It sets [filter_scheduler] cpu_weight_multiplier = -1," in details
    assert details.endswith(
        "Set themselves: [filter_scheduler] ram_weight_multiplier = 1."
    )


@pytest.mark.parametrize(
    ("value", "code"), [("false", FAILURE), ("true", WARNING)], ids=["stop", "ffu"]
)
def test_computes_that_are_too_old_are_reported(
    check: Check, tmp_path: Path, value: str, code: int
) -> None:
    with Nova(tmp_path) as nova:
        nova.host("new")
        nova.node("old")
        nova.service("old", version=71)
        report = check(
            databases(nova.connections["api"]),
            f"[workarounds]\ndisable_compute_service_check_for_ffu = {value}\n",
        )
    found = report.checks["Cell cell1"]
    assert found.code == code
    assert "old (71)" in found.details
    assert "new" not in found.details.replace("newer", "")


@pytest.mark.database
@pytest.mark.parametrize("kind", list(Database), ids=lambda kind: kind.name.lower())
def test_databases_of_a_server_are_read(
    check: Check, kind: Database, tmp_path: Path
) -> None:
    with Nova(tmp_path, "cell1", "cell2", kind=kind) as nova:
        nova.hosts(3, "cell2")
        nova.update(
            nova.api, schema.cell_mappings, schema.cell_mappings.c.name == "cell1",
            database_connection="{scheme}" + nova.connections["cell1"].lstrip(LETTERS),
        )  # fmt: skip
        report = check(databases(nova.connections["api"], nova.connections["cell0"]))
    assert report.checks["API database"].details == "2 enabled cells, 0 aggregates"
    assert report.checks["Cell cell1"] == (WARNING, "It has no compute nodes.")
    assert report.checks["Cell cell2"] == (SUCCESS, "3 compute nodes")


@pytest.mark.deep
@pytest.mark.peer
def test_databases_of_a_real_nova_are_read(check: Check) -> None:
    with NovaDatabases(Kind.SQLITE, n_cells=2) as nova:
        report = check(databases(nova.api_url, nova.main_url))
    assert report.checks["API database"].details == "2 enabled cells, 0 aggregates"
    for name in ("Cell cell1", "Cell cell2"):
        assert report.checks[name] == (WARNING, "It has no compute nodes.")


# -- secrets ---------------------------------------------------------------------------

SECRET = "Xyzzy%40plugh"
SECRETS = f"""
[DEFAULT]
transport_url = rabbit://openstack:{SECRET}@127.0.0.1:1/
[moorage]
source = nova_db
store_connection = postgresql://m:{SECRET}@127.0.0.1:1/m
[api_database]
connection = {{scheme}}://nova:{SECRET}@127.0.0.1:1/nova_api
[database]
connection = mysql+pymysql://nova:{SECRET}@127.0.0.1:1/nova
slave_connection = mysql+pymysql://nova:{SECRET}@127.0.0.1:1/nova
[placement]
auth_type = password
auth_url = http://placement:{SECRET}@127.0.0.1:1/v3
username = placement
password = {SECRET}
project_name = service
user_domain_name = Default
project_domain_name = Default
[neutron]
metadata_proxy_shared_secret = {SECRET}
[cache]
memcache_password = {SECRET}
"""


@pytest.mark.parametrize("scheme", ["mysql+pymysql", "postgresql", "nodb", "no scheme"])
def test_no_secret_is_printed(check: Check, scheme: str) -> None:
    report = check(SECRETS.format(scheme=scheme))
    assert report.status == FAILURE
    assert report.checks["Placement"].code == FAILURE
    assert report.checks["API database"].code == FAILURE
    assert "Xyzzy" not in report.text
    assert "plugh" not in report.text


# -- the command -----------------------------------------------------------------------

COMMAND = [sys.executable, "-m", "moorage.scheduler.cmd.status"]


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        capture_output=True,
        check=False,
        text=True,
        timeout=120,
    )


def test_command_prints_a_table_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "nova.conf"
    path.write_text("[scheduler]\nmax_attempts = 5\n")
    done = command("--config-file", path, "upgrade", "check")
    assert (done.returncode, done.stderr) == (FAILURE, "")
    assert "| Upgrade Check Results" in done.stdout
    assert "| Check: [scheduler] max_attempts" in done.stdout


@pytest.mark.parametrize(
    ("text", "details"),
    [
        pytest.param(None, "missing.conf", id="missing"),
        pytest.param("[scheduler\n", "missing.conf", id="broken"),
    ],
)
def test_file_that_cannot_be_read_is_no_result(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    text: str | None,
    details: str,
) -> None:
    path = tmp_path / "missing.conf"
    if text is not None:
        path.write_text(text)
    assert run(["--config-file", str(path), "upgrade", "check"]) == 255
    assert details in capsys.readouterr().err


def test_files_of_a_directory_are_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in (2, 1):
        text = f"[DEFAULT]\nmy_ip = 10.0.0.{number}\n[libvirt]\nn{number} = 1\n"
        (tmp_path / f"{number}.conf").write_text(text)
    run(["--config-dir", str(tmp_path), "upgrade", "check", "--json"])
    reported: Any = json.loads(capsys.readouterr().out)
    names = [each["check"] for each in reported["checks"]]
    assert "[DEFAULT] my_ip" in names
    assert "2 of [libvirt]" in reported["checks"][-1]["details"]


# -- the documentation -----------------------------------------------------------------


def test_documentation_names_every_option_that_is_not_read() -> None:
    doc = Path(__file__).parents[3] / "doc"
    page = (doc / "reference/nova-options.rst").read_text("utf-8")
    unread = {
        k
        for k, v in TREATMENTS.items()
        if v.treatment in (Treatment.NEEDLESS, Treatment.IGNORED)
    }
    assert {key for key in unread if f"``{key[1]}``" not in page and key[1] != "*"} == (
        set()
    )
    assert {group for group, _ in unread if f"``[{group}]``" not in page} == set()


def test_no_option_that_is_registered_is_not_read() -> None:
    registered = {(group, opt.dest) for group, opts in list_opts() for opt in opts}
    read = {
        key
        for key, treated in TREATMENTS.items()
        if treated.treatment is Treatment.HONOURED
    }
    assert registered & TREATMENTS.keys() <= read


def test_group_that_is_mistyped_is_a_warning(check: Check, hosts: str) -> None:
    others = "[placment]\nauth_type = none\n[vnc]\nenabled = true\n"
    report = check(hosts, others, "[oslo_messaging_rabit]\nssl = true\n")
    found = report.checks["[placment]"]
    assert found.code == WARNING
    assert "Did you mean [placement]?" in found.details
    assert "rabbit" in report.checks["[oslo_messaging_rabit]"].details
    assert "[vnc]" not in report.checks


def test_group_of_nova_is_no_mistyped_one(check: Check, hosts: str) -> None:
    groups = [
        "api",
        "barbican",
        "barbican_service_user",
        "cache",
        "cinder",
        "conductor",
        "console",
        "consoleauth",
        "cors",
        "cyborg",
        "devices",
        "ephemeral_storage_encryption",
        "glance",
        "guestfs",
        "healthcheck",
        "image_cache",
        "ironic",
        "key_manager",
        "keystone",
        "keystone_authtoken",
        "libvirt",
        "manila",
        "mks",
        "os_vif_linux_bridge",
        "os_vif_ovs",
        "oslo_concurrency",
        "oslo_limit",
        "oslo_middleware",
        "oslo_policy",
        "oslo_versionedobjects",
        "pci",
        "profiler",
        "quota",
        "remote_debug",
        "serial_console",
        "service_user",
        "spice",
        "upgrade_levels",
        "vault",
        "vmware",
        "vnc",
        "wsgi",
        "zvm",
        "placement_database",
    ]
    report = check(hosts, *(f"[{group}]\nsome = 1\n" for group in groups))
    assert not {f"[{group}]" for group in groups} & report.checks.keys()


@pytest.mark.deep
def test_reader_that_closes_the_pipe_gets_no_traceback() -> None:
    program = [sys.executable, "-m", "moorage.scheduler.cmd.status"]
    process = subprocess.Popen(
        [*program, "upgrade", "check"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.close()  # before anything is printed
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(60) == 128 + signal.SIGPIPE


# -- places ----------------------------------------------------------------------------

LEVELS = "[locality]\nlevels = rack, row\n"


def test_places_of_an_inventory_are_checked(check: Check, tmp_path: Path) -> None:
    places = {"rack": "r1", "row": "a"}
    path = write_inventory(tmp_path, host("h1", places=places))
    text = f"[moorage]\ninventory_file = {path}\n{LEVELS}"
    found = check(text).checks["Places of hosts"]
    assert found == (SUCCESS, "1 hosts have places at rack, row.")
    assert "Places of hosts" not in check(text.replace(LEVELS, "")).checks


def test_conflicts_of_places_are_warnings(check: Check, tmp_path: Path) -> None:
    one = host("h1", places={"rack": "r1", "row": "a"})
    two = host("h2", places={"rack": "r1", "row": "b"})
    path = write_inventory(tmp_path, one, two)
    found = check(f"[moorage]\ninventory_file = {path}\n{LEVELS}").checks
    assert found["Places of hosts"] == (
        WARNING,
        "rack r1 has hosts in 2 places of level row: a, b.",
    )


def test_places_of_the_distance_file_without_a_host_are_a_warning(
    check: Check, tmp_path: Path
) -> None:
    path = write_inventory(tmp_path, host("h1", places={"rack": "r1", "row": "a"}))
    distances = tmp_path / "distances.csv"
    distances.write_text("level,from,to,distance\nrack,r1,r9,3\n")
    text = f"[moorage]\ninventory_file = {path}\n{LEVELS}distance_file = {distances}\n"
    assert check(text).checks["Places of hosts"] == (
        WARNING,
        "[locality] distance_file has 1 place(s) of level rack without a host: r9.",
    )


def _placed(check: Check, server: MisbehavingServer, folder: Path, file: str) -> Report:
    """Check a host whose rack an agent reports, and whose aggregates are in a file."""
    inventory = write_inventory(folder, host("h1", places={"rack": "r1"}))
    places = folder / "places.csv"
    places.write_text(f"aggregate,level,place\n{file}\n")
    text = f"[moorage]\ninventory_file = {inventory}\n{LEVELS}places = {places}\n"
    return check(text, placement(server.url))


@pytest.fixture
def placed(embedded: EmbeddedPlacementFixture) -> Iterator[MisbehavingServer]:
    """A Placement that has a host in one aggregate."""
    vcpus, its = {"VCPU": {"total": 8}}, frozenset({node_uuid("r2")})
    seed(embedded.client, [Provider(node_uuid("h1"), "h1", vcpus, aggregates=its)])
    with MisbehavingServer(embedded.placement.wsgi_app) as server:
        yield server


@pytest.mark.parametrize(
    ("file", "code", "details", "conflict"),
    [
        pytest.param("r2,row,a", SUCCESS, "1 resource providers are in 1", "", id="a"),
        pytest.param(
            "r2,rack,r2", SUCCESS, "1 resource", "2 places of level rack, r1, r2",
            id="conflict",
        ),
        pytest.param("r9,rack,r9", WARNING, "without resource providers: rack r9", "",
                     id="empty"),
        pytest.param("r2,shelf,x", FAILURE, "would not start: [locality] places:", "",
                     id="level"),
    ],
)  # fmt: skip
def test_places_in_placement_are_checked(
    check: Check,
    placed: MisbehavingServer,
    tmp_path: Path,
    file: str,
    code: int,
    details: str,
    conflict: str,
) -> None:
    name, _, rest = file.partition(",")
    found = _placed(check, placed, tmp_path, f"{node_uuid(name)},{rest}").checks
    assert found["Places in Placement"].code == code
    assert details in found["Places in Placement"].details
    assert found["Places of hosts"].code == (WARNING if conflict else SUCCESS)
    assert conflict in found["Places of hosts"].details
