# SPDX-License-Identifier: Apache-2.0
"""Options of [kafka], and the errors that name what is wrong with them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from oslo_config import cfg

from moorage.scheduler.errors import ConfigurationError
from moorage.scheduler.hosts import HostTable
from moorage.scheduler.kafka_client import client_settings
from moorage.scheduler.sources.kafka import KafkaSource

from ..fixtures.ports import free_port
from ..fixtures.waiting import wait_until

SASL = {"security_protocol": "sasl_ssl", "sasl_username": "moorage"}


def with_options(conf: cfg.ConfigOpts, **options: Any) -> cfg.ConfigOpts:
    conf.set_override("bootstrap_servers", ["127.0.0.1:1"], group="kafka")
    for name, value in options.items():
        conf.set_override(name, value, group="kafka")
    return conf


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"bootstrap_servers": []}, "bootstrap_servers is not set"),
        ({"security_protocol": "sasl_ssl"}, "sasl_username"),
        ({"sasl_username": "u"}, "sasl_username has no effect .* = plaintext: set "),
        (
            {"security_protocol": "ssl", "sasl_password_file": "/f"},
            "sasl_password_file has no effect .* = ssl: set .*sasl_ssl",
        ),
        ({"ssl_cert_file": "/f"}, "ssl_cert_file has no effect .* = plaintext"),
        ({**SASL, "security_protocol": "ssl"}, "sasl_username has no effect"),
        (SASL, "sasl_password_file"),
        ({**SASL, "sasl_password_file": "/nowhere"}, "sasl_password_file.*/nowhere"),
        ({**SASL, "sasl_password_file": "/dev/null"}, "sasl_password_file.*empty"),
        ({"security_protocol": "ssl", "ssl_ca_file": "/nowhere"}, "ssl_ca_file.*/now"),
        (
            {"security_protocol": "ssl", "ssl_cert_file": "/dev/null"},
            "ssl_cert_file and ssl_key_file",
        ),
    ],
)
def test_wrong_option_is_named(
    conf: cfg.ConfigOpts, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigurationError, match=words) as raised:
        client_settings(with_options(conf, **options))
    assert "\n" not in str(raised.value)


def test_password_is_the_first_line_of_its_file(
    conf: cfg.ConfigOpts, tmp_path: Path
) -> None:
    file = tmp_path / "password"
    file.write_text("secret\n")
    with_options(conf, **SASL, sasl_password_file=str(file))
    settings = client_settings(conf)
    assert settings["sasl.password"] == "secret"
    assert settings["sasl.mechanism"] == "SCRAM-SHA-512"


def test_missing_library_is_named_with_its_extra(
    conf: cfg.ConfigOpts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(ConfigurationError, match=r"pip install '\.\[kafka\]'"):
        KafkaSource(conf)


def test_absent_broker_stops_the_start(conf: cfg.ConfigOpts) -> None:
    server = f"127.0.0.1:{free_port()}"
    source = KafkaSource(with_options(conf, bootstrap_servers=[server], timeout=0.5))

    def failure() -> str:
        with pytest.raises(ConfigurationError, match=server) as raised:
            source.start(HostTable())
        return str(raised.value)

    # The library may need longer than the timeout to find out.
    wait_until(lambda: "refused" in failure())
