from __future__ import annotations

from collections.abc import Callable, Iterator

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from seqgate.log.retention import (
    NOT_HELD,
    DeletionReason,
    RetentionDecision,
    SegmentFacts,
    segments_to_delete,
)

DAY = 1000
SEGMENTS = [
    SegmentFacts(10 * number, 10 * number + 10, 100, DAY * number, is_active=number == 4)
    for number in range(5)
]


def decide(
    segments: list[SegmentFacts] | None = None,
    *,
    now_ms: int = 4 * DAY,
    retention_ms: int = -1,
    retention_bytes: int = -1,
    log_start_offset: int = 0,
    high_watermark: int = 50,
    held_from: int = NOT_HELD,
) -> RetentionDecision:
    segments = SEGMENTS if segments is None else segments
    return segments_to_delete(
        segments,
        size_bytes=sum(segment.size_bytes for segment in segments),
        now_ms=now_ms,
        retention_ms=retention_ms,
        retention_bytes=retention_bytes,
        log_start_offset=log_start_offset,
        high_watermark=high_watermark,
        held_from=held_from,
    )


def deleted(segments: list[SegmentFacts] | None = None, **limits: int) -> list[int]:
    return [segment.base_offset for segment, _ in decide(segments, **limits).doomed]


def test_for_ever() -> None:
    assert deleted(now_ms=10**12) == []


class TestByTime:
    def test_older_than(self) -> None:
        assert deleted(retention_ms=2 * DAY) == [0, 10]
        assert deleted(retention_ms=2 * DAY - 1) == [0, 10, 20]

    def test_the_active_one_too(self) -> None:
        assert deleted(now_ms=99 * DAY, retention_ms=DAY) == [0, 10, 20, 30, 40]

    def test_not_the_active_one_when_it_is_empty(self) -> None:
        segments = [
            *SEGMENTS[:4],
            replace(SEGMENTS[4], is_active=False),
            SegmentFacts(50, 50, 0, -1, is_active=True),
        ]
        assert deleted(segments, now_ms=99 * DAY, retention_ms=DAY) == [0, 10, 20, 30, 40]

    def test_a_younger_segment_in_front_protects_the_rest(self) -> None:
        segments = [replace(SEGMENTS[0], largest_timestamp=99 * DAY), *SEGMENTS[1:]]
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


class TestReasons:
    def test_in_the_order_in_which_kafka_looks(self) -> None:
        decision = decide(log_start_offset=10, retention_bytes=300, retention_ms=DAY)

        assert [reason for _, reason in decision.doomed] == [
            DeletionReason.LOG_START_OFFSET,
            DeletionReason.RETENTION_BYTES,
            DeletionReason.RETENTION_MS,
        ]
        assert decision.kept_because == ""

    def test_what_was_freed_counts_for_the_size(self) -> None:
        assert deleted(log_start_offset=20, retention_bytes=300) == [0, 10]

    def test_kept_by_the_high_watermark(self) -> None:
        decision = decide(now_ms=99 * DAY, retention_ms=DAY, high_watermark=29)

        assert decision.kept_because == "it reaches beyond the high watermark"

    def test_kept_by_a_date_in_the_future(self) -> None:
        decision = decide(now_ms=-7, retention_ms=0)

        assert decision.doomed == []
        assert decision.kept_because == "its newest record has timestamp 0, in the future"


class TestHeldRecords:
    def test_stay_whatever_their_age_and_number(self) -> None:
        assert deleted(now_ms=99 * DAY, retention_ms=DAY, held_from=29) == [0, 10]
        assert deleted(now_ms=99 * DAY, retention_ms=DAY, held_from=30) == [0, 10, 20]
        assert deleted(retention_bytes=0, held_from=29) == [0, 10]
        assert deleted(retention_bytes=0, held_from=50) == [0, 10, 20, 30, 40]

    def test_say_so(self) -> None:
        assert (
            decide(retention_bytes=0, held_from=0).kept_because
            == "delayed records from offset 0 on must be kept"
        )

    def test_go_where_the_log_start_offset_was_moved_past_them(self) -> None:
        assert deleted(log_start_offset=30, held_from=0) == [0, 10, 20]


def test_an_empty_segment_inside_goes_by_size_and_by_when_its_file_was_written() -> None:
    segments = [SegmentFacts(0, 10, 0, 2 * DAY), *SEGMENTS[1:]]

    assert deleted(segments, retention_bytes=400) == [0]
    assert deleted(segments, retention_bytes=401) == []
    assert deleted(segments, now_ms=4 * DAY, retention_ms=DAY) == [0, 10, 20]
    assert deleted(segments, now_ms=3 * DAY, retention_ms=DAY) == []


def test_no_more_segments_are_looked_at_than_needed() -> None:
    def facts() -> Iterator[SegmentFacts]:
        yield from SEGMENTS[:2]
        raise AssertionError("retention has read the timestamp from the disk")

    decision = segments_to_delete(
        facts(),
        size_bytes=500,
        now_ms=2 * DAY,
        retention_ms=DAY,
        retention_bytes=-1,
        log_start_offset=0,
        high_watermark=50,
    )
    assert [segment.base_offset for segment, _ in decision.doomed] == [0]


class ThreePasses:
    """The retention rules as Kafka applies them: one pass per rule over the segments that the last pass kept."""

    def __init__(self, segments: list[SegmentFacts], high_watermark: int) -> None:
        self.segments = segments
        self.high_watermark = high_watermark

    def take(self, is_deletable: Callable[[SegmentFacts], bool]) -> None:
        while self.segments:
            first = self.segments[0]
            is_empty_end = first.is_active and not first.size_bytes
            if first.end_offset > self.high_watermark or not is_deletable(first) or is_empty_end:
                return
            self.segments = self.segments[1:]

    def by_size(self, retention_bytes: int) -> None:
        excess_bytes = sum(segment.size_bytes for segment in self.segments) - retention_bytes
        if retention_bytes < 0 or excess_bytes < 0:
            return

        def fits_into_excess(segment: SegmentFacts) -> bool:
            nonlocal excess_bytes
            if excess_bytes < segment.size_bytes:
                return False
            excess_bytes -= segment.size_bytes
            return True

        self.take(fits_into_excess)


@st.composite
def logs(draw: st.DrawFn) -> list[SegmentFacts]:
    parts = draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 9)), min_size=1))
    facts, offset = [], 0
    for number, (count, size_bytes, timestamp) in enumerate(parts):
        is_active = number == len(parts) - 1
        end_offset = offset + count + (not is_active)
        facts.append(SegmentFacts(offset, end_offset, size_bytes, timestamp, is_active))
        offset = end_offset
    return facts


@given(
    logs(),
    st.fixed_dictionaries(
        {
            "now_ms": st.integers(0, 12),
            "retention_ms": st.integers(-1, 6),
            "retention_bytes": st.integers(-1, 12),
            "log_start_offset": st.integers(0, 12),
            "high_watermark": st.integers(0, 24),
        }
    ),
)
@settings(max_examples=300)
def test_one_pass_finds_what_three_find(segments: list[SegmentFacts], limits: dict[str, int]) -> None:
    passes = ThreePasses(segments, limits["high_watermark"])
    passes.take(lambda first: not first.is_active and first.end_offset <= limits["log_start_offset"])
    passes.by_size(limits["retention_bytes"])
    if limits["retention_ms"] >= 0:
        passes.take(lambda first: limits["now_ms"] - first.largest_timestamp > limits["retention_ms"])
    kept = [segment.base_offset for segment in passes.segments]
    assert deleted(segments, **limits) + kept == [segment.base_offset for segment in segments]
