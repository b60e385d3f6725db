from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from seqgate.gateway.cluster.cache.bucket import BucketThread
from seqgate.gateway.cluster.objects.directory_objects import DirectoryObjects
from seqgate.gateway.cluster.objects.objects import Missing, ObjectStore


class Store(DirectoryObjects):
    closed_in = ""

    async def close(self) -> None:
        Store.closed_in = threading.current_thread().name
        await super().close()


@pytest.fixture
def thread(tmp_path: Path) -> Iterator[BucketThread]:
    thread = BucketThread(lambda: Store(tmp_path))
    yield thread
    thread.close()


async def _create_and_get(objects: ObjectStore) -> bytes:
    await objects.create("a", b"content")
    return await objects.get("a")


async def test_the_thread_of_another_loop_gets_an_answer(thread: BucketThread) -> None:
    assert thread.run(_create_and_get) == b"content"


def test_errors_are_the_callers(thread: BucketThread) -> None:
    async def get(objects: ObjectStore) -> bytes:
        return await objects.get("nothing")

    with pytest.raises(Missing):
        thread.run(get)


def test_a_silent_store_fails_the_call(tmp_path: Path) -> None:
    thread = BucketThread(lambda: Store(tmp_path), timeout_s=0.05)
    begun = threading.Event()

    async def hang(_: ObjectStore) -> None:
        begun.set()
        await asyncio.Event().wait()

    with pytest.raises(OSError, match="did not answer"):
        thread.run(hang)
    assert begun.is_set()
    thread.close()


def test_several_threads_are_served_at_once(tmp_path: Path) -> None:
    thread = BucketThread(lambda: Store(tmp_path))
    together = 3
    arrived: list[int] = []

    async def meet(_: ObjectStore) -> None:
        arrived.append(1)
        while len(arrived) < together:
            await asyncio.sleep(0)

    callers = [threading.Thread(target=thread.run, args=(meet,)) for _ in range(together)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    thread.close()
    assert len(arrived) == together


def test_the_store_is_closed_in_the_thread(tmp_path: Path) -> None:
    thread = BucketThread(lambda: Store(tmp_path))
    thread.run(_create_and_get)
    Store.closed_in = ""
    thread.close()
    assert Store.closed_in == "bucket-reads"


def test_a_thread_that_nobody_called_is_not_started(tmp_path: Path) -> None:
    thread = BucketThread(lambda: Store(tmp_path))
    thread.close()
    thread.close()
