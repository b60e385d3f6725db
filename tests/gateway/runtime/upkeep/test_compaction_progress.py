"""The end offsets of cleanings survive restarts, and vanish with their topic."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seqgate.gateway.runtime.partitions.registry import Partitions
from seqgate.gateway.runtime.upkeep.compaction import CompactionCounts, CompactionProgress
from seqgate.log import Storage
from seqgate.log.compaction import CleaningFinished
from seqgate.log.directory.stored_logs import StoredLog
from seqgate.log.files.checkpoints import CLEANER_OFFSETS

ONE, TWO = uuid.UUID(int=1), uuid.UUID(int=2)


def partition(topic_id: uuid.UUID = ONE, index: int = 0) -> Any:
    return SimpleNamespace(topic="t", index=index, topic_id=topic_id)


def loaded(
    root: Path, topic_id: uuid.UUID = ONE, stored: Sequence[uuid.UUID | None] = (ONE, ONE)
) -> CompactionProgress:
    partitions = Partitions()
    partitions.register("t", topic_id, 2, lambda _, __: None)
    rows = {("t", index): StoredLog(known, None, 0) for index, known in enumerate(stored)}
    directory: Any = SimpleNamespace(files=str(root), logs=lambda: iter(()), stored=lambda: rows)
    progress = CompactionProgress(Storage(), directory, partitions)
    progress.load()
    return progress


def test_it_survives_a_restart_in_kafkas_format(tmp_path: Path) -> None:
    progress = loaded(tmp_path)
    progress.of(partition()).clean_end_offset = 77
    progress.of(partition(index=1)).failures = 2
    progress.save()
    assert (tmp_path / CLEANER_OFFSETS).read_text() == "0\n1\nt 0 77\n"
    again = loaded(tmp_path)
    assert again.clean_end_offset(("t", 0)) == 77
    assert again.clean_end_offset(("t", 1)) is None
    assert again.of(partition()).clean_end_offset == 77


def test_a_deleted_topic_does_not_affect_another_of_its_name(tmp_path: Path) -> None:
    progress = loaded(tmp_path)
    progress.of(partition()).clean_end_offset = 77
    progress.save()
    assert progress.of(partition(TWO)).clean_end_offset is None
    progress.of(partition(TWO)).clean_end_offset = 5
    progress.forget([ONE])
    assert progress.clean_end_offset(("t", 0)) == 5
    progress.forget([TWO])
    assert (tmp_path / CLEANER_OFFSETS).read_text() == "0\n0\n"


def test_partitions_that_are_left_alone_are_counted_as_long_as_they_exist(tmp_path: Path) -> None:
    progress = loaded(tmp_path)
    for index in (0, 1, 1):
        progress.mark_uncleanable(partition(index=index))
    assert progress.uncleanable == 2
    assert not progress.of(partition(TWO)).uncleanable
    assert progress.uncleanable == 1
    progress.forget([ONE, TWO])
    assert progress.uncleanable == 0


@pytest.mark.parametrize("content", ["", "0\n2\nt 0 7\n", "0\n1\nt 0 7", "0\n1\nt 0 x\n"])
def test_a_damaged_file_means_that_nothing_was_cleaned(tmp_path: Path, content: str) -> None:
    (tmp_path / CLEANER_OFFSETS).write_text(content)
    assert loaded(tmp_path).clean_end_offset(("t", 0)) is None


def test_missing_partitions_are_left_out(tmp_path: Path) -> None:
    (tmp_path / CLEANER_OFFSETS).write_text("0\n2\nt 9 7\nu 0 8\n")
    loaded(tmp_path)
    assert (tmp_path / CLEANER_OFFSETS).read_text() == "0\n0\n"


def test_a_topic_that_was_created_again_meanwhile_was_not_cleaned(tmp_path: Path) -> None:
    (tmp_path / CLEANER_OFFSETS).write_text("0\n1\nt 0 7\n")
    assert loaded(tmp_path, stored=(None,)).clean_end_offset(("t", 0)) == 7, "an end that was not clean"
    assert loaded(tmp_path, stored=(TWO,)).clean_end_offset(("t", 0)) is None
    assert loaded(tmp_path, stored=()).clean_end_offset(("t", 0)) is None


def test_a_topic_that_is_created_again_after_a_start_without_it_was_not_cleaned(tmp_path: Path) -> None:
    (tmp_path / CLEANER_OFFSETS).write_text("0\n1\nt 0 7\n")
    loaded(tmp_path, stored=())
    assert loaded(tmp_path, TWO, stored=(TWO,)).clean_end_offset(("t", 0)) is None


async def test_a_log_that_goes_to_another_gateway_comes_back_dirty_also_after_a_restart(
    tmp_path: Path,
) -> None:
    progress = loaded(tmp_path)
    for index in range(2):
        progress.of(partition(index=index)).clean_end_offset = 77
    progress.save()
    progress.closed(partition(TWO))
    assert progress.clean_end_offset(("t", 0)) == 77
    progress.closed(partition())
    assert progress.clean_end_offset(("t", 0)) is None
    progress.closed(partition(index=1))
    await asyncio.sleep(0)
    again = loaded(tmp_path)
    assert [again.clean_end_offset(("t", index)) for index in range(2)] == [None, None]


def test_cleanings_add_up() -> None:
    counts = CompactionCounts()
    for records_kept, took_s in ((3, 0.5), (4, 1.5)):
        finished = CleaningFinished(
            clean_end_offset=9,
            keys=2,
            records_read=10,
            records_kept=records_kept,
            bytes_read=0,
            bytes_kept=0,
            keyless_records=0,
        )
        counts.add(finished, took_s)
    assert counts == CompactionCounts(cleanings=2, records_read=20, records_kept=7, took_s=2.0)
