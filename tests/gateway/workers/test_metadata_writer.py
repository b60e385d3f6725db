from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from seqgate.gateway.metadata.records import TopicRecord, decode_record, encode_record
from seqgate.gateway.runtime.topics.metadata_log import open_metadata_log
from seqgate.gateway.workers.metadata_writer import METADATA_DIRECTORY, MetadataWriter
from seqgate.log import CorruptRecord, DirectoryShare, LocalDurability, LogDirectory, Storage, StorageFailed
from seqgate.log.directory.stored_logs import CLEAN_SHUTDOWN, RECOVERY_POINTS
from seqgate.log.files.disk import SystemDisk
from seqgate.log.format.record_batch import whole_batches
from seqgate.log.segments.damage import DamageRegister
from seqgate.log.stopped import durable_ends

NOW_MS = 1_000


class FailingDisk(SystemDisk):
    """A disk whose next fsync fails when it is told to."""

    fails = False

    def fdatasync(self, descriptor: int) -> None:
        if self.fails:
            self.fails = False
            raise OSError(5, "Input/output error")
        super().fdatasync(descriptor)


def topic(number: int) -> TopicRecord:
    return TopicRecord(f"t{number}", uuid.UUID(int=number))


def created(root: Path) -> None:
    directory = LogDirectory.open(root, Storage(), node_id=1, now_ms=lambda: NOW_MS)
    open_metadata_log(directory)
    directory.close(clean=True)


def writer(root: Path, disk: SystemDisk | None = None) -> MetadataWriter:
    return MetadataWriter(Storage(disk=disk), str(root), str(root), lambda: NOW_MS)


def test_changes_are_told_when_they_are_durable_and_found_again(tmp_path: Path) -> None:
    created(tmp_path)
    first = writer(tmp_path)
    told: list[tuple[int, list[bytes]]] = []
    first.when_changed.append(lambda end_offset, records: told.append((end_offset, records)))
    first.change([topic(1), topic(2)])
    first.append([encode_record(topic(3))])
    first.change([])
    assert [end_offset for end_offset, _ in told] == [2, 3]
    assert decode_record(told[1][1][0]) == topic(3)
    assert first.log.recovery_point == 3
    first.close()
    second = writer(tmp_path)
    assert list(second.image.topics_by_name) == ["t1", "t2", "t3"]
    assert second.end_offset == 3


def test_a_batch_that_a_crash_tore_is_cut_off(tmp_path: Path) -> None:
    created(tmp_path)
    first = writer(tmp_path)
    first.change([topic(1)])
    first.close()
    with (tmp_path / METADATA_DIRECTORY / f"{0:020}.log").open("ab") as file:
        file.write(b"\0\0\0\0\0\0\0\1\0\0\0\xff torn")
    second = writer(tmp_path)
    second.change([topic(2)])
    second.close()
    assert list(writer(tmp_path).image.topics_by_name) == ["t1", "t2"]


def test_after_a_failed_flush_the_next_change_finds_what_is_in_the_log(tmp_path: Path) -> None:
    created(tmp_path)
    disk = FailingDisk()
    one = writer(tmp_path, disk)
    one.change([topic(1)])
    told: list[int] = []
    one.when_changed.append(lambda end_offset, _: told.append(end_offset))
    disk.fails = True
    with pytest.raises(StorageFailed):
        one.change([topic(2)])
    assert "t2" not in one.image.topics_by_name
    assert told == []
    one.change([topic(3)])
    assert list(one.image.topics_by_name)[-1] == "t3"
    assert told[-1] == one.log.log_end_offset == one.end_offset
    one.close()
    again = writer(tmp_path)
    assert list(again.image.topics_by_name) == list(one.image.topics_by_name)


def test_an_empty_log_beside_partitions_is_refused(tmp_path: Path) -> None:
    created(tmp_path)
    (tmp_path / "t-0").mkdir()
    with pytest.raises(CorruptRecord, match="there is t-0"):
        writer(tmp_path)


@pytest.mark.parametrize("content", [None, b""], ids=["none", "empty"])
def test_a_first_start_that_ended_early_is_finished(tmp_path: Path, content: bytes | None) -> None:
    LogDirectory.open(tmp_path, Storage(), node_id=1, now_ms=lambda: NOW_MS).close(clean=False)
    (tmp_path / METADATA_DIRECTORY).mkdir()
    if content is not None:
        (tmp_path / METADATA_DIRECTORY / "partition.metadata").write_bytes(content)
    first = writer(tmp_path)
    first.change([topic(1)])
    first.close()
    directory = LogDirectory.open(tmp_path, Storage(), node_id=1, now_ms=lambda: NOW_MS)
    assert open_metadata_log(directory).log_end_offset == 1
    directory.close()


def damage_batch(root: Path, number: int) -> None:
    path = root / METADATA_DIRECTORY / f"{0:020}.log"
    content = bytearray(path.read_bytes())
    position, header = list(whole_batches(content))[number]
    content[position + header.size_bytes - 1] ^= 4
    path.write_bytes(content)


def test_a_damaged_batch_below_the_recovery_point_is_kept(tmp_path: Path) -> None:
    created(tmp_path)
    files = tmp_path / "workers" / "metadata"
    files.mkdir(parents=True)
    first = writer(tmp_path)
    first.keep_facts_in(str(files))
    for number in range(1, 4):
        first.change([topic(number)])
    first.checkpoint()
    assert durable_ends(Storage(), str(files)) == {METADATA_DIRECTORY: 3}
    damage_batch(tmp_path, 1)  # nothing is closed: everything was killed
    for _ in range(2):
        with pytest.raises(CorruptRecord, match="is damaged at offset 1"):
            MetadataWriter(Storage(), str(tmp_path), str(files), lambda: NOW_MS)
    register = DamageRegister()
    register.load(Storage(), LocalDurability(Storage()), str(tmp_path), str(files))
    (found,) = register.of(str(tmp_path / METADATA_DIRECTORY))
    assert (found.first_offset, found.end_offset) == (1, 2)


def test_a_clean_end_writes_the_recovery_point(tmp_path: Path) -> None:
    created(tmp_path)
    files = tmp_path / "workers" / "metadata"
    files.mkdir(parents=True)
    first = writer(tmp_path)
    first.change([topic(1)])
    first.keep_facts_in(str(files))
    assert durable_ends(Storage(), str(files)) == {METADATA_DIRECTORY: 1}
    first.change([topic(2)])
    first.close()
    assert durable_ends(Storage(), str(files)) == {METADATA_DIRECTORY: 2}


def test_what_is_cut_off_behind_a_damaged_batch_is_listed_by_a_worker(tmp_path: Path) -> None:
    created(tmp_path)
    first = writer(tmp_path)
    for number in range(1, 4):
        first.change([topic(number)])
    first.log.close(clean=False)
    (tmp_path / RECOVERY_POINTS).unlink()
    (tmp_path / CLEAN_SHUTDOWN).unlink()
    damage_batch(tmp_path, 1)
    assert list(writer(tmp_path).image.topics_by_name) == ["t1"]
    own = tmp_path / "workers" / "1"
    share = DirectoryShare(own, lambda *_: False, takes_leftovers=False, tells_of=str(tmp_path))
    directory = LogDirectory.open(tmp_path, Storage(), node_id=1, now_ms=lambda: NOW_MS, share=share)
    [(name, partition, found)] = directory.known_cut_bytes()
    assert (name, partition, found.first_offset, found.last_offset) == ("__cluster_metadata", 0, 2, 2)
    directory.close()
    register = DamageRegister()
    register.load(Storage(), LocalDurability(Storage()), str(tmp_path), str(own))
    assert not register.cut()
