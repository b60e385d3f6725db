"""The blocks of producer ids: a map of their owners, gaps and overlaps, and the block of an id."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from seqgate.gateway.admin.pids import (
    BlockPage,
    BlockRow,
    FindOverlapsRequest,
    FindOwnerRequest,
    ListBlocksRequest,
    Overlaps,
    joined_blocks,
    joined_overlaps,
    joined_owner,
)
from seqgate.gateway.admin.request import MAX_PAGE_ROWS, ControlError
from seqgate.gateway.console.answer import PageAnswer, View, page_of
from seqgate.gateway.console.asking.connections import Cache
from seqgate.gateway.console.page import Gathered, Get, NoGateways, Page, PageGroup, Visit

KEPT_S: Final = 3.0
MOST_PAGES: Final = 10
"""Answers of each gateway that are put together, 10,000 blocks each; the map lacks further blocks."""
AROUND: Final = 4
"""A search shows a window that is so many times as large as the block that it found."""


class FoundBlocks(NamedTuple):
    """The blocks by first id, as one page, their overlaps, and what the gateways told."""

    page: BlockPage
    overlaps: Overlaps
    told: Gathered[BlockPage]


_asked: Final[Cache[FoundBlocks]] = Cache(KEPT_S)


def producer_ids(visit: Visit) -> PageAnswer:
    """Show the blocks between two ids, on a map and in a table."""
    try:
        found = _asked.get(visit.security, visit.console.options, lambda: _blocks(visit))
        sought = visit.optional_number("id")
        owner = None
        if sought is not None:
            owner = joined_owner(visit.ask_gateways(FindOwnerRequest(sought)).answers)
    except NoGateways:
        return View("producer_ids.html", {"blocks": None})
    blocks, next_id = found.page.blocks, found.page.next_producer_id
    everything = whole(blocks, next_id)
    window = _window(visit, everything, None if owner is None else owner.block, sought)
    owners = owner_numbers(blocks)
    seen = within(blocks, window)
    known = [block.left for block in blocks if block.left is not None]
    overlaps = found.overlaps.overlaps
    shown_overlaps = [(row.first_producer_id, row.last_producer_id) for row in overlaps]
    rows, paging = page_of(_with_gaps(seen), visit.number("page", 1, 1))
    return View(
        "producer_ids.html",
        {
            "blocks": seen,
            "rows": rows,
            "paging": paging,
            "map": drawn(blocks, window, owners, shown_overlaps),
            "window": window,
            "owners": owners,
            "told": found.told,
            "stores": found.page.store.split(", "),
            "next_id": next_id,
            "next_at": place_on_map(window, next_id) if window.first <= next_id <= window.last else None,
            "sought_at": None
            if sought is None or not window.first <= sought <= window.last
            else place_on_map(window, sought),
            "total": found.page.total,
            "listed": len(blocks),
            "overlaps": overlaps,
            "checked": found.overlaps.checked,
            "gap_count": len(gaps(blocks)),
            "left": sum(known) if known else None,
            "sought": sought,
            "owner": owner,
            "zooms": _zooms(window, everything),
            "query": {"from": window.first, "to": window.last, "id": sought},
        },
    )


def _blocks(visit: Visit) -> FoundBlocks:
    """Return the blocks of the store that all gateways share. Raises ControlError."""
    pages: list[BlockPage] = []
    for number in range(MOST_PAGES):
        told = visit.ask_gateways(ListBlocksRequest(number * MAX_PAGE_ROWS, limit=MAX_PAGE_ROWS))
        pages += told.answers
        if joined_blocks(told.answers).total <= (number + 1) * MAX_PAGE_ROWS:
            break
    page = joined_blocks(pages)
    page.blocks.sort(key=lambda block: (block.first_producer_id, block.last_producer_id))
    overlaps = joined_overlaps(visit.ask_gateways(FindOverlapsRequest()).answers)
    return FoundBlocks(page, overlaps, told)


def _window(visit: Visit, everything: Window, block: BlockRow | None, sought: int | None) -> Window:
    """Return the ids to show: those of the address, those around the block of a search, or all."""
    first, last = visit.optional_number("from"), visit.optional_number("to")
    if first is not None and last is not None:
        if first > last:
            raise ControlError(f"from must not be higher than to; {first} is higher than {last}")
        return Window(first, min(max(last, first + 9), LARGEST_ID))
    if block is not None:
        return Window(block.first_producer_id, block.last_producer_id).zoomed(AROUND)
    if sought is not None and not everything.first <= sought <= everything.last:
        return Window(min(everything.first, sought), max(everything.last, sought))
    return everything


def _zooms(window: Window, everything: Window) -> list[tuple[str, Window]]:
    steps = [
        ("Zoom in", window.zoomed(0.25)),
        ("Zoom out", window.zoomed(4)),
        ("Lower ids", window.moved(-0.5)),
        ("Higher ids", window.moved(0.5)),
    ]
    found = [(label, to) for label, to in steps if to != window]
    return found if window == everything else [*found, ("All blocks", everything)]


def _with_gaps(blocks: list[BlockRow]) -> list[dict[str, Any]]:
    """Return the rows of the table: blocks, and the gaps between them."""
    rows: list[tuple[int, int, BlockRow | None]] = [(*gap, None) for gap in gaps(blocks)]
    rows += [(block.first_producer_id, block.last_producer_id, block) for block in blocks]
    return [
        {"first": first, "last": last, "size": last - first + 1, "block": block}
        for first, last, block in sorted(rows, key=lambda row: row[:2])
    ]


# The map of the producer-id blocks: where each block lies between two ids, scaled to a width. Pure.

WIDTH: Final = 1_000
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
    """A rectangle of the map: `owner` numbers its colour, `used_width` is the part of ids handed out."""

    x: float
    width: float
    lane: int
    owner: int
    used_width: float
    title: str


@dataclass(frozen=True, slots=True)
class BlockMap:
    """The parts of the map. `merged` blocks are too narrow to be drawn by themselves."""

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
    """Return the number of each owner's colour, by most blocks; the owners that share one have 0."""
    counts: dict[str, int] = {}
    for block in blocks:
        counts[block.owner] = counts.get(block.owner, 0) + 1
    by_count = sorted(counts, key=lambda owner: (-counts[owner], owner))
    return {owner: index + 1 if index < OWNERS_SHOWN else 0 for index, owner in enumerate(by_count)}


def gaps(blocks: Sequence[BlockRow]) -> list[tuple[int, int]]:
    """Return the first and the last ids between blocks, which are in the order of their first ids."""
    found: list[tuple[int, int]] = []
    reached: int | None = None
    for block in blocks:
        if reached is not None and block.first_producer_id > reached + 1:
            found.append((reached + 1, block.first_producer_id - 1))
        reached = max(block.last_producer_id, -1 if reached is None else reached)
    return found


def within(blocks: Iterable[BlockRow], window: Window) -> list[BlockRow]:
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
    """Return the map of blocks, in the order of their first ids; blocks of an owner that touch are merged."""
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


PAGE: Final = Page(
    "Producer ids",
    PageGroup.CLIENTS,
    "i",
    Get("/producer-ids", producer_ids, waits_for="the blocks of producer ids"),
)
