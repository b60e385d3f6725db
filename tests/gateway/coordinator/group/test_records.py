"""The records of groups equal the bytes that Kafka's OffsetCommit and GroupMetadata schemas prescribe."""

from __future__ import annotations

import contextlib
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqgate.gateway.coordinator.group.records import (
    CommittedOffset,
    GroupMetadata,
    GroupMetadataRecord,
    GroupRecord,
    MemberMetadata,
    OffsetCommitRecord,
    UnreadableRecord,
    decode,
    encode,
)

INT32: Final = st.integers(-(2**31), 2**31 - 1)
INT64: Final = st.integers(-(2**63), 2**63 - 1)
TEXT: Final = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
TIMEOUT_MS: Final = st.integers(0, 2**31 - 1)
TOPIC_IDS: Final = st.just(b"") | st.binary(min_size=16, max_size=16)
OFFSETS: Final = st.builds(CommittedOffset, INT64, INT32, TEXT, INT64, st.just(-1), TOPIC_IDS) | st.builds(
    CommittedOffset, INT64, st.just(-1), TEXT, INT64, st.integers(0, 2**63 - 1), st.just(b"")
)
MEMBERS: Final = st.builds(
    MemberMetadata,
    TEXT,
    st.none() | TEXT,
    TEXT,
    TEXT,
    TIMEOUT_MS,
    TIMEOUT_MS,
    st.binary(max_size=20),
    st.binary(max_size=20),
)
GROUPS: Final = st.builds(
    GroupMetadata,
    TEXT,
    INT32,
    st.none() | TEXT,
    st.none() | TEXT,
    INT64,
    st.lists(MEMBERS, max_size=3).map(tuple),
)
RECORDS: Final[st.SearchStrategy[GroupRecord]] = st.builds(
    OffsetCommitRecord, TEXT, TEXT, INT32, st.none() | OFFSETS
) | st.builds(GroupMetadataRecord, TEXT, st.none() | GROUPS)

MEMBER: Final = MemberMetadata("m1", "i1", "c", "/h", 60_000, 10_000, b"\x01", b"\x02\x03")
GROUP: Final = GroupMetadata("consumer", 7, "range", "m1", 0x0102030405060708, (MEMBER,))
OFFSET_KEY: Final = "0001 0001 67  0001 74  00000003"
TOPIC_ID: Final = bytes(range(16))
GROUP_KEY: Final = "0002 0001 67"


def hexadecimal(text: str) -> bytes:
    return bytes.fromhex(text)


class TestBytes:
    @pytest.mark.parametrize(
        ("metadata", "topic_id", "expected"),
        [
            ("md", TOPIC_ID, "03 6d64  000000000000000a  01 00 10 000102030405060708090a0b0c0d0e0f"),
            ("", TOPIC_ID, "01  000000000000000a  01 00 10 000102030405060708090a0b0c0d0e0f"),
            ("md", b"", "03 6d64  000000000000000a  00"),
        ],
    )
    def test_offset(self, metadata: str, topic_id: bytes, expected: str) -> None:
        value = CommittedOffset(5, 2, metadata, 0x0A, topic_id=topic_id)
        assert encode(OffsetCommitRecord("g", "t", 3, value)) == (
            hexadecimal(OFFSET_KEY),
            hexadecimal("0004  0000000000000005  00000002  " + expected),
        )

    def test_offset_with_a_retention_time_of_its_own(self) -> None:
        value = CommittedOffset(5, -1, "", 0x0A, 0x0B)
        assert encode(OffsetCommitRecord("g", "t", 3, value)) == (
            hexadecimal(OFFSET_KEY),
            hexadecimal("0001  0000000000000005  0000  000000000000000a  000000000000000b"),
        )

    def test_deleted(self) -> None:
        assert encode(OffsetCommitRecord("g", "t", 3, None)) == (hexadecimal(OFFSET_KEY), None)
        assert encode(GroupMetadataRecord("g", None)) == (hexadecimal(GROUP_KEY), None)

    def test_group(self) -> None:
        expected = (
            "0003  0008 636f6e73756d6572  00000007  0005 72616e6765  0002 6d31  0102030405060708  00000001"
            "0002 6d31  0002 6931  0001 63  0002 2f68  0000ea60  00002710  00000001 01  00000002 0203"
        )
        assert encode(GroupMetadataRecord("g", GROUP)) == (hexadecimal(GROUP_KEY), hexadecimal(expected))

    def test_empty_group_with_nulls(self) -> None:
        value = GroupMetadata("", 0, None, None, -1, ())
        expected = "0003  0000  00000000  ffff  ffff  ffffffffffffffff  00000000"
        assert encode(GroupMetadataRecord("g", value)) == (hexadecimal(GROUP_KEY), hexadecimal(expected))

    @pytest.mark.parametrize(
        "record",
        [
            OffsetCommitRecord("g" * 2**15, "t", 0, None),
            OffsetCommitRecord("g", "t", 0, CommittedOffset(0, -1, "é" * 2**14, 0, 1)),
            GroupMetadataRecord("g" * 2**15, None),
            GroupMetadataRecord("\ud800", None),
        ],
    )
    def test_a_too_long_text_is_refused(self, record: GroupRecord) -> None:
        with pytest.raises(ValueError, match=r"too long|surrogates"):
            encode(record)


class TestOlderValues:
    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            ("0000  0000000000000005  0001 6d  000000000000000a", CommittedOffset(5, -1, "m", 10)),
            (
                "0001  0000000000000005  0001 6d  000000000000000a  ffffffffffffffff",
                CommittedOffset(5, -1, "m", 10),
            ),
            (
                "0001  0000000000000005  0001 6d  000000000000000a  000000000000000b",
                CommittedOffset(5, -1, "m", 10, 11),
            ),
            ("0002  0000000000000005  0001 6d  000000000000000a", CommittedOffset(5, -1, "m", 10)),
            ("0003  0000000000000005  00000002  0001 6d  000000000000000a", CommittedOffset(5, 2, "m", 10)),
        ],
    )
    def test_offset(self, value: str, expected: CommittedOffset) -> None:
        record = OffsetCommitRecord("g", "t", 3, expected)
        assert decode(hexadecimal(OFFSET_KEY), hexadecimal(value)) == record
        assert decode(b"\0\0" + hexadecimal(OFFSET_KEY)[2:], hexadecimal(value)) == record

    @pytest.mark.parametrize(
        ("head", "rebalance_timeout", "rebalance_timeout_ms", "state_since_ms"),
        [
            ("0000 0001 63 00000001 ffff 0001 6d          00000001", "", 10_000, -1),
            ("0001 0001 63 00000001 ffff 0001 6d          00000001", "0000ea60", 60_000, -1),
            ("0001 0001 63 00000001 ffff 0001 6d          00000001", "ffffffff", 10_000, -1),
            ("0002 0001 63 00000001 ffff 0001 6d 0000000000000009 00000001", "0000ea60", 60_000, 9),
        ],
    )
    def test_group(
        self, head: str, rebalance_timeout: str, rebalance_timeout_ms: int, state_since_ms: int
    ) -> None:
        value = head + "0001 6d  0001 63  0001 68" + rebalance_timeout + "00002710  00000000  00000001 0a"
        member = MemberMetadata("m", None, "c", "h", rebalance_timeout_ms, 10_000, b"", b"\x0a")
        expected = GroupMetadata("c", 1, None, "m", state_since_ms, (member,))
        decoded = decode(hexadecimal(GROUP_KEY), hexadecimal(value))
        assert decoded == GroupMetadataRecord("g", expected)


class TestCompactValues:
    """Value version 4, which Kafka 4 writes for offsets, and reads for groups."""

    @pytest.mark.parametrize(
        ("tags", "topic_id"),
        [("00", b""), ("02 00 10 000102030405060708090a0b0c0d0e0f 07 01 ff", TOPIC_ID), ("01 07 01 ff", b"")],
    )
    def test_offset(self, tags: str, topic_id: bytes) -> None:
        value = f"0004  0000000000000005  00000007  02 6d  000000000000000a  {tags}"
        expected = OffsetCommitRecord("g", "t", 3, CommittedOffset(5, 7, "m", 10, topic_id=topic_id))
        assert decode(hexadecimal(OFFSET_KEY), hexadecimal(value)) == expected

    @pytest.mark.parametrize("tags", ["00", "01 07 02 0000"])
    def test_group(self, tags: str) -> None:
        members = "".join(
            f"02 {name} {instance} 02 63  02 68  0000ea60  00002710  01  02 0a {tags}"
            for name, instance in (("6d", "00"), ("6e", "02 69"))
        )
        value = f"0004  02 63  00000001  00  02 6d  0000000000000009  03 {members} 00"
        expected = tuple(
            MemberMetadata(name, instance, "c", "h", 60_000, 10_000, b"", b"\x0a")
            for name, instance in (("m", None), ("n", "i"))
        )
        decoded = decode(hexadecimal(GROUP_KEY), hexadecimal(value))
        assert decoded == GroupMetadataRecord("g", GroupMetadata("c", 1, None, "m", 9, expected))

    @pytest.mark.parametrize(
        "value",
        [
            "0004  0000000000000005  00000007  00",
            "0004  0000000000000005  00000007  ff ff ff ff ff ff",
            "0004  0000000000000005  00000007  09 6d",
        ],
    )
    def test_bad_lengths(self, value: str) -> None:
        with pytest.raises(UnreadableRecord):
            decode(hexadecimal(OFFSET_KEY), hexadecimal(value))


class TestHostileBytes:
    @given(key=st.binary(max_size=40), value=st.none() | st.binary(max_size=60))
    def test_any_bytes(self, key: bytes, value: bytes | None) -> None:
        with contextlib.suppress(UnreadableRecord):
            decode(key, value)

    @given(record=RECORDS, data=st.data())
    def test_damaged_records(self, record: GroupRecord, data: st.DataObject) -> None:
        key, value = encode(record)
        whole = bytearray(key + (value or b""))
        for _ in range(data.draw(st.integers(1, 3))):
            whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
        with contextlib.suppress(UnreadableRecord):
            decode(bytes(whole[: len(key)]), bytes(whole[len(key) :]))

    @given(record=RECORDS, data=st.data())
    def test_cut_records(self, record: GroupRecord, data: st.DataObject) -> None:
        key, value = encode(record)
        with pytest.raises(UnreadableRecord):
            decode(key[: data.draw(st.integers(0, len(key) - 1))], value)
        if value is not None:
            with pytest.raises(UnreadableRecord):
                decode(key, value[: data.draw(st.integers(0, len(value) - 1))])

    @pytest.mark.parametrize("version", [-1, 5, 2**15 - 1])
    def test_unknown_version(self, version: int) -> None:
        value = version.to_bytes(2, "big", signed=True) + bytes(60)
        for key in (OFFSET_KEY, GROUP_KEY):
            with pytest.raises(UnreadableRecord, match=f"version {version}"):
                decode(hexadecimal(key), value)

    def test_more_members_claimed_than_present(self) -> None:
        value = hexadecimal("0003  0000  00000000  ffff  ffff  ffffffffffffffff  7fffffff")
        with pytest.raises(UnreadableRecord):
            decode(hexadecimal(GROUP_KEY), value)

    def test_negative_number_of_members(self) -> None:
        value = hexadecimal("0003  0000  00000000  ffff  ffff  ffffffffffffffff  ffffffff")
        with pytest.raises(UnreadableRecord):
            decode(hexadecimal(GROUP_KEY), value)

    @pytest.mark.parametrize("kind", [-1, 9, 2**15 - 1])
    def test_unknown_kind_of_key(self, kind: int) -> None:
        assert decode(kind.to_bytes(2, "big", signed=True) + b"any", b"thing") is None


@given(record=RECORDS)
def test_round_trip(record: GroupRecord) -> None:
    assert decode(*encode(record)) == record
