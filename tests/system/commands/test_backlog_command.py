"""`seqgate backlog` on a topic with and without limits, and the skipped records in `seqgate groups describe`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat.clients.test_backlog_quota import Reader, reading
from tests.compat.groups.members import await_that
from tests.compat.topics import fresh_topic
from tests.support.gateway_process import GatewayProcess
from tests.system.commands.clients import produce
from tests.system.commands.conftest import seqgate

SETTINGS = {"seqgate.backlog.check.interval.ms": "20", "offsets.topic.num.partitions": "1"}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with GatewayProcess(tmp_path_factory.mktemp("backlog") / "data", settings=SETTINGS) as process:
        yield process


@pytest.fixture
def topic(gateway: GatewayProcess) -> str:
    name = fresh_topic(gateway.bootstrap, "orders", partitions=2)
    for sequence in range(3):
        assert produce(gateway.bootstrap, name, 0, 77, sequence, 1)[0] == 0
    return name


@pytest.fixture
def reader(gateway: GatewayProcess, topic: str) -> Iterator[Reader]:
    with reading(gateway.bootstrap, topic) as begun:
        yield begun


def test_a_topic_without_limits(gateway: GatewayProcess, topic: str, reader: Reader) -> None:
    reader.commit(1)
    told = seqgate("backlog", topic, "--json", "--data-dir", gateway.data_dir).json
    first, second = told["partitions"]
    assert (told["quota_bytes"], told["quota_ms"], told["ttl_ms"], told["complete"]) == (-1, -1, -1, True)
    assert (first["slowest"], first["verdict"], first["exceeded"]) == (reader.group, "open", None)
    assert first["backlog_bytes"] == first["readers"][0]["backlog_bytes"] > 0
    assert first["age_ms"] >= 0
    assert (second["slowest"], second["readers"], second["backlog_bytes"]) == (None, [], 0)
    assert topic not in seqgate("backlog", "--data-dir", gateway.data_dir).stdout
    shown = seqgate("backlog", topic, "--data-dir", gateway.data_dir).stdout
    assert "no quota, no TTL" in shown
    assert f"{reader.group}*" in shown
    assert "nobody reads it" in shown


def test_what_producers_meet_and_groups_skip(gateway: GatewayProcess) -> None:
    configs = {
        "message.ttl.ms": "1",
        "backlog.quota.bytes": "1",
        "backlog.quota.policy": "producer_exception",
    }
    topic = fresh_topic(gateway.bootstrap, "orders", configs=configs)
    assert produce(gateway.bootstrap, topic, 0, 77, 0, 3)[0] == 0
    with reading(gateway.bootstrap, topic) as reader:

        def skipped() -> int:
            told = seqgate("groups", "describe", reader.group, "--json", "--data-dir", gateway.data_dir).json
            return int(told["partitions"][0]["skipped"])

        await_that(lambda: skipped() == 3, "the group skips three records")
        described = seqgate("groups", "describe", reader.group, "--data-dir", gateway.data_dir).stdout
        assert "3 records skipped unread" in described
        told = seqgate("backlog", topic, "--json", "--data-dir", gateway.data_dir).json
        assert told["partitions"][0]["readers"][0]["skipped"] == {"message.ttl.ms": 3}
        shown = seqgate("backlog", topic, "--data-dir", gateway.data_dir).stdout
        assert "message.ttl.ms 1" in shown
        assert "backlog.quota.policy producer_exception" in shown
        (row,) = seqgate("backlog", "--json", "--data-dir", gateway.data_dir).json["topics"]
        assert (row["topic"], row["ttl_ms"]) == (topic, 1)
        line = seqgate("backlog", "--data-dir", gateway.data_dir).stdout.splitlines()[2]
        assert line.startswith(topic)
        assert "message.ttl.ms 1" in line


def test_a_topic_that_does_not_exist(gateway: GatewayProcess) -> None:
    refused = seqgate("backlog", "nowhere", "--data-dir", gateway.data_dir, code=1)
    assert "there is no topic nowhere" in refused.stderr


def test_the_gateway_must_run(tmp_path: Path) -> None:
    assert "no gateway is running" in seqgate("backlog", "orders", "--data-dir", tmp_path, code=1).stderr
