"""The answers that a producer gets for duplicate named records, on a connection to a running gateway."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from seqgate.gateway.handlers.records.produce import MANY_TO_OPEN
from tests.compat.topics import fresh_topic, stored_batches
from tests.support.batches import Batch
from tests.support.gateway_process import GatewayProcess
from tests.support.named_batches import DEDUPLICATED, named
from tests.support.wire import Closed, Wire

VERSION = 9
FENCED, INVALID_RECORD = 90, 87
TRANSACTIONAL = 0x10


def request(topic: str, batches: Iterable[Batch], acks: int) -> dict[str, Any]:
    data = [{"index": index, "records": batch.encode()} for index, batch in enumerate(batches)]
    return {"acks": acks, "timeout": 30_000, "topic_data": [{"name": topic, "partition_data": data}]}


def send(
    wire: Wire, topic: str, *batches: Batch, acks: int = -1, version: int = VERSION
) -> list[tuple[int, int]]:
    fields = wire.call("produce", version, request(topic, batches, acks)).fields
    rows = fields["responses"][0]["partition_responses"]
    return [
        (row["error_code"], row["base_offset"]) for row in sorted(rows, key=lambda row: int(row["index"]))
    ]


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("flush_messages", ["1", "1000000"])
def test_a_producer_without_an_id(shared_gateway: GatewayProcess, acks: int, flush_messages: str) -> None:
    """Both requests use one connection, which recognizes the prefix of the second one."""
    configs = {**DEDUPLICATED, "flush.messages": flush_messages}
    topic = fresh_topic(shared_gateway.bootstrap, "named", configs=configs)
    with Wire(shared_gateway.bootstrap) as wire:
        answers = [
            send(wire, topic, named("a", *ids), acks=acks)[0]
            for ids in ([1, 2], [1, 2], [2], [2, 3], [3, 4, 5], [1])
        ]
        # an answered record can be read, and so can all records before it
        assert send(wire, topic, named("a", 6)) == [(0, 7)]
    assert answers == [(0, 0), (0, -1), (0, -1), (0, 2), (0, 4), (0, -1)]
    assert sum(batch.record_count for batch in stored_batches(shared_gateway.bootstrap, topic)) == 6


def test_an_idempotent_producer(shared_gateway: GatewayProcess) -> None:
    """The producer's sequence advances even if no record of a batch was new, and a retry gets the same
    offset.
    """
    topic = fresh_topic(shared_gateway.bootstrap, "named", configs=DEDUPLICATED)
    with Wire(shared_gateway.bootstrap) as wire:
        assert send(wire, topic, named("a", 1, 2).of(7_100, 0, 0)) == [(0, 0)]
        for _ in range(2):
            assert send(wire, topic, named("a", 1, 2).of(7_101, 0, 0)) == [(0, 2)]
        for _ in range(2):
            assert send(wire, topic, named("a", 2, 3).of(7_101, 0, 2)) == [(0, 4)]
    batches = stored_batches(shared_gateway.bootstrap, topic)
    assert [batch.record_count for batch in batches] == [2, 0, 1]


def test_without_answers(shared_gateway: GatewayProcess) -> None:
    topic = fresh_topic(shared_gateway.bootstrap, "named", configs=DEDUPLICATED)
    with Wire(shared_gateway.bootstrap) as wire:
        for ids in ([1, 2], [1, 2], [2, 3], [3]):
            wire.send("produce", VERSION, request(topic, [named("a", *ids)], 0))
        assert send(wire, topic, named("a", 3, 4)) == [(0, 4)]
        # with acks 0 the gateway reports an error by closing the connection
        wire.send("produce", VERSION, request(topic, [named("", 5)], 0))
        with pytest.raises(Closed):
            wire.receive_frame()


@pytest.mark.parametrize("version", [8, 9])
def test_an_id_of_any_length_is_refused_with_a_short_message(
    shared_gateway: GatewayProcess, version: int
) -> None:
    topic = fresh_topic(shared_gateway.bootstrap, "named", configs=DEDUPLICATED)
    fields = request(topic, [replace(named("a", 1).of(7_200, 0, 0), attributes=TRANSACTIONAL)], -1)
    with Wire(shared_gateway.bootstrap) as wire:
        answer = wire.call("produce", version, {"transactional_id": "\N{SNOWMAN}" * 10_920, **fields}).fields
    (row,) = answer["responses"][0]["partition_responses"]
    assert row["error_code"]
    assert len(row["error_message"]) == 1_000


def test_many_partitions_in_one_request(shared_gateway: GatewayProcess) -> None:
    count = MANY_TO_OPEN + 4
    topic = fresh_topic(shared_gateway.bootstrap, "named", partitions=count, configs=DEDUPLICATED)
    with Wire(shared_gateway.bootstrap) as wire:
        assert send(wire, topic, *[named("a", 1)] * count) == [(0, 0)] * count
        assert send(wire, topic, *[named("a", 1)] * count) == [(0, -1)] * count
        mixed = [named("a", 1 + index % 2) for index in range(count)]
        assert send(wire, topic, *mixed) == [(0, 1 if index % 2 else -1) for index in range(count)]


@pytest.mark.parametrize("version", range(3, 13))
def test_what_is_refused(shared_gateway: GatewayProcess, version: int) -> None:
    topic = fresh_topic(shared_gateway.bootstrap, "named", configs=DEDUPLICATED)
    with Wire(shared_gateway.bootstrap) as wire:
        assert send(wire, topic, named("a", 1, epoch=5), version=version) == [(0, 0)]
        for _ in range(2):
            assert send(wire, topic, named("a", 2, epoch=4), version=version) == [(FENCED, -1)]
            assert send(wire, topic, named("a", 2), version=version) == [(FENCED, -1)]
            assert send(wire, topic, named("", 2), version=version) == [(INVALID_RECORD, -1)]
        assert send(wire, topic, named("a", 2, epoch=5), version=version) == [(0, 1)]
