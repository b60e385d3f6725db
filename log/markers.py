"""The control batches that end a producer's transaction in a partition log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from log.format.end_marker import build_end_marker
from log.refusals import refuse

if TYPE_CHECKING:
    from log.partition_log import PartitionLog


def end_marker(
    log: PartitionLog,
    producer_id: int,
    producer_epoch: int,
    *,
    commit: bool,
    coordinator_epoch: int,
    now_ms: int,
) -> bytes:
    """Return the marker that commits or aborts the producer's open transaction. Append it at once, not as a client's batch.

    A marker without an open transaction may be appended too. The producer continues with `producer_epoch`. Raises
    InvalidProducerEpoch for an epoch older than the known one, TransactionCoordinatorFenced for an older
    coordinator_epoch, StorageFailed.
    """
    log.outage.check()
    refuse(log.producers.judge_marker(producer_id, producer_epoch, coordinator_epoch))
    return build_end_marker(
        producer_id, producer_epoch, commit=commit, coordinator_epoch=coordinator_epoch, now_ms=now_ms
    )
