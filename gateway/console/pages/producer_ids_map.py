"""The map of the producer-id blocks: where each block lies between two ids, scaled to a width. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from gateway.admin.pids.messages import BlockRow

WIDTH: Final = 1_000
"""Width of the map in its own units."""
LANES: Final = 4
"""Lanes of the map; a block that overlaps others lies in a lane of its own, further ones in the last lane."""
OWNERS_SHOWN: Final = 6
"""Owners with a colour and pattern of their own; the others share one."""
LARGEST_ID: Final = (1 << 63) - 1


class Window(NamedTuple):
    """The ids that the map shows, both inclusive."""

    first: int
    last: int

    @property
    def size(self) -> int:
        """How many ids the map shows."""
        return self.last - self.first + 1

    def zoomed(self, factor: float) -> Window:
        """Return a window around the same middle that shows `factor` times as many ids."""
        middle, half = (self.first + self.last) // 2, max(int(self.size * factor) // 2, 5)
        return Window(max(0, middle - half), min(LARGEST_ID, middle + half))

    def moved(self, share: float) -> Window:
        """Return a window of the same size that lies a share of it further up."""
        by = max(int(self.size * abs(share)), 1) * (1 if share > 0 else -1)
        by = max(by, -self.first)
        return Window(self.first + by, min(LARGEST_ID, self.last + by))


class Piece(NamedTuple):
    """A rectangle of the map. `owner` is the number of a colour. `used_width` belongs to ids that are handed out."""

    x: float
    width: float
    lane: int
    owner: int
    used_width: float
    title: str


class Gap(NamedTuple):
    """Ids that no block holds, both inclusive."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class BlockMap:
    """The parts of the map. `merged` is the number of blocks that are too narrow to be drawn by themselves."""

    pieces: Sequence[Piece]
    overlaps: Sequence[Piece]
    lanes: int
    merged: int


def whole(blocks: Sequence[BlockRow], next_id: int) -> Window:
    """Return the window of all blocks; without blocks, that of the ids below the next block."""
    if not blocks:
        return Window(0, max(next_id, 999))
    first = min(block.first_producer_id for block in blocks)
    last = max(block.last_producer_id for block in blocks)
    return Window(first, max(last, first + 9))


def owner_numbers(blocks: Iterable[BlockRow]) -> dict[str, int]:
    """Return the number of each owner's colour: the owners of most blocks first, 0 for the owners that share one."""
    counts: dict[str, int] = {}
    for block in blocks:
        counts[block.owner] = counts.get(block.owner, 0) + 1
    by_count = sorted(counts, key=lambda owner: (-counts[owner], owner))
    return {owner: index + 1 if index < OWNERS_SHOWN else 0 for index, owner in enumerate(by_count)}


def gaps(blocks: Sequence[BlockRow]) -> list[Gap]:
    """Return the ids between blocks that no block holds; `blocks` are in the order of their first ids."""
    found: list[Gap] = []
    reached: int | None = None
    for block in blocks:
        if reached is not None and block.first_producer_id > reached + 1:
            found.append(Gap(reached + 1, block.first_producer_id - 1))
        reached = max(block.last_producer_id, -1 if reached is None else reached)
    return found


def within(blocks: Iterable[BlockRow], window: Window) -> list[BlockRow]:
    """Return the blocks that have an id in the window."""
    return [
        block
        for block in blocks
        if block.first_producer_id <= window.last and block.last_producer_id >= window.first
    ]


def drawn(
    blocks: Sequence[BlockRow],
    window: Window,
    owners: Mapping[str, int],
    overlapping: Iterable[tuple[int, int]] = (),
) -> BlockMap:
    """Return the map of the blocks, which are in the order of their first ids.

    A block that begins less than a unit after the last one of the same lane and owner is merged with it.
    """
    pieces: list[Piece] = []
    lane_ends: list[int] = []
    newest: dict[int, int] = {}
    merged = 0
    for block in within(blocks, window):
        lane = next((index for index, end in enumerate(lane_ends) if end < block.first_producer_id), None)
        if lane is None:
            lane = min(len(lane_ends), LANES - 1)
        lane_ends[lane : lane + 1] = [max(block.last_producer_id, *lane_ends[lane : lane + 1], 0)]
        piece = _piece(block, window, lane, owners[block.owner])
        before = pieces[newest[lane]] if lane in newest else None
        if before is not None and piece.width <= 1 and _touches(before, piece):
            merged += 1
            pieces[newest[lane]] = _joined(before, piece)
            continue
        newest[lane] = len(pieces)
        pieces.append(piece)
    marks = [
        _range(window, first, last)
        for first, last in overlapping
        if first <= window.last and last >= window.first
    ]
    return BlockMap(
        pieces, [Piece(x, width, 0, 0, 0, "") for x, width in marks], max(len(lane_ends), 1), merged
    )


def _touches(before: Piece, piece: Piece) -> bool:
    return piece.x - (before.x + before.width) < 1 and (piece.owner == before.owner or piece.x - before.x < 1)


def _joined(before: Piece, piece: Piece) -> Piece:
    width = max(before.width, piece.x + piece.width - before.x)
    return before._replace(width=width, used_width=width, title="several blocks")


def _range(window: Window, first: int, last: int) -> tuple[float, float]:
    """Return the place and the width of ids on the map; narrow ones have a width of one unit."""
    low, high = max(first, window.first), min(last, window.last)
    x = place_on_map(window, low)
    return x, max(round((high - low + 1) / window.size * WIDTH, 2), 1.0)


def place_on_map(window: Window, producer_id: int) -> float:
    """Return where an id lies on the map."""
    return round((producer_id - window.first) / window.size * WIDTH, 2)


def _piece(block: BlockRow, window: Window, lane: int, owner: int) -> Piece:
    x, width = _range(window, block.first_producer_id, block.last_producer_id)
    used_width = width
    if block.used is not None:
        end = place_on_map(
            window, min(max(block.first_producer_id + block.used, window.first), window.last + 1)
        )
        used_width = min(max(round(end - x, 2), 0.0), width)
    size = block.last_producer_id - block.first_producer_id + 1
    used = "use unknown" if block.used is None else f"{block.used} of {size} used"
    title = f"{block.first_producer_id}–{block.last_producer_id}, {block.owner}, {block.state}, {used}"
    return Piece(x, width, lane, owner, used_width, title)
