"""The services that Produce uses, as direct attributes: every batch needs them, and a longer lookup would cost time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from gateway.handlers.records.produce_waits import ProduceWaits
from gateway.runtime.backlogs.backlog import Backlog
from gateway.runtime.coordinators.transaction_coordinator import TransactionCoordinator
from gateway.runtime.coordinators.transactions_elsewhere import TransactionsElsewhere
from gateway.runtime.partitions.partition import Partition
from gateway.runtime.partitions.recompressor import Recompressor
from gateway.runtime.partitions.registry import Partitions
from gateway.runtime.services import BatchCounters, NodeServices, Services
from gateway.runtime.upkeep.disk_room import DiskRoom
from log import Appended
from seq_validator import RefusalLimit


@dataclass(slots=True)
class ProduceServices:
    """The partitions, the transactions that batches take part in, the limits that may refuse a batch, and the threads that recompress."""

    node: NodeServices
    partitions: Partitions
    counters: BatchCounters
    transactions: TransactionCoordinator
    elsewhere: TransactionsElsewhere
    backlog: Backlog
    disk_room: DiskRoom
    recompressor: Recompressor
    waits: ProduceWaits | None
    """The limit of the wait for a bucket; None where records go to a local disk."""
    refusals: RefusalLimit
    """The refused batches that all connections remember."""
    append: Callable[..., Appended]
    """`Partition.append`, or now and then the same with a look at the clock."""

    @classmethod
    def of(cls, services: Services) -> ProduceServices:
        """Select these services from all services."""
        times = services.partitions.append_times
        selected = cls(
            node=services.node,
            partitions=services.partitions.registry,
            counters=services.partitions.counters,
            transactions=services.coordinators.transactions,
            elsewhere=services.coordinators.elsewhere,
            backlog=services.upkeep.backlog,
            disk_room=services.upkeep.disk_room,
            recompressor=services.partitions.recompressor,
            waits=ProduceWaits(services.node.loop) if services.partitions.flusher.unwritten else None,
            refusals=services.partitions.refusals,
            append=Partition.append,
        )
        if times is not None:
            times.follow(partial(setattr, selected, "append"))
        return selected
