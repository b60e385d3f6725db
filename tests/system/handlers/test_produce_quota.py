"""Five requests in flight on one connection to a topic whose backlog is at its limit."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seqgate.gateway.admin.backlog import BacklogPage, BacklogRequest
from seqgate.gateway.admin.client import ask
from tests.compat.clients.test_backlog_quota import Reader, reading
from tests.compat.groups.members import await_that
from tests.compat.topics import expect_unbroken, fresh_topic, stored_batches
from tests.support.batches import Batch, records
from tests.support.gateway_process import GatewayProcess
from tests.support.wire import Wire

RETRY = 19
IN_FLIGHT = 5
SETTINGS = {"seqgate.backlog.check.interval.ms": "20", "offsets.topic.num.partitions": "1"}
HOLD, REFUSE = "producer_request_hold", "producer_exception"


@pytest.fixture(scope="module")
def quota_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with GatewayProcess(tmp_path_factory.mktemp("quota") / "data", settings=SETTINGS) as process:
        yield process
        assert "Traceback" not in process.stderr_text()


def send(wire: Wire, topic: str, sequence: int, timeout_ms: int, producer_id: int = 7_000) -> int:
    batch = Batch(records(1)).of(producer_id, 0, sequence).encode()
    data = [{"name": topic, "partition_data": [{"index": 0, "records": batch}]}]
    return wire.send("produce", 9, {"acks": -1, "timeout": timeout_ms, "topic_data": data})


def row(wire: Wire, correlation_id: int) -> dict[str, Any]:
    fields = wire.receive("produce", 9, correlation_id).fields
    found: dict[str, Any] = fields["responses"][0]["partition_responses"][0]
    return found


def full_topic(gateway: GatewayProcess, policy: str) -> str:
    """A topic with a backlog quota of one byte, and one record."""
    configs = {"backlog.quota.bytes": "1", "backlog.quota.policy": policy}
    topic = fresh_topic(gateway.bootstrap, "full", configs=configs)
    with Wire(gateway.bootstrap) as wire:
        assert row(wire, send(wire, topic, 0, 10_000, producer_id=1))["error_code"] == 0
    return topic


def backlog_of(gateway: GatewayProcess, topic: str) -> BacklogPage:
    return ask(gateway.data_dir, BacklogRequest(topic))


def await_verdict(gateway: GatewayProcess, topic: str, verdict: str) -> None:
    await_that(lambda: backlog_of(gateway, topic).partitions[0].verdict == verdict, verdict)


def catch_up(gateway: GatewayProcess, topic: str, reader: Reader) -> None:
    """Read all records. Each time, the quota lets one more batch in."""
    reader.commit(reader.end_offset())


def test_held_requests_are_appended_in_order(quota_gateway: GatewayProcess) -> None:
    topic = full_topic(quota_gateway, HOLD)
    with reading(quota_gateway.bootstrap, topic) as reader, Wire(quota_gateway.bootstrap) as wire:
        await_verdict(quota_gateway, topic, "holding")
        sent = [send(wire, topic, number, 20_000) for number in range(IN_FLIGHT)]
        await_that(lambda: backlog_of(quota_gateway, topic).waiting_requests == 1, "it waits")
        assert reader.end_offset() == 1
        for number, correlation_id in enumerate(sent):
            catch_up(quota_gateway, topic, reader)
            answered = row(wire, correlation_id)
            assert (answered["error_code"], answered["base_offset"]) == (0, 1 + number)
    expect_unbroken(stored_batches(quota_gateway.bootstrap, topic), 1 + IN_FLIGHT)


def test_when_the_time_is_over_all_are_refused_and_may_come_again(quota_gateway: GatewayProcess) -> None:
    topic = full_topic(quota_gateway, HOLD)
    with reading(quota_gateway.bootstrap, topic) as reader, Wire(quota_gateway.bootstrap) as wire:
        await_verdict(quota_gateway, topic, "holding")
        began_s = time.monotonic()
        sent = [send(wire, topic, number, 6_000) for number in range(IN_FLIGHT)]
        codes = [row(wire, correlation_id)["error_code"] for correlation_id in sent]
        assert codes == [RETRY] * IN_FLIGHT
        assert time.monotonic() - began_s < 6 * IN_FLIGHT, (
            "a request behind a held one must not be held again"
        )
        for number in range(IN_FLIGHT):
            catch_up(quota_gateway, topic, reader)
            await_verdict(quota_gateway, topic, "open")
            answered = row(wire, send(wire, topic, number, 20_000))
            assert (answered["error_code"], answered["base_offset"]) == (0, 1 + number)


def test_refused_requests_may_come_again_in_their_order(quota_gateway: GatewayProcess) -> None:
    topic = full_topic(quota_gateway, REFUSE)
    with reading(quota_gateway.bootstrap, topic) as reader, Wire(quota_gateway.bootstrap) as wire:
        await_verdict(quota_gateway, topic, "refusing")
        sent = [send(wire, topic, number, 10_000) for number in range(IN_FLIGHT)]
        refused = [row(wire, correlation_id) for correlation_id in sent]
        assert {answer["error_code"] for answer in refused} == {RETRY}
        assert {answer["log_start_offset"] for answer in refused} == {-1}
        catch_up(quota_gateway, topic, reader)
        await_verdict(quota_gateway, topic, "open")
        late = row(wire, send(wire, topic, 1, 10_000))
        assert late["error_code"] == RETRY
        assert "earlier batch" in late["error_message"]
        for number in range(IN_FLIGHT):
            answered = row(wire, send(wire, topic, number, 10_000))
            assert (answered["error_code"], answered["base_offset"]) == (0, 1 + number)
            catch_up(quota_gateway, topic, reader)
            await_verdict(quota_gateway, topic, "open")


def test_the_gateway_stops_while_requests_wait(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path / "data", settings=SETTINGS) as gateway:
        topic = full_topic(gateway, HOLD)
        with reading(gateway.bootstrap, topic), Wire(gateway.bootstrap) as wire:
            await_verdict(gateway, topic, "holding")
            sent = send(wire, topic, 0, 60_000)
            await_that(lambda: backlog_of(gateway, topic).waiting_requests == 1, "it waits")
            gateway.stop()
            assert row(wire, sent)["error_code"] == RETRY
        gateway.start()
