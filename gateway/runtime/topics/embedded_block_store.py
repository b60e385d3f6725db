"""Stores blocks of producer ids in the metadata log, for a gateway that shares its producer ids with no other gateway."""

from __future__ import annotations

from gateway.metadata.image import MetadataImage
from gateway.metadata.producer_ids import claim_block, move_next
from gateway.metadata.records import ProducerIdsRecord
from gateway.runtime.topics.metadata_log import MetadataLog
from log import LogError
from pid_allocator import NextIdBehind, ProducerIdBlock, ProducerIdsExhausted, StoreUnavailable


class EmbeddedBlockStore:
    """A BlockStore of `pid_allocator` over the metadata log; each record names `node_id`."""

    def __init__(self, metadata_log: MetadataLog, node_id: int) -> None:
        self._metadata_log = metadata_log
        self._node_id = node_id

    async def claim(self, size: int, owner: str, now_ms: int) -> ProducerIdBlock:
        """Claim the next block. Raises StoreUnavailable, ProducerIdsExhausted, ValueError for a size below 1."""
        if size < 1:
            raise ValueError(f"the size of a block of producer ids must be at least 1, not {size}")
        try:
            record = await self._metadata_log.commit(
                lambda image: claim_block(
                    image, size=size, owner=owner, now_ms=now_ms, broker_id=self._node_id
                )
            )
        except ValueError as error:
            raise ProducerIdsExhausted(str(error)) from error
        except LogError as error:
            raise StoreUnavailable(f"the metadata log can't be written: {error}") from error
        return block_of(record)

    async def blocks(self) -> list[ProducerIdBlock]:
        """Return all blocks claimed so far, in the order of their claims."""
        return blocks_of(self._metadata_log.image)

    async def move_next(self, producer_id: int) -> int:
        """Skip the ids below `producer_id`; return the former next id. Raises NextIdBehind, StoreUnavailable."""
        try:
            return await self._metadata_log.commit(
                lambda image: move_next(image, next_producer_id=producer_id, broker_id=self._node_id)
            )
        except ValueError as error:
            raise NextIdBehind(str(error)) from error
        except LogError as error:
            raise StoreUnavailable(f"the metadata log can't be written: {error}") from error


def block_of(record: ProducerIdsRecord) -> ProducerIdBlock:
    """Return the block that a record claims."""
    return ProducerIdBlock(
        first_producer_id=record.first_producer_id,
        last_producer_id=record.next_producer_id - 1,
        owner=record.owner,
        claimed_at_ms=record.claimed_at_ms,
    )


def blocks_of(image: MetadataImage) -> list[ProducerIdBlock]:
    """Return all blocks of an image in the order of their claims; works without a running gateway, too."""
    return [block_of(record) for record in image.producer_id_blocks]
