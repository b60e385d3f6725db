"""The blocks of producer ids of a running gateway."""

from __future__ import annotations

from seqgate.gateway.admin.operation import LiveGateway
from seqgate.gateway.admin.pids import stopped
from seqgate.gateway.admin.pids.messages import (
    BlockPage,
    BlockRow,
    ClaimBlockRequest,
    FindOverlapsRequest,
    FindOwnerRequest,
    ListBlocksRequest,
    Moved,
    MoveNextRequest,
    Overlaps,
    Owner,
)


async def list_blocks(gateway: LiveGateway, request: ListBlocksRequest) -> BlockPage:
    """Return one page of the blocks. Raises ControlError."""
    return await stopped.list_blocks_blocks(gateway.blocks, request.position, request.limit)


async def find_owner(gateway: LiveGateway, request: FindOwnerRequest) -> Owner:
    """Return the block that holds an id. Raises ControlError."""
    return await stopped.find_owner_blocks(gateway.blocks, request.producer_id)


async def find_overlaps(gateway: LiveGateway, _: FindOverlapsRequest) -> Overlaps:
    """Return the blocks that share ids. Raises ControlError."""
    return await stopped.find_overlaps_blocks(gateway.blocks)


async def claim_block(gateway: LiveGateway, request: ClaimBlockRequest) -> BlockRow:
    """Claim a block for use outside the gateways. Raises ControlError."""
    now_ms = gateway.services.node.clock.now_ms()
    return await stopped.claim_block_blocks(gateway.blocks, request.size, request.owner, now_ms)


async def move_next(gateway: LiveGateway, request: MoveNextRequest) -> Moved:
    """Move the next id forward. Raises ControlError."""
    return await stopped.move_next_blocks(gateway.blocks, request.producer_id)
