"""Many writers of one shared metadata log: each change is decided on exactly the changes before it, whatever
the store does.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqgate.gateway.cluster.metadata import shared_log
from seqgate.gateway.cluster.metadata.change import decode_change
from seqgate.gateway.cluster.wal.sessions import read_shared_log
from seqgate.gateway.cluster.wal.wal_object import registration_key
from seqgate.gateway.metadata.decision import Decision
from seqgate.log import StorageFailed
from tests.gateway.cluster.wal.virtual import in_virtual_time
from tests.gateway.runtime.topics.shared_writers import count_in, open_writer
from tests.support.simulated_objects import CALM, ROUGH, Fate, Faults, SimulatedBucket, SimulatedObjects

CHANGES = 5


def breaches(path: Path, seed: int, writers: int, faults: Faults = ROUGH) -> list[str]:
    """Let several writers count at the same time; return what is wrong with the counts and the log."""

    async def scene() -> list[str]:
        bucket = SimulatedBucket()
        opened = [
            await open_writer(path, bucket, number, faults=faults, seed=seed) for number in range(writers)
        ]

        async def run(writer: Any) -> None:
            for _ in range(CHANGES):
                await writer.count()

        await asyncio.gather(*map(run, opened))
        await asyncio.sleep(1000)  # late effects
        found = []
        steps = sorted(step for writer in opened for step in writer.seen)
        if steps != [(number, number + 1) for number in range(writers * CHANGES)]:
            found.append(f"a change was lost, doubled or decided on an older image: {steps}")
        log = await read_shared_log(SimulatedObjects(bucket, name="reader"))
        changes = [decode_change(content, seq) for seq, content in log.changes]
        if [change.base_offset for change in changes] != list(range(writers * CHANGES)):
            found.append(f"the log has {len(changes)} changes")
        for writer in opened:
            await writer.metadata.catch_up()
            if count_in(writer.metadata.image) != writers * CHANGES or writer.log.log_end_offset != len(
                changes
            ):
                found.append("a writer has another image, or another local copy")
        return found

    return in_virtual_time(scene(), seed)


class TestSeveralWriters:
    @pytest.mark.parametrize("writers", [1, 2, 5])
    def test_a_calm_store(self, tmp_path: Path, writers: int) -> None:
        assert breaches(tmp_path, 1, writers, CALM) == []

    @settings(max_examples=40, deadline=None)
    @given(st.integers(0, 1 << 30), st.integers(2, 4))
    def test_a_store_that_fails(self, seed: int, writers: int) -> None:
        with tempfile.TemporaryDirectory() as path:
            assert breaches(Path(path), seed, writers) == []

    @pytest.mark.parametrize("fate", list(Fate), ids=lambda fate: fate.name)
    def test_each_failure_of_a_creation_leaves_one_change(self, tmp_path: Path, fate: Fate) -> None:
        async def scene() -> None:
            bucket = SimulatedBucket()
            writer = await open_writer(tmp_path, bucket, 0, faults=Faults(late_s=0.5))
            writer.objects.plan("create", fate)
            assert await writer.count() == 1
            await asyncio.sleep(1)
            assert await writer.count() == 2
            assert len((await read_shared_log(writer.objects)).changes) == 2

        in_virtual_time(scene())

    @pytest.mark.parametrize("mine", list(Fate), ids=lambda fate: fate.name)
    @pytest.mark.parametrize("theirs", list(Fate), ids=lambda fate: fate.name)
    def test_two_at_one_place(self, tmp_path: Path, mine: Fate, theirs: Fate) -> None:
        async def scene() -> None:
            bucket = SimulatedBucket()
            first, second = [
                await open_writer(tmp_path, bucket, number, faults=Faults(late_s=0.5), seed=number)
                for number in range(2)
            ]
            first.objects.plan("create", mine)
            second.objects.plan("create", theirs)
            assert sorted(await asyncio.gather(first.count(), second.count())) == [1, 2]
            await asyncio.sleep(1)
            await first.metadata.catch_up()
            await second.metadata.catch_up()
            assert count_in(first.metadata.image) == count_in(second.metadata.image) == 2

        in_virtual_time(scene())


def taken_place_is_our_own(patch: pytest.MonkeyPatch) -> None:
    """a place that another writer has taken counts as the own change"""

    async def create(_reads: Any, _key: str, content: bytes, **_options: Any) -> bytes:
        await honest(_reads, _key, content, is_read_back=False)
        return content

    honest = shared_log.create_or_read
    patch.setattr(shared_log, "create_or_read", create)


def failed_creation_lost_the_place(patch: pytest.MonkeyPatch) -> None:
    """a creation that failed counts as lost, although the store may have carried it out"""

    async def create(reads: Any, key: str, content: bytes, **_options: Any) -> bytes:
        try:
            await reads.objects.create(key, content)
        except Exception:
            return b""
        return content

    patch.setattr(shared_log, "create_or_read", create)


@pytest.mark.parametrize("plant", [taken_place_is_our_own, failed_creation_lost_the_place])
def test_a_planted_mistake_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None]
) -> None:
    plant(monkeypatch)
    for seed in range(20):
        try:
            found = breaches(tmp_path / str(seed), seed, 3)
        except Exception as error:
            found = [str(error)]
        if found:
            return
    raise AssertionError(f"not found: {plant.__doc__}")


class TestTheEndOfAWriter:
    def test_a_writer_that_is_superseded_stops_before_its_next_change(self, tmp_path: Path) -> None:
        async def scene() -> None:
            bucket = SimulatedBucket()
            zombie, other = [await open_writer(tmp_path, bucket, number) for number in range(2)]
            told: list[str] = []
            zombie.journal.ended_if = lambda image: "fenced" if count_in(image) else None
            zombie.journal.on_ended.append(told.append)
            await other.count()
            with pytest.raises(StorageFailed, match="fenced"):
                await zombie.count()
            with pytest.raises(StorageFailed, match="fenced"):
                await zombie.metadata.catch_up()
            assert told == ["fenced"]
            await other.metadata.catch_up()
            assert count_in(other.metadata.image) == 1

        in_virtual_time(scene())

    def test_a_writer_that_loses_the_place_to_its_fencing_changes_nothing(self, tmp_path: Path) -> None:
        async def scene() -> None:
            bucket = SimulatedBucket()
            zombie, other = [
                await open_writer(tmp_path, bucket, number, faults=Faults(late_s=30)) for number in range(2)
            ]
            zombie.journal.ended_if = lambda image: "fenced" if count_in(image) else None
            zombie.objects.plan("create", Fate.LANDS_LATE)
            changing = asyncio.create_task(zombie.count())
            await asyncio.sleep(0.05)
            await other.count()
            with pytest.raises(StorageFailed, match="fenced"):
                await changing
            await asyncio.sleep(100)
            assert len((await read_shared_log(other.objects)).changes) == 1

        in_virtual_time(scene())

    def test_a_writer_may_end_itself_by_its_last_change(self, tmp_path: Path) -> None:
        async def scene() -> None:
            writer = await open_writer(tmp_path, SimulatedBucket(), 0)
            writer.journal.ended_if = lambda image: "fenced" if count_in(image) else None
            assert await writer.count() == 1
            with pytest.raises(StorageFailed, match="fenced"):
                await writer.count()

        in_virtual_time(scene())

    def test_a_change_that_waits_for_the_store_is_given_up(self, tmp_path: Path) -> None:
        async def scene() -> None:
            writer = await open_writer(tmp_path, SimulatedBucket(), 0)
            writer.objects.is_cut_off = True
            changing = asyncio.create_task(writer.count())
            await asyncio.sleep(5)
            assert not changing.done()
            writer.journal.give_up("the gateway stops")
            with pytest.raises(StorageFailed, match="the gateway stops"):
                await changing
            await writer.metadata.close()

        in_virtual_time(scene())

    @pytest.mark.parametrize("content", [b"", b"SQMC", b"{}", b'{"version": 1, "cluster_version": 99}'])
    def test_what_this_release_can_not_read_ends_the_writer(self, tmp_path: Path, content: bytes) -> None:
        async def scene() -> None:
            writer = await open_writer(tmp_path, SimulatedBucket(), 0)
            told: list[str] = []
            writer.journal.on_ended.append(told.append)
            await writer.objects.create(registration_key(1), content)
            with pytest.raises(StorageFailed, match="can't be read"):
                await writer.count()
            assert len(told) == 1

        in_virtual_time(scene())

    def test_a_refusal_ends_one_change_only(self, tmp_path: Path) -> None:
        async def scene() -> None:
            writer = await open_writer(tmp_path, SimulatedBucket(), 0)
            writer.objects.refusal = "no right to write"
            with pytest.raises(StorageFailed, match="no right to write"):
                await writer.count()
            writer.objects.refusal = ""
            assert await writer.count() == 1

        in_virtual_time(scene())


class TestTheLocalCopy:
    def test_a_disk_that_fails_ends_the_copy_only(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def scene() -> None:
            writer = await open_writer(tmp_path, SimulatedBucket(), 0)
            await writer.count()
            assert writer.journal.copied == (2, 1)

            def fail(*_arguments: Any, **_options: Any) -> None:
                raise StorageFailed("disk")

            monkeypatch.setattr(writer.log, "append", fail)
            assert await writer.count() == 2
            assert writer.journal.copied is None
            assert (writer.log.log_end_offset, writer.metadata.last_offset) == (1, 1)

        in_virtual_time(scene())

    def test_the_copy_counts_as_durable(self, tmp_path: Path) -> None:
        async def scene() -> None:
            writer = await open_writer(tmp_path, SimulatedBucket(), 0)
            await writer.count()
            log = writer.log
            assert log.recovery_point == log.high_watermark == log.log_end_offset == 1

        in_virtual_time(scene())

    def test_an_operation_without_records_sees_what_others_wrote(self, tmp_path: Path) -> None:
        async def scene() -> None:
            bucket = SimulatedBucket()
            first, second = [await open_writer(tmp_path, bucket, number) for number in range(2)]
            await first.count()
            assert await second.metadata.commit(lambda image: Decision((), count_in(image))) == 1

        in_virtual_time(scene())
