"""What an upload does for a history that is larger than the disk."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from crc32c import crc32c

from seqgate.gateway.cluster.cache.bucket import BucketSource
from seqgate.gateway.cluster.objects.directory_objects import DirectoryObjects
from seqgate.gateway.cluster.parts.manifest import UNKNOWN, Manifests, PartitionKey, SegmentRef
from seqgate.gateway.cluster.rebuild.history import History
from seqgate.gateway.cluster.uploads import partition_uploads
from seqgate.gateway.cluster.uploads.partition_uploads import PartitionUploads, UploadPorts
from seqgate.log import LocalDurability, LogDirectory, PartitionLog, Storage
from seqgate.log.format.record_batch import whole_batches
from seqgate.log.rebuilding import RebuiltDirectory
from seqgate.log.sparse import SegmentKey
from seqgate.log.uploading import TransactionIndex
from tests.log.support import NOW_MS, SMALL, append_end_marker, batch, fill, flush, offsets_read

TOPIC_ID = uuid.UUID(int=5)
PARTITION = PartitionKey(TOPIC_ID, 0)


def rewritten(content: bytes, size_bytes: int) -> bytes:
    """Return the content with another value in the record of its first batch, which has this size."""
    changed = bytearray(content)
    changed[size_bytes - 2] ^= 1
    changed[17:21] = crc32c(bytes(changed[21:size_bytes])).to_bytes(4, "big")
    return bytes(changed)


class Scene:
    """A log of several segments, and a bucket."""

    def __init__(self, root: Path) -> None:
        (root / "bucket").mkdir()
        self.objects = DirectoryObjects(root / "bucket")
        self.storage = Storage().with_holes()
        assert self.storage.sparse is not None
        self.sparse = self.storage.sparse
        self.log = self.open(root / "cache", self.storage).create("flights", TOPIC_ID, 0, SMALL)
        fill(self.log, 1)
        flush(self.log)
        fill(self.log, 40)
        flush(self.log)
        self.log.advance_high_watermark_to_end()
        self.closed = self.log.segments.bases[:-1]
        ports = UploadPorts(self.objects, self.storage, Manifests(self.objects), 0, lambda: 0, self._flushed)
        self.uploads = PartitionUploads(ports)

    @staticmethod
    def open(path: Path, storage: Storage) -> LogDirectory:
        return LogDirectory.open(path, storage, node_id=1, now_ms=lambda: NOW_MS, config=SMALL)

    async def _flushed(self, log: PartitionLog) -> None:
        assert log.recovery_point == log.log_end_offset

    def keys(self) -> list[SegmentKey]:
        return sorted(file.key for file in self.sparse.files if file.key is not None)

    async def stored(self) -> list[str]:
        return [entry.key async for entry in self.objects.list("")]


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    await scene.objects.close()


async def test_closed_segments_may_be_evicted_once_their_manifest_counts(scene: Scene) -> None:
    uploaded = await scene.uploads.upload(scene.log)
    assert scene.keys() == [], "a taker may still find the manifest before"
    scene.uploads.counts(uploaded)
    assert scene.keys() == [SegmentKey(*PARTITION, base, 0) for base in scene.closed]


async def test_a_block_that_was_evicted_comes_back(scene: Scene) -> None:
    scene.uploads.counts(await scene.uploads.upload(scene.log))
    expected = offsets_read(scene.log, 0)
    source = BucketSource(scene.objects)
    for file in scene.sparse.files:
        if file.key is not None:
            assert scene.sparse.evict(file, [0]) == file.size_bytes
            scene.sparse.fill(file, 0, await source.read(file.key, 0, file.size_bytes))
    assert offsets_read(scene.log, 0) == expected
    assert scene.sparse.blocks_waited_for == 0


async def test_each_closed_segment_has_its_index_files_in_the_manifest(scene: Scene) -> None:
    manifest = (await scene.uploads.upload(scene.log)).manifest
    names = {file.name for file in manifest.files if file.name.endswith("index")}
    assert names == {f"{base:020}.{suffix}" for base in scene.closed for suffix in ("index", "timeindex")}


async def test_nothing_is_uploaded_twice(scene: Scene) -> None:
    first = await scene.uploads.upload(scene.log)
    before = await scene.stored()
    again = await scene.uploads.upload(scene.log)
    assert await scene.stored() == before
    assert (again.manifest.segments, again.manifest.files) == (first.manifest.segments, first.manifest.files)
    assert again.garbage == frozenset()


async def test_a_start_leaves_closed_segments_in_the_bucket(scene: Scene, tmp_path: Path) -> None:
    await scene.uploads.upload(scene.log)
    storage = Storage().with_holes()
    assert storage.sparse is not None
    directory = RebuiltDirectory.begin(storage, tmp_path / "rebuilt", b"{}")
    history = History(scene.objects, directory.partitions, [PARTITION])
    await history.restore_manifests()
    directory.place(TOPIC_ID, 0, "flights")
    directory.finish(LocalDurability(storage), "cluster", 1)
    absent = sorted(file.key for file in storage.sparse.files if file.key is not None and file.absent)
    assert absent == [SegmentKey(*PARTITION, base, 0) for base in scene.closed]
    again = scene.open(tmp_path / "rebuilt", storage).get("flights", 0)
    assert again is not None
    assert again.log_end_offset == scene.log.log_end_offset
    assert storage.sparse.blocks_waited_for == 0
    with pytest.raises(OSError, match="no bucket has it"):
        storage.read_file(again.segments.segments[0].file.path)


async def test_a_segment_without_index_files_is_fetched(scene: Scene, tmp_path: Path) -> None:
    base = scene.closed[1]
    (tmp_path / "cache" / "flights-0" / f"{base:020}.timeindex").unlink()
    manifest = (await scene.uploads.upload(scene.log)).manifest
    assert not any(file.name.startswith(f"{base:020}.") and "index" in file.name for file in manifest.files)
    storage = Storage().with_holes()
    assert storage.sparse is not None
    directory = RebuiltDirectory.begin(storage, tmp_path / "rebuilt", b"{}")
    await History(scene.objects, directory.partitions, [PARTITION]).restore_manifests()
    directory.abandon()
    absent = {file.key.base_offset for file in storage.sparse.files if file.key is not None and file.absent}
    assert absent == {*scene.closed} - {base}


async def test_a_log_that_was_loaded_again_is_not_uploaded_again(scene: Scene) -> None:
    """A full disk takes many logs offline at once; each of them may have gigabytes in the bucket."""
    first = await scene.uploads.upload(scene.log)
    before = await scene.stored()
    scene.log.go_offline("the disk is full")
    scene.log.reopen(NOW_MS)
    again = await scene.uploads.upload(scene.log)
    assert again.manifest.segments == first.manifest.segments
    assert await scene.stored() == before


async def test_other_bytes_of_the_same_size_are_uploaded_after_a_reload(scene: Scene) -> None:
    """The last part may be the same although an earlier one differs, so all parts are compared."""
    first = await scene.uploads.upload(scene.log)
    fill(scene.log, 1)
    flush(scene.log)
    second = await scene.uploads.upload(scene.log)
    base = second.manifest.segments[-1].base
    parts = {segment.base: segment.parts for segment in second.manifest.segments}[base]
    assert len(parts) == 2
    assert parts[0] in first.manifest.segments[-1].parts
    path = Path(scene.log.segments.active.file.path)
    content = path.read_bytes()
    (_, batch), *_ = whole_batches(content)
    path.write_bytes(rewritten(content, batch.size_bytes))
    scene.log.go_offline("a test says so")
    scene.log.reopen(NOW_MS)
    third = await scene.uploads.upload(scene.log)
    assert {segment.base: segment.parts for segment in third.manifest.segments}[base] != parts


async def test_a_manifest_that_an_ended_session_replaced_late_does_not_change_what_is_kept(
    scene: Scene, tmp_path: Path
) -> None:
    """The old session has compacted a segment and stood still; the new one has the segment's earlier bytes,
    in the bucket only.
    """
    restored = (await scene.uploads.upload(scene.log)).manifest
    storage = Storage().with_holes()
    directory = RebuiltDirectory.begin(storage, tmp_path / "rebuilt", b"{}")
    history = History(scene.objects, directory.partitions, [PARTITION])
    await history.restore_manifests()
    directory.place(TOPIC_ID, 0, "flights")
    directory.finish(LocalDurability(storage), "cluster", 1)
    compacted = (SegmentRef(restored.segments[0].base), *restored.segments[1:])
    await Manifests(scene.objects).replace(msgspec.structs.replace(restored, segments=compacted))
    manifests = Manifests(scene.objects, restored=history.restored)
    ports = UploadPorts(scene.objects, storage, manifests, 1, lambda: 0, scene._flushed)
    log = scene.open(tmp_path / "rebuilt", storage).get("flights", 0)
    assert log is not None
    uploaded = await PartitionUploads(ports).upload(log)
    assert uploaded.manifest.segments == restored.segments
    assert uploaded.manifest.generation == restored.generation + 2
    assert uploaded.garbage == frozenset()


async def test_the_manifest_tells_the_last_stable_offset_and_the_newest_aborted_transactions(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = scene.log
    begin = log.log_end_offset
    for producer_id in (1, 2):
        log.append(batch(1, producer_id=producer_id, base_sequence=0, is_transactional=True), now_ms=NOW_MS)
    append_end_marker(log, 1, 0, commit=False, coordinator_epoch=0, now_ms=NOW_MS)
    flush(log)
    manifest = (await scene.uploads.upload(log)).manifest
    assert manifest.stable_offset == begin + 1 == log.last_stable_offset
    [aborted] = TransactionIndex(manifest.last_aborts).transactions()
    assert (aborted.producer_id, aborted.first_offset, aborted.last_offset) == (1, begin, begin + 2)
    monkeypatch.setattr(partition_uploads, "LAST_ABORTS_BYTES", 33)
    manifest = (await scene.uploads.upload(log)).manifest
    assert (manifest.stable_offset, manifest.last_aborts) == (UNKNOWN, b""), "they are too many"
