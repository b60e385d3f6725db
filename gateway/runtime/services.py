"""The parts that handlers and operations may use, put together once by the composition root.

Each record is one subject. A handler names the records that it reaches in its row (`Api.reaches`), and an
operation in its parameters.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from seqgate.gateway.config import Config
from seqgate.gateway.peer.peers import Peers
from seqgate.gateway.runtime.backlog import Backlog
from seqgate.gateway.runtime.client_quotas import ClientQuotas
from seqgate.gateway.runtime.coordinators.dead_letters import DeadLetters
from seqgate.gateway.runtime.coordinators.group_configs import GroupConfigs
from seqgate.gateway.runtime.coordinators.group_coordinator import GroupCoordinator
from seqgate.gateway.runtime.coordinators.share_coordinator import ShareCoordinator
from seqgate.gateway.runtime.coordinators.streams_topics import StreamsTopics
from seqgate.gateway.runtime.coordinators.transaction_coordinator import TransactionCoordinator
from seqgate.gateway.runtime.coordinators.transaction_markers import TransactionMarkers
from seqgate.gateway.runtime.coordinators.transactions_elsewhere import TransactionsElsewhere
from seqgate.gateway.runtime.loop.audit import AuditLog, Requester
from seqgate.gateway.runtime.loop.clock import Clock, TaskList
from seqgate.gateway.runtime.loop.log_output import SparseLines
from seqgate.gateway.runtime.loop.request_memory import RequestMemory
from seqgate.gateway.runtime.partitions.batch_threads import BatchThreads
from seqgate.gateway.runtime.partitions.cold_reads import ColdReads
from seqgate.gateway.runtime.partitions.fetch_sessions import FetchSessionCache
from seqgate.gateway.runtime.partitions.flusher import LogFlusher
from seqgate.gateway.runtime.partitions.partition import AppendTimes, Recoveries
from seqgate.gateway.runtime.partitions.producer_clients import ProducerClients
from seqgate.gateway.runtime.partitions.registry import Partitions
from seqgate.gateway.runtime.partitions.verdicts import RETRIED_EVERY_MS, Verdicts
from seqgate.gateway.runtime.telemetry import Telemetry
from seqgate.gateway.runtime.topics.brokers import Brokers, Endpoint
from seqgate.gateway.runtime.topics.delegation_tokens import DelegationTokens
from seqgate.gateway.runtime.topics.metadata_log import ImageWaiters, MetadataLog
from seqgate.gateway.runtime.topics.metadata_news import MetadataNews
from seqgate.gateway.runtime.topics.topic_lifecycle import TopicLifecycle
from seqgate.gateway.runtime.upkeep.disk_room import DiskRoom
from seqgate.gateway.security.acls.access import Access, Operation
from seqgate.gateway.security.certificates import RenewableListener
from seqgate.log import LogDirectory
from seqgate.pid_allocator import ProducerIdAllocator
from seqgate.seq_validator import RefusalLimit

if TYPE_CHECKING:
    from seqgate.gateway.cluster.bucket_reads import BucketReads
    from seqgate.gateway.cluster.uploads.uploads import Uploads
    from seqgate.gateway.cluster.wal.backups import SessionHolds
    from seqgate.gateway.runtime.topics.read_replicas import ReadReplicas
    from seqgate.gateway.runtime.upkeep.backup_staging import BackupStaging
    from seqgate.gateway.runtime.upkeep.compaction import Compaction


AnswersQuestions = Callable[[str, Callable[[Operation], bool], Requester], Awaitable[bytes]]
"""Returns the answer to a question of another gateway, or of a command, about this gateway, both as JSON. The
function tells whether the asker has a right on the cluster.
"""


class NodeServices(msgspec.Struct):
    """The node itself: settings, time, event loop, identity and long tasks. Every handler can use it."""

    config: Config
    clock: Clock
    loop: asyncio.AbstractEventLoop
    node_id: int
    cluster_id: str
    quotas: ClientQuotas
    brokers: Brokers
    """This gateway's advertised addresses, and the other brokers."""
    peers: Peers
    """The client that asks the other gateways."""
    news: MetadataNews
    """Tells the other gateways of changes of the metadata."""
    memory: RequestMemory
    """The memory for requests that arrive in parts, or that wait."""
    tasks: TaskList
    audit: AuditLog
    """The log of refused requests and administrative changes."""
    access: Access
    """The authorizer: it decides what each principal may do."""
    questions: AnswersQuestions | None = None
    """Answers questions that come with DescribeCluster; None where nobody can."""
    bound: dict[str, Endpoint] = {}
    """The address that each listener is bound to, by its name; 0.0.0.0 or :: is every interface."""
    tls_listeners: dict[str, RenewableListener] = {}


@dataclass(slots=True)
class BatchCounters:
    duplicates: int = 0
    """Batches answered with the offset of their original."""
    rejections: int = 0
    """Batches refused for their sequence or epoch."""
    backlog_refusals: int = 0
    """Batches refused because a backlog is over its quota."""
    verdicts: Verdicts = field(default_factory=Verdicts)
    retried: SparseLines[int] = field(default_factory=lambda: SparseLines(RETRIED_EVERY_MS))
    """The log lines about batches that clients send again until the cause is gone, by error and time (ms)."""
    clients: ProducerClients = field(default_factory=ProducerClients)


class PartitionServices(msgspec.Struct):
    """The partitions that this node serves, and how their records are written and read."""

    registry: Partitions
    log_directory: LogDirectory
    flusher: LogFlusher
    recoveries: Recoveries
    markers: TransactionMarkers
    """Appends the markers that end transactions, here and at other leaders."""
    cold_reads: ColdReads
    batch_threads: BatchThreads
    fetch_sessions: FetchSessionCache
    refusals: RefusalLimit
    """The refused batches that all connections track."""
    append_times: AppendTimes | None
    """Times appends; None while nobody reads metrics."""
    replicas: ReadReplicas | None = None
    """Chooses the gateways that consumers read uploaded records from; None where only leaders serve."""
    bucket_reads: BucketReads | None = None
    """Reads uploaded records of partitions that other gateways lead; None where only leaders serve."""
    counters: BatchCounters = msgspec.field(default_factory=BatchCounters)
    fetch_max_bytes: int = 0
    """The present value of `fetch.max.bytes`."""

    def follow(self, config: Config) -> None:
        """Follow the limits of fetches, of fetch sessions, and of the clients of producers."""

        def take() -> None:
            self.counters.clients.limit = config.int("seqgate.producer.clients.max")
            self.fetch_max_bytes = config.int("fetch.max.bytes")
            self.fetch_sessions.most_partitions = config.int("seqgate.fetch.session.max.partitions")

        config.follow(take)

    def let_replicas_serve(self, replicas: ReadReplicas | None, bucket_reads: BucketReads | None) -> None:
        """Let consumers read uploaded records at others than the leader; with None only leaders serve."""
        self.replicas, self.bucket_reads = replicas, bucket_reads


class TopicServices(msgspec.Struct):
    """The metadata of topics, and the parts that carry out changes of topics."""

    metadata_log: MetadataLog
    lifecycle: TopicLifecycle
    waiters: ImageWaiters
    """Requests that wait for a change of the metadata."""


class CoordinatorServices(msgspec.Struct):
    """The coordinators, the producer ids, and the topics that groups create."""

    groups: GroupCoordinator
    group_configs: GroupConfigs
    shares: ShareCoordinator
    letters: DeadLetters
    transactions: TransactionCoordinator
    elsewhere: TransactionsElsewhere
    """The transactions that another gateway coordinates."""
    producer_ids: ProducerIdAllocator
    streams_topics: StreamsTopics


class SecurityServices(msgspec.Struct):
    """The delegation tokens, and the metadata that stores them."""

    metadata_log: MetadataLog
    tokens: DelegationTokens


class UpkeepServices(msgspec.Struct):
    """The upkeep of the data: backlog quotas of topics, room on the disk, and work on files."""

    backlog: Backlog
    disk_room: DiskRoom
    compaction: Compaction
    backups: BackupStaging | None
    """Stages backups; None where a bucket has the records."""
    find_uploads: Callable[[], Uploads | None]
    """Returns the uploads into the bucket; None without a bucket, and before the gateway serves."""
    holds: SessionHolds | None = None
    """Holds the session for a backup of the bucket; None without a bucket."""


class Services(msgspec.Struct):
    """All services. A function that takes this type can use every part; take only what it needs."""

    node: NodeServices
    partitions: PartitionServices
    topics: TopicServices
    coordinators: CoordinatorServices
    upkeep: UpkeepServices
    security: SecurityServices
    telemetry: Telemetry
    """The metrics that clients push."""
