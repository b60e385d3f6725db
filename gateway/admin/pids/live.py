"""The blocks of producer ids of a running gateway."""

from __future__ import annotations

from gateway.admin.operation import LiveGateway
from gateway.admin.pids import blocks
from gateway.admin.pids.messages import (
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
    return await blocks.list_blocks(gateway.blocks, request.position, request.limit)


async def find_owner(gateway: LiveGateway, request: FindOwnerRequest) -> Owner:
    """Return the block that holds an id. Raises ControlError."""
    return await blocks.find_owner(gateway.blocks, request.producer_id)


async def find_overlaps(gateway: LiveGateway, _: FindOverlapsRequest) -> Overlaps:
    """Return the blocks that share ids. Raises ControlError."""
    return await blocks.find_overlaps(gateway.blocks)


async def claim_block(gateway: LiveGateway, request: ClaimBlockRequest) -> BlockRow:
    """Claim a block for use outside the gateways. Raises ControlError."""
    now_ms = gateway.services.node.clock.now_ms()
    return await blocks.claim_block(gateway.blocks, request.size, request.owner, now_ms)


async def move_next(gateway: LiveGateway, request: MoveNextRequest) -> Moved:
    """Move the next id forward. Raises ControlError."""
    return await blocks.move_next(gateway.blocks, request.producer_id)
