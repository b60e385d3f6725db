"""Mistakes in the delivery of records to share groups, and in dead letters."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec

from seqgate.gateway.coordinator.deadlines import NEVER
from seqgate.gateway.coordinator.share import share_partition
from seqgate.gateway.coordinator.share.letters import LetterProducer, producer_of
from seqgate.gateway.coordinator.share.share_partition import DeliveryState, Run, SharePartition, StateBatch
from seqgate.gateway.metadata.image import SHARE_STATE_TOPIC
from seqgate.gateway.runtime.coordinators import dead_letters
from seqgate.gateway.runtime.coordinators.shards import CoordinatorShards
from tests.simulation.planted.coordinators import never_waiting
from tests.simulation.planted.fault import Change, share_fault_in


@share_fault_in("power")
def acknowledgements_answered_before_the_flush() -> list[Change]:
    """ShareAcknowledge is answered before the new state is durable"""
    return [(CoordinatorShards, "when_persisted", never_waiting(SHARE_STATE_TOPIC))]


@share_fault_in("kills", "power")
def accepted_records_available_at_start() -> list[Change]:
    """a record that was accepted after one that is not done is delivered again after a restart"""
    take = Run.take

    def available(self: Run, batch: StateBatch) -> None:
        is_done = batch.state == DeliveryState.ACKNOWLEDGED
        take(self, batch._replace(state=DeliveryState.AVAILABLE) if is_done else batch)

    return [(Run, "take", available)]


@share_fault_in("kills", "power")
def delays_forgotten_at_start() -> list[Change]:
    """a record that waits for a retry is delivered at once after a restart"""
    take = Run.take

    def without_delay(self: Run, batch: StateBatch) -> None:
        take(self, batch._replace(due_ms=NEVER))

    return [(Run, "take", without_delay)]


@share_fault_in("kills", "power")
def delivery_counts_forgotten_at_start() -> list[Change]:
    """the deliveries of a released record count from zero again after a restart"""
    take = Run.take

    def without_count(self: Run, batch: StateBatch) -> None:
        take(self, batch._replace(delivery_count=0) if batch.state == DeliveryState.AVAILABLE else batch)

    return [(Run, "take", without_count)]


@share_fault_in()
def one_delivery_too_many() -> list[Change]:
    """a record that was delivered as often as the limit allows is delivered once more"""
    release = SharePartition._release

    def more(self: SharePartition, run: Run, limits: Any, now_ms: int) -> None:
        higher = msgspec.structs.replace(limits, delivery_count_limit=limits.delivery_count_limit + 1)
        release(self, run, higher, now_ms)

    return [(SharePartition, "_release", more)]


@share_fault_in("kills", "power")
def letters_of_a_new_producer() -> list[Change]:
    """a round of letters that is written again after a crash has another producer id"""
    chance = Random("producers of letters")

    def new_producer(*args: Any) -> LetterProducer:
        return producer_of(*args)._replace(producer_id=(1 << 62) | chance.getrandbits(60))

    return [(dead_letters, "producer_of", new_producer)]


@share_fault_in("kills", "power")
def dying_records_archived_at_start() -> list[Change]:
    """a record whose letter is not written counts as done after a restart"""
    take = Run.take

    def archived(self: Run, batch: StateBatch) -> None:
        is_dying = batch.state == DeliveryState.ARCHIVING
        take(self, batch._replace(state=DeliveryState.ARCHIVED) if is_dying else batch)

    return [(Run, "take", archived)]


@share_fault_in()
def waiting_records_hold_up_others() -> list[Change]:
    """no record is delivered that is behind one that waits for a retry"""
    acquire = SharePartition.acquire

    def in_order(self: SharePartition, *args: Any, **more: Any) -> list[share_partition.Acquired]:
        return [] if any(run.is_waiting for run in self.runs) else acquire(self, *args, **more)

    return [(SharePartition, "acquire", in_order)]
