"""kcat (librdkafka) run against the gateway."""

from __future__ import annotations

import json

from tests.compat.topics import expect_unbroken, fresh_topic, stored_batches
from tests.support.gateway_process import GatewayProcess
from tests.support.kafka_tools import run_program


def _kcat(gateway: GatewayProcess, *arguments: str, stdin: bytes = b"") -> str:
    return run_program("kcat", "-b", gateway.bootstrap, *arguments, stdin=stdin).stdout.decode()


def test_metadata(shared_gateway: GatewayProcess) -> None:
    topic = fresh_topic(shared_gateway.bootstrap, "kcat-list", partitions=3)
    listed = json.loads(_kcat(shared_gateway, "-L", "-J", "-t", topic))
    (broker,) = listed["brokers"]
    assert broker["name"] == shared_gateway.bootstrap
    (found,) = listed["topics"]
    assert found["topic"] == topic
    assert {partition["leader"] for partition in found["partitions"]} == {broker["id"]}


def test_produce_and_consume(shared_gateway: GatewayProcess) -> None:
    """Produce with idempotence and each codec; consume from the start, from an offset, and from shortly
    before the end."""
    topic = fresh_topic(shared_gateway.bootstrap, "kcat")
    lines: list[str] = []
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        sent = [f"{codec} {number}" for number in range(20)]
        produce = (
            "-P",
            "-t",
            topic,
            "-p",
            "0",
            "-z",
            codec,
            "-X",
            "enable.idempotence=true",
            "-X",
            "acks=all",
        )
        _kcat(shared_gateway, *produce, stdin="\n".join(sent).encode() + b"\n")
        lines += sent
    expect_unbroken(stored_batches(shared_gateway.bootstrap, topic), len(lines))
    consume = ("-C", "-t", topic, "-p", "0", "-e", "-q")
    assert _kcat(shared_gateway, *consume, "-o", "beginning").splitlines() == lines
    assert _kcat(shared_gateway, *consume, "-o", "37").splitlines() == lines[37:]
    assert _kcat(shared_gateway, *consume, "-o", "-5").splitlines() == lines[-5:]


def test_keys_headers_and_times(shared_gateway: GatewayProcess) -> None:
    topic = fresh_topic(shared_gateway.bootstrap, "kcat-keys")
    _kcat(shared_gateway, "-P", "-t", topic, "-p", "0", "-K:", "-H", "source=test", stdin=b"k1:v1\nk2:v2\n")
    read = _kcat(
        shared_gateway, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q", "-J"
    ).splitlines()
    rows = [json.loads(line) for line in read]
    assert [(row["offset"], row["key"], row["payload"]) for row in rows] == [(0, "k1", "v1"), (1, "k2", "v2")]
    assert rows[0]["headers"] == ["source", "test"]
    time = rows[0]["ts"]
    assert _kcat(shared_gateway, "-Q", "-t", f"{topic}:0:{time}").split() == [topic, "[0]", "offset", "0"]
    assert _kcat(shared_gateway, "-Q", "-t", f"{topic}:0:-1").split() == [topic, "[0]", "offset", "2"]
