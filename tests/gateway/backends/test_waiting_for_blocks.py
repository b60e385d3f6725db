"""What needs evicted blocks of old segments waits for the bucket, and the gateway answers requests meanwhile.

The store answers no request for a block until the test lets it, and the thread of the event loop must never
wait for one.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from seqgate.gateway.backends.bucket_backend import BucketBackend
from seqgate.gateway.cluster.cache.bucket import BucketCalls
from seqgate.gateway.cluster.objects.objects import ObjectStore
from seqgate.gateway.cluster.parts.manifest import PartitionKey
from seqgate.gateway.config import Config, load_config
from seqgate.gateway.gateway import Gateway
from seqgate.gateway.runtime.loop.machine import Machine
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.log import LogDirectory
from tests.gateway.backends.test_uploads import TOPIC, Running
from tests.support.batches import Batch, records

T = TypeVar("T")
PRODUCER_ID = 7
TRANSACTIONAL = 0x10
DEADLINE_S = 120.0


class HeldMachine(Machine):
    """A machine whose store sends no part while `is_held`."""

    def __init__(self) -> None:
        super().__init__()
        self.is_held = False
        self.gate = asyncio.Event()
        self.gate_of_threads = threading.Event()
        self.waiting = 0
        """The requests that were held, or are."""
        self.loop_waited = False

    def objects(self, config: Config) -> ObjectStore:
        store = super().objects(config)
        get = store.get

        async def held(key: str, first: int = 0, size_bytes: int | None = None) -> bytes:
            if self.is_held and key.startswith("parts/"):
                self.waiting += 1
                await self.gate.wait()
            return await get(key, first, size_bytes)

        store.get = held  # type: ignore[method-assign]
        return store

    def bucket_calls(self, config: Config) -> BucketCalls:
        return HeldCalls(self, super().bucket_calls(config))

    def release(self) -> None:
        self.gate.set()
        self.gate_of_threads.set()


class HeldCalls:
    """Calls of threads that wait for the store."""

    def __init__(self, machine: HeldMachine, calls: BucketCalls) -> None:
        self._machine = machine
        self._calls = calls

    def run(self, call: Callable[[ObjectStore], Coroutine[Any, Any, T]]) -> T:
        if threading.current_thread() is threading.main_thread():
            self._machine.loop_waited = True
        elif self._machine.is_held:
            self._machine.waiting += 1
            assert self._machine.gate_of_threads.wait(DEADLINE_S)
        return self._calls.run(call)

    def close(self) -> None:
        self._calls.close()


class Life(Running):
    """A gateway on a held store."""

    def __init__(self, gateway: Gateway, bucket: Path, machine: HeldMachine) -> None:
        super().__init__(gateway, bucket)
        self.machine = machine

    @property
    def opened(self) -> Partition | None:
        return self.gateway.services.partitions.registry.by_name[TOPIC].peek(0)

    def evict(self) -> int:
        """Evict all blocks of the topic that the bucket has; return how many bytes."""
        assert isinstance(self.gateway.backend, BucketBackend)
        sparse = self.gateway.backend._cache.sparse
        files = [file for file in sparse.files if file.key is not None and f"/{TOPIC}-0/" in f"{file.path}"]
        return sum(sparse.evict(file, [0]) for file in files)

    async def until(self, happens: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not happens():
                # What the test waits for happens in threads.
                await asyncio.sleep(0.001)

    async def answers_meanwhile(self) -> None:
        """Check that the gateway answers while a request for a block is held."""
        await self.until(lambda: self.machine.waiting > 0)
        await self.call("metadata", 12, topics=None)
        assert not self.machine.gate.is_set()
        assert not self.machine.loop_waited


@asynccontextmanager
async def living(tmp_path: Path) -> AsyncIterator[Life]:
    (tmp_path / "bucket").mkdir(exist_ok=True)
    machine = HeldMachine()
    overrides = [
        f"log.dirs={tmp_path / 'cache'}",
        "listeners=PLAINTEXT://127.0.0.1:0",
        f"seqgate.cluster=file://{tmp_path / 'bucket'}",
        "seqgate.cluster.puts.per.second=1000",
        "log.cleaner.enable=false",
    ]
    gateway = Gateway(load_config(overrides=overrides), machine)
    await gateway.start()
    try:
        yield Life(gateway, tmp_path / "bucket", machine)
    finally:
        await gateway.stop()
        machine.release()


async def write(tmp_path: Path, **configs: object) -> None:
    """Let a gateway write and upload a topic of several segments, the first with an aborted transaction, and
    stop.
    """
    async with living(tmp_path) as life:
        await life.create(internal_segment_bytes=1000, **configs)
        now_ms = life.gateway.clock.now_ms()
        batch = Batch(records(1, 10), attributes=TRANSACTIONAL).of(PRODUCER_ID, 0, 0)
        life.partition.append(batch.encode(), now_ms)
        life.partition.append_end_marker(PRODUCER_ID, 0, commit=False, coordinator_epoch=0, now_ms=now_ms)
        for _ in range(4):
            await life.append(10)
        await life.uploads.round()


@asynccontextmanager
async def held(tmp_path: Path, **configs: object) -> AsyncIterator[Life]:
    """Let a later gateway have the topic, with all blocks evicted that the bucket has."""
    await write(tmp_path, **configs)
    async with living(tmp_path) as life:
        assert life.opened is None
        assert life.evict() > 0
        life.machine.is_held = True
        yield life


@asynccontextmanager
async def held_and_open(tmp_path: Path, **configs: object) -> AsyncIterator[Life]:
    """As `held`; the partition is open."""
    await write(tmp_path, **configs)
    async with living(tmp_path) as life:
        assert life.partition.log.log_end_offset == 42
        assert life.evict() > 0
        life.machine.is_held = True
        yield life


async def test_retention_waits_for_the_age_of_a_segment(tmp_path: Path) -> None:
    async with held_and_open(tmp_path, retention_ms=1) as life:
        segments = len(life.partition.log.segments)
        life.gateway._jobs.retention.apply(life.partition)
        await life.answers_meanwhile()
        assert len(life.partition.log.segments) == segments
        life.machine.release()
        await life.until(lambda: len(life.partition.log.segments) == 1)
        assert life.partition.log.log_start_offset == 42
        assert not life.machine.loop_waited


async def test_a_stop_ends_what_waits_for_the_bucket(tmp_path: Path) -> None:
    async with held_and_open(tmp_path) as life:
        life.gateway._jobs.retention.apply(life.partition)
        await life.until(lambda: life.machine.waiting > 0)
    assert not life.machine.loop_waited


async def test_compaction_waits_for_the_times_of_segments(tmp_path: Path) -> None:
    lags = {"min_compaction_lag_ms": 1, "max_compaction_lag_ms": 2}
    async with held_and_open(tmp_path, **lags) as life:
        found = asyncio.create_task(life.gateway.services.upkeep.compaction._cleanable(life.partition))
        await life.answers_meanwhile()
        assert not found.done()
        life.machine.release()
        cleanable = await found
        assert cleanable is not None
        assert cleanable.first_uncleanable_offset == life.partition.log.segments.active.base_offset
        assert not life.machine.loop_waited


async def test_a_thread_checks_the_aborted_transactions_of_a_log_that_is_opened(tmp_path: Path) -> None:
    async with held(tmp_path) as life:
        assert life.gateway.services.partitions.registry.get(TOPIC, 0) is None
        await life.answers_meanwhile()
        life.machine.release()
        await life.until(lambda: life.opened is not None)
        assert life.partition.log.log_end_offset == 42
        assert not life.machine.loop_waited


async def test_blocks_that_are_evicted_after_the_check_are_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with held(tmp_path) as life:
        end_recovery = LogDirectory.end_recovery

        def ended(directory: LogDirectory, *args: Any) -> None:
            end_recovery(directory, *args)
            assert life.evict() > 0

        monkeypatch.setattr(LogDirectory, "end_recovery", ended)
        assert life.gateway.services.partitions.registry.get(TOPIC, 0) is None
        life.machine.release()
        await life.until(lambda: life.opened is not None)
        assert not life.machine.loop_waited


async def test_an_upload_waits_for_the_check_of_a_log(tmp_path: Path) -> None:
    async with held(tmp_path) as life:
        topic = life.gateway.services.partitions.registry.by_name[TOPIC]
        life.uploads._coverage.begin([PartitionKey(topic.topic_id, 0)])
        task = asyncio.create_task(life.uploads.round())
        await life.answers_meanwhile()
        life.machine.release()
        await task
        assert life.uploads.progress().error is None
        assert not life.machine.loop_waited


async def test_a_clean_stop_does_not_ask_for_the_age_of_the_oldest_segment(tmp_path: Path) -> None:
    async with held_and_open(tmp_path) as life:
        await life.append()
    assert (life.machine.waiting, life.machine.loop_waited) == (0, False)
    async with living(tmp_path) as again:
        (stored,) = [
            stored
            for (topic, _), stored in again.gateway.services.partitions.log_directory.stored().items()
            if topic == TOPIC
        ]
        assert stored.stop is not None
        assert stored.stop.oldest_timestamp == -1
