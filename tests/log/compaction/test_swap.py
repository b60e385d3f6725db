"""What a start does with a cleaned segment that had not taken its place yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from log.environment import LogEnvironment
from log.names import LOG_SUFFIX, SWAP_SUFFIX, offset_name
from tests.log.support import SMALL, batch, fill, flush, offsets_read, open_log

BATCHES = 12


def stopped(tmp_path: Path) -> list[Path]:
    """The log files of a stopped log."""
    log = open_log(tmp_path / "log")
    fill(log, BATCHES)
    flush(log)
    log.close(clean=False)
    return sorted((tmp_path / "log").glob(f"*{LOG_SUFFIX}"))


def found(tmp_path: Path) -> list[int]:
    log = open_log(tmp_path / "log", SMALL, environment=LogEnvironment())
    log.advance_high_watermark(log.log_end_offset)
    offsets = offsets_read(log, log.log_start_offset)
    log.close(clean=False)
    return offsets


def swap_of(segments: list[Path]) -> Path:
    """The segments as one, that waits to take their place."""
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
