"""Mistakes about producers: their sequences, producer epochs and ids."""

from __future__ import annotations

from itertools import count
from typing import Any

from seqgate.gateway.coordinator.transaction.records import EMPTY
from seqgate.gateway.coordinator.transaction.rules import Producer, TransactionRefused
from seqgate.gateway.handlers.transactions import end_txn, init_producer_id
from seqgate.gateway.metadata.image import MetadataImage
from seqgate.gateway.metadata.producer_ids import claim_block
from seqgate.gateway.runtime.coordinators.transaction_coordinator import TransactionCoordinator
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.gateway.runtime.topics.producer_ids import EmbeddedBlockStore, block_of
from seqgate.log import Appended, StorageFailed
from seqgate.pid_allocator import ProducerIdBlock
from seqgate.seq_validator import (
    ACCEPTED,
    Duplicate,
    ProducerTable,
    RefusedBatches,
    Rejected,
    RejectionReason,
)
from tests.simulation.planted.fault import Change, fault, fault_in


def _accepting(*reasons: RejectionReason) -> Any:
    judge = ProducerTable.judge

    def accept(self: ProducerTable, *args: Any, **kwargs: Any) -> Any:
        verdict = judge(self, *args, **kwargs)
        return ACCEPTED if isinstance(verdict, Rejected) and verdict.reason in reasons else verdict

    return accept


@fault_in("pipelines")
def any_sequence_accepted() -> list[Change]:
    """a batch is stored although its sequence is neither the next one nor a known duplicate's"""
    return [(ProducerTable, "judge", _accepting(RejectionReason.OUT_OF_ORDER_SEQUENCE))]


@fault_in("pipelines")
def gaps_accepted() -> list[Change]:
    """a batch behind a lost one is stored: only lower sequences count as out of order"""
    judge, append = ProducerTable.judge, Partition.append
    batches = count(1)

    def failing_at_times(self: Partition, records: Any, *args: Any, **kwargs: Any) -> Appended:
        # otherwise a single gateway never refuses a batch and accepts the next one of the same connection
        if not self.topic.startswith("__") and next(batches) % 20 == 0:
            raise StorageFailed("planted")
        return append(self, records, *args, **kwargs)

    def lenient(self: ProducerTable, batch: Any, *args: Any, **kwargs: Any) -> Any:
        verdict = judge(self, batch, *args, **kwargs)
        entry = self.get(batch.producer_id)
        if (
            isinstance(verdict, Rejected)
            and verdict.reason is RejectionReason.OUT_OF_ORDER_SEQUENCE
            and entry is not None
            and entry.producer_epoch == batch.producer_epoch
            and batch.base_sequence > entry.next_sequence
        ):
            return ACCEPTED
        return verdict

    return [(ProducerTable, "judge", lenient), (Partition, "append", failing_at_times)]


@fault_in("pipelines")
def refusals_forgotten() -> list[Change]:
    """an unknown producer begins with any sequence, even while its first batch was refused and comes again"""
    return [(RefusedBatches, "refuse", lambda *_: None)]


@fault
def one_duplicate_remembered() -> list[Change]:
    """only the last batch of a producer is remembered, although five may be in flight"""

    begin = ProducerTable.__init__

    def forgetful(self: ProducerTable, **kwargs: Any) -> None:
        begin(self, **kwargs | {"retained_batches": 1})

    return [(ProducerTable, "__init__", forgetful)]


@fault
def duplicates_stored_again() -> list[Change]:
    """a retry is not recognized, and stored again"""
    judge = ProducerTable.judge

    def forgetful(self: ProducerTable, *args: Any, **kwargs: Any) -> Any:
        verdict = judge(self, *args, **kwargs)
        return ACCEPTED if isinstance(verdict, Duplicate) else verdict

    return [(ProducerTable, "judge", forgetful)]


@fault
def duplicate_answered_with_the_newest_offset() -> list[Change]:
    """a retry is answered with the offset of the producer's last batch"""
    judge = ProducerTable.judge

    def confused(self: ProducerTable, batch: Any, *args: Any, **kwargs: Any) -> Any:
        verdict = judge(self, batch, *args, **kwargs)
        entry = self.get(batch.producer_id)
        if isinstance(verdict, Duplicate) and entry is not None:
            newest = entry.batches[-1]
            return Duplicate(newest.base_offset, newest.last_offset, newest.timestamp)
        return verdict

    return [(ProducerTable, "judge", confused)]


@fault
def old_epochs_accepted() -> list[Change]:
    """a fenced producer may still write"""
    verify_or_add = TransactionCoordinator.verify_or_add

    def lenient(self: TransactionCoordinator, *args: Any, **kwargs: Any) -> Any:
        try:
            return verify_or_add(self, *args, **kwargs)
        except TransactionRefused:
            return None

    return [
        (ProducerTable, "judge", _accepting(RejectionReason.INVALID_PRODUCER_EPOCH)),
        (TransactionCoordinator, "verify_or_add", lenient),
    ]


@fault
def epoch_not_raised() -> list[Change]:
    """InitProducerId returns a transactional id's epoch unchanged, so the previous producer is not fenced"""
    next_state = init_producer_id.next_state

    def same(*args: Any, **kwargs: Any) -> Any:
        current, after = args[0], next_state(*args, **kwargs)
        if current is None or after.state is not EMPTY:
            return after
        return after._replace(producer_epoch=current.producer_epoch)

    return [(init_producer_id, "next_state", same)]


@fault_in("transactions", "disk", "compaction")
def old_epoch_may_commit() -> list[Change]:
    """EndTxn does not compare the producer epoch"""
    decided_by = end_txn.decided_by

    def lenient(current: Any, request: Any, *args: Any) -> Any:
        if current is not None and request.producer.producer_id == current.producer_id:
            request = request._replace(producer=Producer(current.producer_id, current.producer_epoch))
        return decided_by(current, request, *args)

    return [(end_txn, "decided_by", lenient)]


@fault
def ids_before_their_block_is_durable() -> list[Change]:
    """a block of producer ids is used before its record is flushed"""

    async def claim(self: EmbeddedBlockStore, size: int, owner: str, now_ms: int) -> ProducerIdBlock:
        metadata_log, node_id = self._metadata_log, self._node_id

        def decide(image: MetadataImage) -> Any:
            return claim_block(image, size=size, owner=owner, now_ms=now_ms, broker_id=node_id)

        record = decide(metadata_log.image).answer
        metadata_log.commit_soon(("claim", record.first_producer_id), decide, lambda _: None)
        return block_of(record)

    return [(EmbeddedBlockStore, "claim", claim)]


@fault
def last_block_used_again() -> list[Change]:
    """a restart hands out the last claimed block of ids again, from its beginning"""
    claim = EmbeddedBlockStore.claim

    async def again(self: EmbeddedBlockStore, size: int, owner: str, now_ms: int) -> ProducerIdBlock:
        known = await self.blocks()
        if known and not getattr(self, "used_again", False):
            self.used_again = True  # type: ignore[attr-defined]
            return known[-1]
        self.used_again = True  # type: ignore[attr-defined]
        return await claim(self, size, owner, now_ms)

    return [(EmbeddedBlockStore, "claim", again)]
