from __future__ import annotations

import os
import random
import socket
import threading
import uuid
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqgate.log import NotCached, PageRange, Storage
from seqgate.log.files.disk import SystemDisk
from seqgate.log.files.page_cache import BLOCK_BYTES, SegmentKey, SparseFile
from seqgate.log.files.sparse_disk import SparseDisk
from seqgate.log.files.storage import DataFile
from tests.faults.simulated_disk import SimulatedDisk

KEY = SegmentKey(uuid.UUID(int=7), 0, 0)
NAME = "00000000000000000000.log"
TAIL_BYTES = 1000


def content_of(blocks: int = 3) -> bytes:
    return random.Random(7).randbytes(BLOCK_BYTES) * blocks + b"t" * TAIL_BYTES


class Bucket:
    """The bytes of segments, and what was fetched."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.fetched: list[tuple[SegmentKey, int, int]] = []
        self.error: OSError | None = None

    def fetch(self, key: SegmentKey, position: int, size_bytes: int) -> bytes:
        self.fetched.append((key, position, size_bytes))
        if self.error is not None:
            raise self.error
        return self.content[position : position + size_bytes]


class Scene:
    """A segment with three blocks and a tail, of which nothing is on the disk."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk(tells_cached=True)
        self.disk.provide_directory("/data/t-0")
        self.storage = Storage(disk=self.disk.process()).with_holes()
        assert self.storage.sparse is not None
        self.sparse: SparseDisk = self.storage.sparse
        self.path = f"/data/t-0/{NAME}"
        self.content = content_of()
        self.bucket = Bucket(self.content)
        self.sparse.source = self.bucket
        self.sparse.create_absent(self.path, KEY, len(self.content))
        self.file = DataFile(self.path)

    @property
    def entry(self) -> SparseFile:
        found = self.sparse.files.of(self.path)
        assert found is not None
        return found


@pytest.fixture
def scene() -> Scene:
    return Scene()


class TestReading:
    def test_a_read_that_may_wait_fetches_the_block(self, scene: Scene) -> None:
        assert (
            scene.storage.read(scene.file, 100, BLOCK_BYTES - 50) == scene.content[BLOCK_BYTES - 50 :][:100]
        )
        assert scene.bucket.fetched == [(KEY, 0, BLOCK_BYTES), (KEY, BLOCK_BYTES, BLOCK_BYTES)]
        assert scene.storage.read(scene.file, 100, 5) == scene.content[5:105]
        assert len(scene.bucket.fetched) == 2

    def test_a_read_to_the_end_gets_the_small_last_block(self, scene: Scene) -> None:
        assert scene.storage.read(scene.file, 4096, 3 * BLOCK_BYTES) == b"t" * TAIL_BYTES
        assert scene.bucket.fetched == [(KEY, 3 * BLOCK_BYTES, TAIL_BYTES)]

    def test_a_read_that_must_not_wait_says_what_is_missing(self, scene: Scene) -> None:
        scene.storage.waits = False
        scene.storage.brought_in(scene.path)
        with pytest.raises(NotCached) as missing:
            scene.storage.read(scene.file, 100, 5)
        assert missing.value.places == ((scene.path, 5, 100),)
        assert scene.bucket.fetched == []

    def test_absent_bytes_are_not_cached_whatever_was_just_written(self, scene: Scene) -> None:
        scene.file.written_from = 0
        scene.file.written_after = 0
        assert not scene.storage.is_cached(scene.file, 0, 10)
        assert scene.storage.read(scene.file, 10, 0) == scene.content[:10]
        scene.storage.brought_in(scene.path)
        assert scene.storage.is_cached(scene.file, 0, 10)
        assert not scene.storage.is_cached(scene.file, 0, BLOCK_BYTES + 1)

    def test_sendfile_sends_no_hole(self, scene: Scene) -> None:
        with pytest.raises(OSError, match="not on the local disk"):
            scene.storage.send(scene.file, 1, 0, 10)
        assert scene.bucket.fetched == []

    def test_bring_in_fetches_for_another_thread(self, scene: Scene) -> None:
        assert scene.storage.bring_in(PageRange(scene.path, 0, 10)) == 10
        assert [position for _, position, _ in scene.bucket.fetched] == [0]

    def test_a_whole_file_is_fetched(self, scene: Scene) -> None:
        assert scene.storage.read_file(scene.path) == scene.content

    def test_without_a_source_a_read_fails(self, scene: Scene) -> None:
        scene.sparse.source = None
        with pytest.raises(OSError, match="no bucket has it"):
            scene.storage.read(scene.file, 10, 0)

    def test_an_error_of_the_source_is_the_readers(self, scene: Scene) -> None:
        scene.bucket.error = TimeoutError("the bucket does not answer")
        with pytest.raises(TimeoutError):
            scene.storage.read(scene.file, 10, 0)
        scene.bucket.error = None
        assert scene.storage.read(scene.file, 10, 0) == scene.content[:10]

    def test_too_few_bytes_are_refused(self, scene: Scene) -> None:
        scene.bucket.content = scene.content[:100]
        with pytest.raises(OSError, match="the bucket sent 100"):
            scene.storage.read(scene.file, 10, 0)

    def test_the_simulated_disk_finds_a_hole_that_is_served(self, scene: Scene) -> None:
        scene.entry.absent = 0  # the planted mistake: the hole is forgotten
        with pytest.raises(AssertionError, match="are a hole"):
            scene.storage.read(scene.file, 10, 0)

    def test_files_that_are_no_segments_have_no_holes(self, scene: Scene) -> None:
        scene.storage.write_file("/data/t-0/partition.metadata", b"content")
        assert scene.storage.read_file("/data/t-0/partition.metadata") == b"content"
        assert scene.sparse.files.of("/data/t-0/partition.metadata") is None


class TestEviction:
    def test_a_read_after_it_fetches_again(self, scene: Scene) -> None:
        scene.storage.read_file(scene.path)
        assert scene.sparse.absent_bytes() == 0
        assert scene.sparse.evict(scene.entry, [2]) == BLOCK_BYTES + TAIL_BYTES
        assert scene.sparse.absent_bytes() == BLOCK_BYTES + TAIL_BYTES
        fetched = len(scene.bucket.fetched)
        assert scene.storage.read_file(scene.path) == scene.content
        assert len(scene.bucket.fetched) == fetched + 2

    def test_what_the_bucket_does_not_have_stays(self, scene: Scene) -> None:
        path = f"/data/t-0/{1:020}.log"
        file = DataFile(path)
        scene.storage.create(file)
        scene.storage.write(file, [b"acknowledged"], 0)
        entry = scene.sparse.files.of(path)
        assert entry is not None
        assert entry not in dict(scene.sparse.coldest(1 << 40))
        assert scene.sparse.evict(entry, [0]) == 0
        assert scene.storage.read(file, 12, 0) == b"acknowledged"

    def test_what_is_stored_may_go(self, scene: Scene) -> None:
        path = f"/data/t-0/{1:020}.log"
        file = DataFile(path)
        scene.storage.create(file)
        scene.storage.write(file, [scene.content], 0)
        entry = scene.sparse.files.of(path)
        assert entry is not None
        scene.sparse.stored(entry, KEY._replace(base_offset=1), len(scene.content))
        assert scene.sparse.evict(entry, [2]) == BLOCK_BYTES + TAIL_BYTES
        assert scene.storage.read(file, len(scene.content), 0) == scene.content
        key = KEY._replace(base_offset=1)
        assert scene.bucket.fetched == [
            (key, 2 * BLOCK_BYTES, BLOCK_BYTES),
            (key, 3 * BLOCK_BYTES, TAIL_BYTES),
        ]

    def test_a_pinned_file_stays(self, scene: Scene) -> None:
        scene.storage.read_file(scene.path)
        scene.sparse.pin(scene.entry)
        assert scene.sparse.evict(scene.entry, [0]) == 0
        assert list(scene.sparse.coldest(1 << 40)) == []
        scene.sparse.unpin(scene.entry)
        assert scene.sparse.evict(scene.entry, [0]) == 2 * BLOCK_BYTES

    def test_a_file_under_a_read_stays(self, scene: Scene) -> None:
        scene.storage.read_file(scene.path)
        freed = []
        process = scene.disk.process()
        read = process.pread

        def pread(descriptor: int, size_bytes: int, position: int) -> bytes:
            freed.append(sparse.evict(sparse.files.of(scene.path) or SparseFile(""), [0]))
            return read(descriptor, size_bytes, position)

        process.pread = pread  # type: ignore[method-assign]
        sparse = SparseDisk(process)
        storage = Storage(disk=sparse)
        descriptor = sparse.open(scene.path, os.O_RDWR)
        entry = sparse.files.of(scene.path)
        assert entry is not None
        sparse.stored(entry, KEY, len(scene.content))
        assert storage.read(scene.file, 10, 0) == scene.content[:10]
        assert freed == [0]
        sparse.close(descriptor)

    def test_the_coldest_pair_goes_first(self, scene: Scene) -> None:
        scene.storage.read_file(scene.path)
        scene.storage.read(scene.file, 10, 3 * BLOCK_BYTES)
        assert dict(scene.sparse.coldest(1)) == {scene.entry: [0]}
        assert dict(scene.sparse.coldest(2 * BLOCK_BYTES)) == {scene.entry: [0]}
        assert dict(scene.sparse.coldest(2 * BLOCK_BYTES + 1)) == {scene.entry: [0, 2]}
        scene.storage.read(scene.file, 10, BLOCK_BYTES)
        assert dict(scene.sparse.coldest(1)) == {scene.entry: [2]}
        assert dict(scene.sparse.coldest(1, spares=lambda path: path == scene.path)) == {}

    def test_a_pair_of_which_one_block_is_absent(self, scene: Scene) -> None:
        scene.storage.read(scene.file, 10, BLOCK_BYTES)
        assert dict(scene.sparse.coldest(1 << 40)) == {scene.entry: [0]}
        assert scene.sparse.evict(scene.entry, [0, 2]) == BLOCK_BYTES
        assert dict(scene.sparse.coldest(1 << 40)) == {}

    def test_a_failed_punch_leaves_the_block_absent(self, scene: Scene) -> None:
        scene.storage.read_file(scene.path)
        scene.disk.plan.rates.write_eio = 1.0
        with pytest.raises(OSError, match=r"EIO|Input"):
            scene.sparse.evict(scene.entry, [0])
        scene.disk.plan.rates.write_eio = 0.0
        assert scene.storage.read(scene.file, 10, 0) == scene.content[:10]
        assert len(scene.bucket.fetched) == 5


class TestNames:
    def test_holes_move_with_the_directory(self, scene: Scene) -> None:
        scene.storage.rename("/data/t-0", "/data/t-0.1-delete")
        assert scene.sparse.files.of(scene.path) is None
        assert scene.storage.read_by_name(f"/data/t-0.1-delete/{NAME}", 10, 0) == scene.content[:10]

    def test_a_removed_segment_is_still_fetched(self, scene: Scene) -> None:
        scene.storage.read(scene.file, 10, 0)
        scene.storage.rename(scene.path, scene.path + ".deleted")
        assert scene.sparse.find(scene.path) is not None
        assert scene.storage.read(scene.file, 10, BLOCK_BYTES) == scene.content[BLOCK_BYTES:][:10]

    def test_a_removed_segment_stays_whole_for_its_readers(self, scene: Scene) -> None:
        """The bucket may have the bytes of a compacted segment in its place."""
        scene.storage.read(scene.file, len(scene.content), 0)
        entry = scene.entry
        scene.storage.rename(scene.path, scene.path + ".deleted")
        assert entry not in dict(scene.sparse.coldest(1 << 40))
        assert scene.sparse.evict(entry, [0]) == 0
        scene.bucket.fetched.clear()
        assert scene.storage.read(scene.file, 10, 0) == scene.content[:10]
        assert scene.bucket.fetched == []

    def test_a_replaced_segment_is_never_fetched_as_its_successor(self, scene: Scene) -> None:
        scene.storage.read(scene.file, 10, 0)  # the file is open from now on
        swap = DataFile(scene.path + ".swap")
        scene.storage.create(swap)
        scene.storage.write(swap, [b"compacted"], 0)
        scene.storage.rename(swap.path, scene.path)
        scene.bucket.fetched.clear()
        with pytest.raises(OSError, match="no bucket has it"):
            scene.storage.read(scene.file, 10, BLOCK_BYTES)
        assert scene.storage.read(scene.file, 10, 0) == scene.content[:10]
        assert scene.storage.read(DataFile(scene.path), 10, 0) == b"compacted"
        assert scene.storage.read(swap, 10, 0) == b"compacted"
        assert scene.bucket.fetched == []

    def test_a_fetch_that_was_overtaken_by_a_swap_changes_nothing(self, scene: Scene) -> None:
        entry = scene.entry
        scene.storage.write_file(scene.path + ".swap", b"compacted")
        scene.storage.rename(scene.path + ".swap", scene.path)
        scene.sparse.fill(entry, 0, scene.content[:BLOCK_BYTES])
        assert scene.storage.read_file(scene.path) == b"compacted"

    def test_a_file_of_a_swap_has_the_holes_that_it_gets_later(self, scene: Scene) -> None:
        """A descriptor that was opened under the name of the swap reads through the same residency."""
        path = f"/data/t-0/{1:020}.log"
        scene.storage.write_file(path + ".swap", scene.content)
        file = DataFile(path)
        scene.storage.descriptors.pin_as(file, path + ".swap")
        scene.storage.rename(path + ".swap", path)
        entry = scene.sparse.files.of(path)
        assert entry is not None
        scene.sparse.stored(entry, KEY, len(scene.content))
        scene.sparse.evict(entry, [0])
        assert scene.storage.read_pinned(file, 10, 0) == scene.content[:10]
        assert len(scene.bucket.fetched) == 1

    def test_a_created_file_has_no_holes(self, scene: Scene) -> None:
        scene.storage.create(scene.file)
        scene.storage.write(scene.file, [b"new"], 0)
        assert scene.storage.read(scene.file, 10, 0) == b"new"
        assert scene.sparse.absent_bytes() == 0

    def test_what_waits_for_its_deletion_counts_no_more(self, scene: Scene) -> None:
        """The sizes of logs do not have it, either."""
        assert scene.sparse.absent_bytes() == len(scene.content)
        scene.storage.rename(scene.path, scene.path + ".deleted")
        assert scene.sparse.absent_bytes() == 0
        scene.storage.rename(scene.path + ".deleted", scene.path)
        scene.storage.rename("/data/t-0", "/data/t-0.f00-delete")
        assert scene.sparse.absent_bytes() == 0
        scene.storage.rename("/data/t-0.f00-delete", "/data/t-0")
        assert scene.sparse.absent_bytes() == len(scene.content)
        scene.storage.delete(scene.path)
        assert scene.sparse.absent_bytes() == 0


ACTIONS = st.lists(
    st.one_of(
        st.tuples(
            st.just("read"), st.integers(0, 3 * BLOCK_BYTES + TAIL_BYTES), st.integers(1, 2 * BLOCK_BYTES)
        ),
        st.tuples(
            st.just("ask"), st.integers(0, 3 * BLOCK_BYTES + TAIL_BYTES), st.integers(1, 2 * BLOCK_BYTES)
        ),
        st.tuples(st.just("evict"), st.sampled_from([0, 2]), st.just(0)),
        st.tuples(st.just("coldest"), st.integers(1, 2 * BLOCK_BYTES), st.just(0)),
    ),
    max_size=12,
)


@given(ACTIONS)
def test_no_history_serves_a_hole(actions: list[tuple[str, int, int]]) -> None:
    scene = Scene()
    scene.storage.brought_in(scene.path)
    for action, first, second in actions:
        if action == "read":
            assert scene.storage.read(scene.file, second, first) == scene.content[first : first + second]
        elif action == "ask":
            scene.storage.waits = False
            try:
                assert scene.storage.read(scene.file, second, first) == scene.content[first : first + second]
            except NotCached:
                assert scene.entry.lacks(first, second)
            finally:
                scene.storage.waits = True
        elif action == "evict":
            scene.sparse.evict(scene.entry, [first])
        else:
            for file, numbers in scene.sparse.coldest(first):
                scene.sparse.evict(file, numbers)
    holes = sum(end - start for start, end in scene.disk.find(scene.path).holes.ranges)  # type: ignore[union-attr]
    assert holes == scene.sparse.absent_bytes()


class TestOnTheSystemsDisk:
    @pytest.fixture
    def sparse(self, tmp_path: Path) -> SparseDisk:
        (tmp_path / "t-0").mkdir()
        sparse = SparseDisk(SystemDisk())
        sparse.source = Bucket(content_of())
        sparse.create_absent(str(tmp_path / "t-0" / NAME), KEY, len(content_of()))
        return sparse

    def test_a_hole_takes_no_space(self, sparse: SparseDisk, tmp_path: Path) -> None:
        path, content = tmp_path / "t-0" / NAME, content_of()
        storage = Storage(disk=sparse)
        assert path.stat().st_size == len(content)
        assert path.stat().st_blocks == 0
        assert storage.read_by_name(str(path), len(content), 0) == content
        full = path.stat().st_blocks
        assert full * 512 >= len(content)
        entry = sparse.files.of(str(path))
        assert entry is not None
        assert sparse.evict(entry, [0]) == 2 * BLOCK_BYTES
        assert path.stat().st_size == len(content)
        assert path.stat().st_blocks <= full - 2 * BLOCK_BYTES // 512
        assert storage.read_by_name(str(path), len(content), 0) == content

    @pytest.mark.parametrize("pair", [0, 2])
    def test_bytes_that_a_socket_has_taken_stay_as_they_were(
        self, sparse: SparseDisk, tmp_path: Path, pair: int
    ) -> None:
        """The socket has the pages of the page cache, and not a copy, until the peer has read them."""
        path, content = str(tmp_path / "t-0" / NAME), content_of()
        descriptor = sparse.open(path, os.O_RDONLY)
        first = pair * BLOCK_BYTES if pair == 0 else len(content) - 50_000
        sparse.bring_in(descriptor, first, 50_000)
        ours, theirs = socket.socketpair()
        with ours, theirs:
            sent = sparse.sendfile(ours.fileno(), descriptor, first, 50_000)
            entry = sparse.files.of(path)
            assert entry is not None
            assert sparse.evict(entry, [pair]) > 0
            received = b""
            while len(received) < sent:
                received += theirs.recv(sent)
        sparse.close(descriptor)
        assert sent > 10_000
        assert received == content[first : first + sent]

    def test_threads_that_read_and_evict_never_see_a_hole(self, sparse: SparseDisk, tmp_path: Path) -> None:
        path, content = str(tmp_path / "t-0" / NAME), content_of()
        storage, wrong, freed, stop = Storage(disk=sparse), [], [0], threading.Event()
        entry = sparse.files.of(path)
        assert entry is not None

        def read(seed: int) -> None:
            chance, reads = random.Random(seed), 0
            while reads < 50 or (freed[0] < 20 * BLOCK_BYTES and reads < 20_000):
                reads += 1
                position = chance.randrange(len(content))
                size_bytes = chance.randrange(1, 2 * BLOCK_BYTES)
                if (
                    storage.read_by_name(path, size_bytes, position)
                    != content[position : position + size_bytes]
                ):
                    wrong.append((position, size_bytes))

        def evict() -> None:
            chance = random.Random(0)
            while not stop.is_set():
                freed[0] += sparse.evict(entry, [chance.choice((0, 2))])

        readers = [threading.Thread(target=read, args=(seed,)) for seed in range(3)]
        evictor = threading.Thread(target=evict)
        for thread in [*readers, evictor]:
            thread.start()
        for thread in readers:
            thread.join()
        stop.set()
        evictor.join()
        assert wrong == []
        assert freed[0] > 0
