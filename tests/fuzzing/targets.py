"""The table of fuzz targets, by the names of their modules."""

from __future__ import annotations

NAMES = (
    "acl_patterns",
    "bearer_tokens",
    "certificates",
    "compressed_records",
    "control_requests",
    "named_batches",
    "partition_files",
    "plain_logins",
    "record_batches",
    "requests",
    "scram_messages",
    "small_formats",
    "start_up",
    "stored_state",
    "tls_handshakes",
    "wal_objects",
)
