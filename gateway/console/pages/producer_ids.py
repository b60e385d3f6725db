"""The blocks of producer ids: a map of their owners, gaps and overlaps, and the block of an id."""

from __future__ import annotations

from typing import Any, Final

from gateway.admin.pids.messages import (
    BlockRow,
    FindOverlapsRequest,
    FindOwnerRequest,
    ListBlocksRequest,
    Overlaps,
)
from gateway.admin.request import MAX_PAGE_ROWS, ControlError
from gateway.console.asking.connections import Cache
from gateway.console.page import Answer, Look, Page, Section, View, Visit, page_of
from gateway.console.pages.producer_ids_map import (
    LARGEST_ID,
    Window,
    drawn,
    gaps,
    owner_numbers,
    place_on_map,
    whole,
    within,
)

KEPT_S: Final = 3.0
MOST_PAGES: Final = 10
"""Answers of the gateway that are put together, 10,000 blocks each; the map lacks further blocks."""
AROUND: Final = 4
"""A search shows a window that is so many times as large as the block that it found."""

_asked: Final[Cache[tuple[str, int, int, list[BlockRow], Overlaps]]] = Cache(KEPT_S)


def producer_ids(visit: Visit) -> Answer:
    """Show the blocks between two ids, on a map and in a table."""
    if not visit.has_metrics:
        return View("producer_ids.html", {"blocks": None})
    store, next_id, total, blocks, overlaps = _blocks(visit)
    sought = visit.optional_number("id")
    owner = None if sought is None else visit.ask_gateway(FindOwnerRequest(sought))
    everything = whole(blocks, next_id)
    window = _window(visit, everything, None if owner is None else owner.block, sought)
    owners = owner_numbers(blocks)
    seen = within(blocks, window)
    known = [block.left for block in blocks if block.left is not None]
    shown_overlaps = [(row.first_producer_id, row.last_producer_id) for row in overlaps.overlaps]
    rows, paging = page_of(_with_gaps(seen), visit.number("page", 1, 1))
    return View(
        "producer_ids.html",
        {
            "blocks": seen,
            "rows": rows,
            "paging": paging,
            "map": drawn(blocks, window, owners, shown_overlaps),
            "window": window,
            "everything": everything,
            "is_whole": window == everything,
            "owners": owners,
            "store": store,
            "next_id": next_id,
            "next_at": place_on_map(window, next_id) if window.first <= next_id <= window.last else None,
            "sought_at": None
            if sought is None or not window.first <= sought <= window.last
            else place_on_map(window, sought),
            "total": total,
            "listed": len(blocks),
            "overlaps": overlaps.overlaps,
            "checked": overlaps.checked,
            "gap_count": len(gaps(blocks)),
            "left": sum(known) if known else None,
            "sought": sought,
            "owner": owner,
            "zooms": _zooms(window, everything),
            "query": {"from": window.first, "to": window.last, "id": sought},
        },
    )


def _blocks(visit: Visit) -> tuple[str, int, int, list[BlockRow], Overlaps]:
    """Return the store, the next id, the number of blocks, the blocks by first id, and their overlaps."""

    def ask() -> tuple[str, int, int, list[BlockRow], Overlaps]:
        found: list[BlockRow] = []
        for _ in range(MOST_PAGES):
            page = visit.ask_gateway(ListBlocksRequest(len(found), limit=MAX_PAGE_ROWS))
            found += page.blocks
            if not page.blocks or len(found) >= page.total:
                break
        found.sort(key=lambda block: (block.first_producer_id, block.last_producer_id))
        overlaps = visit.ask_gateway(FindOverlapsRequest())
        return page.store, page.next_producer_id, page.total, found, overlaps

    return _asked.get(visit.security, visit.console.options, ask)


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
    rows: list[dict[str, Any]] = [
        {"first": gap.first, "last": gap.last, "size": gap.last - gap.first + 1, "block": None}
        for gap in gaps(blocks)
    ]
    rows += [
        {
            "first": block.first_producer_id,
            "last": block.last_producer_id,
            "size": block.last_producer_id - block.first_producer_id + 1,
            "block": block,
        }
        for block in blocks
    ]
    return sorted(rows, key=lambda row: (row["first"], row["last"]))


PAGE: Final = Page(
    title="Producer ids",
    path="/producer-ids",
    section=Section.CLIENTS,
    key="i",
    places=(Look("/producer-ids", producer_ids, waits_for="the blocks of producer ids"),),
)
