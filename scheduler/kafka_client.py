# SPDX-License-Identifier: Apache-2.0
"""Clients of Kafka: the settings of [kafka] in librdkafka's terms, and its errors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from oslo_config import cfg

from .errors import ConfigurationError

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Producer

#: The command that creates a topic, with placeholders for what differs by topic.
_CREATE: Final = (
    "kafka-topics.sh --bootstrap-server {server} --create --topic {topic} "
    "--partitions 12 --replication-factor 3 {settings}"
)


_COMMON: Final = (
    "--config segment.ms=600000 --config message.timestamp.type=LogAppendTime"
)
_COMPACTED: Final = f"--config cleanup.policy=compact {_COMMON}"
_RETAINED: Final = f"--config retention.ms=3600000 {_COMMON}"
#: Options that only some protocols use.
_SECURITY: Final = (
    "sasl_username", "sasl_password_file", "ssl_ca_file", "ssl_cert_file",
    "ssl_key_file",
)  # fmt: skip
#: A shorter time would end connections to a broker that is only slow.
_MIN_SOCKET_MS: Final = 1_000


def kafka_library() -> ModuleType:
    """Return confluent_kafka, which is installed with the extra "kafka".

    Raises
    ------
    ConfigurationError
        The package is not installed.
    """
    try:
        import confluent_kafka
    except ImportError as e:
        raise ConfigurationError(
            "Kafka needs the package confluent-kafka, which Moorage's extra kafka "
            f"installs: run pip install '.[kafka]' in a checkout ({e})"
        ) from e
    return confluent_kafka


def client_settings(conf: cfg.ConfigOpts) -> dict[str, Any]:
    """Return the settings that consumers and producers have in common.

    Raises
    ------
    ConfigurationError
        An option of [kafka] is missing, or a file that it names cannot be read.
    """
    options = conf.kafka
    if not options.bootstrap_servers:
        raise ConfigurationError(
            "[kafka] bootstrap_servers is not set: name brokers, HOST:PORT each"
        )
    _refuse_ignored(options)
    settings: dict[str, Any] = {
        "bootstrap.servers": ",".join(options.bootstrap_servers),
        "security.protocol": options.security_protocol,
        "reconnect.backoff.max.ms": 2_000,
        # A frozen broker keeps its connections open, and answers nothing.
        "socket.timeout.ms": max(_MIN_SOCKET_MS, int(options.timeout * 1000)),
        # Errors reach us by the callback; the library's own log goes to stderr.
        "log_level": 2,
    }
    if options.security_protocol.endswith("ssl"):
        settings |= _tls(options)
    if options.security_protocol.startswith("sasl"):
        settings |= _sasl(options)
    return settings


def _refuse_ignored(options: cfg.ConfigOpts.GroupAttr) -> None:
    """Raise ConfigurationError if the protocol ignores an option that is set."""
    protocol = options.security_protocol
    for prefix, has_effect, protocols in (
        ("sasl", protocol.startswith("sasl"), "sasl_ssl or sasl_plaintext"),
        ("ssl", protocol.endswith("ssl"), "ssl or sasl_ssl"),
    ):
        names = [
            name
            for name in _SECURITY
            if name.startswith(prefix) and getattr(options, name)
        ]
        if names and not has_effect:
            raise ConfigurationError(
                f"[kafka] {names[0]} has no effect with [kafka] security_protocol = "
                f"{protocol}: set security_protocol = {protocols}, or remove {names[0]}"
            )


def _tls(options: cfg.ConfigOpts.GroupAttr) -> dict[str, Any]:
    files = {
        "ssl.ca.location": _file(options, "ssl_ca_file"),
        "ssl.certificate.location": _file(options, "ssl_cert_file"),
        "ssl.key.location": _file(options, "ssl_key_file"),
    }
    if bool(options.ssl_cert_file) != bool(options.ssl_key_file):
        raise ConfigurationError(
            "[kafka] ssl_cert_file and ssl_key_file must be set together"
        )
    return {name: path for name, path in files.items() if path}


def _file(options: cfg.ConfigOpts.GroupAttr, name: str) -> str | None:
    path: str | None = getattr(options, name)
    if path:
        _read(path, name)
    return path


def _read(path: str, option: str) -> str:
    try:
        return Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigurationError(f"[kafka] {option} cannot be read: {e}") from e


def _sasl(options: cfg.ConfigOpts.GroupAttr) -> dict[str, Any]:
    for name in ("sasl_username", "sasl_password_file"):
        if not getattr(options, name):
            raise ConfigurationError(
                f"[kafka] security_protocol = {options.security_protocol} needs "
                f"[kafka] {name}"
            )
    lines = _read(options.sasl_password_file, "sasl_password_file").splitlines()
    if not lines or not lines[0]:
        raise ConfigurationError(
            f"[kafka] sasl_password_file: the first line of "
            f"{options.sasl_password_file} must be the password; it is empty"
        )
    return {
        "sasl.mechanism": options.sasl_mechanism,
        "sasl.username": options.sasl_username,
        "sasl.password": lines[0],
    }


class LastError:
    """The last error of a client, which explains why it is not connected.

    Attributes
    ----------
    text : str
        The error, and the options to check.
    is_denied : bool
        Whether the user lacks a right.
    is_fatal : bool
        Whether the client cannot be used any more.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._options = conf.kafka
        self.text = ""
        self.is_denied = False
        self.is_fatal = False

    def note(self, error: KafkaError) -> None:
        """Record an error; this is the callback of a client."""
        library = kafka_library()
        self.is_fatal = self.is_fatal or error.fatal()
        self.is_denied = is_denied(error)
        # "All brokers are down" follows the error of the last broker, which says more.
        if error.code() != library.KafkaError._ALL_BROKERS_DOWN or not self.text:  # noqa: SLF001 - its public name
            self.text = f"{error.str()}{self._advice(error.code())}"

    def _advice(self, code: int) -> str:
        """Return the options to check, for an operator; or ""."""
        errors, options = kafka_library().KafkaError, self._options
        if self.is_denied:
            return ""
        if code == errors._AUTHENTICATION:  # noqa: SLF001 - its public name
            return (
                f". Check [kafka] sasl_username ({options.sasl_username}), "
                f"sasl_password_file ({options.sasl_password_file}) and sasl_mechanism "
                f"({options.sasl_mechanism})"
            )
        if code == errors._SSL or "SSL" in options.security_protocol.upper():  # noqa: SLF001 - its public name
            return (
                f". Check [kafka] ssl_ca_file ({options.ssl_ca_file or 'not set'}), "
                "which verifies the brokers' certificates, and ssl_cert_file "
                f"({options.ssl_cert_file or 'not set'}), which brokers may require"
            )
        return (
            ". Check the addresses, and whether the brokers expect [kafka] "
            f"security_protocol = {options.security_protocol} there"
        )


def is_denied(error: KafkaError) -> bool:
    """Return whether an error is that the user lacks a right."""
    errors = kafka_library().KafkaError
    return error.code() in (
        errors.TOPIC_AUTHORIZATION_FAILED,
        errors.CLUSTER_AUTHORIZATION_FAILED,
    )


def partitions_of(
    conf: cfg.ConfigOpts,
    client: Consumer | Producer,
    topics: Mapping[str, str],
    error: LastError,
) -> dict[str, list[int]]:
    """Return the partitions of topics.

    Parameters
    ----------
    topics : mapping
        The documented settings by topic, for the error about a missing topic.

    Raises
    ------
    ConfigurationError
        No broker answers, or a topic does not exist.
    """
    library = kafka_library()
    servers = ",".join(conf.kafka.bootstrap_servers)
    client.poll(0)
    try:
        # The metadata of all topics: asking for a single one may create it.
        existing_topics = client.list_topics(timeout=conf.kafka.timeout).topics
    except library.KafkaException as e:
        client.poll(0)  # calls the callback of errors
        raise ConfigurationError(
            f"No broker of [kafka] bootstrap_servers = {servers} answers within "
            f"{conf.kafka.timeout:g} s: {error.text or e.args[0].str()}"
        ) from e
    partitions = {}
    for topic, settings in topics.items():
        if topic not in existing_topics or not existing_topics[topic].partitions:
            raise ConfigurationError(_missing(conf, topic, settings))
        partitions[topic] = sorted(existing_topics[topic].partitions)
    return partitions


def _missing(conf: cfg.ConfigOpts, topic: str, settings: str) -> str:
    servers = conf.kafka.bootstrap_servers
    command = _CREATE.format(server=servers[0], topic=topic, settings=settings)
    text = (
        f"The Kafka topic {topic!r} does not exist at {','.join(servers)}, or the user "
        f"may not describe it. Create it: {command}"
    )
    if conf.kafka.security_protocol == "plaintext":
        return text
    return f"{text}; or allow it: {allow_command(conf, topic, 'Describe')}"


def allow_command(
    conf: cfg.ConfigOpts, name: str, *operations: str, resource: str = "topic"
) -> str:
    """Return the command that gives the user of these options rights on a resource."""
    options = conf.kafka
    server = options.bootstrap_servers[0]
    operation_options = " ".join(f"--operation {operation}" for operation in operations)
    user = options.sasl_username or "USER"
    return (
        f"kafka-acls.sh --bootstrap-server {server} --add --allow-principal "
        f"User:{user} {operation_options} --{resource} {name}"
    )


class TopicNames(NamedTuple):
    """The names of the three topics that have hosts and aggregates."""

    hosts: str
    heartbeats: str
    aggregates: str

    @classmethod
    def of(cls, conf: cfg.ConfigOpts) -> Self:
        """Return the names of the topics, which begin with ``[kafka] topic_prefix``."""
        return cls(*(f"{conf.kafka.topic_prefix}-{name}" for name in cls._fields))


def topic_settings(conf: cfg.ConfigOpts) -> dict[str, str]:
    """Return the settings with which topics of [kafka] are created, by topic name."""
    names = TopicNames.of(conf)
    return {
        names.hosts: _COMPACTED,
        names.heartbeats: _RETAINED,
        names.aggregates: _COMPACTED,
    }


def claims_topic_settings(conf: cfg.ConfigOpts) -> dict[str, str]:
    """Return the settings with which the topic of claims is created, by topic name."""
    return {conf.kafka.claims_topic: _RETAINED}
