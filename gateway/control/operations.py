"""What can be asked of a running gateway: functions over its services. Raise ControlError with a sentence."""

from __future__ import annotations

import asyncio
import heapq
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from gateway.control import backlogs, blocks, groups, hanging, names, transactions
from gateway.control.blocks import BlockSource
from gateway.control.errors import ControlError
from gateway.control.group_offsets import reset_offsets
from gateway.control.messages import (
    MAX_PAGE_ROWS,
    AbortHangingRequest,
    AbortTransactionRequest,
    BacklogRequest,
    ClaimBlockRequest,
    DeleteGroupsRequest,
    DescribeGroupRequest,
    DescribeTransactionRequest,
    FindHangingRequest,
    FindOverlapsRequest,
    FindOwnerRequest,
    ListBlocksRequest,
    ListGroupsRequest,
    ListProducersRequest,
    ListTasksRequest,
    ListTransactionsRequest,
    MoveNextRequest,
    NamesRequest,
    ReopenRequest,
    Request,
    ResetOffsetsRequest,
    StatusRequest,
    SweepRequest,
    SweepResultRequest,
    TransactionRequest,
)
from gateway.control.results import (
    OfflinePartition,
    ProducerCounters,
    ProducerPage,
    ProducerRow,
    Reopened,
    Status,
)
from gateway.control.sweep import Sweeps
from gateway.runtime.partitions.partition import Partition
from gateway.runtime.partitions.registry import Partitions
from gateway.runtime.services import Services
from log import LogError
from seq_validator import ProducerEntry


class Traffic(NamedTuple):
    """What the listeners have seen: connections now, and refused connections and requests since the start."""

    connections: int = 0
    refused_connections: int = 0
    requests: int = 0


@dataclass(slots=True)
class Operations:
    """The operations of one gateway; `traffic` tells what its listeners have seen."""

    services: Services
    source: BlockSource
    traffic: Callable[[], Traffic]
    started_at_ms: int
    sweeps: Sweeps = field(init=False)

    def __post_init__(self) -> None:
        self.sweeps = Sweeps(self.services)

    async def carry_out(self, request: Request) -> Any:
        """The result of a request. Raises ControlError."""
        match request:
            case StatusRequest():
                return self.status()
            case ListProducersRequest():
                return await self.list_producers(request)
            case ReopenRequest():
                return self.reopen(request.topic, request.partition)
            case ListBlocksRequest():
                return await blocks.list_blocks(self.source, request.position, request.limit)
            case FindOwnerRequest():
                return await blocks.find_owner(self.source, request.producer_id)
            case FindOverlapsRequest():
                return await blocks.find_overlaps(self.source)
            case ClaimBlockRequest():
                now_ms = self.services.clock.now_ms()
                return await blocks.claim_block(self.source, request.size, request.owner, now_ms)
            case MoveNextRequest():
                return await blocks.move_next(self.source, request.producer_id)
            case BacklogRequest() | NamesRequest():
                return await self.of_partitions(request)
            case ListGroupsRequest() | DescribeGroupRequest() | ResetOffsetsRequest() | DeleteGroupsRequest():
                return await self.of_groups(request)
            case SweepRequest() | SweepResultRequest() | ListTasksRequest():
                return self.of_sweeps(request)
        return await self.of_transactions(request)

    async def of_partitions(self, request: BacklogRequest | NamesRequest) -> Any:
        """The result of a request about what partitions hold. Raises ControlError."""
        match request:
            case BacklogRequest():
                return await backlogs.backlog_of(self.services, request)
            case NamesRequest():
                return await names.list_names(self.services, request)

    def of_sweeps(self, request: SweepRequest | SweepResultRequest | ListTasksRequest) -> Any:
        """The result of a request about sweeps and tasks. Raises ControlError."""
        match request:
            case SweepRequest():
                return self.sweeps.begin(request)
            case SweepResultRequest():
                return self.sweeps.result(request)
            case ListTasksRequest():
                return self.sweeps.tasks()

    async def of_groups(
        self, request: ListGroupsRequest | DescribeGroupRequest | ResetOffsetsRequest | DeleteGroupsRequest
    ) -> Any:
        """The result of a request about consumer groups. Raises ControlError."""
        match request:
            case ListGroupsRequest():
                return await groups.list_groups(self.services, request)
            case DescribeGroupRequest():
                return await groups.describe_group(self.services, request)
            case ResetOffsetsRequest():
                return await reset_offsets(self.services, request)
            case DeleteGroupsRequest():
                return await groups.delete_groups(self.services, request)

    async def of_transactions(self, request: TransactionRequest) -> Any:
        """The result of a request about transactions. Raises ControlError."""
        match request:
            case ListTransactionsRequest():
                return transactions.list_transactions(self.services, request)
            case DescribeTransactionRequest():
                return transactions.describe_transaction(self.services, request)
            case FindHangingRequest():
                return await hanging.find_hanging(self.services, request)
            case AbortTransactionRequest():
                return await transactions.abort_transaction(self.services, request)
            case AbortHangingRequest():
                return await hanging.abort_hanging(self.services, request)

    def status(self) -> Status:
        """How the gateway is now."""
        services = self.services
        traffic = self.traffic()
        state = services.producer_ids.state()
        prefetched = 0 if state.prefetched is None else state.prefetched.size
        return Status(
            version=_version(),
            pid=os.getpid(),
            node_id=services.node_id,
            cluster_id=services.cluster_id,
            data_dir=str(Path(services.config.str("log.dirs")).absolute()),
            listeners={
                name: f"{endpoint.host}:{endpoint.port}" for name, endpoint in services.advertised.items()
            },
            uptime_ms=services.clock.now_ms() - self.started_at_ms,
            topics=len(services.partitions.by_name),
            partitions=len(services.partitions),
            offline_partitions=_offline(services.partitions),
            connections=traffic.connections,
            refused_connections=traffic.refused_connections,
            requests=traffic.requests,
            flush_rounds=services.flusher.rounds,
            flush_failures=services.flusher.failures,
            producer_id_store=self.source.name,
            producer_ids_left=state.left + prefetched,
            producer_id_store_error=state.last_error,
            counters=self.counters(),
            names=names.name_counters(services),
        )

    def counters(self) -> ProducerCounters:
        """What became of producers and their batches since the start."""
        services = self.services
        limit = services.log_directory.environment.producer_limit
        return ProducerCounters(
            duplicates=services.duplicates,
            rejections=services.rejections,
            evictions=0 if limit is None else limit.evictions,
            refusals=0 if limit is None else limit.refusals,
            remembered=sum(len(partition.log.producers) for partition in services.partitions),
        )

    async def list_producers(self, request: ListProducersRequest) -> ProducerPage:
        """One page of the active producers, by topic, partition and producer id."""
        if not 1 <= request.limit <= MAX_PAGE_ROWS:
            raise ControlError(f"a page has 1 to {MAX_PAGE_ROWS} rows")
        now_ms = self.services.clock.now_ms()
        rows: list[ProducerRow] = []
        for partition in list(self._wanted(request)):
            lowest = -1
            if request.after is not None and request.after[:2] == (partition.topic, partition.index):
                lowest = request.after[2]
            room = request.limit + 1 - len(rows)
            rows.extend(
                _producer_row(partition, entry, now_ms) for entry in _entries(partition, lowest, room)
            )
            if len(rows) > request.limit:
                break
            # a hundred thousand partitions must not hold up a request
            await asyncio.sleep(0)
        complete = len(rows) <= request.limit
        return ProducerPage(rows[: request.limit], complete, self.counters())

    def _wanted(self, request: ListProducersRequest) -> Iterator[Partition]:
        partitions = self.services.partitions
        names = sorted(partitions.by_name)
        if request.topic is not None:
            if request.topic not in partitions.by_name:
                raise ControlError(f"there is no topic {request.topic}")
            names = [request.topic]
            if request.partition is not None and not partitions.has(request.topic, request.partition):
                raise ControlError(f"topic {request.topic} has no partition {request.partition}")
        for name in names:
            for partition in partitions.by_name[name].all():
                if request.after is not None and (name, partition.index) < request.after[:2]:
                    continue
                if request.partition is None or partition.index == request.partition:
                    yield partition

    def reopen(self, topic: str, index: int) -> Reopened:
        """Bring an offline partition back, after what took it out of service is mended."""
        partition = self.services.partitions.get(topic, index)
        if partition is None:
            raise ControlError(f"there is no partition {topic}-{index}")
        log = partition.log
        if not log.offline:
            raise ControlError(f"{topic}-{index} is not offline")
        try:
            partition.reopen(self.services.clock.now_ms())
        except (LogError, OSError) as error:
            raise ControlError(f"{topic}-{index} stays offline: {error}") from error
        return Reopened(topic, index, log.log_start_offset, log.log_end_offset)


def _version() -> str:
    from importlib import metadata  # noqa: PLC0415 - slow to import, and few ask

    try:
        return metadata.version("seqgate")
    except metadata.PackageNotFoundError:
        return "not installed"


def _entries(partition: Partition, lowest: int, count: int) -> list[ProducerEntry]:
    """Up to `count` entries with ids beyond `lowest`, by id."""
    entries = (entry for entry in partition.log.producers if entry.producer_id > lowest)
    return heapq.nsmallest(count, entries, key=lambda entry: entry.producer_id)


def _producer_row(partition: Partition, entry: ProducerEntry, now_ms: int) -> ProducerRow:
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
    )


def _offline(partitions: Partitions) -> list[OfflinePartition]:
    offline = [
        OfflinePartition(partition.topic, partition.index, partition.log.failure or "unknown")
        for partition in partitions
        if partition.log.offline
    ]
    offline += [
        OfflinePartition(topic.name, index, "it can't be opened")
        for topic in partitions.by_name.values()
        for index in topic.failed
    ]
    return offline
