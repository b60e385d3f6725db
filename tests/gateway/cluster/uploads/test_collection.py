"""The deletion of many objects: bounded memory, and nothing that runs on after a failure."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from seqgate.gateway.cluster.objects.objects import Refused
from seqgate.gateway.cluster.uploads.collection import DELETED_AT_ONCE, Collection
from tests.gateway.cluster.wal.virtual import in_virtual_time
from tests.support.simulated_objects import SimulatedObjects

MANY = 5_000


class _Counting(SimulatedObjects):
    """A store that notes how many tasks there are at each deletion."""

    most_tasks = 0
    refused_from = MANY

    async def delete(self, key: str) -> None:
        self.most_tasks = max(self.most_tasks, len(asyncio.all_tasks()))
        if int(key.rpartition("/")[2]) >= self.refused_from:
            raise Refused("the credentials have expired")
        await super().delete(key)


def _keys(taken: list[str]) -> Iterator[str]:
    for number in range(MANY):
        taken.append(f"wal/1/0/{number:020}")
        yield taken[-1]


def test_a_long_log_is_deleted_by_a_few_tasks() -> None:
    async def work() -> None:
        objects = _Counting()
        taken: list[str] = []
        await Collection(objects).delete(_keys(taken))
        assert {call.key for call in objects.bucket.calls} == {*taken}
        assert len(taken) == MANY
        assert objects.most_tasks <= DELETED_AT_ONCE + 1

    in_virtual_time(work())


def test_a_refusal_ends_all_deletions() -> None:
    async def work() -> None:
        objects = _Counting()
        objects.refused_from = 100
        taken: list[str] = []
        with pytest.raises(Refused):
            await Collection(objects).delete(_keys(taken))
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert len(taken) <= 100 + DELETED_AT_ONCE

    in_virtual_time(work())


def test_a_deletion_that_is_cancelled_leaves_no_task() -> None:
    async def work() -> None:
        objects = _Counting()
        deleting = asyncio.ensure_future(Collection(objects).delete(_keys([])))
        await asyncio.sleep(1.0)
        deleting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await deleting
        assert asyncio.all_tasks() == {asyncio.current_task()}

    in_virtual_time(work())
