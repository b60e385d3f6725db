"""Starts that find a cleaned segment which has not replaced its sources yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqgate.log.environment import LogEnvironment
from seqgate.log.files.file_names import (
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    offset_name,
)
from tests.log.support import SMALL, batch, fill, flush, offsets_read, open_log

BATCHES = 12


def stopped(tmp_path: Path) -> list[Path]:
    """Return the log files of a stopped log."""
    log = open_log(tmp_path / "log")
    fill(log, BATCHES)
    flush(log)
    log.close(clean=False)
    return sorted((tmp_path / "log").glob(f"*{LOG_SUFFIX}"))


def found(tmp_path: Path, recovery_point: int = 0) -> list[int]:
    log = open_log(tmp_path / "log", SMALL, environment=LogEnvironment(), recovery_point=recovery_point)
    log.advance_high_watermark(log.log_end_offset)
    offsets = offsets_read(log, log.log_start_offset)
    log.close(clean=False)
    return offsets


def swap_of(segments: list[Path]) -> Path:
    """Write a swap file: the merged segments, with which a start replaces these segments."""
    path = segments[0].with_name(segments[0].name + SWAP_SUFFIX)
    path.write_bytes(b"".join(segment.read_bytes() for segment in segments))
    return path


@pytest.mark.parametrize("position", [0, 8, 16, 23, 26, 60, len(batch()) + 3, -1])
def test_a_damaged_one_does_not_take_the_place_of_what_is_there(tmp_path: Path, position: int) -> None:
    swap = swap_of(stopped(tmp_path)[:2])
    content = bytearray(swap.read_bytes())
    content[position] ^= 0x10
    swap.write_bytes(content)
    assert found(tmp_path) == list(range(BATCHES))
    assert not swap.exists()


@pytest.mark.parametrize("size_bytes", [30, 61, len(batch()) + 1])
def test_neither_does_one_that_is_cut(tmp_path: Path, size_bytes: int) -> None:
    swap = swap_of(stopped(tmp_path)[:2])
    swap.write_bytes(swap.read_bytes()[:size_bytes])
    assert found(tmp_path) == list(range(BATCHES))


def test_one_without_content_does_not_either(tmp_path: Path) -> None:
    segments = stopped(tmp_path)
    segments[0].with_name(segments[0].name + SWAP_SUFFIX).write_bytes(b"")
    assert found(tmp_path) == list(range(BATCHES))


def with_indexes(swap: Path, log: Path, end: str) -> None:
    """Give the swap file copies of the log's indexes, with the given suffix."""
    for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        index = log.with_suffix(suffix)
        swap.with_name(index.name + end).write_bytes(index.read_bytes())


@pytest.mark.parametrize("end", [SWAP_SUFFIX, ".0a" + CLEANED_SUFFIX])
@pytest.mark.parametrize("batches", [0, 1, 2])
def test_one_that_was_cut_between_batches_is_told_by_its_indexes(
    tmp_path: Path, batches: int, end: str
) -> None:
    segments = stopped(tmp_path)
    swap = swap_of(segments[:1])
    with_indexes(swap, segments[0], end)
    swap.write_bytes(swap.read_bytes()[: batches * len(batch())])
    assert found(tmp_path) == list(range(BATCHES))
    assert not list((tmp_path / "log").glob(f"*{end}"))


@pytest.mark.parametrize("suffix", [OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX])
@pytest.mark.parametrize("content", [b"\0", b"\xff" * 24, b"\x7f" * 24])
def test_damaged_indexes_of_one_take_nothing_away(tmp_path: Path, suffix: str, content: bytes) -> None:
    segments = stopped(tmp_path)
    swap = swap_of(segments[:2])
    with_indexes(swap, segments[0], SWAP_SUFFIX)
    swap.with_name(offset_name(0, suffix) + SWAP_SUFFIX).write_bytes(content)
    assert found(tmp_path) == list(range(BATCHES))


def test_a_last_batch_with_another_offset_does_not_take_later_segments_away(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log")
    fill(log, BATCHES, step_ms=1)
    flush(log)
    log.close(clean=False)
    segments = sorted((tmp_path / "log").glob(f"*{LOG_SUFFIX}"))
    swap = swap_of(segments[:1])
    with_indexes(swap, segments[0], SWAP_SUFFIX)
    content = bytearray(swap.read_bytes())
    content[-len(batch()) + 6] ^= 1
    swap.write_bytes(content)
    assert found(tmp_path) == list(range(BATCHES))


@pytest.mark.parametrize("end", [SWAP_SUFFIX, ".0a" + CLEANED_SUFFIX])
def test_one_of_which_nothing_was_to_stay_takes_its_place(tmp_path: Path, end: str) -> None:
    segments = stopped(tmp_path)
    swap = segments[0].with_name(segments[0].name + SWAP_SUFFIX)
    swap.write_bytes(b"")
    swap.with_name(offset_name(0, TIME_INDEX_SUFFIX) + end).write_bytes(b"")
    second = int(segments[1].stem)
    assert found(tmp_path, recovery_point=BATCHES) == list(range(second, BATCHES))
    assert segments[0].stat().st_size == 0


def test_a_damaged_one_ends_where_a_segment_is_still_there(tmp_path: Path) -> None:
    segments = stopped(tmp_path)
    second = int(segments[1].stem)
    swap = swap_of(segments[:2])
    swap.write_bytes(swap.read_bytes()[: (second + 1) * len(batch()) + 5])
    segments[0].unlink()
    assert found(tmp_path) == list(range(BATCHES))
    assert segments[0].stat().st_size == second * len(batch())


def test_a_sound_one_does(tmp_path: Path) -> None:
    segments = stopped(tmp_path)
    swap = swap_of(segments[:2])
    assert found(tmp_path) == list(range(BATCHES))
    assert not swap.exists()
    assert not segments[1].exists()


def test_of_a_damaged_one_without_its_sources_the_front_is_kept(tmp_path: Path) -> None:
    segments = stopped(tmp_path)
    swap = swap_of(segments[:2])
    swap.write_bytes(swap.read_bytes()[: 3 * len(batch()) + 5])
    for segment in segments:
        segment.unlink()
    assert found(tmp_path) == [0, 1, 2]
    assert (tmp_path / "log" / offset_name(0, LOG_SUFFIX)).exists()
