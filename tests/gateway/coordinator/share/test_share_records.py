"""Records of `__share_group_state`: Kafka's bytes, and UnreadableShareRecord for any others."""

from __future__ import annotations

import uuid
from contextlib import suppress
from struct import Struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from seqgate.gateway.coordinator.share.records import (
    NOT_BEGUN,
    SharePartitionKey,
    ShareRecord,
    ShareSnapshot,
    ShareState,
    ShareStates,
    ShareUpdate,
    UnreadableShareRecord,
    decode,
    encode,
)
from seqgate.gateway.coordinator.share.share_partition import StateBatch

TOPIC_ID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
KEY = SharePartitionKey("gé", TOPIC_ID, 3)
UPDATE_KEY = bytes.fromhex("0001 0003 67c3a9 00112233445566778899aabbccddeeff 00000003")
SNAPSHOT_KEY = b"\0\0" + UPDATE_KEY[2:]
UPDATE_HEAD = bytes.fromhex("0000 00000000 00000000 0000000000000010")
LARGEST_COUNT = bytes.fromhex("ffffffff0f")
_BATCH = Struct(">qqbhB")

offsets = st.integers(0, 2**63 - 2)
keys = st.builds(SharePartitionKey, st.text(max_size=20), st.uuids(), st.integers(0, 2**31 - 1))
batches = st.lists(
    st.builds(
        lambda pair, state, count: StateBatch(min(pair), max(pair), state, count),
        st.tuples(offsets, offsets),
        st.sampled_from((0, 2, 4)),
        st.integers(0, 2**15 - 1),
    ),
    max_size=200,
).map(tuple)
epochs = st.integers(-1, 2**31 - 1)
starts = offsets | st.just(NOT_BEGUN)
states = st.builds(ShareState, starts, batches, epochs, st.integers(-1, 2**62), epochs)
all_records = st.builds(ShareUpdate, keys, starts, batches, epochs) | st.builds(
    ShareSnapshot, keys, st.none() | states
)


@given(all_records)
@example(ShareSnapshot(KEY, ShareState(2**63 - 1, ())))
@example(ShareUpdate(KEY, 2**63 - 1, ()))
def test_every_record_is_decoded_as_it_was_encoded(record: ShareRecord) -> None:
    assert decode(*encode(record)) == record


class TestBytes:
    def test_of_an_update(self) -> None:
        record = ShareUpdate(KEY, 16, (StateBatch(17, 18, 2, 1), StateBatch(20, 20, 0, 3)))
        value = UPDATE_HEAD + bytes.fromhex(
            "030000000000000011 0000000000000012 02 0001 000000000000000014 0000000000000014 00 0003 0000"
        )
        assert encode(record) == (UPDATE_KEY, value)

    def test_of_a_snapshot(self) -> None:
        record = ShareSnapshot(KEY, ShareState(16, (StateBatch(17, 18, 4, 5),), 2, 258))
        value = bytes.fromhex(
            "0000 00000000 00000002 00000000 0000000000000010 0000000000000102 0000000000000102"
            "02 0000000000000011 0000000000000012 04 0005 00"
            "00"
        )
        assert encode(record) == (SNAPSHOT_KEY, value)

    def test_of_a_deletion(self) -> None:
        assert encode(ShareSnapshot(KEY, None)) == (SNAPSHOT_KEY, None)


def update_with(first_offset: int, last_offset: int, state: int, delivery_count: int) -> bytes:
    return UPDATE_HEAD + b"\x02" + _BATCH.pack(first_offset, last_offset, state, delivery_count, 0) + b"\0"


class TestHostileBytes:
    @given(st.binary(max_size=60), st.none() | st.binary(max_size=120))
    @example(UPDATE_KEY, UPDATE_HEAD + LARGEST_COUNT)
    @example(b"", b"")
    def test_nothing_else_is_raised(self, key: bytes, value: bytes | None) -> None:
        for one in (key, UPDATE_KEY, SNAPSHOT_KEY):
            with suppress(UnreadableShareRecord):
                decode(one, value)

    @given(all_records, st.data())
    def test_damaged_records_raise_nothing_else(self, record: ShareRecord, data: st.DataObject) -> None:
        key, value = encode(record)
        damaged = bytearray(value or key)
        for _ in range(data.draw(st.integers(1, 4))):
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
        del damaged[data.draw(st.integers(0, len(damaged))) or len(damaged) :]
        shares = ShareStates()
        shares.replay(ShareSnapshot(record.key, ShareState(0, ())), 0)
        with suppress(UnreadableShareRecord):
            read = decode(key, bytes(damaged)) if value else decode(bytes(damaged), None)
            if read is not None:
                shares.replay(read, 0)

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            pytest.param(b"\0\1\xff\xff" + UPDATE_KEY[7:], UPDATE_HEAD + b"\1\0", id="no group"),
            pytest.param(b"\0\1\xff\xe2" + UPDATE_KEY[4:] * 2, UPDATE_HEAD + b"\1\0", id="negative size"),
            pytest.param(b"\0\1\0\3\xff\xff\xff" + UPDATE_KEY[7:], UPDATE_HEAD + b"\1\0", id="not UTF-8"),
            pytest.param(UPDATE_KEY[:-1], UPDATE_HEAD + b"\1\0", id="a short key"),
            pytest.param(UPDATE_KEY, b"\0\1" + UPDATE_HEAD[2:] + b"\1\0", id="a newer version"),
            pytest.param(UPDATE_KEY, UPDATE_HEAD, id="no batches"),
            pytest.param(UPDATE_KEY, UPDATE_HEAD + b"\0\0", id="null for batches"),
            pytest.param(UPDATE_KEY, UPDATE_HEAD + LARGEST_COUNT, id="more batches than bytes"),
            pytest.param(UPDATE_KEY, UPDATE_HEAD[:-8] + b"\xff" * 7 + b"\xfe\1\0", id="a negative start"),
            pytest.param(UPDATE_KEY, update_with(5, 4, 2, 1), id="an end before the beginning"),
            pytest.param(UPDATE_KEY, update_with(-5, 4, 2, 1), id="a negative offset"),
            pytest.param(UPDATE_KEY, update_with(5, 2**63 - 1, 2, 1), id="no offset is behind the last"),
            pytest.param(UPDATE_KEY, update_with(5, 6, 1, 1), id="acquired by nobody"),
            pytest.param(UPDATE_KEY, update_with(5, 6, 6, 1), id="an unknown state"),
            pytest.param(UPDATE_KEY, update_with(5, 6, 2, -1), id="a negative delivery count"),
        ],
    )
    def test_impossible_values_are_refused(self, key: bytes, value: bytes) -> None:
        with pytest.raises(UnreadableShareRecord):
            decode(key, value)

    def test_another_kind_of_key_is_skipped(self) -> None:
        assert decode(b"\0\2" + UPDATE_KEY[2:], b"") is None
