"""A reader of a log finds the batch where an earlier read or the newest flush ended without searching for it."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest

from seqgate.log import LogConfig, PartitionLog
from seqgate.log.segments.segment import Segment
from tests.log.support import NOW_MS, batch, flush, open_log, persist

SIZE_BYTES = len(batch())
MANY_FLUSHES = 40


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    return open_log(tmp_path / "log", LogConfig())


def forbid_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    def search(_: Segment, offset: int, end: int) -> NoReturn:
        pytest.fail(f"offset {offset} is searched for before position {end}")

    monkeypatch.setattr(Segment, "position_of", search)


def test_a_read_ends_where_the_flush_ended_while_records_follow(
    log: PartitionLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.append(batch(), now_ms=NOW_MS)
    ticket = log.prepare_flush()
    assert ticket is not None
    log.append(batch(), now_ms=NOW_MS)
    persist(ticket)
    log.complete_flush(ticket)
    log.advance_high_watermark(log.recovery_point)
    forbid_searches(monkeypatch)
    region = log.find(0, 10 * SIZE_BYTES, upper_bound=log.high_watermark)
    assert region is not None
    assert (len(region), region.end_position) == (SIZE_BYTES, SIZE_BYTES)


def test_a_read_begins_at_the_high_watermark_of_a_flush(
    log: PartitionLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.append(batch(), now_ms=NOW_MS)
    flush(log)
    log.append(batch(), now_ms=NOW_MS)
    forbid_searches(monkeypatch)
    region = log.find(1, 10 * SIZE_BYTES, upper_bound=2)
    assert region is not None
    assert (len(region), region.end_position) == (SIZE_BYTES, 2 * SIZE_BYTES)


def test_many_flushes_do_not_push_out_where_a_reader_ended(
    log: PartitionLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        log.append(batch(), now_ms=NOW_MS)
        flush(log)
    assert log.find(0, 10 * SIZE_BYTES, upper_bound=2) is not None
    for _ in range(MANY_FLUSHES):
        log.append(batch(), now_ms=NOW_MS)
        flush(log)
    forbid_searches(monkeypatch)
    region = log.find(2, 10 * SIZE_BYTES, upper_bound=log.high_watermark)
    assert region is not None
    assert region.end_position - len(region) == 2 * SIZE_BYTES
