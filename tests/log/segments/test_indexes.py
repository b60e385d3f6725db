from __future__ import annotations

from seqgate.log.segments.indexes import IndexCache, SegmentIndexes


def filled() -> SegmentIndexes:
    indexes = SegmentIndexes()
    for number in range(1, 11):
        indexes.add_offset(number * 10, number * 1000)
        indexes.add_time(number * 100, number * 10)
    return indexes


class TestLookups:
    def test_position_at_or_before(self) -> None:
        indexes = filled()
        found = [indexes.entry_for(offset) for offset in (0, 9, 10, 19, 20, 100, 999)]
        assert found == [None, None, (10, 1000), (10, 1000), (20, 2000), (100, 10000), (100, 10000)]

    def test_entries_around_a_position(self) -> None:
        indexes = filled()
        assert [indexes.entry_after(position) for position in (0, 1000, 1001, 10_000, 10_001)] == [
            (10, 1000),
            (10, 1000),
            (20, 2000),
            (100, 10_000),
            None,
        ]
        assert [indexes.entry_before(position) for position in (999, 1000, 1001, 99_999)] == [
            None,
            (10, 1000),
            (10, 1000),
            (100, 10_000),
        ]

    def test_offset_for_time(self) -> None:
        indexes = filled()
        assert [indexes.time_entry_for(time)[1] for time in (-1, 99, 100, 150, 1000, 9999)] == [
            0,
            0,
            10,
            10,
            100,
            100,
        ]

    def test_empty(self) -> None:
        assert SegmentIndexes().entry_for(5) is None
        assert SegmentIndexes().time_entry_for(5) == (-1, 0)
        assert SegmentIndexes().last_time() is None

    def test_time_that_is_not_later_is_dropped(self) -> None:
        indexes = filled()
        indexes.add_time(1000, 120)
        assert indexes.last_time() == (1000, 100)

    def test_no_timestamp_is_no_entry(self) -> None:
        indexes = SegmentIndexes()
        indexes.add_time(-1, 3)
        assert indexes.last_time() is None


def test_kafkas_bytes() -> None:
    indexes = SegmentIndexes()
    indexes.add_offset(1, 2)
    indexes.add_time(3, 4)
    assert indexes.offset_entries == bytes.fromhex("0000000100000002")
    assert indexes.time_entries == bytes.fromhex("000000000000000300000004")


def test_full_keeps_room_for_the_last_time_entry() -> None:
    indexes = filled()
    assert indexes.needed_bytes == 144
    assert SegmentIndexes(bytes(80)).needed_bytes == 88


class TestSanity:
    def test_good(self) -> None:
        assert filled().is_sane(10_001)
        assert SegmentIndexes().is_sane(0)

    def test_points_beyond_the_segment(self) -> None:
        assert not filled().is_sane(10_000)

    def test_torn(self) -> None:
        assert not SegmentIndexes(bytes(filled().offset_entries[:-1])).is_sane(99_999)
        assert not SegmentIndexes(b"", bytes(filled().time_entries[:-5])).is_sane(99_999)

    def test_zeros(self) -> None:
        assert not SegmentIndexes(bytes(16)).is_sane(99_999)
        assert not SegmentIndexes(b"", bytes(24)).is_sane(99_999)


class TestCache:
    def test_least_recently_used_goes(self) -> None:
        cache = IndexCache(limit_bytes=2 * filled().size_bytes)
        cache.put("a", filled())
        cache.put("b", filled())
        assert cache.get("a") is not None
        cache.put("c", filled())
        assert cache.get("b") is None
        assert cache.get("a") is not None
        assert cache.size_bytes == 2 * filled().size_bytes

    def test_one_too_large_still_serves(self) -> None:
        cache = IndexCache(limit_bytes=1)
        cache.put("a", filled())
        assert cache.get("a") is not None

    def test_drop_gives_the_room_back(self) -> None:
        cache = IndexCache()
        cache.put("a", filled())
        cache.put("a", filled())
        cache.drop("a")
        cache.drop("a")
        assert cache.size_bytes == 0
