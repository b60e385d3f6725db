"""The map of keys against a dictionary, and its limit."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqgate.log.compaction.offset_map import ENTRY_BYTES, NOT_FOUND, OffsetMap
from seqgate.log.format.record_walk import PlainRecord
from tests.support.core_modules import both_ways

WAYS: list[type[OffsetMap]] = [module.OffsetMap for module in both_ways("seqgate.log.compaction.offset_map")]

keys = st.binary(max_size=3)


@settings(max_examples=100)
@given(st.lists(keys, max_size=60), st.integers(2, 40), st.binary(max_size=16), keys)
def test_as_a_dictionary(written: list[bytes], slots: int, salt: bytes, other: bytes) -> None:
    for way in WAYS:
        offset_map = way(slots * ENTRY_BYTES, load_factor=1.0, salt=salt)
        expected: dict[bytes, int] = {}
        for offset, key in enumerate(written):
            has_room = key in expected or len(expected) < offset_map.capacity
            assert offset_map.put(key, offset) == has_room
            if has_room:
                expected[key] = offset
        assert {key: offset_map.get(key) for key in expected} == expected
        if other not in expected:
            assert offset_map.get(other) == NOT_FOUND
        assert offset_map.size == len(expected)
        offset_map.close()


def records(*keys: bytes | None) -> list[PlainRecord]:
    return [PlainRecord(offset, 0, key, True, 0, 0, 0) for offset, key in enumerate(keys)]


@pytest.mark.parametrize("way", WAYS)
def test_records_before_the_section_and_without_a_key_are_left_out(way: type[OffsetMap]) -> None:
    offset_map = way(10 * ENTRY_BYTES)
    assert offset_map.put_all(records(b"a", b"b", None, b"a", b"c"), 2)
    assert [offset_map.get(key) for key in (b"a", b"b", b"c")] == [3, NOT_FOUND, 4]


@pytest.mark.parametrize("way", WAYS)
def test_a_full_map_accounts_for_the_records_before_the_first_without_room(way: type[OffsetMap]) -> None:
    offset_map = way(3 * ENTRY_BYTES, load_factor=1.0)
    assert not offset_map.put_all(records(b"a", b"b", None, b"a", b"c", b"a"), 0)
    assert (offset_map.get(b"a"), offset_map.latest_offset) == (3, 3)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("offset", [0, 2**62])
def test_offsets_are_whole(way: type[OffsetMap], offset: int) -> None:
    offset_map = way(9 * ENTRY_BYTES)
    offset_map.put(b"a", offset)
    assert offset_map.get(b"a") == offset


def test_the_load_factor_is_the_limit() -> None:
    offset_map = OffsetMap(100 * ENTRY_BYTES, load_factor=0.5)
    assert offset_map.capacity == 50
    assert OffsetMap(100 * ENTRY_BYTES, load_factor=1.0).capacity == 99


@pytest.mark.parametrize(
    ("memory_bytes", "load_factor"), [(0, 0.9), (ENTRY_BYTES, 1.0), (4 * ENTRY_BYTES, 0.1)]
)
def test_no_room_for_a_key(memory_bytes: int, load_factor: float) -> None:
    with pytest.raises(ValueError, match="no key"):
        OffsetMap(memory_bytes, load_factor=load_factor)


def test_what_was_seen_without_keys_is_accounted_for() -> None:
    offset_map = OffsetMap(10 * ENTRY_BYTES)
    offset_map.put(b"a", 3)
    offset_map.account_for(9)
    offset_map.account_for(5)
    assert offset_map.latest_offset == 9
