"""The rows of `seqgate status` about the bucket."""

from __future__ import annotations

from typing import Final

from gateway.admin.printing import count, counted, duration, shown
from gateway.admin.status.messages import BucketState
from gateway.cluster.cache.cache_state import CacheState
from gateway.cluster.uploads.progress import UploadProgress

MONTH_MS: Final = 30 * 24 * 3_600_000
FIRST_ESTIMATE_MS: Final = 10 * 60_000
"""The time after the start from which a month is estimated."""


def bucket_rows(bucket: BucketState, uptime_ms: int) -> list[tuple[str, str]]:
    """Return the rows about a bucket."""
    kinds = (
        (bucket.puts, "put"),
        (bucket.gets, "get"),
        (bucket.lists, "list"),
        (bucket.deletes, "delete"),
        (bucket.failures, "failure"),
    )
    return [
        ("bucket", bucket.address),
        ("  requests", ", ".join(counted(number, kind) for number, kind in kinds)),
        ("  bytes", f"{count(bucket.bytes_up)} up, {count(bucket.bytes_down)} down"),
        (
            "  price",
            f"${bucket.us_dollars:,.4f} since the start{_month(bucket, uptime_ms)}, by Amazon's list for S3",
        ),
        (
            "  not durable yet",
            f"{count(bucket.unwritten_bytes)} bytes of at most {count(bucket.unwritten_max_bytes)}",
        ),
        *([] if bucket.uploads is None else _uploads(bucket.uploads)),
        *([] if bucket.cache is None else _cache(bucket.cache)),
        *(
            []
            if bucket.replica_bytes is None
            else [("  read here", f"{count(bucket.replica_bytes)} bytes that other gateways lead")]
        ),
    ]


def _month(bucket: BucketState, uptime_ms: int) -> str:
    """Return the price of a month that goes on as since the start; nothing while the requests of the start itself count most."""
    if uptime_ms < FIRST_ESTIMATE_MS:
        return ""
    return f", ${bucket.us_dollars * MONTH_MS / uptime_ms:,.2f} a month"


def trouble_rows(bucket: BucketState) -> list[tuple[str, str]]:
    """Return a row for each thing that is wrong."""
    rows = []
    if bucket.is_behind:
        waiting = f"{count(bucket.unwritten_bytes)} bytes are not durable yet"
        rows.append(
            ("BUCKET", f"{waiting}: producers are refused until half of the limit is free; check the store")
        )
    if bucket.uploads is not None and bucket.uploads.error is not None:
        rows.append(("UPLOADS", shown(bucket.uploads.error)))
    return rows


def _uploads(uploads: UploadProgress) -> list[tuple[str, str]]:
    oldest = "" if uploads.oldest_ms is None else f", the oldest for {duration(uploads.oldest_ms)}"
    if uploads.round_ended_ms_ago is None:
        last = "none has ended yet"
    else:
        ending = "failed" if uploads.error is not None else "succeeded"
        last = f"{ending} {duration(uploads.round_ended_ms_ago)} ago, took {duration(uploads.round_took_ms)}"
    if uploads.running_ms is not None:
        last += f"; one has run for {duration(uploads.running_ms)}"
    return [
        (
            "  write-ahead log",
            f"{counted(uploads.wal_objects, 'object')}; {count(uploads.wal_bytes)} bytes are only there{oldest}",
        ),
        ("  last upload", last),
    ]


def _cache(cache: CacheState) -> list[tuple[str, str]]:
    fetched = f"{counted(cache.blocks_fetched, 'block')} fetched"
    limit = "no limit but the disk" if cache.max_bytes is None else f"limit {count(cache.max_bytes)}"
    return [
        (
            "  cache",
            f"{count(cache.local_bytes)} bytes, {limit}; {count(cache.bytes_evicted)} bytes evicted, {fetched}",
        ),
    ]
