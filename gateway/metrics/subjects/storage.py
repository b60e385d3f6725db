"""Appends, flushes, reads from the disk, retention and compaction."""

from __future__ import annotations

from typing import Final

from seqgate.gateway.metadata.image import INTERNAL_TOPICS
from seqgate.gateway.metrics.metric import Samples, Sources, Subject

storage: Final = Subject("Storage")
APPEND: Final = storage.histogram(
    "seqgate_append_duration_seconds",
    "Time of the append of a batch: its check, the judgement of its sequence, and the write. Ten appends a "
    "second are timed. The count is that of the timed ones.",
)
FLUSH: Final = storage.histogram(
    "seqgate_flush_round_duration_seconds",
    "Time of a flush round, which makes many batches durable together: on the local disk, or in the bucket.",
)
FLUSH_WAITING: Final = storage.gauge("seqgate_flush_waiting_requests", "Requests that wait for a flush.")
FLUSH_FAILURES: Final = storage.counter(
    "seqgate_flush_failures_total", "Flushes of a log that failed and took its partition offline."
)
FREE: Final = storage.gauge("seqgate_disk_free_bytes", "Free bytes of the disk with the data directory.")
SHORT: Final = storage.gauge(
    "seqgate_disk_is_short",
    "1 while the disk has less room than seqgate.log.min.free.bytes and producers are refused.",
)
DISK_REFUSALS: Final = storage.counter(
    "seqgate_disk_refused_batches_total", "Batches refused because the disk was short of room."
)
DAMAGED: Final = storage.gauge("seqgate_damaged_stretches", "Stretches of stored batches that are damaged.")
CUT: Final = storage.gauge(
    "seqgate_cut_stretches", "Stretches of sound records that a recovery has cut off a log."
)
COLD_BLOCKS: Final = storage.counter(
    "seqgate_cold_blocks_read_total", "Blocks of old data read into the page cache for fetches."
)
COLD_WAITING: Final = storage.gauge(
    "seqgate_cold_blocks_waiting", "Blocks of old data that fetches wait for."
)
COLD_KEPT: Final = storage.gauge(
    "seqgate_cold_blocks_kept", "Blocks of old data, of 1 MiB, that stay in the page cache for later fetches."
)
RECOMPRESSED: Final = storage.counter(
    "seqgate_recompressed_batches_total", "Batches compressed again for a topic's compression.type."
)
ROLLED: Final = storage.counter(
    "seqgate_retention_rolled_segments_total", "Segments closed because of their age."
)
DELETED: Final = storage.counter(
    "seqgate_retention_deleted_segments_total", "Segments deleted by retention, by reason.", "reason"
)
DELETED_BYTES: Final = storage.counter(
    "seqgate_retention_deleted_bytes_total", "Bytes of segments deleted by retention.", "reason"
)
CLEANED: Final = storage.counter("seqgate_compaction_runs_total", "Partitions compacted, each time counted.")
CLEANING_FAILED: Final = storage.counter(
    "seqgate_compaction_failures_total", "Compactions of a partition that failed."
)
UNCLEANABLE: Final = storage.gauge(
    "seqgate_compaction_uncleanable_partitions",
    "Partitions that are not compacted any more until the gateway restarts.",
)
CLEANED_READ: Final = storage.counter("seqgate_compaction_records_read_total", "Records read by compaction.")
CLEANED_KEPT: Final = storage.counter("seqgate_compaction_records_kept_total", "Records kept by compaction.")
CLEANING_TIME: Final = storage.counter("seqgate_compaction_seconds_total", "Time spent with compaction.")


@storage.reads
def _read(sources: Sources) -> Samples:
    services = sources.services
    partitions, room = services.partitions, services.upkeep.disk_room
    if partitions.append_times is not None:
        yield APPEND.at(partitions.append_times.durations)
    yield FLUSH.at(partitions.flusher.round_times)
    yield FLUSH_WAITING.at(partitions.flusher.waiting_count)
    yield FLUSH_FAILURES.at(partitions.flusher.failures)
    if room.free_bytes is not None:
        yield FREE.at(room.free_bytes)
    yield SHORT.at(room.is_disk_short)
    yield DISK_REFUSALS.at(room.refused_batches)
    yield DAMAGED.at(sum(1 for _ in partitions.log_directory.known_damage()))
    yield CUT.at(sum(1 for _ in partitions.log_directory.known_cut_bytes()))
    yield COLD_BLOCKS.at(partitions.cold_reads.blocks_read)
    yield COLD_WAITING.at(partitions.cold_reads.blocks_waiting)
    yield COLD_KEPT.at(partitions.cold_reads.blocks_kept)
    yield RECOMPRESSED.at(partitions.batch_threads.recompressed)
    yield from _retention(sources)
    yield from _compaction(sources)


def _retention(sources: Sources) -> Samples:
    retention = sources.retention
    yield ROLLED.at(retention.rolled_segments)
    for reason, count in list(retention.deleted_segments.items()):
        yield DELETED.at(count, str(reason))
    for reason, size_bytes in list(retention.deleted_bytes.items()):
        yield DELETED_BYTES.at(size_bytes, str(reason))


def _compaction(sources: Sources) -> Samples:
    counts = sources.compaction.counts
    yield CLEANED.at(counts.cleanings)
    yield CLEANING_FAILED.at(counts.failures)
    yield UNCLEANABLE.at(sources.compaction.uncleanable)
    yield CLEANED_READ.at(counts.records_read)
    yield CLEANED_KEPT.at(counts.records_kept)
    yield CLEANING_TIME.at(counts.took_s)


# The bucket of a gateway in a cluster; a gateway without one has no values here.

bucket: Final = Subject("Bucket and cluster")
CALLS: Final = bucket.counter(
    "seqgate_bucket_calls_total", "Calls to the bucket: put, get, list (a page each) and delete.", "call"
)
FAILURES: Final = bucket.counter(
    "seqgate_bucket_failed_calls_total", "Calls to the bucket that failed or were refused."
)
PUT_TIME: Final = bucket.histogram(
    "seqgate_bucket_put_duration_seconds", "Time of a put of an object, failed ones included."
)
UP: Final = bucket.counter("seqgate_bucket_sent_bytes_total", "Bytes sent to the bucket.")
DOWN: Final = bucket.counter("seqgate_bucket_received_bytes_total", "Bytes received from the bucket.")
DOLLARS: Final = bucket.counter(
    "seqgate_bucket_us_dollars_total",
    "Price of the calls by Amazon's list for S3 Standard in us-east-1; storage comes on top.",
)
UNWRITTEN: Final = bucket.gauge(
    "seqgate_bucket_unwritten_bytes", "Bytes of records that are not durable in the bucket yet."
)
BEHIND: Final = bucket.gauge(
    "seqgate_bucket_is_behind", "1 while too many bytes wait for the bucket and producers are refused."
)
CACHED: Final = bucket.gauge("seqgate_bucket_cache_bytes", "Bytes of records in the local cache.")
BUCKET_FETCHED: Final = bucket.counter(
    "seqgate_bucket_cache_fetched_blocks_total",
    "Blocks fetched from the bucket because the cache lacked them.",
)
WAITED: Final = bucket.counter(
    "seqgate_bucket_cache_waited_blocks_total", "Blocks that a reader had to wait for."
)
EVICTED: Final = bucket.counter(
    "seqgate_bucket_cache_evicted_bytes_total", "Bytes evicted from the local cache."
)
WAL_OBJECTS: Final = bucket.gauge(
    "seqgate_bucket_wal_objects", "Objects of the write-ahead log that are not merged into parts yet."
)
WAL_BYTES: Final = bucket.gauge("seqgate_bucket_wal_bytes", "Bytes of these objects.")
UPLOAD_FAILED: Final = bucket.gauge(
    "seqgate_bucket_upload_failed", "1 when the last round of uploads has failed."
)
GATEWAYS: Final = bucket.gauge(
    "seqgate_cluster_gateways", "Gateways of the cluster that live, this one included."
)


@bucket.reads
def _read_bucket(sources: Sources) -> Samples:
    from seqgate.gateway.admin.status import bucket_state  # noqa: PLC0415 - a start needs no command

    state = bucket_state(sources.services, sources.gateway.traffic())
    if state is None:
        return
    for call, count in (
        ("put", state.puts),
        ("get", state.gets),
        ("list", state.lists),
        ("delete", state.deletes),
    ):
        yield CALLS.at(count, call)
    yield FAILURES.at(state.failures)
    calls = sources.gateway.traffic().calls
    if calls is not None:
        yield PUT_TIME.at(calls.put_times)
    yield UP.at(state.bytes_up)
    yield DOWN.at(state.bytes_down)
    yield DOLLARS.at(state.us_dollars)
    yield UNWRITTEN.at(state.unwritten_bytes)
    yield BEHIND.at(state.is_behind)
    if state.cache is not None:
        yield CACHED.at(state.cache.local_bytes)
        yield BUCKET_FETCHED.at(state.cache.blocks_fetched)
        yield WAITED.at(state.cache.blocks_waited_for)
        yield EVICTED.at(state.cache.bytes_evicted)
    if state.uploads is not None:
        yield WAL_OBJECTS.at(state.uploads.wal_objects)
        yield WAL_BYTES.at(state.uploads.wal_bytes)
        yield UPLOAD_FAILED.at(state.uploads.error is not None)
    yield GATEWAYS.at(1 + len(sources.services.node.brokers.others()))


# Topics and partitions.

topics: Final = Subject("Topics and partitions")
RECORDS: Final = topics.counter(
    "seqgate_topic_records_total",
    "Records appended since the start, with markers of transactions. Topics beyond "
    "seqgate.metrics.topics.max share one series.",
    "topic",
)
BYTES: Final = topics.counter(
    "seqgate_topic_bytes_total", "Bytes of batches appended since the start.", "topic"
)
TOPICS_FETCHED: Final = topics.counter(
    "seqgate_topic_fetched_bytes_total", "Bytes of records in answers to fetches since the start.", "topic"
)
OPEN: Final = topics.gauge(
    "seqgate_topic_open_partitions",
    "Partitions that are open here. A partition is opened by the first request for it.",
    "topic",
)
SIZE: Final = topics.gauge("seqgate_topic_size_bytes", "Size of the logs of the open partitions.", "topic")
TOPICS: Final = topics.gauge("seqgate_topics", "Topics, without internal topics.")
PARTITIONS: Final = topics.gauge("seqgate_partitions", "Partitions of all topics, led here or elsewhere.")
LED: Final = topics.gauge("seqgate_led_partitions", "Partitions that this gateway leads.")
OFFLINE: Final = topics.gauge(
    "seqgate_offline_partitions",
    "Partitions that can't be used: a write or a flush has failed, or their files can't be opened.",
)
REFUSING: Final = topics.gauge(
    "seqgate_backlog_refusing_partitions",
    "Partitions that refuse or hold producers because a group's backlog is over the topic's quota.",
)
WAITING: Final = topics.gauge("seqgate_delayed_records", "Delayed records that are not due yet.")


@topics.reads
def _read_topics(sources: Sources) -> Samples:
    services = sources.services
    registry = services.partitions.registry
    for found in sources.topics.read():
        if found is None:
            yield None
            continue
        for series, traffic in found.items():
            yield RECORDS.at(traffic.records, series)
            yield BYTES.at(traffic.bytes, series)
            yield TOPICS_FETCHED.at(traffic.fetched_bytes, series)
            yield OPEN.at(traffic.partitions, series)
            yield SIZE.at(traffic.size_bytes, series)
    offline = refusing = 0
    for partition in registry:
        offline += partition.log.offline
        refusing += partition.gate is not None and partition.gate.is_closed
        yield None
    led = partitions = public = 0
    for topic in list(registry.by_name.values()):
        public += topic.name not in INTERNAL_TOPICS
        offline += len(topic.failed)
        partitions += topic.count
        for index in range(topic.count):
            led += topic.unknown_or_led_elsewhere(index) is None
            yield None
        yield None
    yield TOPICS.at(public)
    yield PARTITIONS.at(partitions)
    yield LED.at(led)
    yield OFFLINE.at(offline)
    yield REFUSING.at(refusing)
    yield WAITING.at(services.partitions.log_directory.environment.delayed_limit.in_all)
