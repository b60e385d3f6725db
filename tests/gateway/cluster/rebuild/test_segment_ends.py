from __future__ import annotations

import uuid

from hypothesis import given
from hypothesis import strategies as st

from seqgate.gateway.cluster.parts.manifest import Manifest, PartRef, SegmentRef
from seqgate.gateway.cluster.rebuild.history import SegmentEnds, SegmentPlace
from seqgate.gateway.cluster.wal.wal_object import DataRow

TOPIC = uuid.UUID(int=5)
RECORD_BYTES = 100


def row(first: int, end: int, base: int, position: int) -> DataRow:
    return DataRow(TOPIC, 0, 0, first, end, base, position, (end - first) * RECORD_BYTES)


def manifest(end_offset: int, *segments: tuple[int, int]) -> Manifest:
    """Return a manifest with segments of these base offsets and sizes."""
    refs = tuple(
        SegmentRef(base, (PartRef(f"part-{base}", 0, size, end_offset, 0),) if size else ())
        for base, size in segments
    )
    return Manifest(TOPIC, 0, "flights", 1, 1, 0, end_offset, refs, ())


def begun(end_offset: int, *segments: tuple[int, int]) -> SegmentEnds:
    ends = SegmentEnds()
    ends.begin(manifest(end_offset, *segments))
    return ends


class TestSameSegments:
    def test_rows_continue_each_other(self) -> None:
        ends = SegmentEnds()
        assert ends.place_unless_records_are_missing(row(0, 3, 0, 0)) == SegmentPlace(0, 0)
        assert ends.place_unless_records_are_missing(row(3, 5, 0, 300)) == SegmentPlace(0, 300)
        assert ends.place_unless_records_are_missing(row(5, 6, 5, 0)) == SegmentPlace(5, 0)
        assert ends.place_unless_records_are_missing(row(6, 7, 5, 100)) == SegmentPlace(5, 100)

    def test_rows_continue_a_manifest(self) -> None:
        ends = begun(5, (0, 300), (3, 200))
        assert ends.place_unless_records_are_missing(row(5, 6, 3, 200)) == SegmentPlace(3, 200)

    def test_a_row_again_takes_its_own_place(self) -> None:
        ends = begun(3, (0, 300))
        assert ends.place_unless_records_are_missing(row(3, 5, 0, 300)) == SegmentPlace(0, 300)
        assert ends.place_unless_records_are_missing(row(3, 5, 0, 300)) == SegmentPlace(0, 300)
        assert ends.place_unless_records_are_missing(row(5, 6, 0, 500)) == SegmentPlace(0, 500)


class TestMissing:
    def test_bytes_before_the_first_row(self) -> None:
        assert SegmentEnds().place_unless_records_are_missing(row(7, 8, 0, 500)) is None

    def test_bytes_behind_a_manifest(self) -> None:
        assert begun(3, (0, 300)).place_unless_records_are_missing(row(4, 5, 0, 400)) is None

    def test_a_row_of_an_earlier_segment_that_does_not_continue_the_records(self) -> None:
        assert begun(3, (0, 300), (3, 0)).place_unless_records_are_missing(row(4, 5, 0, 400)) is None

    def test_the_beginning_of_a_later_segment(self) -> None:
        assert begun(3, (0, 300)).place_unless_records_are_missing(row(4, 5, 3, 100)) is None

    def test_other_partitions_do_not_count(self) -> None:
        ends = begun(3, (0, 300))
        other = row(3, 4, 0, 300)._replace(partition=1)
        assert ends.place_unless_records_are_missing(other) is None


class TestOtherSegments:
    """An ended session has replaced the manifest with which the rows' session began."""

    def test_a_segment_that_was_rolled_gets_the_records(self) -> None:
        ends = begun(3, (0, 300), (3, 0))
        assert ends.place_unless_records_are_missing(row(3, 5, 0, 300)) == SegmentPlace(3, 0)
        assert ends.place_unless_records_are_missing(row(5, 6, 0, 500)) == SegmentPlace(3, 200)

    def test_a_segment_that_was_removed_is_not_made_again(self) -> None:
        ends = begun(3, (3, 0))
        assert ends.place_unless_records_are_missing(row(3, 5, 0, 300)) == SegmentPlace(3, 0)

    def test_a_segment_that_was_compacted_gets_the_records_at_its_end(self) -> None:
        ends = begun(3, (0, 100))
        assert ends.place_unless_records_are_missing(row(3, 5, 0, 300)) == SegmentPlace(0, 100)
        assert ends.place_unless_records_are_missing(row(5, 6, 0, 500)) == SegmentPlace(0, 300)

    def test_the_segments_of_the_rows_count_from_the_next_one_on(self) -> None:
        ends = begun(3, (0, 300), (3, 0))
        assert ends.place_unless_records_are_missing(row(3, 5, 0, 300)) == SegmentPlace(3, 0)
        assert ends.place_unless_records_are_missing(row(5, 7, 5, 0)) == SegmentPlace(5, 0)
        assert ends.place_unless_records_are_missing(row(7, 8, 5, 200)) == SegmentPlace(5, 200)

    def test_missing_records_are_missed_nevertheless(self) -> None:
        ends = begun(3, (0, 300), (3, 0))
        assert ends.place_unless_records_are_missing(row(3, 5, 0, 300)) == SegmentPlace(3, 0)
        assert ends.place_unless_records_are_missing(row(6, 7, 0, 600)) is None


@given(
    batches=st.lists(st.tuples(st.integers(1, 3), st.booleans()), min_size=1, max_size=20),
    known=st.integers(0, 20),
    rolls=st.lists(st.integers(0, 60), max_size=4),
    lost=st.none() | st.integers(0, 20),
)
def test_whatever_segments_the_manifest_has_each_record_follows_on_the_one_before(
    batches: list[tuple[int, bool]], known: int, rolls: list[int], lost: int | None
) -> None:
    """The rows come from one history of segments, the manifest from another that ends with one of the rows."""
    rows: list[DataRow] = []
    offset = base = position = 0
    for count, is_rolled in batches:
        if is_rolled:
            base, position = offset, 0
        rows.append(row(offset, offset + count, base, position))
        offset, position = offset + count, position + count * RECORD_BYTES
    known = min(known, len(rows) - 1)
    end_offset = rows[known].first_offset
    bases = sorted({0, *(roll for roll in rolls if roll <= end_offset)})
    ends_of = [*bases[1:], end_offset]
    ends = begun(
        end_offset, *((base, (end - base) * RECORD_BYTES) for base, end in zip(bases, ends_of, strict=True))
    )
    reached = end_offset
    last = SegmentPlace(bases[-1], (end_offset - bases[-1]) * RECORD_BYTES)
    for number, each in enumerate(rows[known:]):
        if number == lost and number < len(rows) - known - 1:
            continue
        place = ends.place_unless_records_are_missing(each)
        if each.first_offset > reached:
            # A lost row is noticed, unless the next one begins a segment, which a start notices by its
            # offsets.
            assert place is None or (place.position == 0 and place.segment_base == each.segment_base)
            return
        assert place is not None
        assert place == last or place == SegmentPlace(each.first_offset, 0)
        last = SegmentPlace(place.segment_base, place.position + each.length)
        reached = each.end_offset
