"""The bucket of a gateway in a cluster; a gateway without one has no values here."""

from __future__ import annotations

from typing import Final

from gateway.admin.status.live import bucket_state
from gateway.metrics.metric import Samples, Sources, Subject, counter, gauge, histogram

CALLS: Final = counter(
    "seqgate_bucket_calls_total", "Calls to the bucket: put, get, list (a page each) and delete.", "call"
)
FAILURES: Final = counter(
    "seqgate_bucket_failed_calls_total", "Calls to the bucket that failed or were refused."
)
PUT_TIME: Final = histogram(
    "seqgate_bucket_put_duration_seconds", "Time of a put of an object, failed ones included."
)
UP: Final = counter("seqgate_bucket_sent_bytes_total", "Bytes sent to the bucket.")
DOWN: Final = counter("seqgate_bucket_received_bytes_total", "Bytes received from the bucket.")
DOLLARS: Final = counter(
    "seqgate_bucket_us_dollars_total",
    "Price of the calls by Amazon's list for S3 Standard in us-east-1; storage comes on top.",
)
UNWRITTEN: Final = gauge(
    "seqgate_bucket_unwritten_bytes", "Bytes of records that are not durable in the bucket yet."
)
BEHIND: Final = gauge(
    "seqgate_bucket_is_behind", "1 while too many bytes wait for the bucket and producers are refused."
)
CACHED: Final = gauge("seqgate_bucket_cache_bytes", "Bytes of records in the local cache.")
FETCHED: Final = counter(
    "seqgate_bucket_cache_fetched_blocks_total",
    "Blocks fetched from the bucket because the cache lacked them.",
)
WAITED: Final = counter("seqgate_bucket_cache_waited_blocks_total", "Blocks that a reader had to wait for.")
EVICTED: Final = counter("seqgate_bucket_cache_evicted_bytes_total", "Bytes evicted from the local cache.")
WAL_OBJECTS: Final = gauge(
    "seqgate_bucket_wal_objects", "Objects of the write-ahead log that are not merged into parts yet."
)
WAL_BYTES: Final = gauge("seqgate_bucket_wal_bytes", "Bytes of these objects.")
UPLOAD_FAILED: Final = gauge("seqgate_bucket_upload_failed", "1 when the last round of uploads has failed.")
GATEWAYS: Final = gauge("seqgate_cluster_gateways", "Gateways of the cluster that live, this one included.")


def _read(sources: Sources) -> Samples:
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
        yield FETCHED.at(state.cache.blocks_fetched)
        yield WAITED.at(state.cache.blocks_waited_for)
        yield EVICTED.at(state.cache.bytes_evicted)
    if state.uploads is not None:
        yield WAL_OBJECTS.at(state.uploads.wal_objects)
        yield WAL_BYTES.at(state.uploads.wal_bytes)
        yield UPLOAD_FAILED.at(state.uploads.error is not None)
    yield GATEWAYS.at(1 + len(sources.services.node.brokers.others()))


SUBJECT: Final = Subject(
    "Bucket and cluster",
    (
        CALLS,
        FAILURES,
        PUT_TIME,
        UP,
        DOWN,
        DOLLARS,
        UNWRITTEN,
        BEHIND,
        CACHED,
        FETCHED,
        WAITED,
        EVICTED,
        WAL_OBJECTS,
        WAL_BYTES,
        UPLOAD_FAILED,
        GATEWAYS,
    ),
    _read,
)
