"""Producer ids: unique 64-bit numbers, handed out from blocks. A durable store gives each block to one
gateway.

`blocks` is pure arithmetic, and has the ports of stores. `allocator` claims blocks ahead of need.
`redis_store` and `seen_file` implement the ports. Import the Redis store from its own module, so that a
gateway without Redis never loads the client.
"""

from __future__ import annotations

from seqgate.pid_allocator.allocator import NoProducerIds, ProducerIdAllocator
from seqgate.pid_allocator.blocks import (
    MAX_PRODUCER_ID,
    BlockStore,
    BlockStoreError,
    LastSeen,
    LastSeenPort,
    NextIdBehind,
    ProducerIdBlock,
    ProducerIdsExhausted,
    StoreUnavailable,
    StoreWentBack,
    UnknownStoreVersion,
    UsageStore,
    block_at,
    overlaps,
    owner_of,
)

__all__ = [
    "MAX_PRODUCER_ID",
    "BlockStore",
    "BlockStoreError",
    "LastSeen",
    "LastSeenPort",
    "NextIdBehind",
    "NoProducerIds",
    "ProducerIdAllocator",
    "ProducerIdBlock",
    "ProducerIdsExhausted",
    "StoreUnavailable",
    "StoreWentBack",
    "UnknownStoreVersion",
    "UsageStore",
    "block_at",
    "overlaps",
    "owner_of",
]
