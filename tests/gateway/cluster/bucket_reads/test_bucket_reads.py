from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from seqgate.gateway.cluster import bucket_reads
from seqgate.gateway.cluster.bucket_reads import FoundRecords, Loading, NotConfirmed
from seqgate.gateway.cluster.objects.objects import Missing
from seqgate.gateway.cluster.parts.manifest import manifest_key
from seqgate.log import LogConfig
from tests.gateway.cluster.bucket_reads.scene import PARTITION, WHOLE, Scene, live
from tests.log.support import delete_records, flush
from tests.support.batches import read_batches


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    await scene.reads.stop()
    await scene.objects.close()


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_reads, "BLOCK_BYTES", 150)


async def test_a_reader_gets_what_the_leader_has_uploaded(scene: Scene) -> None:
    for _ in range(30):
        scene.append(3)
    await scene.upload()
    scene.append(3)
    assert await scene.offsets() == list(range(90))
    found = await scene.read(0)
    assert found is not None
    assert found.bounds == (0, 90, 90)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("seed", range(6))
async def test_readers_get_the_records_of_the_leader(scene: Scene, seed: int) -> None:
    """Transactions end in later segments than they begin in, and go on over uploads."""
    await live(scene, random.Random(seed), 120)
    assert await scene.offsets() == scene.led_offsets()
    assert await scene.offsets(committed_only=True) == scene.led_offsets(committed_only=True)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("seed", range(6))
async def test_readers_that_come_between_uploads_see_no_undecided_record(tmp_path: Path, seed: int) -> None:
    scene, chance = Scene(tmp_path), random.Random(seed)
    committed: list[int] = []
    for _ in range(6):
        await live(scene, chance, 25)
        await scene.read(0)
        scene.look_again()
        begin = committed[-1] + 1 if committed else 0
        committed += await scene.offsets(begin, committed_only=True)
        assert committed == [each for each in scene.led_offsets(committed_only=True) if each <= committed[-1]]
        assert committed[-1] < scene.log.last_stable_offset
    await scene.reads.stop()


async def test_each_offset_is_found(scene: Scene) -> None:
    for _ in range(20):
        scene.append(4)
    await scene.upload()
    for offset in range(80):
        found = await scene.read(offset, 1)
        assert found is not None
        [view], _ = read_batches(found.records)
        assert view.base_offset == offset // 4 * 4


async def test_no_batch_is_cut_and_limits_hold(scene: Scene) -> None:
    for size in (20, 200, 20):
        scene.append(1, size)
    await scene.upload()
    found = await scene.read(0)
    assert found is not None
    sizes = [view.batch_length + 12 for view in read_batches(found.records)[0]]
    found = await scene.read(0, sizes[0] + sizes[1] - 1)
    assert found is not None
    assert len(found.records) == sizes[0]
    found = await scene.read(1, 10, min_one_batch=False)
    assert found is not None
    assert not found.records
    found = await scene.read(1, 10)
    assert found is not None
    assert len(found.records) == sizes[1]


async def test_the_leader_answers_beyond_the_end_and_below_the_start(scene: Scene) -> None:
    scene.append(10)
    scene.append(10)
    await scene.upload()
    assert await scene.read(20) is None
    assert await scene.read(21) is None
    await scene.upload()
    delete_records(scene.log, 12)
    again = scene.reads = scene.open_reads()
    assert await scene.read(11) is None
    found = await scene.read(12)
    assert found is not None
    assert found.bounds == (12, 20, 20), "the manifest does not know of the deletion yet"
    await again.stop()


async def test_a_reader_goes_on_with_a_newer_manifest(scene: Scene) -> None:
    scene.append(10)
    await scene.upload()
    assert await scene.offsets() == list(range(10))
    scene.append(10)
    assert await scene.read(10) is None
    await scene.upload()
    scene.look_again()
    assert await scene.offsets(10) == list(range(10, 20))


async def test_an_open_transaction_ends_what_committed_readers_get(scene: Scene) -> None:
    scene.append(5)
    scene.write_in_transaction(1, 5)
    await scene.upload()
    assert await scene.offsets(committed_only=True) == list(range(5))
    assert await scene.offsets() == list(range(10))


async def test_the_aborted_transactions_of_the_newest_segment_are_known(scene: Scene) -> None:
    scene.write_in_transaction(1, 5)
    scene.end_transaction(1, commit=False)
    scene.append(1)
    await scene.upload()
    assert len(scene.log.segments.segments) == 1
    assert await scene.offsets(committed_only=True) == [6]
    found = await scene.read(0, committed_only=True)
    assert found is not None
    assert found.aborted == [(1, 0)]


async def test_committed_readers_go_to_the_leader_where_an_index_is_missing(tmp_path: Path) -> None:
    """As after a compaction amid the upload: the manifest names the bytes before it."""
    scene = Scene(tmp_path)
    scene.write_in_transaction(1, 5)
    scene.end_transaction(1, commit=False)
    flush(scene.log)
    for _ in range(20):
        scene.append(3)
        flush(scene.log)
    first = scene.log.segments.segments[0].file.path
    assert len(scene.log.segments.segments) > 1
    Path(first.replace(".log", ".txnindex")).unlink()
    await scene.upload()
    assert await scene.read(0, committed_only=True) is None
    assert await scene.offsets() == scene.led_offsets()
    await scene.reads.stop()


async def test_deleted_records_vanish_when_the_leader_is_asked_again(scene: Scene) -> None:
    scene.append(10)
    scene.append(10)
    await scene.upload()
    assert await scene.read(0) is not None
    assert await scene.read(0) is not None
    assert scene.asked == 1
    delete_records(scene.log, 10)
    scene.reads._known[PARTITION]._confirmed_s = bucket_reads.NEVER
    assert await scene.read(0) is None
    assert scene.asked == 2


async def test_no_reader_hears_of_a_deletion_before_the_leader_tells_it(scene: Scene) -> None:
    """The manifest may have a log start offset that is not durable yet, and the next answer of the leader the
    one before.
    """
    scene.append(10)
    scene.append(10)
    flush(scene.log)
    delete_records(scene.log, 10)
    await scene.upload()
    scene.told_start = 0
    assert await scene.read(5) is None
    found = await scene.read(10)
    assert found is not None
    assert found.bounds == (0, 20, 20)


async def test_nothing_is_read_while_the_leader_does_not_answer(scene: Scene) -> None:
    scene.append(10)
    await scene.upload()
    scene.leader_is_away = True
    for _ in range(2):
        with pytest.raises(NotConfirmed):
            await scene.read(0)
    assert scene.asked == 1, "it is not asked at each read"


async def test_without_a_manifest_the_leader_answers(scene: Scene) -> None:
    assert await scene.read(0) is None


async def test_parts_that_were_replaced_are_read_by_the_new_manifest(scene: Scene) -> None:
    for _ in range(5):
        scene.append(2)
        await scene.upload()
    assert isinstance(await scene.read(0, 1), FoundRecords)
    contents = scene.reads._known[PARTITION].contents
    assert contents is not None
    # Another gateway merges all parts into one.
    for part in contents.parts:
        await scene.objects.delete(f"parts/{PARTITION.topic_id.hex}/0/{part.name}")
    await scene.objects.delete(manifest_key(PARTITION))
    scene.uploads._files.clear()
    scene.uploads._ports.manifests.forget(PARTITION)
    await scene.upload()
    scene.reads._blocks._blocks.clear()
    scene.reads._blocks.size_bytes = 0
    assert await scene.offsets() == list(range(10))


async def test_a_part_that_is_lost_sends_readers_to_the_leader(scene: Scene) -> None:
    scene.append(5)
    await scene.upload()
    async for entry in scene.objects.list("parts/"):
        if not entry.key.endswith("manifest"):
            await scene.objects.delete(entry.key)
    with pytest.raises(Missing):
        await scene.objects.get("parts/none")
    assert await scene.read(0) is None


async def test_a_damaged_part_sends_readers_to_the_leader(scene: Scene) -> None:
    scene.append(5)
    await scene.upload()
    async for entry in scene.objects.list("parts/"):
        if not entry.key.endswith("manifest"):
            content = bytearray(await scene.objects.get(entry.key))
            content[30] ^= 1
            await scene.objects.delete(entry.key)
            await scene.objects.create(entry.key, bytes(content))
    assert await scene.read(0) is None


async def test_the_memory_is_limited(tmp_path: Path) -> None:
    scene = Scene(tmp_path, config=LogConfig(segment_bytes=100 << 20))
    for _ in range(40):
        scene.append(1, 1_000_000)
    await scene.upload()
    scene.reads = scene.open_reads(cache_bytes=16 << 20)
    assert await scene.offsets(max_bytes=1 << 20) == list(range(40))
    assert scene.reads._blocks.size_bytes <= 16 << 20
    assert scene.reads._blocks.bytes_fetched < 50 << 20, "each block was fetched about once"
    await scene.reads.stop()


async def test_a_batch_that_does_not_fit_into_the_memory_is_the_leaders(tmp_path: Path) -> None:
    scene = Scene(tmp_path, config=LogConfig(segment_bytes=100 << 20, max_message_bytes=20 << 20))
    scene.append(1, 9 << 20)
    await scene.upload()
    assert await scene.read(0, 1 << 20) is None
    await scene.reads.stop()


async def test_readers_that_wait_share_one_fetch(scene: Scene) -> None:
    scene.append(5)
    await scene.upload()
    waited: list[int] = []
    for number in range(3):
        found = scene.reads.read(PARTITION, 0, WHOLE, min_one_batch=True, committed_only=False)
        assert isinstance(found, Loading)
        waiter = scene.reads.want([PARTITION], lambda number=number: waited.append(number))  # type: ignore[misc]
        if number == 1:
            waiter.cancel()
    assert isinstance(await scene.read(0), FoundRecords)
    assert waited == [0, 2]
    assert scene.asked == 1
