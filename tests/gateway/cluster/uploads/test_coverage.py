from __future__ import annotations

from uuid import UUID

import pytest

from seqgate.gateway.cluster.parts.manifest import Manifest, PartitionKey
from seqgate.gateway.cluster.uploads.collection import MOST_ROWS, Coverage
from seqgate.gateway.cluster.wal.wal_object import DataRow, FileRow, WalRow
from seqgate.log.uploading import LOG_START_OFFSET, log_start_content

A, B = PartitionKey(UUID(int=1), 0), PartitionKey(UUID(int=2), 1)


def records(partition: PartitionKey, end: int) -> tuple[WalRow, bytes]:
    return DataRow(*partition, 0, end - 1, end, 0, 0, 3), b"abc"


def side_file(partition: PartitionKey) -> tuple[WalRow, bytes]:
    return FileRow(*partition, "partition.metadata", 1), b"x"


def log_start(partition: PartitionKey, offset: int) -> tuple[WalRow, bytes]:
    content = log_start_content("t", partition.partition, offset)
    return FileRow(*partition, LOG_START_OFFSET, len(content)), content


def manifest(partition: PartitionKey, end: int, seq: int = 0, start: int = 0) -> Manifest:
    return Manifest(*partition, "t", 0, seq, start, end, (), ())


def coverage(*puts: list[tuple[WalRow, bytes]]) -> Coverage:
    made = Coverage()
    for seq, put in enumerate(puts):
        made.put(seq, [row for row, _ in put], [data for _, data in put])
    return made


def test_without_rows_nothing_is_needed() -> None:
    assert Coverage().first_needed(7) == 7


def test_records_are_covered_up_to_the_end_of_the_manifest() -> None:
    made = coverage([records(A, 5)], [records(A, 8)])
    assert made.first_needed(2) == 0
    made.counts(manifest(A, 7))
    assert made.first_needed(2) == 1
    assert made.wanting() == {A}
    made.counts(manifest(A, 8))
    assert made.first_needed(2) == 2
    assert (made.wanting(), made.size_bytes) == (set(), 0)


def test_nothing_behind_a_needed_object_may_be_deleted() -> None:
    made = coverage([records(B, 5)], [records(A, 8)])
    made.counts(manifest(A, 8))
    assert made.first_needed(2) == 0
    made.counts(manifest(B, 5))
    assert made.first_needed(2) == 2


def test_entries_of_a_partition_that_can_not_be_uploaded_are_bounded() -> None:
    made = coverage(*([records(A, end)] for end in range(1, 3 * MOST_ROWS)), [records(B, 1)])
    assert len(made._rows[A]) <= MOST_ROWS
    end = 2 * MOST_ROWS
    made.counts(manifest(A, end))
    needed = made.first_needed(4 * MOST_ROWS)
    assert end // 2 < needed <= end
    made.counts(manifest(A, 4 * MOST_ROWS))
    assert (made.first_needed(4 * MOST_ROWS), made.size_bytes) == (3 * MOST_ROWS - 1, 3)


@pytest.mark.parametrize(("seq", "needed"), [(0, 0), (1, 1)])
def test_a_side_file_is_covered_by_files_that_were_read_after_its_object(seq: int, needed: int) -> None:
    made = coverage([side_file(A)])
    made.counts(manifest(A, 0, seq))
    assert made.first_needed(1) == needed


def test_a_log_start_offset_is_covered_by_its_value_alone() -> None:
    made = coverage([log_start(A, 4)])
    made.counts(manifest(A, 9, seq=1, start=3))
    assert made.first_needed(1) == 0
    made.counts(manifest(A, 9, seq=0, start=4))
    assert made.first_needed(1) == 1


def test_a_deleted_partition_needs_nothing() -> None:
    made = coverage([records(A, 5), records(B, 5)])
    made.counts(manifest(B, 5))
    made.forget([A])
    assert made.first_needed(1) == 1
    assert not made.wanting()


def test_earlier_sessions_are_needed_until_each_partition_has_a_manifest_of_this_one() -> None:
    made = coverage()
    made.begin([A, B])
    assert made.wanting() == {A, B}
    made.counts(manifest(A, 0))
    assert made.wanting() == {B}
    made.has_nothing(B)
    assert made.wanting() == set()


def test_the_age_of_the_oldest_row_that_is_not_covered() -> None:
    now_s = 5.0
    made = Coverage(lambda: now_s)
    assert made.oldest_s is None
    for partition in (A, B, A):
        row, data = records(partition, int(now_s))
        made.put(int(now_s), [row], [data])
        now_s += 1
    assert made.oldest_s == 5
    made.counts(manifest(A, 5))
    assert made.oldest_s == 6, "partition B has waited longest"
    made.counts(manifest(B, 6))
    assert made.oldest_s == 7
    made.counts(manifest(A, 7))
    assert made.oldest_s is None


def test_the_newest_log_start_of_a_partition_in_an_object() -> None:
    made = coverage([log_start(A, 5), log_start(B, 2)], [log_start(A, 3)])
    assert [made.log_start_of(key) for key in (A, B)] == [5, 2]
    made.counts(manifest(A, 9, seq=2, start=5))
    assert made.log_start_of(A) == 0
