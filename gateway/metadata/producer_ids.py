"""Decisions about blocks of producer ids (Kafka's ProducerIdControlManager)."""

from __future__ import annotations

import re
from typing import Final

from seqgate.gateway.metadata.decision import Decision
from seqgate.gateway.metadata.image import MetadataImage
from seqgate.gateway.metadata.records import ProducerIdsRecord
from seqgate.pid_allocator.blocks import MAX_PRODUCER_ID


def claim_block(
    image: MetadataImage, *, size: int, owner: str, now_ms: int, broker_id: int
) -> Decision[ProducerIdsRecord]:
    """Claim the next `size` ids for `owner`; the answer is the record of the block. Raises ValueError when
    the size is not positive, or fewer than `size` ids are left.
    """
    if size <= 0:
        raise ValueError(f"the size of a block of producer ids must be at least 1, not {size}")
    first = image.next_producer_id
    if first > MAX_PRODUCER_ID - size:
        raise ValueError(
            f"only {MAX_PRODUCER_ID - first} producer ids are left, fewer than the {size} wanted"
        )
    record = ProducerIdsRecord(
        broker_id=broker_id,
        broker_epoch=0,
        next_producer_id=first + size,
        first_producer_id=first,
        owner=owner,
        claimed_at_ms=now_ms,
    )
    return Decision((record,), record)


def move_next(image: MetadataImage, *, next_producer_id: int, broker_id: int) -> Decision[int]:
    """Skip all ids below `next_producer_id`; the answer is the former next id. Raises ValueError when the
    next id would go back, so that ids were handed out twice.
    """
    if not image.next_producer_id <= next_producer_id <= MAX_PRODUCER_ID:
        raise ValueError(
            f"the next producer id must be between {image.next_producer_id} and {MAX_PRODUCER_ID}, not "
            f"{next_producer_id}"
        )
    if next_producer_id == image.next_producer_id:
        return Decision((), image.next_producer_id)
    record = ProducerIdsRecord(broker_id=broker_id, broker_epoch=0, next_producer_id=next_producer_id)
    return Decision((record,), image.next_producer_id)


# Reads a node id from text: requests name a broker's configuration or quota resource by its node id.

_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)
_INT32: Final = range(-(2**31), 2**31)


def node_id_of(text: str) -> int | None:
    """Return the node id that a client wrote; None when the text is no 32-bit number."""
    if _NUMBER.fullmatch(text) is None:
        return None
    number = int(text)
    return number if number in _INT32 else None
