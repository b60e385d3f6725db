"""Mistakes in the coordinators of transactions and groups, and in committed offsets."""

from __future__ import annotations

from typing import Any

from gateway.coordinator.group import consumer_group, offset_commits
from gateway.coordinator.group.offsets import GroupOffsets
from gateway.coordinator.transactional import Pending, TransactionEnd
from gateway.metadata.topic_names import OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from gateway.runtime.coordinators.transaction_coordinator import TransactionCoordinator
from gateway.runtime.coordinators.transaction_markers import TransactionMarkers
from gateway.runtime.operations.operations import Operations
from tests.simulation.planted.fault import Change, fault


def _never_waiting(topic: str) -> Any:
    when_persisted = Operations.when_persisted

    def at_once(self: Operations[Any], loaded: Any, last_offset: int, callback: Any) -> None:
        if loaded.partition.topic == topic:
            callback(None)
        else:
            when_persisted(self, loaded, last_offset, callback)

    return at_once


@fault
def end_answered_before_the_flush() -> list[Change]:
    """EndTxn is answered and markers are written before the decision is durable"""
    return [(Operations, "when_persisted", _never_waiting(TRANSACTION_STATE_TOPIC))]


@fault
def offsets_committed_before_the_flush() -> list[Change]:
    """OffsetCommit is answered before its record is durable"""
    return [(Operations, "when_persisted", _never_waiting(OFFSETS_TOPIC))]


@fault
def partition_added_without_its_record() -> list[Change]:
    """a transactional batch is acknowledged before its partition's entry in the transaction is durable"""
    return [
        (TransactionCoordinator, "unpersisted", lambda *_: None),
        (TransactionCoordinator, "_adopt", lambda *_: None),
    ]


@fault
def aborts_become_commits() -> list[Change]:
    """the marker of an abort says commit"""
    append = TransactionMarkers.append

    def commit_all(self: TransactionMarkers, *args: Any, commit: bool, coordinator_epoch: int) -> int:
        return append(self, *args, commit=True, coordinator_epoch=coordinator_epoch)

    return [(TransactionMarkers, "append", commit_all)]


@fault
def one_partition_without_a_marker() -> list[Change]:
    """the last partition of a transaction gets no marker"""
    write_once = TransactionMarkers._write_once

    async def most(self: TransactionMarkers, decided: Any, due: Any, coordinator_epoch: int) -> Any:
        places = sorted(due)
        return await write_once(self, decided, places[:-1] if len(places) > 1 else places, coordinator_epoch)

    return [(TransactionMarkers, "_write_once", most)]


@fault
def decided_ends_forgotten_at_start() -> list[Change]:
    """a restart does not finish a decided transaction whose markers were not all written"""
    return [(TransactionCoordinator, "_resume", lambda *_: None)]


@fault
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


@fault
def generation_not_checked() -> list[Change]:
    """a former member of a group may still commit offsets"""
    return [(offset_commits, "check_commit", lambda *_: None)]


@fault
def partition_given_before_it_is_revoked() -> list[Change]:
    """a consumer group gives a partition to its next owner before the last one has released it (KIP-848)"""
    return [(consumer_group.ConsumerGroup, "held_by_others", lambda *_: frozenset())]
