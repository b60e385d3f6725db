"""What a running gateway tells of itself."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.control.errors import ControlError
from gateway.control.messages import ListProducersRequest
from gateway.control.operations import Operations, Traffic
from gateway.control.results import ProducerRow
from tests.gateway.control.fakes import (
    NOW_MS,
    Batch,
    FakeServices,
    FakeStore,
    fake_allocator,
    fake_source,
)


def operations_on(topics: dict[str, int]) -> Operations:
    store = FakeStore()
    services: Any = FakeServices(fake_allocator(store), topics)
    return Operations(services, fake_source(store), lambda: Traffic(4, 1, 99), NOW_MS - 5000)


def fake_log(operations: Operations, topic: str, index: int) -> Any:
    partition = operations.services.partitions.get(topic, index)
    assert partition is not None
    return partition.log


async def all_rows(operations: Operations, limit: int, topic: str | None = None) -> list[ProducerRow]:
    rows: list[ProducerRow] = []
    request = ListProducersRequest(topic, limit=limit)
    while True:
        page = await operations.list_producers(request)
        assert len(page.producers) <= limit
        rows += page.producers
        if page.complete:
            return rows
        last = rows[-1]
        request = ListProducersRequest(
            topic, after=(last.topic, last.partition, last.producer_id), limit=limit
        )


class TestProducers:
    async def test_a_row_tells_all_that_the_partition_remembers(self) -> None:
        operations = operations_on({"orders": 1})
        log = fake_log(operations, "orders", 0)
        log.append(Batch(1000, 0, 9), NOW_MS - 3000)
        log.append(Batch(1000, 10, 14, max_timestamp=NOW_MS - 50_000), NOW_MS - 2000)
        page = await operations.list_producers(ListProducersRequest())
        assert page.producers == [
            ProducerRow(
                topic="orders",
                partition=0,
                producer_id=1000,
                producer_epoch=0,
                last_sequence=14,
                last_offset=14,
                last_timestamp=NOW_MS - 50_000,
                coordinator_epoch=-1,
                current_txn_start_offset=-1,
                age_ms=2000,
                retained_batches=2,
            )
        ]
        assert page.complete

    @pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
    async def test_pages_hold_every_producer_once_and_in_order(self, limit: int) -> None:
        operations = operations_on({"b": 2, "a": 3})
        expected = []
        for topic, index, producer_id in [
            ("a", 0, 7),
            ("a", 0, 9),
            ("a", 2, 1),
            ("b", 0, 1),
            ("b", 0, 2),
            ("b", 0, 3),
            ("b", 1, 1),
        ]:
            fake_log(operations, topic, index).append(Batch(producer_id, 0, 0))
            expected.append((topic, index, producer_id))
        fake_log(operations, "b", 0).append(Batch(1, 1, 1))
        rows = await all_rows(operations, limit)
        assert [(row.topic, row.partition, row.producer_id) for row in rows] == expected

    async def test_of_one_topic_or_partition_only(self) -> None:
        operations = operations_on({"a": 2, "b": 1})
        for topic, index in [("a", 0), ("a", 1), ("b", 0)]:
            fake_log(operations, topic, index).append(Batch(5, 0, 0))
        assert [row.partition for row in await all_rows(operations, 10, "a")] == [0, 1]
        page = await operations.list_producers(ListProducersRequest("a", 1))
        assert [(row.topic, row.partition) for row in page.producers] == [("a", 1)]

    @pytest.mark.parametrize(
        ("request_", "words"),
        [
            (ListProducersRequest("nothing"), "no topic nothing"),
            (ListProducersRequest("a", 7), "no partition 7"),
            (ListProducersRequest(limit=0), "page"),
            (ListProducersRequest(limit=10**9), "page"),
        ],
    )
    async def test_what_is_not_there_is_refused(self, request_: ListProducersRequest, words: str) -> None:
        with pytest.raises(ControlError, match=words):
            await operations_on({"a": 1}).list_producers(request_)

    async def test_a_topic_deleted_between_pages_is_skipped(self) -> None:
        operations = operations_on({"a": 1, "b": 1})
        for topic in ("a", "b"):
            fake_log(operations, topic, 0).append(Batch(5, 0, 0))
        page = await operations.list_producers(ListProducersRequest(after=("aa", 0, 5)))
        assert [row.topic for row in page.producers] == ["b"]

    async def test_counters_come_with_every_page(self) -> None:
        operations = operations_on({"a": 1})
        fake_log(operations, "a", 0).append(Batch(5, 0, 0))
        counters = (await operations.list_producers(ListProducersRequest())).counters
        assert (counters.duplicates, counters.rejections) == (3, 2)
        assert (counters.evictions, counters.refusals, counters.remembered) == (0, 0, 1)


class TestStatus:
    async def test_tells_counts_and_offline_partitions(self) -> None:
        operations = operations_on({"a": 2, "b": 1})
        log = fake_log(operations, "a", 1)
        log.offline, log.failure = True, "No space left on device"
        status = operations.status()
        assert (status.topics, status.partitions, status.uptime_ms) == (2, 3, 5000)
        assert (status.connections, status.refused_connections, status.requests) == (4, 1, 99)
        assert (status.flush_rounds, status.flush_failures) == (7, 1)
        (offline,) = status.offline_partitions
        assert (offline.topic, offline.partition, offline.reason) == ("a", 1, "No space left on device")

    async def test_ids_left_count_the_block_claimed_ahead(self) -> None:
        operations = operations_on({})
        await operations.services.producer_ids.start()
        assert operations.status().producer_ids_left == 10


class TestReopen:
    async def test_brings_the_partition_back_and_wakes_who_waits(self) -> None:
        operations = operations_on({"a": 1})
        log = fake_log(operations, "a", 0)
        log.offline, log.log_end_offset = True, 12
        answer = operations.reopen("a", 0)
        assert (answer.log_start_offset, answer.log_end_offset, log.offline) == (0, 12, False)
        partition: Any = operations.services.partitions.get("a", 0)
        assert partition.woken == 1

    async def test_what_is_still_broken_stays_offline(self) -> None:
        operations = operations_on({"a": 1})
        log = fake_log(operations, "a", 0)
        log.offline, log.reopen_error = True, OSError("No space left on device")
        with pytest.raises(ControlError, match="stays offline: No space"):
            operations.reopen("a", 0)

    @pytest.mark.parametrize(("topic", "index"), [("b", 0), ("a", 5), ("a", -1)])
    async def test_unknown_partitions_are_refused(self, topic: str, index: int) -> None:
        with pytest.raises(ControlError, match="no partition"):
            operations_on({"a": 1}).reopen(topic, index)

    async def test_a_partition_in_service_is_left_alone(self) -> None:
        with pytest.raises(ControlError, match="not offline"):
            operations_on({"a": 1}).reopen("a", 0)
