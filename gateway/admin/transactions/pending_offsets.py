"""The offsets that open transactions of a running gateway hold, with their transactional ids."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gateway.admin.transactions.messages import PendingOffset
from gateway.admin.transactions.views import in_order, pending_offset
from gateway.coordinator.group.pending_offsets import HeldOffset
from gateway.coordinator.group.shard import GroupShard
from gateway.coordinator.places import TopicPartition
from gateway.coordinator.transaction.records import Transaction
from gateway.runtime.services import CoordinatorServices


class Known(NamedTuple):
    """A transactional id and its transaction, as the coordinator knows them."""

    transactional_id: str
    transaction: Transaction


def known_producers(coordinators: CoordinatorServices) -> Callable[[int], Known | None]:
    """Return a function that finds the transaction of a producer id, None where no loaded coordinator shard knows the id."""
    shards = coordinators.transactions.shards
    shards.load_stored()
    loaded = [entry.shard for entry in shards if entry.is_current]

    def find(producer_id: int) -> Known | None:
        for shard in loaded:
            name = shard.by_producer_id.get(producer_id)
            if name is not None:
                return Known(name, shard.transactions[name])
        return None

    return find


def pending_in_group(
    coordinators: CoordinatorServices, shard: GroupShard, group_id: str
) -> dict[TopicPartition, list[PendingOffset]]:
    """Return the offsets of a group that open transactions hold, by partition, in the order they came."""
    found = shard.offsets.pending.of_group(group_id)
    if not found:
        return {}
    find = known_producers(coordinators)

    def row(held: HeldOffset) -> PendingOffset:
        known = find(held.producer_id)
        return pending_offset(held, None if known is None else known.transactional_id)

    return {place: [row(held) for held in holders] for place, holders in found.items()}


def pending_of_transaction(
    coordinators: CoordinatorServices, transactional_id: str | None, producer_id: int
) -> list[PendingOffset]:
    """Return the offsets that the transaction of a producer holds, in every group."""
    return in_order(
        pending_offset(held, transactional_id)
        for shard in coordinators.groups.loaded_shards()
        for held in shard.offsets.pending.of_producer(producer_id)
    )
