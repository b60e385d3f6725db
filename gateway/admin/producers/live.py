"""The active producers of a running gateway."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterator
from itertools import chain
from typing import Final

from seqgate.gateway.admin.operation import LiveGateway, check_led_here, find_topic, partitions_after
from seqgate.gateway.admin.producers.command import ListProducersRequest, ProducerPage, ProducerRow
from seqgate.gateway.admin.status.messages import ProducerCounters
from seqgate.gateway.runtime.loop.slices import in_slices
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.gateway.runtime.partitions.producer_clients import ProducerClients
from seqgate.gateway.runtime.partitions.registry import Partitions, TopicPartitions
from seqgate.gateway.runtime.services import PartitionServices
from seqgate.seq_validator import ProducerEntry

ENTRIES_AT_ONCE: Final = 5_000
"""Producers that are compared before requests may run."""


async def list_producers(gateway: LiveGateway, request: ListProducersRequest) -> ProducerPage:
    """Return one page of the active producers. Raises ControlError."""
    now_ms = gateway.services.node.clock.now_ms()
    if request.topic is not None and request.partition is not None:
        check_led_here(gateway.services, request.topic, request.partition)
    clients = gateway.services.partitions.counters.clients
    rows: list[ProducerRow] = []
    for partition in list(_wanted(gateway.services.partitions.registry, request)):
        lowest = -1
        if request.after is not None and request.after[:2] == (partition.topic, partition.index):
            lowest = request.after[2]
        entries = await _entries(partition, lowest, request.limit + 1 - len(rows))
        rows.extend(_row(partition, entry, now_ms, clients) for entry in entries)
        if len(rows) > request.limit:
            break
        # Let requests in between: a gateway may have a hundred thousand partitions.
        await asyncio.sleep(0)
    return ProducerPage(
        rows[: request.limit], len(rows) <= request.limit, producer_counters(gateway.services.partitions)
    )


def producer_counters(partitions: PartitionServices) -> ProducerCounters:
    """Return the counts of remembered, evicted and refused producers, of duplicate and rejected batches."""
    limit = partitions.log_directory.environment.producer_limit
    return ProducerCounters(
        duplicates=partitions.counters.duplicates,
        rejections=partitions.counters.rejections,
        evictions=0 if limit is None else limit.evictions,
        refusals=0 if limit is None else limit.refusals,
        remembered=sum(len(partition.log.producers) for partition in partitions.registry),
    )


def _wanted(partitions: Partitions, request: ListProducersRequest) -> Iterator[Partition]:
    """Yield the requested partitions in order, from the previous page's last one on. Raises ControlError."""
    if request.topic is None:
        topics = [partitions.by_name[name] for name in sorted(partitions.by_name)]
    else:
        topics = [find_topic(partitions, request.topic, request.partition)]
    return partitions_after(topics, TopicPartitions.all, request.partition, request.after)


async def _entries(partition: Partition, lowest: int, count: int) -> list[ProducerEntry]:
    """Return the first `count` producers whose ids are above `lowest`, by id. Let requests in between: a
    partition may remember a million producers.
    """
    entries = list(partition.log.producers)
    found: list[ProducerEntry] = []
    async for first in in_slices(range(0, len(entries), ENTRIES_AT_ONCE)):
        later = [entry for entry in entries[first : first + ENTRIES_AT_ONCE] if entry.producer_id > lowest]
        found = heapq.nsmallest(count, chain(found, later), key=lambda entry: entry.producer_id)
    return found


def _row(partition: Partition, entry: ProducerEntry, now_ms: int, clients: ProducerClients) -> ProducerRow:
    return ProducerRow(
        topic=partition.topic,
        partition=partition.index,
        producer_id=entry.producer_id,
        producer_epoch=entry.producer_epoch,
        last_sequence=entry.last_sequence,
        last_offset=entry.last_offset,
        last_timestamp=entry.last_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=entry.current_transaction_first_offset,
        age_ms=max(0, now_ms - entry.last_active_ms),
        retained_batches=len(entry.batches),
        client=clients.find(entry.producer_id, entry.producer_epoch),
    )
