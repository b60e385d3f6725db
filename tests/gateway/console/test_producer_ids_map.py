"""The map of the producer-id blocks."""

from __future__ import annotations

from seqgate.gateway.admin.pids import BlockRow
from seqgate.gateway.console.pages.producer_ids import (
    LARGEST_ID,
    WIDTH,
    Window,
    drawn,
    gaps,
    owner_numbers,
    whole,
    within,
)


def block(first: int, last: int, owner: str = "node-1", used: int | None = None) -> BlockRow:
    return BlockRow(first, last, owner, 0, used, None if used is None else last - first + 1 - used, "in use")


def test_blocks_lie_to_scale_and_gaps_stay_empty() -> None:
    blocks = [block(0, 99), block(200, 399, "node-2", used=50)]
    assert gaps(blocks) == [(100, 199)]
    found = drawn(blocks, whole(blocks, 400), owner_numbers(blocks))
    first, second = found.pieces
    assert (first.x, first.width, first.used_width) == (0, 250, 250)
    assert (second.x, second.width, second.used_width) == (500, 500, 125)
    assert (found.lanes, found.merged) == (1, 0)
    assert first.owner != second.owner


def test_overlapping_blocks_lie_in_lanes() -> None:
    blocks = [block(0, 99), block(50, 149, "b"), block(60, 70, "c"), block(150, 199)]
    found = drawn(blocks, whole(blocks, 200), owner_numbers(blocks), [(50, 99)])
    assert [piece.lane for piece in found.pieces] == [0, 1, 2, 0]
    assert found.lanes == 3
    (mark,) = found.overlaps
    assert (mark.x, mark.width) == (250, 250)
    assert gaps(blocks) == []


def test_more_overlaps_than_lanes_share_the_last_lane() -> None:
    blocks = [block(0, 99, str(number)) for number in range(9)]
    found = drawn(blocks, whole(blocks, 100), owner_numbers(blocks))
    assert found.lanes == 4
    assert {piece.owner for piece in found.pieces} == {0, 1, 2, 3, 4, 5, 6}


def test_thousands_of_blocks_make_a_map_of_bounded_size() -> None:
    blocks = [block(number * 10, number * 10 + 9, f"node-{number % 3}") for number in range(20_000)]
    found = drawn(blocks, whole(blocks, 200_000), owner_numbers(blocks))
    assert len(found.pieces) <= 2 * WIDTH
    assert found.merged + len(found.pieces) == len(blocks)
    near = Window(50_000, 50_499)
    assert len(within(blocks, near)) == 50
    assert drawn(blocks, near, owner_numbers(blocks)).merged == 0


def test_windows_stay_between_zero_and_the_largest_id() -> None:
    assert Window(0, 99).moved(-0.5).first == 0
    assert Window(0, 99).zoomed(4) == Window(0, 249)
    assert Window(LARGEST_ID - 10, LARGEST_ID).zoomed(100).last == LARGEST_ID
    assert whole([], 5) == Window(0, 999)
