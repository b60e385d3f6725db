"""An adoption that is interrupted at any step: at a call to the store, or at work in a thread."""

from __future__ import annotations

import asyncio
import gc
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seqgate.gateway.backends import adoptions
from seqgate.gateway.cluster.objects.objects import ObjectStore
from seqgate.log import LogDirectory, Storage
from tests.gateway.backends.members import Members, led, members, until
from tests.gateway.backends.test_adoptions import check, fill
from tests.support.simulated_objects import Fate, SimulatedBucket, SimulatedObjects

FLIGHTS = uuid.UUID(int=5)
MOST_STEPS = 60
STRIDE = 3


class Steps:
    """Counts the steps of the adopting gateway, and lets something happen at one of them."""

    def __init__(self) -> None:
        self.at = 0
        self.count = 0
        self.is_on = False
        self.event: Callable[[str], None] = lambda _: None

    def step(self, operation: str) -> None:
        if self.is_on:
            self.count += 1
            if self.count == self.at:
                self.event(operation)


class StepObjects(SimulatedObjects):
    """A store that tells of each call before it is made."""

    steps: Steps

    async def _call(self, operation: str, *arguments: Any) -> Any:
        self.steps.step(operation)
        return await super()._call(operation, *arguments)


def stores(steps: Steps) -> Callable[[], ObjectStore]:
    bucket = SimulatedBucket()

    def opened() -> ObjectStore:
        made = StepObjects(bucket)
        made.steps = steps
        return made

    return opened


async def taken_over(cluster: Members) -> None:
    """Let gateway 2 begin to take a partition over, of which the bucket has a manifest and rows since."""
    first, _ = await cluster.join(1), await cluster.join(2)
    await cluster.brokers()
    await cluster.topic("flights", FLIGHTS, first)
    await fill(first, "flights", 0, 3)
    await first.uploads.round()
    await fill(first, "flights", 3, 5)
    await cluster.end(first)


@pytest.mark.parametrize("fate", [Fate.FAILS_BEFORE, Fate.FAILS_AFTER], ids=lambda fate: fate.name)
async def test_each_call_may_fail(tmp_path: Path, fate: Fate) -> None:
    for at in range(1, MOST_STEPS, STRIDE):
        steps = Steps()
        async with members(tmp_path / str(at), stores(steps)) as cluster:
            await taken_over(cluster)
            second = cluster.all[1]
            steps.at, steps.is_on = at, True
            store = second.adoptions._objects
            assert isinstance(store, StepObjects)
            steps.event = lambda operation, store=store: store.plan(operation, fate, fate)  # type: ignore[misc]
            await cluster.change(led(FLIGHTS, 0, 2, 1))
            await second.until_ready("flights")
            steps.is_on = False
            await check(second, "flights", 5)
        if steps.count < at:
            return
    raise AssertionError(f"there are more than {MOST_STEPS} steps")


@pytest.mark.tier("all")
async def test_a_stop_leaves_a_sound_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_thread = adoptions._in_thread
    for at in range(1, MOST_STEPS):
        steps = Steps()
        stopped = asyncio.Event()

        async def noted(work: Callable[[], None], steps: Steps = steps) -> None:
            steps.step("files")
            await in_thread(work)

        monkeypatch.setattr(adoptions, "_in_thread", noted)
        async with members(tmp_path / str(at), stores(steps)) as cluster:
            await taken_over(cluster)
            second = cluster.all[1]
            path = second.node.services.partitions.log_directory.path
            steps.at, steps.is_on = at, True
            steps.event = lambda _, stopped=stopped: stopped.set()  # type: ignore[misc]
            await cluster.change(led(FLIGHTS, 0, 2, 1))
            lifecycle = second.node.services.topics.lifecycle
            await until(
                lambda stopped=stopped, lifecycle=lifecycle: stopped.is_set() or lifecycle.leads("flights", 0)  # type: ignore[misc]
            )
            await second.adoptions.stop()
            steps.is_on = False
        assert not list(path.glob("rebuilding-*"))
        directory = LogDirectory.open(path, Storage(), node_id=2, now_ms=lambda: 0)
        log = directory.get("flights", 0)
        assert log is None or log.log_end_offset == 5
        directory.close(clean=True)
        if steps.count < at:
            return
    raise AssertionError(f"there are more than {MOST_STEPS} steps")


async def test_the_error_of_a_thread_whose_adoption_was_cancelled_is_taken() -> None:
    begun, may_fail = threading.Event(), threading.Event()
    untaken: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: untaken.append(context))

    def work() -> None:
        begun.set()
        may_fail.wait()
        raise OSError("the disk is full")

    adopting = asyncio.create_task(adoptions._in_thread(work))
    await asyncio.to_thread(begun.wait)
    adopting.cancel()
    await asyncio.sleep(0)
    may_fail.set()
    await asyncio.wait([adopting])
    assert adopting.cancelled()
    del adopting
    gc.collect()
    assert not untaken
