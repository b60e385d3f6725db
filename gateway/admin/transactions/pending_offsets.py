"""The offsets of groups that open transactions hold.

They are committed or dropped with the transaction: `seqgate transactions describe` and `seqgate groups
describe` show them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeAlias

import msgspec

from seqgate.gateway.admin.tables import Column, Offset, PartitionNumber, TopicName, number

if TYPE_CHECKING:
    from seqgate.gateway.coordinator.group.offsets import HeldOffset
    from seqgate.gateway.coordinator.transaction.records import Transaction
    from seqgate.gateway.runtime.services import CoordinatorServices

ProducerId: TypeAlias = Annotated[int, Column("producer", number)]
ProducerEpoch: TypeAlias = Annotated[int, Column("epoch", number)]
TransactionalId: TypeAlias = Annotated[str | None, Column("transactional id")]


class PendingOffset(msgspec.Struct, frozen=True):
    """An offset that an open transaction holds; it is committed or dropped with the transaction.

    `transactional_id` is None where nobody knows the producer. A `superseded` offset never takes effect,
    because a later commit has replaced it.
    """

    group: Annotated[str, Column("group")]
    topic: TopicName
    partition: PartitionNumber
    offset: Offset
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    transactional_id: TransactionalId
    superseded: bool

    @property
    def note(self) -> Annotated[str, Column("note")]:
        """The remark on an offset that never takes effect."""
        return "superseded" if self.superseded else ""


# In the gateway.


class KnownTransaction(NamedTuple):
    """A transactional id and its transaction, as the coordinator knows them."""

    transactional_id: str
    transaction: Transaction


def known_producers(coordinators: CoordinatorServices) -> Callable[[int], KnownTransaction | None]:
    """Return the function from producer ids to transactions, None where no loaded shard knows the id."""
    shards = coordinators.transactions.shards
    shards.load_stored()
    loaded = [entry.shard for entry in shards if entry.is_current]

    def find(producer_id: int) -> KnownTransaction | None:
        for shard in loaded:
            name = shard.by_producer_id.get(producer_id)
            if name is not None:
                return KnownTransaction(name, shard.transactions[name])
        return None

    return find


def pending_offset(held: HeldOffset, transactional_id: str | None) -> PendingOffset:
    """Return the row of an offset that a transaction holds."""
    record = held.record
    assert record.value is not None
    return PendingOffset(
        group=record.group_id,
        topic=record.topic,
        partition=record.partition,
        offset=record.value.offset,
        producer_id=held.producer_id,
        producer_epoch=held.producer_epoch,
        transactional_id=transactional_id,
        superseded=held.is_superseded,
    )


def in_order(pending: Iterable[PendingOffset]) -> list[PendingOffset]:
    """Sort offsets by group, topic and partition."""
    return sorted(pending, key=lambda held: (held.group, held.topic, held.partition))
