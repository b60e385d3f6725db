"""Mistakes in the coordinators of transactions and groups, and in committed offsets."""

from __future__ import annotations

from typing import Any
from unittest import mock

from seqgate.gateway.coordinator.change import Pending, TransactionEnd
from seqgate.gateway.coordinator.group import consumer_group, offsets
from seqgate.gateway.coordinator.group.consumer_group import ConsumerMember
from seqgate.gateway.coordinator.group.offsets import GroupOffsets
from seqgate.gateway.metadata.image import OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from seqgate.gateway.runtime.coordinators.shards import CoordinatorShards, LoadedShard
from seqgate.gateway.runtime.coordinators.transaction_coordinator import TransactionCoordinator
from seqgate.gateway.runtime.coordinators.transaction_markers import TransactionMarkers
from seqgate.gateway.runtime.partitions.partition import Partition
from tests.simulation.planted.fault import Change, fault, fault_in


def never_waiting(topic: str) -> Any:
    """Return a `when_persisted` that does not wait for the records of an internal topic."""
    when_persisted = CoordinatorShards.when_persisted

    def at_once(self: CoordinatorShards[Any], loaded: Any, last_offset: int, callback: Any) -> bool:
        if loaded.partition.topic != topic:
            return when_persisted(self, loaded, last_offset, callback)
        callback(None)
        return False

    return at_once


@fault_in("transactions")
def end_answered_before_the_flush() -> list[Change]:
    """EndTxn is answered and markers are written before the decision is durable"""
    return [(CoordinatorShards, "when_persisted", never_waiting(TRANSACTION_STATE_TOPIC))]


@fault_in("groups")
def offsets_committed_before_the_flush() -> list[Change]:
    """OffsetCommit is answered before its record is durable"""
    return [(CoordinatorShards, "when_persisted", never_waiting(OFFSETS_TOPIC))]


@fault_in("transactions")
def partition_added_without_its_record() -> list[Change]:
    """a transactional batch is acknowledged before its partition's entry in the transaction is durable"""
    return [
        (TransactionCoordinator, "unpersisted", lambda *_: None),
        (TransactionCoordinator, "_adopt", lambda *_: None),
    ]


@fault_in("transactions")
def aborts_become_commits() -> list[Change]:
    """the marker of an abort says commit"""
    append = TransactionMarkers.append

    def commit_all(self: TransactionMarkers, *args: Any, commit: bool, **more: Any) -> int:
        return append(self, *args, commit=True, **more)

    return [(TransactionMarkers, "append", commit_all)]


@fault_in("transactions")
def one_partition_without_a_marker() -> list[Change]:
    """the last partition of a transaction gets no marker"""
    write_once = TransactionMarkers._write_once

    async def most(self: TransactionMarkers, decided: Any, due: Any, coordinator_epoch: int) -> Any:
        places = sorted(due)
        return await write_once(self, decided, places[:-1] if len(places) > 1 else places, coordinator_epoch)

    return [(TransactionMarkers, "_write_once", most)]


@fault_in("transactions")
def completed_before_its_markers_are_durable() -> list[Change]:
    """a transaction counts as complete when its markers are written, before they are durable"""
    write_once = TransactionMarkers._write_once

    async def at_once(self: TransactionMarkers, *args: Any) -> Any:
        async def persisted(self: Partition, offset: int) -> bool:
            return True

        with mock.patch.object(Partition, "persisted", persisted):
            return await write_once(self, *args)

    return [(TransactionMarkers, "_write_once", at_once)]


@fault_in("transactions")
def decided_ends_forgotten_at_start() -> list[Change]:
    """a restart does not finish a decided transaction whose markers were not all written"""
    return [(TransactionCoordinator, "_resume", lambda *_: None)]


@fault_in("disk")
def failed_markers_given_up() -> list[Change]:
    """a marker that could not be written is not retried"""
    write_once = TransactionMarkers._write_once

    async def give_up(self: TransactionMarkers, *args: Any) -> Any:
        await write_once(self, *args)
        return frozenset()

    return [(TransactionMarkers, "_write_once", give_up)]


@fault
def offsets_before_their_commit() -> list[Change]:
    """offsets sent in a transaction count at once, before its commit"""
    replay = GroupOffsets.replay

    def at_once(self: GroupOffsets, record: Any) -> str | None:
        return replay(self, record.record if isinstance(record, Pending) else record)

    return [(GroupOffsets, "replay", at_once)]


@fault
def offsets_of_aborted_transactions() -> list[Change]:
    """the offsets of a transaction count after its abort, too"""
    end_transaction = GroupOffsets.end_transaction

    def commit(self: GroupOffsets, end: TransactionEnd) -> None:
        end_transaction(self, end._replace(is_commit=True))

    return [(GroupOffsets, "end_transaction", commit)]


@fault
def offsets_of_transactions_lost() -> list[Change]:
    """the end of a transaction drops its offsets, even after a commit"""
    end_transaction = GroupOffsets.end_transaction

    def lose(self: GroupOffsets, end: TransactionEnd) -> None:
        end_transaction(self, end._replace(is_commit=False))

    return [(GroupOffsets, "end_transaction", lose)]


@fault_in("members")
def generation_not_checked() -> list[Change]:
    """a former member of a group may still commit offsets"""
    return [(offsets, "check_commit", lambda *_: None)]


@fault_in("members")
def partition_given_before_it_is_revoked() -> list[Change]:
    """a consumer group gives a partition to its next owner before the last one has released it (KIP-848)"""
    return [(consumer_group.ConsumerGroup, "held_by_others", lambda *_: frozenset())]


@fault_in("members")
def older_epochs_may_commit() -> list[Change]:
    """a member of a consumer group may commit any partition with an older epoch, not only what it has held
    since (KIP-1251)
    """
    return [(ConsumerMember, "may_commit", lambda *_: True)]


@fault_in("disk")
def state_kept_after_a_failed_flush() -> list[Change]:
    """a coordinator goes on with a state that is ahead of its log after a write or flush has failed"""
    return [
        (CoordinatorShards, "lose", lambda *_: None),
        (LoadedShard, "is_current", property(lambda _: True)),
    ]
