from __future__ import annotations

from seqgate.gateway.protocol.fetch_codec import FetchPosition
from seqgate.gateway.runtime.partitions.fetch_sessions import (
    EVICTION_AGE_MS,
    FetchSession,
    FetchSessionCache,
    SessionPartition,
)

POSITION = FetchPosition(0, 100, -1, -1)


def test_a_full_cache_refuses_until_the_oldest_is_stale() -> None:
    cache = FetchSessionCache(2)
    first = cache.create(True, 0)
    second = cache.create(True, 0)
    assert first is not None
    assert second is not None
    assert cache.create(True, EVICTION_AGE_MS - 1) is None
    cache.touch(first, EVICTION_AGE_MS - 1)
    third = cache.create(True, EVICTION_AGE_MS)
    assert third is not None
    assert cache.get(second.session_id) is None, "the longest idle session must be evicted"
    assert cache.get(first.session_id) is first
    assert (len(cache), cache.evictions) == (2, 1)
    assert cache.create(True, 0) is None
    assert cache.create(True, -1) is not None, "the clock was set back"


def test_idle_sessions_make_room_for_partitions() -> None:
    cache = FetchSessionCache(10)
    cache.most_partitions = 100
    for now_ms in (0, 1):
        session = cache.create(True, now_ms)
        assert session is not None
        session.partitions.update({(b"t", index): SessionPartition(POSITION) for index in range(50)})
        cache.partitions += 50
    assert not cache.make_room(1, EVICTION_AGE_MS - 1)
    assert not cache.make_room(101, EVICTION_AGE_MS + 1), "no eviction makes so much room"
    assert cache.evictions == 0
    assert cache.make_room(1, EVICTION_AGE_MS)
    assert (len(cache), cache.partitions, cache.evictions) == (1, 50, 1)
    assert not cache.make_room(51, EVICTION_AGE_MS)
    assert cache.make_room(51, EVICTION_AGE_MS + 1)
    assert (len(cache), cache.partitions, cache.evictions) == (0, 0, 2)


def test_no_slots_no_sessions() -> None:
    assert FetchSessionCache(0).create(False, 0) is None


def test_session_ids_differ_and_are_positive() -> None:
    cache = FetchSessionCache(500)
    ids = {session.session_id for _ in range(500) if (session := cache.create(True, 0)) is not None}
    assert len(ids) == 500
    assert min(ids) > 0


def test_the_epoch_wraps_to_one() -> None:
    session = FetchSession(1, True, 0)
    assert session.session_epoch == 1
    session.session_epoch = 2**31 - 1
    session.advance()
    assert session.session_epoch == 1
