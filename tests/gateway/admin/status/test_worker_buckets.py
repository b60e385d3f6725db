"""The bucket of several workers, as `seqgate status` shows it."""

from __future__ import annotations

import msgspec

from seqgate.gateway.admin.status import BucketState, joined_bucket
from seqgate.gateway.cluster.cache.local_caches import CacheState
from seqgate.gateway.cluster.uploads.progress import UploadProgress

CACHE = CacheState(local_bytes=10, max_bytes=100, blocks_fetched=1, blocks_waited_for=2, bytes_evicted=3)
UPLOADS = UploadProgress(
    wal_objects=4,
    wal_bytes=40,
    oldest_ms=None,
    round_ended_ms_ago=7,
    round_took_ms=9,
    error=None,
    running_ms=None,
)
STATE = BucketState(
    address="s3://b/p",
    puts=1,
    gets=2,
    lists=3,
    deletes=4,
    bytes_up=5,
    bytes_down=6,
    failures=0,
    us_dollars=0.5,
    unwritten_bytes=7,
    unwritten_max_bytes=64,
    is_behind=False,
    cache=CACHE,
    uploads=UPLOADS,
    replica_bytes=11,
)


def test_counts_and_limits_are_sums() -> None:
    joined = joined_bucket([STATE, STATE])
    assert joined is not None
    assert (joined.address, joined.puts, joined.us_dollars, joined.unwritten_max_bytes) == (
        "s3://b/p",
        2,
        1.0,
        128,
    )
    assert joined.cache == CacheState(20, 200, 2, 4, 6)
    assert joined.replica_bytes == 22
    assert joined.uploads is not None
    assert (joined.uploads.wal_objects, joined.uploads.wal_bytes) == (8, 80)


def test_what_is_wrong_with_one_worker_is_told() -> None:
    late = msgspec.structs.replace(UPLOADS, error="no room", oldest_ms=99, round_ended_ms_ago=None)
    joined = joined_bucket([STATE, msgspec.structs.replace(STATE, is_behind=True, uploads=late)])
    assert joined is not None
    assert joined.is_behind
    assert joined.uploads is not None
    assert (joined.uploads.error, joined.uploads.oldest_ms, joined.uploads.round_ended_ms_ago) == (
        "no room",
        99,
        None,
    )


def test_a_cache_without_a_limit_has_none() -> None:
    unlimited = msgspec.structs.replace(STATE, cache=msgspec.structs.replace(CACHE, max_bytes=None))
    joined = joined_bucket([STATE, unlimited])
    assert joined is not None
    assert joined.cache is not None
    assert joined.cache.max_bytes is None


def test_workers_without_a_bucket_have_none() -> None:
    assert joined_bucket([None, None]) is None
