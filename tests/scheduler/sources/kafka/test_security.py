# SPDX-License-Identifier: Apache-2.0
"""TLS, passwords and rights, with a real broker that checks them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation

from moorage.agent import BusUnavailable, KafkaBus, Reporter
from moorage.scheduler.kafka_client import topic_settings
from moorage.testing.builders import host

from ....fixtures.kafka import PASSWORD, USER, Certificates, SecureKafka
from ....fixtures.waiting import wait_until
from .test_source import Cloud, start_failure

pytestmark = [pytest.mark.kafka, pytest.mark.deep, pytest.mark.xdist_group("kafka")]

#: Of what fails: it waits so long for an answer.
TIMEOUT_S = 5.0
AGENT = "CN=agent"


@pytest.fixture(scope="module")
def secure() -> Iterator[SecureKafka]:
    with SecureKafka() as kafka:
        yield kafka


@pytest.fixture
def cloud(secure: SecureKafka) -> Cloud:
    secure.renew()
    made = Cloud(secure)
    made.reporter.report(host(host="h1"))
    return made


def tls(kafka: SecureKafka, user: str = "agent", **changes: Any) -> dict[str, Any]:
    """Options of a client with a certificate."""
    file = f"{kafka.certificates.issue(user)}"
    return {
        "bootstrap_servers": [kafka.tls_servers],
        "security_protocol": "ssl",
        "ssl_ca_file": f"{kafka.certificates.authority}",
        "ssl_cert_file": file,
        "ssl_key_file": file,
        **changes,
    }


def sasl(kafka: SecureKafka, password_file: Path, **changes: Any) -> dict[str, Any]:
    """Options of a client with a password."""
    password_file.write_text(f"{PASSWORD}\n")
    return {
        "bootstrap_servers": [kafka.sasl_tls_servers],
        "security_protocol": "sasl_ssl",
        "ssl_ca_file": f"{kafka.certificates.authority}",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_username": USER,
        "sasl_password_file": f"{password_file}",
        **changes,
    }


def _follows(cloud: Cloud, options: dict[str, Any]) -> None:
    with cloud.scheduler(**options) as scheduler:
        assert len(scheduler.table) == 1
        cloud.reporter.report(host(host="h2"))
        wait_until(lambda: len(scheduler.table) == 2)
        assert scheduler.source.notes() == list(scheduler.source.unknowns())


def _failure(cloud: Cloud, options: dict[str, Any], cause: str) -> str:
    """Return the line with which a scheduler fails to start for this cause."""
    options = {**options, "timeout": TIMEOUT_S}
    failure = lambda: start_failure(cloud, options)  # noqa: E731 - as short as its use
    return wait_until(lambda: found if cause in (found := failure()) else "")


def test_client_with_a_certificate_follows(secure: SecureKafka, cloud: Cloud) -> None:
    secure.allow(
        topic_settings(cloud.conf),
        AclOperation.READ,
        AclOperation.DESCRIBE,
        user=AGENT,
    )
    _follows(cloud, tls(secure))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_user_with_a_password_follows(
    secure: SecureKafka, cloud: Cloud, tmp_path: Path, mechanism: str
) -> None:
    secure.allow_reading(topic_settings(cloud.conf))
    options = sasl(secure, tmp_path / "password", sasl_mechanism=mechanism)
    _follows(cloud, options)


def test_unknown_authority_is_named(
    secure: SecureKafka, cloud: Cloud, tmp_path: Path
) -> None:
    other = f"{Certificates(tmp_path).authority}"
    options = tls(secure, ssl_ca_file=other)
    reason = _failure(cloud, options, "certificate could not be verified")
    assert f"Check [kafka] ssl_ca_file ({other})" in reason


def test_missing_certificate_of_a_client_is_named(
    secure: SecureKafka, cloud: Cloud
) -> None:
    options = tls(secure, ssl_cert_file=None, ssl_key_file=None)
    _failure(cloud, options, "ssl_cert_file (not set), which brokers may require")


def test_wrong_protocol_is_named(secure: SecureKafka, cloud: Cloud) -> None:
    options = {"bootstrap_servers": [secure.tls_servers]}
    _failure(cloud, options, "[kafka] security_protocol = plaintext")


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_wrong_password_is_named(
    secure: SecureKafka, cloud: Cloud, tmp_path: Path, mechanism: str
) -> None:
    options = sasl(secure, tmp_path / "password", sasl_mechanism=mechanism)
    (tmp_path / "password").write_text("wrong")
    reason = _failure(cloud, options, "Authentication failed")
    assert f"[kafka] sasl_username ({USER})" in reason


def test_missing_rights_are_named_with_how_to_give_them(
    secure: SecureKafka, cloud: Cloud, tmp_path: Path
) -> None:
    options = sasl(secure, tmp_path / "password")
    reason = _failure(cloud, options, "or the user may not describe it")
    assert f"--allow-principal User:{USER} --operation Describe --topic" in reason
    wanted = f"--allow-principal User:{USER} --operation Read --operation Describe"
    topics = list(topic_settings(cloud.conf))
    secure.allow(topics, AclOperation.DESCRIBE)
    reason = _failure(cloud, options, "authorization failed")
    # The broker may refuse any of them first.
    assert any(f"{wanted} --topic {topic}" in reason for topic in topics)


def test_agent_reports_once_it_has_the_rights(
    secure: SecureKafka, cloud: Cloud, tmp_path: Path
) -> None:
    conf = cloud.options()
    for name, value in sasl(secure, tmp_path / "password").items():
        conf.set_override(name, value, group="kafka")
    reporter = Reporter(KafkaBus(conf).cast, sends_deltas=False)
    with pytest.raises(BusUnavailable, match="may not describe it"):
        reporter.report(host(host="h3"))
    topics = list(topic_settings(conf))
    secure.allow(topics, AclOperation.DESCRIBE)

    def failure() -> str:
        try:
            reporter.report(host(host="h3"))
        except BusUnavailable as e:
            return str(e)
        return ""

    wait_until(lambda: "--operation Write" in failure())
    secure.allow(topics, AclOperation.WRITE)
    wait_until(lambda: not failure())
    with cloud.scheduler() as scheduler:
        assert len(scheduler.table) == 2
