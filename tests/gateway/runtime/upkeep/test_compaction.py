"""When compaction gives up a partition: at once after damage, after several dead worker processes, and never
for a full disk. What a swap leaves that fails in an unexpected way.
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seqgate.gateway.config import load_config
from seqgate.gateway.runtime.loop.machine import Machine
from seqgate.gateway.runtime.partitions.flusher import Flusher
from seqgate.gateway.runtime.partitions.partition import persist_files
from seqgate.gateway.runtime.partitions.registry import Partitions
from seqgate.gateway.runtime.upkeep.compaction import Compaction
from seqgate.log import FlushTicket, LocalDurability, LogConfig, Storage
from seqgate.log.compaction.job import CleaningFailed
from seqgate.log.compaction.swap import SwapTicket
from seqgate.log.environment import LogEnvironment
from tests.gateway.handlers.support import FixedClock
from tests.log.compaction.cleaning import Kept, begin, keyed, run, stored
from tests.log.support import NOW_MS, batch, flush, open_log


def compaction_in(path: Path) -> Compaction:
    directory: Any = SimpleNamespace(
        path=path, files=str(path), environment=SimpleNamespace(storage=Storage())
    )
    lifecycle: Any = None
    cold_reads: Any = None
    return Compaction(
        load_config(), FixedClock(), Partitions(), directory, lifecycle, Machine().cleaner, cold_reads
    )


@pytest.mark.parametrize(
    ("failed", "times", "left_alone"),
    [
        (CleaningFailed("damaged", is_corrupt=True), 1, True),
        (CleaningFailed("the worker process ended"), 2, False),
        (CleaningFailed("the worker process ended"), 3, True),
        (CleaningFailed("no space", is_of_disk=True), 100, False),
    ],
)
def test_when_a_partition_is_left_alone(
    tmp_path: Path, failed: CleaningFailed, times: int, left_alone: bool
) -> None:
    compaction = compaction_in(tmp_path)
    log = SimpleNamespace(place="t-0")
    partition: Any = SimpleNamespace(topic="t", index=0, topic_id=uuid.UUID(int=1), log=log)
    for _ in range(times):
        compaction._failed(partition, failed)
    assert compaction._progress.of(partition).uncleanable is left_alone
    assert compaction.uncleanable == left_alone


class HeldDurability(LocalDurability):
    """Holds every commit until `go_on` is set, and notes the flushed files."""

    def __init__(self) -> None:
        super().__init__(Storage())
        self.begun = threading.Event()
        self.go_on = threading.Event()
        self.paths: list[str] = []

    def commit(self, tickets: Sequence[FlushTicket]) -> list[OSError | None]:
        self.begun.set()
        assert self.go_on.wait(10)
        self.paths += [path for ticket in tickets for path in ticket.paths]
        return super().commit(tickets)


def rolled(directory: Path, durability: HeldDurability) -> tuple[Any, FlushTicket]:
    """Return a partition with a closed segment, and the flush in flight that writes its side files."""
    log = open_log(directory, environment=LogEnvironment(made_durable_by=durability))
    log.append(batch(producer_id=4, base_sequence=0), now_ms=NOW_MS)
    flush(log)
    log.roll(NOW_MS)
    in_flight = log.prepare_flush()
    assert in_flight is not None
    partition = SimpleNamespace(
        topic="t", index=0, topic_id=log.topic_id, log=log, closed=False, flush_finished=lambda: None
    )
    flusher = Flusher(asyncio.get_running_loop(), durability=durability)
    partition.commit = partial(flusher.commit, partition)
    return partition, in_flight


async def test_what_remembers_the_producers_is_durable_before_a_cleaning(tmp_path: Path) -> None:
    durability = HeldDurability()
    durability.go_on.set()
    partition, in_flight = rolled(tmp_path / "log", durability)
    compaction = compaction_in(tmp_path)
    assert not await compaction._persist_files(partition)
    assert f"{partition.log.directory}/{1:020d}.snapshot" in durability.paths
    durability.commit([in_flight])
    partition.log.complete_flush(in_flight)
    assert await compaction._persist_files(partition)


async def test_a_stop_waits_for_the_flush_before_a_cleaning(tmp_path: Path) -> None:
    durability = HeldDurability()
    partition, _ = rolled(tmp_path / "log", durability)
    compaction = compaction_in(tmp_path)
    worker: Any = None
    compaction._task = asyncio.create_task(compaction._clean(partition, worker, 1))  # type: ignore[assignment]
    await asyncio.to_thread(durability.begun.wait, 10)
    stopping = asyncio.create_task(compaction.stop())
    await asyncio.sleep(0)
    assert partition.log.unflushed.tickets_out == 2
    durability.go_on.set()
    await stopping
    assert partition.log.unflushed.tickets_out == 1
    assert not partition.log.offline


async def test_a_flush_that_fails_in_an_unexpected_way_gives_its_ticket_back(tmp_path: Path) -> None:
    class Broken(HeldDurability):
        def commit(self, tickets: Sequence[FlushTicket]) -> list[OSError | None]:
            raise MemoryError("no memory for the names")

    partition, _ = rolled(tmp_path / "log", Broken())
    await persist_files(partition)
    assert partition.log.unflushed.tickets_out == 1
    assert partition.log.offline


@pytest.mark.parametrize("step", ["read_and_run", "run"])
async def test_a_swap_that_fails_in_an_unexpected_way_leaves_no_second_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    storage, config = Storage(), LogConfig(compact=True)
    log = open_log(tmp_path / "p", config, storage=storage)
    for value in ("1", None, "3"):
        log.append(keyed(("a", value)), now_ms=NOW_MS)
        log.roll(NOW_MS)
    flush(log)
    cleaning = begin(log, now_ms=NOW_MS)
    (cleaned,), _ = run(storage, cleaning)

    def fail(ticket: SwapTicket) -> None:
        if step == "read_and_run" or ticket.new is not None:
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(SwapTicket, step, fail)
    with pytest.raises(RuntimeError):
        await compaction_in(tmp_path)._swap(log, cleaning, cleaned)
    if step == "run":
        assert log.offline, "the sources have lost their names"
        log.reopen(NOW_MS)
    assert not list((tmp_path / "p").glob("*.swap"))
    assert stored(log)[-1] == Kept(2, b"a", b"3")


async def test_one_partition_that_fails_in_an_unexpected_way_holds_up_no_other(tmp_path: Path) -> None:
    compaction = compaction_in(tmp_path)
    due: list[Any] = [SimpleNamespace(log=SimpleNamespace(place=f"t-{index}")) for index in range(4)]
    cleaned = []

    async def clean(partition: Any, *_: object) -> bool:
        if partition is due[0]:
            raise RuntimeError("can't start new thread")
        await asyncio.sleep(0)
        cleaned.append(partition)
        return True

    compaction._clean = clean  # type: ignore[method-assign]
    assert await compaction._clean_all(due, 2)
    assert cleaned == due[1:]
