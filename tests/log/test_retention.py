from __future__ import annotations

from log.retention import SegmentFacts, segments_to_delete

DAY = 1000
SEGMENTS = [SegmentFacts(10 * number, 10 * number + 10, 100, DAY * number) for number in range(5)]


def deleted(
    segments: list[SegmentFacts] | None = None,
    *,
    now_ms: int = 4 * DAY,
    retention_ms: int = -1,
    retention_bytes: int = -1,
    log_start_offset: int = 0,
    high_watermark: int = 50,
) -> list[int]:
    found = segments_to_delete(
        SEGMENTS if segments is None else segments,
        now_ms=now_ms,
        retention_ms=retention_ms,
        retention_bytes=retention_bytes,
        log_start_offset=log_start_offset,
        high_watermark=high_watermark,
    )
    return [segment.base_offset for segment, _ in found]


def test_for_ever() -> None:
    assert deleted(now_ms=10**12) == []


class TestByTime:
    def test_older_than(self) -> None:
        assert deleted(retention_ms=2 * DAY) == [0, 10]
        assert deleted(retention_ms=2 * DAY - 1) == [0, 10, 20]

    def test_the_active_one_too(self) -> None:
        assert deleted(now_ms=99 * DAY, retention_ms=DAY) == [0, 10, 20, 30, 40]

    def test_not_the_active_one_when_it_is_empty(self) -> None:
        segments = [*SEGMENTS, SegmentFacts(50, 50, 0, -1)]
        assert deleted(segments, now_ms=99 * DAY, retention_ms=DAY) == [0, 10, 20, 30, 40]

    def test_a_younger_segment_in_front_protects_the_rest(self) -> None:
        segments = [SEGMENTS[0]._replace(largest_timestamp=99 * DAY), *SEGMENTS[1:]]
        assert deleted(segments, now_ms=50 * DAY, retention_ms=DAY) == []

    def test_only_below_the_high_watermark(self) -> None:
        assert deleted(now_ms=99 * DAY, retention_ms=DAY, high_watermark=29) == [0, 10]
        assert deleted(now_ms=99 * DAY, retention_ms=DAY, high_watermark=30) == [0, 10, 20]


class TestBySize:
    def test_whole_segments_beyond_the_limit(self) -> None:
        assert deleted(retention_bytes=500) == []
        assert deleted(retention_bytes=401) == []
        assert deleted(retention_bytes=400) == [0]
        assert deleted(retention_bytes=250) == [0, 10]

    def test_zero_keeps_nothing(self) -> None:
        assert deleted(retention_bytes=0) == [0, 10, 20, 30, 40]


class TestByLogStart:
    def test_whole_segments_below(self) -> None:
        assert deleted(log_start_offset=29) == [0, 10]
        assert deleted(log_start_offset=30) == [0, 10, 20]

    def test_the_active_one_stays(self) -> None:
        assert deleted(log_start_offset=50) == [0, 10, 20, 30]
