"""Composes the parts that serve requests from a data directory, for the gateway and for tests without
sockets. Nothing runs by itself: the caller starts the coordinators with `start_coordinators`, and then what
else it needs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from seqgate.gateway.config import Config
from seqgate.gateway.config.load import inter_broker_listener
from seqgate.gateway.peer.peers import Peers
from seqgate.gateway.runtime.backlog import Backlog
from seqgate.gateway.runtime.client_quotas import ClientQuotas
from seqgate.gateway.runtime.coordinators.dead_letters import DeadLetters
from seqgate.gateway.runtime.coordinators.group_configs import GroupConfigs
from seqgate.gateway.runtime.coordinators.group_coordinator import GroupCoordinator
from seqgate.gateway.runtime.coordinators.shards import StateParts
from seqgate.gateway.runtime.coordinators.share_coordinator import ShareCoordinator
from seqgate.gateway.runtime.coordinators.streams_topics import StreamsTopics
from seqgate.gateway.runtime.coordinators.transaction_coordinator import TransactionCoordinator
from seqgate.gateway.runtime.coordinators.transaction_markers import TransactionMarkers
from seqgate.gateway.runtime.coordinators.transactions_elsewhere import TransactionsElsewhere
from seqgate.gateway.runtime.loop.audit import AuditLog
from seqgate.gateway.runtime.loop.clock import ClockChanges, TaskList
from seqgate.gateway.runtime.loop.machine import Machine
from seqgate.gateway.runtime.loop.request_memory import RequestMemory
from seqgate.gateway.runtime.partitions.batch_threads import BatchThreads
from seqgate.gateway.runtime.partitions.cold_reads import ColdReads, Fetcher
from seqgate.gateway.runtime.partitions.fetch_sessions import FetchSessionCache
from seqgate.gateway.runtime.partitions.flusher import LogFlusher
from seqgate.gateway.runtime.partitions.partition import (
    ALWAYS_READY,
    STRICT_MS,
    AppendTimes,
    Readiness,
    Recoveries,
)
from seqgate.gateway.runtime.partitions.registry import Partitions
from seqgate.gateway.runtime.services import (
    AnswersQuestions,
    CoordinatorServices,
    NodeServices,
    PartitionServices,
    SecurityServices,
    Services,
    TopicServices,
    UpkeepServices,
)
from seqgate.gateway.runtime.telemetry import Telemetry
from seqgate.gateway.runtime.topics.acl_access import open_access
from seqgate.gateway.runtime.topics.brokers import Brokers
from seqgate.gateway.runtime.topics.delegation_tokens import DelegationTokens
from seqgate.gateway.runtime.topics.metadata_log import (
    ImageWaiters,
    MetadataJournal,
    MetadataLog,
    open_metadata_log,
)
from seqgate.gateway.runtime.topics.metadata_news import MetadataNews
from seqgate.gateway.runtime.topics.producer_ids import SEEN_FILE, open_producer_ids, open_store
from seqgate.gateway.runtime.topics.topic_lifecycle import InternalTopics, TopicLifecycle
from seqgate.gateway.runtime.upkeep.backup_staging import BackupStaging, StageAll
from seqgate.gateway.runtime.upkeep.compaction import Compaction, Hold
from seqgate.gateway.runtime.upkeep.disk_room import DiskRoom
from seqgate.log import LogDirectory, PartitionLog
from seqgate.seq_validator import RefusalLimit

if TYPE_CHECKING:
    from seqgate.gateway.cluster.silence import Lease
    from seqgate.gateway.cluster.uploads.uploads import Uploads
    from seqgate.gateway.cluster.wal.backups import SessionHolds


async def open_metadata(
    directory: LogDirectory, journal_over: Callable[[PartitionLog], MetadataJournal]
) -> MetadataLog:
    """Read the metadata of a data directory, and what others have changed since. Raises LogError,
    IncompatibleFormat, OSError, ValueError. `journal_over` returns the journal of the metadata over its local
    log.
    """
    metadata_log = MetadataLog(journal_over(open_metadata_log(directory)))
    metadata_log.replay()
    await metadata_log.catch_up()
    return metadata_log


class Surroundings(NamedTuple):
    """The parts that a store of durable records brings along; a local disk, the default, brings none."""

    fetcher: Fetcher | None = None
    """Has the blocks that the disk lacks."""
    readiness: Readiness = ALWAYS_READY
    """Says of which partitions the records must come before they are served."""
    lease: Lease | None = None
    """None where no other gateway can take the partitions over."""
    hold: Hold | None = None
    """Keeps whole segment files on the local disk while another process reads them."""
    has_whole_directory: bool = True
    """Whether the data directory is this process's alone and has all records, so it can be backed up."""
    stage_all: StageAll | None = None
    """Stages the shares that this process and others have of one data directory."""
    find_uploads: Callable[[], Uploads | None] = lambda: None
    holds: SessionHolds | None = None
    """Holds the session for a backup of the bucket; None without a bucket."""


LOCAL_DISK: Final = Surroundings()


async def compose(
    config: Config,
    machine: Machine,
    directory: LogDirectory,
    flusher: LogFlusher,
    metadata_log: MetadataLog,
    around: Surroundings = LOCAL_DISK,
    *,
    shows_metrics: bool = False,
    questions: AnswersQuestions | None = None,
) -> Services:
    """Put all parts together, and open the partitions that the metadata names."""
    access = open_access(config, metadata_log)
    node_id = config.int("node.id")
    brokers = Brokers(metadata_log.image, node_id, config.optional_str("broker.rack"))
    peers = Peers(config, node_id, partial(brokers.peer_address, inter_broker_listener(config)))
    metadata_log.add_listener(peers.metadata_changed)
    news = MetadataNews(brokers, peers, lambda: metadata_log.last_offset)
    metadata_log.when_committed.append(news.changed)
    lease = around.lease
    strict_until = (lambda: 0) if lease is None else (lambda: machine.clock.now_ms() + STRICT_MS)
    partitions = Partitions(lease, strict_until)
    recoveries = Recoveries(flusher, machine.clock)
    lifecycle = TopicLifecycle(
        config=config,
        brokers=brokers,
        metadata_log=metadata_log,
        directory=directory,
        partitions=partitions,
        flusher=flusher,
        recoveries=recoveries,
        readiness=around.readiness,
    )
    await lifecycle.start()
    blocks = open_store(config, metadata_log, Path(directory.files), machine.storage)
    producer_ids = open_producer_ids(config, blocks, machine.clock)
    group_configs = GroupConfigs(config, metadata_log)
    internal_topics = InternalTopics(metadata_log, partitions, brokers)
    clock = ClockChanges(machine.clock, machine.seconds)
    parts = StateParts(config, clock, partitions, internal_topics, flusher)
    groups = GroupCoordinator(parts, metadata_log, group_configs)
    cold_reads = _cold_reads(config, machine, flusher, around.fetcher)
    shares = ShareCoordinator(parts, group_configs, groups, peers, node_id, cold_reads)
    deletions = directory.environment.deletions
    clock.listeners.extend((groups.clock_was_set, shares.clock_was_set, deletions.clock_was_set))
    markers = TransactionMarkers(machine.clock, partitions, metadata_log.image, brokers, peers)
    elsewhere = TransactionsElsewhere(brokers, internal_topics, peers)
    markers.listeners.extend((elsewhere.transaction_ended, groups.transaction_ended))
    metadata_log.add_listener(markers.metadata_changed)
    transactions = TransactionCoordinator(parts._replace(clock=machine.clock), producer_ids, markers)
    quotas = ClientQuotas(config, machine.clock, machine.seconds)
    quotas.follow(metadata_log)
    memory = RequestMemory(config.int("queued.max.request.bytes"))
    compaction = Compaction(
        config, machine.clock, partitions, directory, lifecycle, machine.cleaner, cold_reads, around.hold
    )
    loop = asyncio.get_running_loop()
    node = NodeServices(
        config,
        machine.clock,
        loop,
        node_id,
        directory.cluster_id,
        quotas,
        brokers,
        peers,
        news,
        memory,
        TaskList(machine.clock),
        AuditLog(loop, is_on=access.is_on and config.bool("seqgate.audit.enable")),
        access,
        questions,
    )
    backups = BackupStaging(
        machine.clock, directory, node.tasks, compaction.swapping, (SEEN_FILE,), around.stage_all
    )
    services = Services(
        node=node,
        partitions=PartitionServices(
            registry=partitions,
            log_directory=directory,
            flusher=flusher,
            recoveries=recoveries,
            markers=markers,
            cold_reads=cold_reads,
            batch_threads=BatchThreads(
                asyncio.get_running_loop(),
                threads=config.int("seqgate.recompression.threads"),
                machine=machine,
            ),
            fetch_sessions=FetchSessionCache(config.int("max.incremental.fetch.session.cache.slots")),
            refusals=RefusalLimit(config.int("seqgate.refused.batches.max")),
            append_times=AppendTimes(machine.seconds) if shows_metrics else None,
        ),
        topics=TopicServices(metadata_log, lifecycle, ImageWaiters(metadata_log)),
        coordinators=CoordinatorServices(
            groups,
            group_configs,
            shares,
            DeadLetters(
                config,
                machine.clock,
                partitions,
                metadata_log,
                group_configs,
                shares,
                cold_reads,
                brokers,
                peers,
            ),
            transactions,
            elsewhere,
            producer_ids,
            StreamsTopics(machine.clock),
        ),
        upkeep=UpkeepServices(
            backlog=Backlog(
                config,
                machine.clock,
                partitions,
                directory,
                metadata_log,
                groups,
                shares,
                brokers,
                peers,
                memory,
                cold_reads,
            ),
            disk_room=DiskRoom(config, directory, partitions, recoveries),
            compaction=compaction,
            backups=backups if around.has_whole_directory or around.stage_all is not None else None,
            find_uploads=around.find_uploads,
            holds=around.holds,
        ),
        security=SecurityServices(metadata_log, DelegationTokens(config, machine.clock, metadata_log)),
        telemetry=Telemetry(config, machine, asyncio.get_running_loop(), metadata_log),
    )
    if flusher.unwritten is not None:
        flusher.unwritten.when_changed.append(services.upkeep.disk_room.bucket_lags)
    services.partitions.follow(config)
    return services


def _cold_reads(config: Config, machine: Machine, flusher: LogFlusher, fetcher: Fetcher | None) -> ColdReads:
    threads = config.int("seqgate.catch.up.threads")
    return ColdReads(
        asyncio.get_running_loop(),
        machine.storage,
        flusher=flusher if flusher.flushes_disk else None,
        threads=threads if fetcher is None else max(1, threads),
        fetcher=fetcher,
        cache_bytes=config.int("seqgate.catch.up.cache.bytes"),
        cache_max_bytes=config.int("seqgate.catch.up.cache.max.bytes"),
        processes=config.int("seqgate.workers"),
        ahead_bytes=config.int("seqgate.catch.up.read.ahead.bytes"),
        machine=machine,
    )


def start_coordinators(coordinators: CoordinatorServices, topics: TopicServices) -> None:
    """Load the state of groups, share groups and transactions. Raises IncompatibleFormat."""
    coordinators.groups.start()
    coordinators.shares.start()
    topics.metadata_log.add_listener(coordinators.shares.metadata_changed)
    coordinators.transactions.start()


def stop_coordinators(coordinators: CoordinatorServices) -> None:
    """Refuse everyone who waits for a coordinator; decided transactions end after the next start."""
    coordinators.transactions.stop()
    coordinators.groups.stop()
    coordinators.letters.stop()
    coordinators.shares.stop()
