"""Topics that are removed and made again under the same name, while one of the workers learns late of
everything.
"""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

import pytest

from seqgate.gateway.runtime.partitions.partition import Recoveries
from seqgate.gateway.runtime.topics.topic_lifecycle import TopicLifecycle
from seqgate.gateway.workers import directory_storage
from seqgate.log import StorageFailed
from tests.gateway.workers.two_workers import TwoWorkers, two_workers, until

OLD, NEW, NEWEST = 5, 6, 7


async def settle(workers: TwoWorkers) -> None:
    """Let everything happen that happens by itself."""
    for _ in range(100):
        await asyncio.sleep(0.001)
    assert workers.processes


async def is_waiting(workers: TwoWorkers, creation: asyncio.Task[None]) -> bool:
    await until(lambda: bool(workers.commits._waiting))
    await settle(workers)
    return not creation.done()


async def test_a_name_waits_for_the_late_leader_of_the_removed_topic(tmp_path: Path) -> None:
    async with two_workers(tmp_path) as workers:
        await workers.creating(1, OLD, 2)
        await workers.write(2, 0, 3)
        workers.late(2).is_held = True
        await workers.remove(1, OLD)
        creation = workers.creating(1, NEW, 1)
        assert await is_waiting(workers, creation)
        await workers.write(2, 0, 2)  # the late worker still serves the old topic
        assert workers.stored_id(0) == OLD
        workers.late(2).deliver()
        await creation
        assert workers.stored_id(0) is None
        await workers.write(1, 0, 4)
        await settle(workers)
        assert workers.stored_id(0) == NEW
        partition = workers.partition(1, 0)
        assert partition is not None
        assert partition.log.log_end_offset == 4
        assert len(list(tmp_path.glob("t-0.*-delete"))) == 1


async def test_a_late_worker_never_creates_over_the_directory_of_a_newer_topic(tmp_path: Path) -> None:
    """The late worker leads the removed topic, and has not made its directory yet: the first request would."""
    async with two_workers(tmp_path) as workers:
        await workers.creating(1, OLD, 2)
        await until(lambda: "t" in workers.gateways[2].services.topics.metadata_log.image.topics_by_name)
        workers.late(2).is_held = True
        await workers.remove(1, OLD)
        creation = workers.creating(1, NEW, 1)
        assert await is_waiting(workers, creation)
        await workers.write(2, 0, 1)  # a client that has not heard of the deletion
        workers.late(2).deliver()
        await creation
        await workers.write(1, 0, 4)
        assert workers.partition(2, 0) is None
        await settle(workers)
        assert workers.stored_id(0) == NEW


async def test_a_worker_that_leads_nothing_of_the_topic_is_not_waited_for(tmp_path: Path) -> None:
    async with two_workers(tmp_path) as workers:
        await workers.creating(1, OLD, 1)
        await workers.write(1, 0, 3)
        workers.late(2).is_held = True
        await workers.remove(1, OLD)
        await workers.creating(1, NEW, 1, 1)
        await workers.write(1, 0, 1)
        assert workers.stored_id(0) == NEW


async def test_the_directories_of_a_dead_worker_are_taken_away(tmp_path: Path) -> None:
    async with two_workers(tmp_path) as workers:
        await workers.creating(1, OLD, 2, 1, 2)
        await workers.write(2, 0, 3)
        (tmp_path / "t-2").mkdir()  # its creation has just begun
        workers.late(2).is_held = True
        await workers.remove(1, OLD)
        creation = workers.creating(1, NEW, 1, 1, 1)
        assert await is_waiting(workers, creation)
        workers.processes.pop(2).close()
        await creation
        assert not list(tmp_path.glob("t-?"))
        assert len(list(tmp_path.glob("t-?.*-delete"))) == 2
        await workers.write(1, 0, 1)
        assert workers.stored_id(0) == NEW


async def test_a_dead_workers_directory_with_other_records_is_kept(tmp_path: Path) -> None:
    async with two_workers(tmp_path) as workers:
        await workers.creating(1, OLD, 2)
        await workers.write(2, 0, 3)
        (tmp_path / "t-0" / "partition.metadata").unlink()
        workers.late(2).is_held = True
        await workers.remove(1, OLD)
        workers.processes.pop(2).close()
        await until(lambda: not (tmp_path / "t-0").exists())
        assert len(list(tmp_path.glob("t-0.*-stray"))) == 1


async def test_a_thread_that_recovers_the_old_log_keeps_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = asyncio.Event()
    settled = Recoveries.settled

    async def settled_late(self: Recoveries, key: tuple[str, int]) -> None:
        await ends.wait()
        await settled(self, key)

    async with two_workers(tmp_path) as workers:
        await workers.creating(1, OLD, 2)
        await workers.write(2, 0, 3)
        monkeypatch.setattr(Recoveries, "settled", settled_late)
        directory = workers.gateways[2].services.partitions.log_directory
        directory._recovering.add(("t", 0))
        await workers.remove(1, OLD)
        creation = workers.creating(1, NEW, 1)
        assert await is_waiting(workers, creation)
        directory._recovering.clear()
        ends.set()
        await creation


async def test_other_changes_go_on_and_what_waits_is_decided_again(tmp_path: Path) -> None:
    async with two_workers(tmp_path) as workers:
        await workers.creating(1, OLD, 2)
        workers.late(2).is_held = True
        await workers.remove(1, OLD)
        creation = workers.creating(1, NEW, 1)
        assert await is_waiting(workers, creation)
        shared = workers.shared.metadata
        other = directory_storage.TopicRecord("u", uuid.UUID(int=NEWEST))
        shared.change([other])
        assert await is_waiting(workers, creation)
        assert shared.image.topics_by_id[other.topic_id].name == "u"
        workers.late(2).deliver()
        await creation
        image = workers.gateways[1].services.topics.metadata_log.image
        assert {name: topic.topic_id.int for name, topic in image.topics_by_name.items()} == {
            "t": NEW,
            "u": NEWEST,
        }


async def test_a_creation_fails_when_the_name_stays_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory_storage, "WAIT_LIMIT_S", 0.05)
    async with two_workers(tmp_path) as workers:
        await workers.creating(1, OLD, 2)
        workers.late(2).is_held = True
        await workers.remove(1, OLD)
        with pytest.raises(StorageFailed, match="worker 2 has not let go of the deleted topic t yet"):
            await workers.creating(1, NEW, 1)
        workers.late(2).deliver()
        await until(lambda: not workers.commits._leaving)
        await workers.creating(1, NEW, 1)


async def test_a_change_during_a_start_waits_for_the_parts_that_carry_it_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_workers(tmp_path) as workers:
        await workers.creating(1, OLD, 2)
        await workers.write(2, 0, 3)
        second = workers.gateways.pop(2)
        await second.stop()
        workers.processes.pop(2).close()
        tidy = TopicLifecycle._delete_strays

        async def remove_then_tidy(self: TopicLifecycle) -> None:
            await tidy(self)
            await workers.remove(1, OLD)
            await settle(workers)
            assert "t" in self._metadata_log.image.topics_by_name

        monkeypatch.setattr(TopicLifecycle, "_delete_strays", remove_then_tidy)
        await workers.start_worker(2)
        await workers.creating(1, NEW, 1)
        assert workers.stored_id(0) is None
        assert len(list(tmp_path.glob("t-0.*-delete"))) == 1
