# SPDX-License-Identifier: Apache-2.0
"""Check that the brokers and the stores of decisions and hosts can be used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Protocol

from oslo_config import cfg

from ...database import IncompatibleSchema, StoreUnavailable
from ...decision_store import DecisionStore
from ...errors import ConfigurationError
from ...kafka_client import claims_topic_settings, topic_settings
from ...rpc import get_transport
from ...rpc.broker import BrokerWatch
from ...sources.push.store import HostStore
from .files import FileOptions
from .result import CheckResult, TimedCall

_BROKER: Final = "Message broker"
_KAFKA: Final = "Kafka"
_DECISIONS: Final = "Store of decisions"
_HOSTS: Final = "Store of hosts"
#: Time limit in seconds for the broker, and for each store.
_LIMIT_S: Final = 15.0
#: How long a broker of Kafka holds a fetch; nothing is fetched.
_FETCH_WAIT_MS: Final = 500


class _Store(Protocol):
    """A store whose `check` behaves as `StoreDatabase.check`."""

    name: str

    def check(self) -> bool: ...


def broker_finding(conf: cfg.ConfigOpts, files: FileOptions) -> CheckResult:
    """Check whether the broker accepts a message that goes to no queue of nova."""
    try:
        transport = get_transport(conf)
    except ConfigurationError as e:
        why = f"The scheduler would not start: {files.redacted(e)}"
        return CheckResult.failure(_BROKER, why)
    try:
        set_by = conf.get_location("transport_url")
        if set_by is None or set_by.location is cfg.Locations.opt_default:
            return CheckResult.warning(
                _BROKER,
                "[DEFAULT] transport_url is not set: guest at localhost:5672 would be "
                "used. Set it as in nova.conf.",
            )
        return TimedCall(lambda: _check_broker(BrokerWatch(transport))).result(_LIMIT_S)
    except TimeoutError as e:
        return CheckResult.failure(_BROKER, f"{e}")
    finally:
        transport.cleanup()


def _check_broker(watch: BrokerWatch) -> CheckResult:
    if watch.check():
        return CheckResult.success(_BROKER, "It accepts messages.")
    return CheckResult.failure(_BROKER, watch.problem)


def uses_kafka(conf: cfg.ConfigOpts) -> bool:
    """Return whether the scheduler reads hosts or announces claims in Kafka."""
    return conf.moorage.source == "kafka" or bool(conf.kafka.claims_topic)


def kafka_finding(conf: cfg.ConfigOpts, files: FileOptions) -> CheckResult:
    """Check whether the brokers of [kafka] answer, and have the topics."""
    from ...sources.kafka.reader import TopicReader  # its import needs the library

    topics = topic_settings(conf) if conf.moorage.source == "kafka" else {}
    if conf.kafka.claims_topic:
        topics |= claims_topic_settings(conf)
    try:
        reader = TopicReader(conf, fetch_wait_ms=_FETCH_WAIT_MS)
        try:
            reader.partitions(topics)
        finally:
            reader.close()
    except ConfigurationError as e:
        why = f"The scheduler would not start: {files.redacted(e)}"
        return CheckResult.failure(_KAFKA, why)
    return CheckResult.success(
        _KAFKA, f"It has the topics {', '.join(sorted(topics))}."
    )


def store_findings(conf: cfg.ConfigOpts, files: FileOptions) -> Iterator[CheckResult]:
    """Check the stores that the configuration uses."""
    store: _Store | None
    try:
        store = DecisionStore.open(conf)
    except ConfigurationError as e:
        why = f"The scheduler would not start: {files.redacted(e)}"
        yield CheckResult.failure(_DECISIONS, why)
    else:
        if store is not None:
            yield _store_finding(_DECISIONS, store, files, CheckResult.warning)
    if conf.moorage.source != "push":
        return
    try:
        store = HostStore(conf.moorage.store_connection)
    except ConfigurationError as e:
        why = f"The scheduler would not start: {files.redacted(e)}"
        yield CheckResult.failure(_HOSTS, why)
    else:
        yield _store_finding(_HOSTS, store, files, CheckResult.failure)


def _store_finding(
    name: str,
    store: _Store,
    files: FileOptions,
    unavailable: Callable[[str, str], CheckResult],
) -> CheckResult:
    """Check one store; `unavailable` creates the result if it cannot be reached."""

    def check() -> CheckResult:
        if store.check():
            return CheckResult.success(name, f"{store.name} can be read.")
        return CheckResult.success(
            name, f"{store.name}: its tables are created or upgraded at the start."
        )

    try:
        return TimedCall(check).result(_LIMIT_S)
    except IncompatibleSchema as e:
        why = f"The scheduler would not start: {files.redacted(e)}"
        return CheckResult.failure(name, why)
    except StoreUnavailable as e:
        return unavailable(name, files.redacted(e))
    except TimeoutError as e:
        return unavailable(name, f"{store.name}: {e}")
