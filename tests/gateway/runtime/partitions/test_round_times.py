"""Flush rounds are timed, and the requests that wait for them are counted, on a disk and over a bucket."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from seqgate.gateway.runtime.loop.machine import Machine
from seqgate.gateway.runtime.partitions.flusher import Flusher
from tests.gateway.runtime.partitions.object_scene import Scene
from tests.gateway.runtime.partitions.test_flusher import FakeDurability, FakeLog, begin_round


class MovedMachine(Machine):
    """A machine whose time passes only when a test moves it."""

    now_s = 100.0

    def seconds(self) -> float:
        return self.now_s


@pytest.mark.parametrize("is_broken", [False, True])
async def test_a_round_on_a_disk(*, is_broken: bool) -> None:
    machine = MovedMachine()
    flusher = Flusher(asyncio.get_running_loop(), durability=FakeDurability(), machine=machine)
    flusher.start()
    log: Any = FakeLog()
    log.broken = is_broken
    log.log_end_offset = 3
    owner = await begin_round(flusher, log)
    flusher.wait(owner.waiting(2))
    flusher.wait(owner.waiting(1))
    assert flusher.waiting_count == 2
    log.log_end_offset = 4
    flusher.wait(owner.waiting(3))
    assert flusher.waiting_count == 3, "one waits for the next round"
    assert flusher.round_times.count == 0
    machine.now_s += 7
    log.gate.set()
    await flusher.idle()
    flusher.stop()
    assert flusher.waiting_count == 0
    assert flusher.round_times.count == flusher.rounds
    assert flusher.round_times.sum_s == 7
    assert flusher.failures == is_broken


def test_a_round_over_a_bucket(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.append()
    scene.append()
    scene.run()
    assert (scene.flusher.waiting_count, scene.flusher.round_times.count) == (2, 0)
    scene.run(20)
    scene.held.confirm()
    scene.run()
    times = scene.flusher.round_times
    assert (scene.flusher.waiting_count, times.count) == (0, 1)
    assert 20 < times.sum_s < 22
    scene.finish()
