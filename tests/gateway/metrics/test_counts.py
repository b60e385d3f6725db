"""The values are those of what was done, and counters never fall."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from seqgate.gateway.metrics.metric import OTHERS
from seqgate.gateway.metrics.subjects import groups
from seqgate.gateway.runtime.partitions.partition import Partition
from tests.gateway.metrics.scene import AsyncWire, Scene, running
from tests.support.batches import Batch, records
from tests.support.metrics_text import OPENMETRICS, fallen, values_of
from tests.support.named_batches import named
from tests.support.wire import encode

API = "seqgate_requests_total"


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with running(tmp_path) as scene:
        yield scene


@pytest.fixture
async def wire(scene: Scene) -> AsyncIterator[AsyncWire]:
    async with scene.wire() as wire:
        await wire.create("a")
        yield wire


def partition_of(scene: Scene, topic: str, index: int = 0) -> Partition:
    partition = scene.services.partitions.registry.get(topic, index)
    assert partition is not None
    return partition


async def test_records_and_bytes_of_a_topic(scene: Scene, wire: AsyncWire) -> None:
    for count in (1, 10, 100):
        await wire.produce("a", Batch(records(count)))
    fetched = (
        len(await wire.fetch("a"))
        + len(await wire.fetch("a", offset=11))
        + len(await wire.fetch("a", offset=111))
    )
    values = await scene.values()
    size = partition_of(scene, "a").log.size_bytes
    assert values.of("seqgate_topic_records_total", topic="a") == 111
    assert values.of("seqgate_topic_bytes_total", topic="a") == size
    assert values.of("seqgate_topic_size_bytes", topic="a") == size
    assert values.of("seqgate_topic_fetched_bytes_total", topic="a") == fetched > size
    assert values.of("seqgate_topic_open_partitions", topic="a") == 1


async def test_records_before_the_start_do_not_count(tmp_path: Path) -> None:
    async with running(tmp_path) as before, before.wire() as wire:
        await wire.create("a")
        await wire.produce("a", Batch(records(5)))
    async with running(tmp_path) as scene, scene.wire() as wire:
        await wire.produce("a", Batch(records(2)))
        values = await scene.values()
        assert values.of("seqgate_topic_records_total", topic="a") == 2
        assert values.of("seqgate_topic_bytes_total", topic="a") == len(Batch(records(2)).encode())


async def test_duplicates_and_refusals(scene: Scene, wire: AsyncWire) -> None:
    batch = Batch(records(3))
    assert (await wire.produce("a", batch.of(7, 1, 0)))["base_offset"] == 0
    for _ in range(4):
        assert (await wire.produce("a", batch.of(7, 1, 0)))["base_offset"] == 0
    for _ in range(2):
        assert (await wire.produce("a", batch.of(7, 1, 30)))["error_code"] == 45
    assert (await wire.produce("a", batch.of(7, 0, 3)))["error_code"] == 47
    assert (await wire.produce("a", Batch(records(3), crc=1)))["error_code"] == 2
    values = await scene.values()
    assert values.of("seqgate_producer_duplicate_batches_total") == 4
    assert values.by("seqgate_producer_refused_batches_total", "error") == {
        "out_of_order_sequence_number": 2,
        "invalid_producer_epoch": 1,
        "corrupt_message": 1,
    }
    assert values.of("seqgate_topic_records_total", topic="a") == 3
    assert values.of("seqgate_producers") == 1


async def test_dropped_names_are_no_duplicate_batches(scene: Scene, wire: AsyncWire) -> None:
    await wire.create("named", message_deduplication_enable="true")
    for _ in range(3):
        await wire.produce("named", named("reader", 1, 2))
    values = await scene.values()
    assert values.of("seqgate_producer_names_dropped_records_total") == 4
    assert values.of("seqgate_producer_names") == 1
    assert values.of("seqgate_producer_duplicate_batches_total") == 0
    assert values.of("seqgate_topic_records_total", topic="named") == 2


async def test_each_request_counts_once(scene: Scene, wire: AsyncWire) -> None:
    for _ in range(40):  # all but the first repeat the one before
        await wire.produce("a")
    for offset in range(40):
        await wire.commit("g", "a", offset)
    await wire.fetch("a")
    values = await scene.values()
    counts = values.by(API, "api")
    assert counts["Produce"] == 40
    assert counts["Fetch"] == 1
    assert counts["CreateTopics"] == 1
    assert counts["OffsetCommit"] >= 40
    assert sum(counts.values()) == scene.gateway.server.dispatcher.requests
    timed = values.by("seqgate_request_duration_seconds_count", "api")
    assert (
        1 <= timed["Produce"] <= counts["Produce"]
    )  # the first one, and repeats up to the last look at the clock
    assert timed["Fetch"] == 1


async def test_refused_requests_count(scene: Scene, wire: AsyncWire) -> None:
    """A connection that is closed instead of an answer has sent a request, too."""
    data = Batch(records(1), crc=1).encode()
    rows = [{"name": "a", "partition_data": [{"index": 0, "records": data}]}]
    for _ in range(2):
        async with scene.wire() as other:
            other.wire.send("produce", 9, {"acks": 0, "timeout": 1, "topic_data": rows})
            assert await asyncio.to_thread(_is_closed, other)
    assert (await scene.values()).of(API, api="Produce") == 2


def _is_closed(wire: AsyncWire) -> bool:
    wire.wire._socket.settimeout(10)
    return wire.wire._socket.recv(1) == b""


async def test_nothing_falls_when_a_topic_is_deleted_among_many(tmp_path: Path) -> None:
    async with running(tmp_path, "seqgate.metrics.topics.max=2") as scene, scene.wire() as wire:
        for number in range(5):
            await wire.create(f"t{number}")
            await wire.produce(f"t{number}", Batch(records(number + 1)))
            await scene.values()
        values = await scene.values()
        assert values.by("seqgate_topic_records_total", "topic") == {"t0": 1, "t1": 2, OTHERS: 12}
        assert values.by("seqgate_topic_open_partitions", "topic") == {"t0": 1, "t1": 1, OTHERS: 3}
        for name in ("t0", "t3"):
            await wire.delete(name)
        after = await scene.values()
        assert after.by("seqgate_topic_records_total", "topic") == {"t1": 2, OTHERS: 12}
        assert {dict(labels).get("topic") for (_, labels) in fallen(values, after)} <= {"t0"}
        await wire.create("new")
        await wire.produce("new")
        assert (await scene.values()).by("seqgate_topic_records_total", "topic") == {
            "t1": 2,
            OTHERS: 12,
            "new": 1,
        }


async def test_topics_share_one_series_when_none_has_its_own(tmp_path: Path) -> None:
    async with running(tmp_path, "seqgate.metrics.topics.max=0") as scene, scene.wire() as wire:
        await wire.create("a")
        await wire.produce("a")
        assert (await scene.values()).by("seqgate_topic_records_total", "topic") == {OTHERS: 1}


async def test_a_partition_that_closes_keeps_its_counts(scene: Scene, wire: AsyncWire) -> None:
    await wire.produce("a", Batch(records(3)))
    await wire.fetch("a")
    before = await scene.values()
    scene.services.partitions.registry.release("a", 0)
    closed = await scene.values()
    assert fallen(before, closed) == {}
    with pytest.raises(KeyError):
        closed.of("seqgate_producers", topic="a")
    assert closed.of("seqgate_topic_open_partitions", topic="a") == 0
    await wire.produce("a", Batch(records(4)))
    again = await scene.values()
    assert fallen(closed, again) == {}
    assert again.of("seqgate_topic_records_total", topic="a") == 7
    log = partition_of(scene, "a").log
    assert again.of("seqgate_topic_bytes_total", topic="a") == log.size_bytes, "the log stayed open"


async def test_an_offline_partition_keeps_its_counts_when_it_is_back(scene: Scene, wire: AsyncWire) -> None:
    await wire.produce("a", Batch(records(3)))
    partition = partition_of(scene, "a")
    before = await scene.values()
    partition.log.go_offline("the disk is on fire")
    assert fallen(before, await scene.values()) == {}
    assert (await scene.values()).of("seqgate_offline_partitions") == 1
    await scene.services.partitions.recoveries.reopen(partition.log, partition)
    assert fallen(before, await scene.values()) == {}
    await wire.produce("a", Batch(records(4)))
    after = await scene.values()
    assert after.of("seqgate_offline_partitions") == 0
    assert after.of("seqgate_topic_records_total", topic="a") == 7
    assert after.of("seqgate_topic_bytes_total", topic="a") == partition.log.size_bytes


async def test_deleted_records_stay_counted(scene: Scene, wire: AsyncWire) -> None:
    await wire.create("small", segment_bytes="1048576", retention_bytes="1")
    for _ in range(3):
        await wire.produce("small", Batch(records(6, 100_000)))
    before = await scene.values()
    partition = partition_of(scene, "small")
    topics = [{"name": "small", "partitions": [{"partition_index": 0, "offset": -1}]}]
    await wire.call("delete_records", 2, topics=topics, timeout=10_000)
    assert partition.log.size_bytes < before.of("seqgate_topic_bytes_total", topic="small")
    assert fallen(before, await scene.values()) == {}
    after = await scene.values()
    assert after.of("seqgate_topic_bytes_total", topic="small") > after.of(
        "seqgate_topic_size_bytes", topic="small"
    )


class TestGroups:
    async def test_the_lag_of_a_group(self, scene: Scene, wire: AsyncWire) -> None:
        await wire.produce("a", Batch(records(10)))
        await wire.commit("slow", "a", 3)
        await wire.commit("done", "a", 10)
        await wire.commit("ahead", "a", 99)
        values = await scene.values()
        assert values.by("seqgate_group_lag_records", "group") == {"slow": 7, "done": 0, "ahead": 0}
        assert values.of("seqgate_group_offsets") == 3
        assert values.of("seqgate_groups", type="classic", state="Empty") == 3
        assert values.of("seqgate_group_members") == 0

    async def test_the_largest_lags_have_series(self, tmp_path: Path) -> None:
        async with running(tmp_path, "seqgate.metrics.groups.max=2") as scene, scene.wire() as wire:
            await wire.create("a")
            await wire.produce("a", Batch(records(10)))
            for offset in (9, 4, 8, 1, 10):
                await wire.commit(f"g{offset}", "a", offset)
            lags = (await scene.values()).by("seqgate_group_lag_records", "group")
            assert lags == {"g1": 9, "g4": 6, groups.OTHERS: 3}

    async def test_no_group_has_a_series(self, tmp_path: Path) -> None:
        async with running(tmp_path, "seqgate.metrics.groups.max=0") as scene, scene.wire() as wire:
            await wire.create("a")
            await wire.produce("a")
            await wire.commit("g", "a", 0)
            assert (await scene.values()).by("seqgate_group_lag_records", "group") == {groups.OTHERS: 1}

    @pytest.mark.parametrize("accept", ["*/*", OPENMETRICS])
    async def test_ids_that_clients_choose_break_nothing(
        self, scene: Scene, wire: AsyncWire, accept: str
    ) -> None:
        await wire.produce("a", Batch(records(10)))
        hostile = ['"', "\\", "\n", "a\rb", '{}="",', "\u2028\x00\x85", "🐟" * 60, "\\n", " "]
        for group in [*hostile, groups.OTHERS, "x" * 30_000]:
            await wire.commit(group, "a", 4)
        lags = (await scene.values(accept)).by("seqgate_group_lag_records", "group")
        assert lags == {**dict.fromkeys(hostile, 6.0), groups.OTHERS: 12}

    async def test_invalid_utf8_in_a_group_id(self, scene: Scene, wire: AsyncWire) -> None:
        await wire.produce("a", Batch(records(10)))
        await wire.commit("first", "a", 0)
        surrogate = b"\xed\xa0\x80"
        wire.wire.send_frame(_commit_frame(b"g" + surrogate))
        await asyncio.to_thread(wire.wire.receive_frame)
        reply = await scene.get("/metrics")
        assert reply.status == 200
        assert values_of(reply.text).by("seqgate_group_lag_records", "group")["g\ufffd\ufffd\ufffd"] == 7
        assert (await scene.get("/view/groups.list")).status == 200


def _commit_frame(group: bytes) -> bytes:
    place = {"partition_index": 0, "committed_offset": 3, "committed_leader_epoch": -1}
    plain = {
        "group_id": "GROUP"[: len(group)],
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": [{"name": "a", "partitions": [place]}],
    }
    frame = encode("offset_commit", 8, plain, correlation_id=99)
    return frame.replace(b"GROUP"[: len(group)], group, 1)


class TestTablesThatGrowDuringAScrape:
    """A scrape lets requests run between two values. What they add must not break the scrape."""

    async def test_every_table(self, scene: Scene, wire: AsyncWire, monkeypatch: pytest.MonkeyPatch) -> None:
        await wire.produce("a", Batch(records(10)))
        await wire.commit("first", "a", 0)
        await wire.produce("a", Batch(records(1), crc=1))
        services, number = scene.services, 0
        shard = next(iter(services.coordinators.groups.shards)).shard
        group = next(iter(shard.groups.values()))
        times = scene.gateway.server.dispatcher._times
        assert times is not None

        async def growing(values: Any) -> list[Any]:
            nonlocal number
            found = []
            for value in values:
                number += 1
                if value is not None:
                    found.append(value)
                shard.groups[f"new{number}"] = group
                times.durations.setdefault(number % 4, times.durations[0])
                services.partitions.counters.verdicts.refused[number % 30] += 1
                retention = scene.gateway._jobs.retention
                retention.deleted_segments[number] += 1  # type: ignore[index]
                retention.deleted_bytes[number] += 1  # type: ignore[index]
                if number > 3000:
                    raise AssertionError("the scrape does not end")
            return found

        monkeypatch.setattr("seqgate.gateway.metrics.table.all_of", growing)
        assert (await scene.get("/metrics")).status == 200
        for name in [name for name in shard.groups if name.startswith("new")]:
            del shard.groups[name]
