"""Creates, changes and deletes partition logs as topics and configs change, and reconciles both at the start.

The metadata image is the truth. A crash can leave a record without its directory, or a directory without its
record. A missing directory is created when its partition is first opened. A start deletes a directory without
a topic if the topic was deleted, or if the directory has no records. Otherwise it sets the directory aside.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final, cast

import msgspec

from seqgate.gateway.config import Config
from seqgate.gateway.config.table import BY_TOPIC_NAME
from seqgate.gateway.config.topics import PRODUCER, UNCOMPRESSED
from seqgate.gateway.metadata.decision import Decision
from seqgate.gateway.metadata.image import (
    ALL_BROKERS,
    BROKER_RESOURCE,
    INTERNAL_TOPICS,
    METADATA_TOPIC,
    TOPIC_RESOURCE,
    TRANSACTION_STATE_TOPIC,
    MetadataImage,
    TopicImage,
)
from seqgate.gateway.metadata.java_hash_map import string_hash
from seqgate.gateway.metadata.records import (
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from seqgate.gateway.metadata.topics import create_internal_topic
from seqgate.gateway.runtime.partitions.flusher import LogFlusher
from seqgate.gateway.runtime.partitions.partition import (
    ALWAYS_READY,
    FLUSH_NEVER,
    Partition,
    Readiness,
    Recoveries,
    write_checkpoint,
)
from seqgate.gateway.runtime.partitions.registry import Partitions
from seqgate.gateway.runtime.topics.brokers import NO_LEADER, Brokers
from seqgate.gateway.runtime.topics.metadata_log import MetadataLog
from seqgate.log import IncompatibleFormat, LogConfig, LogDirectory, LogError, NeedsRecovery
from seqgate.log.format.compression import CODEC_IDS, NONE, Compression

logger = logging.getLogger(__name__)

_LOGS_AT_ONCE = 4
"""Partition logs created or deleted before other work of the event loop runs."""
_POLICIES_AT_ONCE = 500
"""Topics and partitions that get a new policy before other work of the event loop runs."""


class TopicLifecycle:
    """Keeps the partition logs and the registry of partitions in step with the metadata image."""

    def __init__(
        self,
        *,
        config: Config,
        brokers: Brokers,
        metadata_log: MetadataLog,
        directory: LogDirectory,
        partitions: Partitions,
        flusher: LogFlusher,
        recoveries: Recoveries,
        readiness: Readiness = ALWAYS_READY,
    ) -> None:
        self._config = config
        self._brokers = brokers
        self._metadata_log = metadata_log
        self._directory = directory
        self._partitions = partitions
        self._flusher = flusher
        self._recoveries = recoveries
        self._readiness = readiness
        self._policies: dict[str, TopicPolicy] = {}
        self._plain_policy: TopicPolicy | None = None
        """The policy of every topic without configurations of its own."""
        self._freeing: asyncio.Task[None] | None = None
        """The checkpoint that is written in the background for partitions whose names are taken."""
        self._altering: str | None = None
        """The topic whose delay header is being changed in its partitions."""

    async def start(self) -> None:
        """Bring the data directory in line with the image, then follow its changes. This opens the partitions
        that recovery had to check, and those with open transactions; the others open when they are first
        used. A partition that can't be opened is logged, and recovered in a thread when it is used again.
        """
        self._apply_broker_configs()
        self._readiness.begin(self._metadata_log.image)
        await self._delete_strays()
        if self._directory.has_taken_names:
            await self._free_names()
        for topic in self._metadata_log.image.topics_by_name.values():
            self._register(topic)
        self.open_needed()
        self._directory.begin_serving()
        self._metadata_log.add_listener(self.changed)
        self._partitions.tables += [
            self._policies,
            *self._metadata_log.image.tables,
            *self._directory.environment.tables,
        ]

    def open_needed(self) -> None:
        """Open the partitions that recovery had to check, and those with open transactions."""
        stored = self._directory.stored().items()
        wanted = [key for key, log in stored if log.stop is not None and log.stop.has_open_transactions]
        wanted += [(log.topic, log.partition) for log in self._directory.logs()]
        for key in wanted:
            self._partitions.get(*key)

    async def changed(self, records: Sequence[MetadataRecord]) -> None:
        image = self._metadata_log.image
        topic_ids = dict.fromkeys(
            record.topic_id for record in records if isinstance(record, TopicRecord | PartitionRecord)
        )
        if any(isinstance(record, RemoveTopicRecord) for record in records):
            await self._delete_removed(records)
        configs = [record for record in records if isinstance(record, ConfigRecord)]
        await self._alter_delays(
            record.resource_name for record in configs if record.name == "delivery.delay.header"
        )
        if any(record.resource_type == BROKER_RESOURCE for record in configs):
            self._apply_broker_configs()
            await self._apply_policies(image.topics_by_name)
        else:
            altered = (record.resource_name for record in configs if record.resource_type == TOPIC_RESOURCE)
            await self._apply_policies(dict.fromkeys(altered))
        topics = [image.topics_by_id[topic_id] for topic_id in topic_ids if topic_id in image.topics_by_id]
        if any(
            self._directory.is_name_taken(topic.name, index) for topic in topics for index in topic.partitions
        ):
            await self._free_names()
        for topic in topics:
            self._register(topic)
        self._follow_leaders(records)

    def _follow_leaders(self, records: Sequence[MetadataRecord]) -> None:
        """Give up the partitions that others lead now, and begin new leader epochs of those that stay."""
        topics_by_id, changed = self._metadata_log.image.topics_by_id, []
        for record in records:
            if isinstance(record, PartitionRecord) and (topic := topics_by_id.get(record.topic_id)):
                changed.append((topic.name, record.partition_id))
                if record.leader != self._brokers.node_id and not self._brokers.is_alone:
                    # Also if a later record names this gateway again: the partition has other records then.
                    self._lose(*changed[-1])
        if any(isinstance(record, RegisterBrokerRecord) for record in records):
            # The first registration ends the time in which this gateway led everything.
            changed = [(partition.topic, partition.index) for partition in self._partitions]
        for name, index in changed:
            self._follow_leader(name, index)

    def _lose(self, name: str, index: int) -> None:
        self._partitions.release(name, index)
        self._readiness.lost(name, self._metadata_log.image.topics_by_name[name].topic_id, index)

    def _follow_leader(self, name: str, index: int) -> None:
        served = self._partitions.by_name.get(name)
        partition = None if served is None else served.peek(index)
        if partition is None:
            return
        image = self._metadata_log.image.topics_by_name[name].partitions[index]
        if not self._brokers.leads(image):
            self._lose(name, index)
        elif image.leader_epoch > partition.leader_epoch:
            partition.begin_leader_epoch(image.leader_epoch)

    def _free_names_soon(self) -> None:
        """Write the recovery points in the background. A later request opens what can't be opened before."""
        if self._freeing is None or self._freeing.done():
            self._freeing = asyncio.create_task(self._free_names())

    async def _free_names(self) -> None:
        """Let new logs have the names of deleted ones: write the recovery points, in a thread, without the
        deleted logs. If that fails, such a partition can't be opened before the next checkpoint.
        """
        try:
            await write_checkpoint(self._directory)
        except OSError as error:
            logger.error(  # noqa: TRY400
                "the recovery points can't be written; until they are, new partitions that have the name of "
                "a deleted one can't be opened: %s",
                error,
            )

    def _register(self, topic: TopicImage) -> None:
        self._partitions.register(topic.name, topic.topic_id, len(topic.partitions), self)

    def open_if_retention_is_due(self, key: tuple[str, int], now_ms: int) -> None:
        """Open a partition (topic, index) that is closed and may hold records which retention deletes, or an
        active segment that must close in time because only closed segments are compacted.
        """
        stored = self._directory.stored().get(key)
        if stored is None:
            return
        config = self._policy(key[0]).log_config
        if stored.may_outlive_retention(config, now_ms) or (
            config.compact and self._directory.may_roll(key, config, now_ms)
        ):
            self._partitions.get(*key)

    def open_if_compaction_is_due(self, key: tuple[str, int], clean_end_offset: int | None) -> None:
        """Open a partition (topic, index) that is closed and may hold records which are not compacted yet."""
        stored = self._directory.stored().get(key)
        if stored is not None and self._policy(key[0]).log_config.compact:
            stop = stored.stop
            if stop is None or stop.active_base_offset > (clean_end_offset or 0):
                self._partitions.get(*key)

    def _policy(self, topic: str) -> TopicPolicy:
        policy = self._policies.get(topic)
        if policy is None:
            policy = self._policies[topic] = self._make_policy(topic)
        return policy

    def _make_policy(self, topic: str) -> TopicPolicy:
        overrides = self._metadata_log.image.topic_configs(topic)
        if not overrides and topic not in INTERNAL_TOPICS:
            if self._plain_policy is None:
                self._plain_policy = topic_policy(self._config, overrides)
            return self._plain_policy
        policy = topic_policy(self._config, overrides)
        if topic in INTERNAL_TOPICS:
            # The coordinator alone deletes and writes here, so no client's batch needs decoding.
            kept = replace(
                policy.log_config,
                retention_ms=-1,
                retention_bytes=-1,
                compact=False,
                deep_validation=False,
                delivery_delay_header="",
                deduplicates=False,
            )
            policy = msgspec.structs.replace(policy, log_config=kept, compression=None)
        return policy

    def _apply_broker_configs(self) -> None:
        image = self._metadata_log.image
        self._policies.clear()
        self._plain_policy = None
        self._config.set_dynamic(image.configs(BROKER_RESOURCE, ALL_BROKERS), all_brokers=True)
        self._config.set_dynamic(
            image.configs(BROKER_RESOURCE, str(self._brokers.node_id)), all_brokers=False
        )

    async def _alter_delays(self, topics: Iterable[str]) -> None:
        """Apply a new delay header to a topic's partitions, closed ones included."""
        for name in topics:
            self._policies.pop(name, None)
            served = self._partitions.by_name.get(name)
            if served is None:
                continue
            self._altering = name
            for partition in served.with_records():
                partition.log.alter_delays(self._policy(name).log_config)
                partition.flush_captures()
                await asyncio.sleep(0)
            self._altering = None

    async def _apply_policies(self, topics: Iterable[str]) -> None:
        done = 0
        for name in list(topics):
            self._policies.pop(name, None)
            served = self._partitions.by_name.get(name)
            for partition in list(served.opened()) if served is not None else ():
                policy = self._policy(name)
                try:
                    partition.log.update_config(policy.log_config)
                except LogError as error:
                    # The log must go offline, because its producer names could not be read.
                    partition.log.go_offline(f"its configuration can't be applied: {error}")
                partition.flush_captures()
                partition.compression = policy.compression
                self._partitions.set_flush_policy(partition, *self._flush_policy(policy))
                done += 1
            done += 1
            if done > _POLICIES_AT_ONCE:
                done = 0
                await asyncio.sleep(0)

    def _flush_policy(self, policy: TopicPolicy) -> tuple[int, int]:
        """Return after how many messages and after what time a partition is flushed. In a cluster every
        record waits until the bucket has it: a record that consumers saw earlier could be taken back.
        """
        if self._flusher.keeps_flush_settings:
            return policy.flush_messages, policy.flush_ms
        return 1, FLUSH_NEVER

    def is_empty(self, topic: str, index: int) -> bool:
        return self._directory.is_empty(topic, index)

    def leads(self, topic: str, index: int) -> bool:
        return self._is_ready(topic, index) is True

    def is_awaited(self, topic: str, index: int) -> bool:
        return self._is_ready(topic, index) is False

    def _is_ready(self, topic: str, index: int) -> bool | None:
        """Return whether a partition that this gateway leads is ready; None for any other partition."""
        image = self._metadata_log.image.topics_by_name.get(topic)
        partition = None if image is None else image.partitions.get(index)
        if image is None or partition is None or not self._brokers.serves(topic, index, partition):
            return None
        return self._readiness.is_ready(image.topic_id, index)

    def open(self, topic: str, index: int) -> Partition | None:
        """Open or create a partition's log; log the error and return None when the disk fails."""
        image = self._metadata_log.image.topics_by_name.get(topic)
        if image is None:
            return None
        policy = self._policy(topic)
        flush_messages, flush_ms = self._flush_policy(policy)
        try:
            log = self._directory.get(topic, index)
            if log is not None and log.topic_id != image.topic_id:
                self._take_away(topic, index, log.topic_id, "it belongs to another topic of this name")
                log = None
            is_new = log is None
            if log is None:
                if self._directory.is_name_taken(topic, index):
                    self._free_names_soon()
                log = self._directory.create(topic, image.topic_id, index, policy.log_config)
            else:
                log_config = policy.log_config
                if topic == self._altering:
                    # `alter_delays` follows
                    log_config = replace(log_config, delivery_delay_header="")
                log.update_config(log_config)
            partition = Partition(
                log,
                self._flusher,
                leader_epoch=image.partitions[index].leader_epoch,
                flush_messages=flush_messages,
                flush_ms=flush_ms,
            )
        except NeedsRecovery:
            self._recoveries.open_soon(self._directory, (topic, index), lambda: self._open_late(topic, index))
            return None
        except (LogError, IncompatibleFormat, OSError) as error:
            logger.error("the log of %s-%d can't be opened: %s", topic, index, error)  # noqa: TRY400
            return None
        self._partitions.opened_count += 1
        partition.compression = policy.compression
        self._partitions.set_flush_policy(partition, flush_messages, flush_ms)
        if is_new:
            partition.start_flush()  # this also makes its directory entries durable
        else:
            partition.flush_captures()
        return partition

    def _open_late(self, topic: str, index: int) -> None:
        """Open a recovered log, and let coordinators begin what needs it."""
        if self._partitions.get(topic, index) is not None:
            self._partitions.became_ready(topic, index)

    async def _delete_removed(self, records: Sequence[MetadataRecord]) -> None:
        for record in records:
            if isinstance(record, RemoveTopicRecord):
                served = self._partitions.by_id.get(record.topic_id)
                if served is not None:
                    places = [(served.name, index) for index in range(served.count)]
                    self._partitions.remove_topic(served.name)
                    self._policies.pop(served.name, None)
                    await self._delete(places)

    async def _delete_strays(self) -> None:
        """Delete or set aside the logs that belong to no topic. A crash may have kept the log of a deleted
        topic; such a log is deleted. A log of any other topic should be here, and the metadata has lost it;
        such a log is set aside.
        """
        image = self._metadata_log.image
        count = 0
        stored = [(key, log.topic_id) for key, log in self._directory.stored().items()]
        opened = [((log.topic, log.partition), log.topic_id) for log in self._directory.logs()]
        for key, topic_id in (*stored, *opened):
            name, index = key
            topic = image.topics_by_name.get(name)
            # a log whose topic id can't be read may belong to the topic
            is_its = topic is not None and topic_id in {None, topic.topic_id} and index in topic.partitions
            if name != METADATA_TOPIC and not is_its:
                self._take_away(name, index, topic_id, "it belongs to no topic")
                count += 1
                if count % _LOGS_AT_ONCE == 0:
                    await asyncio.sleep(0)
        image.removed_topic_ids = None

    def _take_away(self, topic: str, index: int, topic_id: uuid.UUID | None, why: str) -> None:
        removed = self._metadata_log.image.removed_topic_ids or ()
        try:
            if topic_id in removed or self._directory.is_empty(topic, index):
                logger.warning("deleting the log of %s-%d: %s", topic, index, why)
                self._directory.delete(topic, index)
            else:
                kept = self._directory.set_aside(topic, index)
                logger.error(
                    "%s-%d is not served: %s, and no topic of its id was deleted; its records are kept as %s",
                    topic,
                    index,
                    why,
                    kept,
                )
        except (LogError, OSError) as error:
            logger.error("the log of %s-%d can't be taken away: %s", topic, index, error)  # noqa: TRY400

    async def _delete(self, logs: Iterable[tuple[str, int]]) -> None:
        for count, (topic, partition) in enumerate(logs, start=1):
            try:
                self._directory.delete(topic, partition)
            except (LogError, OSError) as error:
                logger.error("the log of %s-%d can't be deleted: %s", topic, partition, error)  # noqa: TRY400
            if count % _LOGS_AT_ONCE == 0:
                await asyncio.sleep(0)


_TIMESTAMP_LIMITS: Final = ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")


class TopicPolicy(msgspec.Struct, frozen=True):
    """The effective configuration of a topic: of its logs, their flushes, and the codec of batches."""

    log_config: LogConfig
    flush_messages: int
    flush_ms: int
    compression: Compression | None
    """The codec in which batches are stored; None stores each batch as it was sent."""


def _is_set(config: Config, overrides: Mapping[str, str], topic_name: str) -> bool:
    """Return whether somebody has set a configuration, on the topic or on the broker."""
    value = config.topic_value(topic_name, overrides)
    return topic_name in overrides or value != BY_TOPIC_NAME[topic_name].default


def topic_policy(config: Config, overrides: Mapping[str, str]) -> TopicPolicy:
    def number(name: str) -> int:
        return cast("int", config.topic_value(name, overrides))

    def text(name: str) -> str:
        return cast("str", config.topic_value(name, overrides))

    internal_segment_bytes = config.topic_value("internal.segment.bytes", overrides)
    policies = cast("tuple[str, ...]", config.topic_value("cleanup.policy", overrides))
    delay_header = text("delivery.delay.header")
    # The creation of a topic refuses compaction together with delayed records. A default that is set later
    # for all topics must not delete records that are not due.
    deletes, compacts = "delete" in policies, "compact" in policies and not delay_header
    max_compaction_lag_ms = number("max.compaction.lag.ms")
    log_config = LogConfig(
        segment_bytes=(
            number("segment.bytes") if internal_segment_bytes is None else cast("int", internal_segment_bytes)
        ),
        # Only closed segments are compacted, so each segment must close in time.
        segment_ms=min(number("segment.ms"), max_compaction_lag_ms) if compacts else number("segment.ms"),
        segment_jitter_ms=number("segment.jitter.ms"),
        index_interval_bytes=number("index.interval.bytes"),
        segment_index_bytes=number("segment.index.bytes"),
        max_message_bytes=number("max.message.bytes"),
        message_timestamp_type=text("message.timestamp.type"),
        message_timestamp_before_max_ms=number("message.timestamp.before.max.ms"),
        message_timestamp_after_max_ms=number("message.timestamp.after.max.ms"),
        examines_timestamps=any(_is_set(config, overrides, name) for name in _TIMESTAMP_LIMITS),
        # compaction decodes the batches later, and a batch that can't be decoded would stop compaction for
        # good
        deep_validation=compacts or cast("bool", config.topic_value("message.deep.validation", overrides)),
        max_decompressed_bytes=config.int("seqgate.batch.decompressed.max.bytes"),
        max_record_bytes=number("max.decompressed.message.bytes"),
        max_decoded_records=config.int("seqgate.batch.decoded.max.records"),
        retained_batches=config.int("seqgate.producer.retained.batches"),
        retention_ms=number("retention.ms") if deletes else -1,
        retention_bytes=number("retention.bytes") if deletes else -1,
        file_delete_delay_ms=number("file.delete.delay.ms"),
        has_dead_letters=cast("bool", config.topic_value("errors.deadletterqueue.group.enable", overrides)),
        producer_id_expiration_ms=config.int("producer.id.expiration.ms"),
        compact=compacts,
        delete_retention_ms=number("delete.retention.ms"),
        min_compaction_lag_ms=number("min.compaction.lag.ms"),
        max_compaction_lag_ms=max_compaction_lag_ms,
        min_cleanable_dirty_ratio=cast("float", config.topic_value("min.cleanable.dirty.ratio", overrides)),
        delivery_delay_header=delay_header,
        delivery_delay_max_ms=number("delivery.delay.max.ms"),
        delivery_delay_hold_ms=number("delivery.delay.hold.ms"),
        deduplicates=cast("bool", config.topic_value("message.deduplication.enable", overrides)),
        deduplication_name_header=text("message.deduplication.name.header"),
        deduplication_sequence_header=text("message.deduplication.sequence.header"),
        deduplication_epoch_header=text("message.deduplication.epoch.header"),
        deduplication_from_log_start=text("message.deduplication.start") == "earliest",
        deduplication_names_max=number("message.deduplication.names.max"),
        deduplication_expiration_ms=number("message.deduplication.expiration.ms"),
        deduplication_name_max_bytes=config.int("seqgate.deduplication.name.max.bytes"),
        deduplication_snapshot_records=config.int("seqgate.deduplication.snapshot.records"),
    )
    return TopicPolicy(
        log_config,
        number("flush.messages"),
        number("flush.ms"),
        _compression(
            text("compression.type"),
            {
                "gzip": number("compression.gzip.level"),
                "lz4": number("compression.lz4.level"),
                "zstd": number("compression.zstd.level"),
            },
        ),
    )


def _compression(codec: str, levels: Mapping[str, int]) -> Compression | None:
    """Return the codec and level of a `compression.type`; None to store each batch as it was sent."""
    if codec == PRODUCER:
        return None
    if codec == UNCOMPRESSED:
        return Compression(NONE)
    return Compression(CODEC_IDS[codec], levels.get(codec))


class RegisteredTopics:
    """The topics of this node whose partitions can be assigned to members of consumer and share groups.
    Internal topics are included, because a regular expression may match them. Source: Kafka's
    `GroupMetadataManager.refreshRegularExpressions`.
    """

    def __init__(self, partitions: Partitions) -> None:
        self._topics = partitions.by_name

    def describe(self, name: str) -> tuple[uuid.UUID, int] | None:
        topic = self._topics.get(name)
        return None if topic is None else (topic.topic_id, topic.count)

    def names(self) -> list[str]:
        return list(self._topics)


HASHES_IN_CACHE: Final = 4096
"""Group ids and transactional ids whose hash is kept; the least recently used one makes room for the next."""


java_hash = lru_cache(maxsize=HASHES_IN_CACHE)(string_hash)
"""Java's String.hashCode, by which Kafka spreads groups and transactional ids over partitions."""


class InternalTopics:
    """Creates internal topics, as Kafka's AutoTopicCreationManager does."""

    def __init__(self, metadata_log: MetadataLog, partitions: Partitions, brokers: Brokers) -> None:
        self._metadata_log = metadata_log
        self._partitions = partitions
        self._brokers = brokers
        self._spread: dict[str, tuple[uuid.UUID, int]] = {}

    def index_for(self, name: str, text: str) -> int | None:
        """Return the partition of a topic that stores the state of the group or id `text`; None while there
        is no such topic.

        The number of partitions is taken from the metadata at the first call. Partitions added later do not
        count. Otherwise state would be looked up in other partitions than those that store it.
        """
        topic = self._metadata_log.image.topics_by_name.get(name)
        if topic is None or not topic.partitions:
            return None
        known = self._spread.get(name)
        if known is None or (known[0] is not topic.topic_id and known[0] != topic.topic_id):
            known = self._spread[name] = topic.topic_id, len(topic.partitions)
        return (java_hash(text) & 0x7FFFFFFF) % known[1]

    def leader_for(self, name: str, text: str) -> int:
        """Return the node id of the gateway with the state of the group or id `text`; -1 without one."""
        index = self.index_for(name, text)
        if index is None:
            return NO_LEADER
        return self._brokers.leader_of(self._metadata_log.image.topics_by_name[name].partitions[index])

    def is_elsewhere(self, name: str, text: str) -> bool:
        """Return whether another live gateway stores the state of the group or id `text`."""
        if self._brokers.is_alone:
            return False
        return self.leader_for(name, text) not in {self._brokers.node_id, NO_LEADER}

    def leads_all(self, name: str) -> bool:
        """Return whether this gateway leads every partition of a topic; True while there is no such topic."""
        topic = self._metadata_log.image.topics_by_name.get(name)
        if topic is None or self._brokers.is_alone:
            return True
        return all(self._brokers.leads(partition) for partition in topic.partitions.values())

    async def ensure(self, name: str, *, num_partitions: int, segment_bytes: int) -> None:
        """Create the topic unless it exists. Raises LogError."""
        if name in self._partitions.by_name:
            return
        configs = {
            "cleanup.policy": "compact",
            "segment.bytes": str(segment_bytes),
            # as in Kafka; the coordinators compress nothing
            "compression.type": "uncompressed" if name == TRANSACTION_STATE_TOPIC else "producer",
        }

        def decide(image: MetadataImage) -> Decision[None]:
            return create_internal_topic(
                image,
                name,
                num_partitions=num_partitions,
                configs=configs,
                fresh_id=uuid.uuid4(),
                node_id=self._brokers.node_id,
            )

        await self._metadata_log.commit(decide)
