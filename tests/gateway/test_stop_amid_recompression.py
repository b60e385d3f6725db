"""A gateway that stops while a thread recompresses a batch stores the batch and answers, or does neither."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seqgate.gateway import gateway as gateway_module
from seqgate.gateway.config import load_config
from seqgate.gateway.gateway import Gateway
from seqgate.gateway.runtime.partitions import batch_threads
from tests.support.batches import Batch, records
from tests.support.wire import Closed, Wire

TOPIC = "orders"
WAIT_S = 60.0


class Threads:
    """Recompression that begins, and ends when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = threading.Event()
        self.may_end = threading.Event()
        self._recompressed = batch_threads.recompressed
        monkeypatch.setattr(batch_threads, "recompressed", self._work)

    def _work(self, *args: Any) -> bytes:
        self.begun.set()
        assert self.may_end.wait(WAIT_S)
        return self._recompressed(*args)


async def serve(path: Path) -> Gateway:
    served = Gateway(load_config(overrides=[f"log.dirs={path}", "listeners=PLAINTEXT://127.0.0.1:0"]))
    await served.start()
    return served


def produce(bootstrap: str) -> int | None:
    """Create the topic and produce one batch; return the error code, or None without an answer."""
    with Wire(bootstrap, timeout_s=WAIT_S) as wire:
        configs = [{"name": "compression.type", "value": "zstd"}]
        topic = {"name": TOPIC, "num_partitions": 1, "replication_factor": 1, "configs": configs}
        wire.call("create_topics", 7, topics=[topic], timeout=10_000)
        data = [{"index": 0, "records": Batch(records(3)).encode()}]
        topics = [{"name": TOPIC, "partition_data": data}]
        try:
            answer = wire.call("produce", 9, {"acks": -1, "timeout": 30_000, "topic_data": topics}).fields
        except Closed:
            return None
        return int(answer["responses"][0]["partition_responses"][0]["error_code"])


async def until(is_met: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not is_met():
            await asyncio.sleep(0.001)


async def stored(path: Path) -> int:
    served = await serve(path)
    partition = served.services.partitions.registry.get(TOPIC, 0)
    assert partition is not None
    end_offset = partition.log.log_end_offset
    await served.stop()
    return end_offset


@pytest.mark.parametrize("in_time", [True, False])
async def test_the_answer_and_the_log_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_time: bool
) -> None:
    threads = Threads(monkeypatch)
    if not in_time:
        monkeypatch.setattr(gateway_module, "STOP_TIMEOUT_S", 0.0)
        stop = batch_threads.BatchThreads.stop

        def stop_amid(self: batch_threads.BatchThreads) -> None:
            threads.may_end.set()
            stop(self)

        monkeypatch.setattr(batch_threads.BatchThreads, "stop", stop_amid)
    served = await serve(tmp_path)
    endpoint = served.services.node.brokers.advertised["PLAINTEXT"]
    asked = asyncio.create_task(asyncio.to_thread(produce, endpoint.shown))
    await until(threads.begun.is_set)
    stopping = asyncio.create_task(served.stop())
    if in_time:
        await until(lambda: all(partition.closed for partition in served.services.partitions.registry))
        threads.may_end.set()
    await stopping
    assert await asked == (0 if in_time else None)
    assert await stored(tmp_path) == (3 if in_time else 0)
