"""The backlogs of a running gateway."""

from __future__ import annotations

import asyncio
from typing import Final

from seqgate.gateway.admin.backlog.command import (
    ELSEWHERE,
    NO_LIMIT,
    OPEN,
    BacklogPage,
    BacklogReader,
    BacklogRequest,
    LimitedTopics,
    LimitedTopicsRequest,
    PartitionBacklog,
)
from seqgate.gateway.admin.operation import LiveGateway, find_topic
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.quota.backlog import GroupReader, ProduceGate
from seqgate.gateway.runtime.backlogs.backlog import Backlog
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.log import LogError

HOLDING: Final = "holding"
REFUSING: Final = "refusing"


def limited_topics(gateway: LiveGateway, _: LimitedTopicsRequest) -> LimitedTopics:
    """Return the topics with a quota or a TTL."""
    services = gateway.services
    rules = services.upkeep.backlog.rules_of
    limits = {name: rules(name) for name in services.partitions.registry.by_name}
    return LimitedTopics(
        sorted(
            name
            for name, each in limits.items()
            if max(each.quota_bytes, each.quota_ms, each.ttl_ms) > NO_LIMIT
        )
    )


async def backlog_of(gateway: LiveGateway, request: BacklogRequest) -> BacklogPage:
    """Measure the backlogs of one topic; a page ends when it has `limit` groups. Raises ControlError."""
    services = gateway.services
    topic = find_topic(services.partitions.registry, request.topic)
    backlog = services.upkeep.backlog
    readers = await backlog.readers({request.topic})
    rows: list[PartitionBacklog] = []
    room = request.limit
    first = 0 if request.after is None else request.after + 1
    index = max(0, first)
    while index < topic.count and room > 0:
        is_here = topic.refusal(index) is None
        found = readers.get((topic.name, index), []) if is_here else []
        partition = topic.get(index) if found else topic.peek(index)
        if found and partition is None:
            raise ControlError(f"{topic.name}-{index} can't be opened")
        rows.append(
            PartitionBacklog(topic.name, index, verdict=OPEN if is_here else ELSEWHERE)
            if partition is None
            else _row(backlog, partition, found)
        )
        room -= 1 + len(found)
        index += 1
        # Let requests in between: each partition may read files of its log.
        await asyncio.sleep(0)
    rules = backlog.rules_of(request.topic)
    return BacklogPage(
        topic=request.topic,
        quota_bytes=rules.quota_bytes,
        quota_ms=rules.quota_ms,
        policy=rules.policy,
        ttl_ms=rules.ttl_ms,
        waiting_requests=len(backlog.held),
        waiting_bytes=backlog.held.held_bytes,
        partitions=rows,
        complete=index >= topic.count,
    )


def _row(backlog: Backlog, partition: Partition, readers: list[GroupReader]) -> PartitionBacklog:
    try:
        usage = backlog.usage_of(partition, readers)
        rows = [_reader(backlog, partition, reader) for reader in sorted(readers)]
    except LogError as error:
        raise ControlError(f"{partition.topic}-{partition.index} can't be measured: {error}") from error
    return PartitionBacklog(
        topic=partition.topic,
        partition=partition.index,
        backlog_bytes=usage.backlog_bytes,
        age_ms=usage.age_ms,
        slowest=None if usage.slowest is None else usage.slowest.group,
        exceeded=usage.exceeded,
        verdict=_verdict(partition.gate),
        refused=0 if partition.gate is None else partition.gate.refused_batches,
        readers=rows,
    )


def _reader(backlog: Backlog, partition: Partition, reader: GroupReader) -> BacklogReader:
    skipped = backlog.skipped.of(reader.group, (partition.topic, partition.index))
    return BacklogReader(
        group=reader.group,
        is_share=reader.is_share,
        offset=reader.offset,
        backlog_bytes=partition.log.bytes_from(reader.offset),
        skipped={str(limit): records for limit, records in skipped.records.items()},
    )


def _verdict(gate: ProduceGate | None) -> str:
    if gate is None or not gate.is_closed:
        return OPEN
    return HOLDING if gate.holds else REFUSING
