"""The requests about blocks of producer ids, and what `seqgate pids … --json` prints.

Times are milliseconds since the Unix epoch; ranges of producer ids are inclusive.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from seqgate.gateway.admin.request import POSITION, PagedRequest, Request
from seqgate.gateway.admin.tables import UNKNOWN, Column, count, moment, number

EMBEDDED: Final = "embedded"
"""The store in the gateway's own metadata log."""
REDIS: Final = "redis"
"""The store that several gateways share."""


class BlockRow(msgspec.Struct, frozen=True):
    """A block of producer ids. `used` and `left` are counts of ids, None where nobody knows them.

    `state` is one of the words in `seqgate.gateway.admin.pids.blocks`.
    """

    first_producer_id: Annotated[int, Column("first id", number)]
    last_producer_id: Annotated[int, Column("last id", number)]
    owner: Annotated[str, Column("owner")]
    claimed_at_ms: Annotated[int, Column("claimed", moment)]
    used: Annotated[int | None, Column("used", count, UNKNOWN)]
    left: Annotated[int | None, Column("left", count, UNKNOWN)]
    state: Annotated[str, Column("state")]

    @property
    def range(self) -> Annotated[str, Column("block")]:
        """The ids of the block, both inclusive."""
        return f"{self.first_producer_id} to {self.last_producer_id}"


class BlockPage(msgspec.Struct, frozen=True):
    """Some of the `total` blocks of the store, and the lowest id at which the next block can begin."""

    store: str
    next_producer_id: int
    total: int
    blocks: list[BlockRow]


class ListBlocksRequest(PagedRequest[BlockPage], tag="pids.list"):
    """The claimed blocks from index `position` on, in the order of their claims."""

    rows = "blocks"
    key = POSITION
    position: int = 0


class BlockListing(msgspec.Struct, frozen=True):
    """All blocks of a store. `gateway` is "running" or "stopped", None for Redis, which knows no gateway."""

    store: str
    gateway: str | None
    next_producer_id: int
    total: int
    blocks: list[BlockRow]


class Owner(msgspec.Struct, frozen=True):
    """The block that holds a producer id; None if no block holds the id.

    `handed_out` says whether a producer received the id, None where nobody knows.
    """

    producer_id: int
    block: BlockRow | None
    handed_out: bool | None
    next_producer_id: int


class FindOwnerRequest(Request[Owner], tag="pids.owner"):
    """The block that holds a producer id."""

    producer_id: int


class OverlapRow(msgspec.Struct, frozen=True):
    """Ids that two blocks share."""

    first_producer_id: int
    last_producer_id: int
    lower: BlockRow
    upper: BlockRow

    @property
    def shared(self) -> Annotated[str, Column("shared ids")]:
        """The shared ids, both inclusive."""
        return f"{self.first_producer_id} to {self.last_producer_id}"


class Overlaps(msgspec.Struct, frozen=True):
    """The check of all blocks: the store is sound when `overlaps` is empty."""

    checked: int
    overlaps: list[OverlapRow]


class FindOverlapsRequest(Request[Overlaps], tag="pids.overlaps"):
    """The blocks that share ids."""


class ClaimBlockRequest(Request[BlockRow], tag="pids.claim"):
    """Claim a block for ids used outside the gateways."""

    size: int
    owner: str


class Moved(msgspec.Struct, frozen=True):
    """The next id before and after the move."""

    previous: int
    current: int


class MoveNextRequest(Request[Moved], tag="pids.move"):
    """The request to hand out no more ids below `producer_id`."""

    producer_id: int
