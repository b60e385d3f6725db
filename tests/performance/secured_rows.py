"""The rows of the comparison with TLS and logins: the broker is started with the listeners and settings of
`Security`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from tests.performance.brokers import Broker
from tests.performance.loads import (
    Sample,
    create_topic,
    run_load,
    run_producer_performance,
    write_fetch_plan,
    write_produce_plan,
)
from tests.performance.rows import PARTITIONS, Bench, Extent, Load, Row, fill
from tests.performance.secured_client import Client
from tests.support.certificates import Authority

SSL, SASL_SSL = "SSL", "SASL_SSL"
USER, PASSWORD = "bench", "bench-secret"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


class Security:
    """The certificates of a run, and the settings that both brokers share."""

    def __init__(self, directory: Path) -> None:
        authority = Authority()
        self.trusted = authority.write(directory / "authority.pem")
        self.listener = authority.listener().write_pem(directory / "listener.pem")

    def settings(self) -> dict[str, str]:
        per_listener = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.listener)}
        return {
            **{
                f"listener.name.{listener.lower()}.{name}": value
                for listener in (SSL, SASL_SSL)
                for name, value in per_listener.items()
            },
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{PLAIN} required user_{USER}="{PASSWORD}";',
        }

    def client(self, protocol: str) -> Client:
        return Client(str(self.trusted), *((USER, PASSWORD) if protocol == SASL_SSL else ()))


def _client_file(bench: Bench, protocol: str) -> str:
    assert bench.security is not None
    return str(bench.security.client(protocol).write(bench.directory / f"{protocol}.json"))


def _plan_load(bench: Bench, broker: Broker, plan: Path, kind: str, protocol: str, seconds: float) -> Sample:
    host, _, port = broker.secured[protocol].rpartition(":")
    program = [sys.executable, "-m", "tests.performance.plan_load"]
    command = [
        *program,
        kind,
        host,
        port,
        str(plan),
        str(seconds),
        "0",
        "1",
        "0",
        _client_file(bench, protocol),
    ]
    return run_load(broker, command)


def _one_record_requests(protocol: str, connections: int) -> Load:
    def load(bench: Bench, broker: Broker, topic: str, extent: Extent) -> Sample:
        create_topic(broker, topic, partitions=PARTITIONS, flush_messages=bench.flush_messages)
        plan = bench.directory / "produce.plan"
        write_produce_plan(
            plan, broker, topic, partitions=PARTITIONS, connections=connections, record_count=1, size=100
        )
        return _plan_load(bench, broker, plan, "produce", protocol, extent.seconds)

    return load


def _producer_performance(protocol: str) -> Load:
    def load(bench: Bench, broker: Broker, topic: str, extent: Extent) -> Sample:
        assert bench.security is not None
        create_topic(broker, topic, partitions=PARTITIONS, flush_messages=bench.flush_messages)
        return run_producer_performance(
            broker,
            topic,
            count=max(1000, int(300_000 * extent.share)),
            size=1000,
            batch_size=262_144,
            bootstrap=broker.secured[protocol],
            command_config=bench.security.client(protocol).write_properties(
                bench.directory / f"{protocol}.properties"
            ),
        )

    return load


def _fetch(protocol: str) -> Load:
    def load(bench: Bench, broker: Broker, topic: str, extent: Extent) -> Sample:
        fill(bench, broker, topic)
        plan = bench.directory / "fetch.plan"
        write_fetch_plan(plan, topic, partitions=PARTITIONS)
        return _plan_load(bench, broker, plan, "fetch", protocol, extent.seconds)

    return load


def _connects(protocol: str) -> Load:
    def load(bench: Bench, broker: Broker, topic: str, extent: Extent) -> Sample:
        create_topic(broker, topic, partitions=1, flush_messages=bench.flush_messages)
        host, _, port = broker.secured[protocol].rpartition(":")
        program = [sys.executable, "-m", "tests.performance.connects"]
        return run_load(broker, [*program, host, port, str(extent.seconds), _client_file(bench, protocol)])

    return load


KINDS: tuple[tuple[str, str, Callable[[str], Load]], ...] = (
    ("jvm-1000", "ProducerPerformance, 1,000 B, batch.size 262,144", _producer_performance),
    ("one-64", "one-record requests, 64 connections", lambda protocol: _one_record_requests(protocol, 64)),
    ("fetch", "fetch, 4 partitions, 1 MiB each", _fetch),
    ("connect", "connections per second, 8 at once", _connects),
)

SECURED_ROWS = tuple(
    Row(f"{prefix}-{name}", f"{protocol}: {title}", load(protocol), durabilities=("page cache",))
    for prefix, protocol in (("tls", SSL), ("sasl", SASL_SSL))
    for name, title, load in KINDS
)
