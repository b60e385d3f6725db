"""The watch over flushes on the event loop sees what it should, and nothing else."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from seqgate.log import FlushTicket, PartitionLog, Storage
from seqgate.log.environment import LogEnvironment
from tests.log.support import NOW_MS, SMALL, batch, fill, open_log
from tests.simulation.loop import SimulatedLoop
from tests.simulation.loop_flushes import WatchedDurability


class Watched:
    def __init__(self) -> None:
        self.loop = SimulatedLoop(random.Random(1))
        self.is_serving = True
        self.noted: list[str] = []
        self.durability = WatchedDurability(Storage(), self.loop, lambda: self.is_serving, self.noted.append)


@pytest.fixture
def watched() -> Watched:
    return Watched()


def ticket_of(log: PartitionLog) -> FlushTicket:
    ticket = log.prepare_flush()
    assert ticket is not None
    return ticket


def opened(watched: Watched, tmp_path: Path) -> PartitionLog:
    watched.is_serving = False
    log = open_log(tmp_path / "log", SMALL, environment=LogEnvironment(made_durable_by=watched.durability))
    watched.is_serving = True
    return log


def test_a_flush_on_the_loop_is_noted(watched: Watched, tmp_path: Path) -> None:
    watched.durability.replace(str(tmp_path / "file"), b"content")
    assert watched.noted == [f"the event loop waited for the disk: a replacement of {tmp_path}/file"]
    watched.durability.sync(directories=[str(tmp_path)])
    watched.durability.ensure(str(tmp_path / "file"), b"content")
    assert len(watched.noted) == 3


def test_a_flush_in_a_thread_is_not(watched: Watched, tmp_path: Path) -> None:
    path = str(tmp_path / "file")

    async def replace() -> None:
        await watched.loop.run_in_executor(None, watched.durability.replace, path, b"content")

    watched.loop.run_until_complete(replace())
    assert watched.noted == []
    assert (tmp_path / "file").read_bytes() == b"content"


def test_a_flush_of_a_gateway_that_starts_or_stops_is_not(watched: Watched, tmp_path: Path) -> None:
    watched.is_serving = False
    watched.durability.replace(str(tmp_path / "file"), b"content")
    assert watched.noted == []


def test_the_lone_quick_flush_is_not(watched: Watched, tmp_path: Path) -> None:
    log = opened(watched, tmp_path)
    log.append(batch(), now_ms=NOW_MS)
    log.complete_flush(ticket := ticket_of(log))
    log.append(batch(), now_ms=NOW_MS)
    assert ticket_of(log).is_small
    assert watched.durability.commit([ticket_of(log)]) == [None]
    assert watched.noted == [], ticket


def test_a_larger_flush_is_noted(watched: Watched, tmp_path: Path) -> None:
    log = opened(watched, tmp_path)
    fill(log, 30)
    assert len(log.segments) > 1
    assert watched.durability.commit([ticket_of(log)]) == [None]
    assert watched.noted == ["the event loop waited for the disk: a commit of tickets"]


def test_a_recovery_is_noted_unless_a_thread_runs_it(watched: Watched, tmp_path: Path) -> None:
    log = opened(watched, tmp_path)
    log.append(batch(), now_ms=NOW_MS)
    log.go_offline("a test says so")
    recovery = log.begin_recovery(NOW_MS)
    watched.loop.run_until_complete(watched.loop.run_in_executor(None, recovery.run))
    log.end_recovery(recovery, NOW_MS)
    assert (log.offline, log.log_end_offset) == (False, 1)
    assert watched.noted == []
    log.go_offline("a test says so")
    log.reopen(NOW_MS)
    assert watched.noted
