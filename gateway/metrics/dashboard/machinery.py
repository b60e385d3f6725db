"""The rows that show what the gateway does for its clients: storage, limits, the bucket, and the process."""

from __future__ import annotations

from typing import Final

from gateway.metrics.dashboard.panels import Row, each_second, lines, now, quantile, raw, selected
from gateway.metrics.metric import Metric, counter, gauge
from gateway.metrics.subjects import bucket, limits, node, requests, storage

CPU: Final = counter("process_cpu_seconds_total", "CPU time of the process.")
RESIDENT: Final = gauge("process_resident_memory_bytes", "Memory of the process.")
HANDLES: Final = gauge("process_open_fds", "Open file handles of the process.")
MOST_HANDLES: Final = gauge("process_max_fds", "The limit of file handles of the process (RLIMIT_NOFILE).")
COLLECTIONS: Final = counter(
    "python_gc_collections_total", "Runs of Python's garbage collection.", "generation"
)
PROCESS_METRICS: Final[tuple[Metric, ...]] = (CPU, RESIDENT, HANDLES, MOST_HANDLES, COLLECTIONS)
"""The metrics of every Python process that the dashboard shows; prometheus-client adds them to the table's."""

STORAGE: Final = Row(
    "Storage",
    (
        lines("Free bytes of the disk", now(storage.FREE), unit="bytes"),
        lines(
            "Refusals for want of room",
            each_second(storage.DISK_REFUSALS, legend="batches"),
            now(storage.SHORT, legend="is short"),
            unit="ops",
        ),
        lines(
            "Flush rounds",
            each_second(storage.FLUSH, legend="rounds"),
            each_second(storage.FLUSH_FAILURES, legend="failures"),
            unit="ops",
        ),
        lines("Requests that wait for a flush", now(storage.FLUSH_WAITING)),
        lines("Recompressed batches", each_second(storage.RECOMPRESSED), unit="ops"),
        lines("Segments deleted by retention", each_second(storage.DELETED, "reason"), unit="ops"),
        lines("Bytes deleted by retention", each_second(storage.DELETED_BYTES, "reason"), unit="Bps"),
        lines("Segments closed for their age", each_second(storage.ROLLED), unit="ops"),
        lines(
            "Compaction: records",
            each_second(storage.CLEANED_READ, legend="read"),
            each_second(storage.CLEANED_KEPT, legend="kept"),
            unit="ops",
        ),
        lines(
            "Compaction: share of the time",
            each_second(storage.CLEANING_TIME),
            unit="percentunit",
        ),
        lines(
            "Compaction: runs",
            each_second(storage.CLEANED, legend="runs"),
            each_second(storage.CLEANING_FAILED, legend="failures"),
            now(storage.UNCLEANABLE, legend="partitions given up"),
        ),
        lines("Old blocks read", each_second(storage.COLD_BLOCKS), unit="ops"),
        lines("Old blocks that fetches wait for", now(storage.COLD_WAITING)),
        lines(
            "Damage",
            now(storage.DAMAGED, legend="damaged"),
            now(storage.CUT, legend="cut"),
        ),
    ),
)

LIMITS: Final = Row(
    "Limits",
    (
        lines(
            "Used share of each limit",
            raw(
                f"{selected(limits.USED)} / on (instance, setting) {selected(limits.MOST)}",
                "{{instance}} {{setting}}",
                limits.USED,
                limits.MOST,
            ),
            unit="percentunit",
            width=12,
            note="docs/limits.md says what happens at each limit.",
        ),
        lines("Used", now(limits.USED, "setting"), width=12),
        lines("Fetch sessions that made room", each_second(requests.EVICTED_SESSIONS), unit="ops"),
    ),
)

BUCKET: Final = Row(
    "Bucket and cluster",
    (
        lines("Gateways of the cluster", now(bucket.GATEWAYS)),
        lines(
            "What waits for the bucket",
            now(bucket.UNWRITTEN, legend="unwritten records"),
            now(bucket.WAL_BYTES, legend="write-ahead log"),
            unit="bytes",
        ),
        lines(
            "Is something wrong",
            now(bucket.BEHIND, legend="is behind"),
            now(bucket.UPLOAD_FAILED, legend="upload failed"),
        ),
        lines("Calls", each_second(bucket.CALLS, "call"), unit="ops"),
        lines("Failed calls", each_second(bucket.FAILURES), unit="ops"),
        lines("Put", *(quantile(share, bucket.PUT_TIME) for share in (0.5, 0.99)), unit="s"),
        lines(
            "Bytes",
            each_second(bucket.UP, legend="sent"),
            each_second(bucket.DOWN, legend="received"),
            unit="Bps",
        ),
        lines(
            "Price of the calls in a day",
            raw(
                f"sum by (instance) (increase({selected(bucket.DOLLARS)}[1d]))",
                "{{instance}}",
                bucket.DOLLARS,
            ),
            unit="currencyUSD",
        ),
        lines("Objects of the write-ahead log", now(bucket.WAL_OBJECTS)),
        lines(
            "Blocks read into the cache",
            each_second(bucket.FETCHED, legend="fetched"),
            each_second(bucket.WAITED, legend="waited for"),
            unit="ops",
        ),
        lines("Bytes evicted from the cache", each_second(bucket.EVICTED), unit="Bps"),
        lines("Size of the cache", now(bucket.CACHED), unit="bytes"),
    ),
)

PROCESS: Final = Row(
    "Process",
    (
        lines(
            "CPU",
            each_second(CPU),
            unit="percentunit",
            note="1 is a whole core, and the most that one gateway uses.",
        ),
        lines("Memory", now(RESIDENT), unit="bytes"),
        lines("File handles", now(HANDLES, legend="open"), now(MOST_HANDLES, legend="limit")),
        lines("Garbage collections", each_second(COLLECTIONS, "generation"), unit="ops"),
        lines("Uptime", now(node.UPTIME), unit="s"),
        lines(
            "Certificates expire in",
            raw(f"{selected(node.CERTIFICATE)} - time()", "{{instance}} {{listener}}", node.CERTIFICATE),
            unit="s",
        ),
    ),
)

ROWS: Final = (STORAGE, LIMITS, BUCKET, PROCESS)
