"""The bytes of a snapshot of the shared metadata."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from seqgate.gateway.cluster.metadata import snapshot as codec
from seqgate.gateway.cluster.metadata.change import placed_batch
from seqgate.gateway.cluster.metadata.snapshot import (
    CorruptMetadataSnapshot,
    decode_snapshot,
    encode_snapshot,
    image_batches,
)
from seqgate.gateway.cluster.wal.sessions import RegisteredSession, Snapshot
from seqgate.log import IncompatibleFormat
from seqgate.log.format.record_batch import parse_header
from seqgate.log.format.records import NewRecord, build_batch, iterate_records

NONCE = bytes(range(16))
SESSION = RegisteredSession(3, 1, NONCE, "cluster-a", 4, 1_000, "host-1", "0.1.0")
BATCHES = image_batches([b"one", b"two"], 9, 5)
SNAPSHOT = Snapshot(40, 9, "cluster-a", 1, (SESSION, SESSION._replace(session=17, node_id=2)), BATCHES)
CONTENT = encode_snapshot(SNAPSHOT)
SESSIONS = st.builds(
    lambda number, node_id, host: SESSION._replace(session=number, node_id=node_id, host=host),
    st.integers(0, 999),
    st.integers(0, 9),
    st.text(),
)


@given(
    st.lists(SESSIONS, min_size=1, max_size=5, unique_by=lambda each: each.session),
    st.lists(st.binary(max_size=20), min_size=1, max_size=20),
    st.integers(20, 1000),
    st.sampled_from([None, 1, 1000]),
    st.integers(1, 60),
)
def test_round_trip(
    sessions: list[RegisteredSession],
    values: list[bytes],
    next_offset: int,
    kept_end: int | None,
    batch_bytes: int,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codec, "BATCH_BYTES", batch_bytes)
        batches = image_batches(values, next_offset, 7)
    snapshot = Snapshot(
        1000, next_offset, "cluster-a", kept_end, tuple(sorted(sessions, key=lambda each: each[0])), batches
    )
    assert decode_snapshot(encode_snapshot(snapshot), 1000) == snapshot
    records = [record for batch in batches for record in iterate_records(batch)]
    assert [record.value for record in records] == values
    assert [record.offset for record in records] == list(range(next_offset - len(values), next_offset))


def test_the_head_stays_as_it_is() -> None:
    assert CONTENT[:4] == b"SQMS"
    assert CONTENT[4:8] == struct.pack(">I", crc32c(CONTENT[8:]))
    assert CONTENT[8:10] == b"\0\1"
    assert CONTENT[14:].startswith(
        b'{"seq":40,"next_offset":9,"cluster_id":"cluster-a","kept_end":1,"sessions":[{'
    )
    assert CONTENT.endswith(BATCHES[0])


@given(st.integers(0, len(CONTENT) - 1), st.integers(1, 255))
def test_each_changed_byte_is_noticed(place: int, difference: int) -> None:
    damaged = bytearray(CONTENT)
    damaged[place] ^= difference
    with pytest.raises((CorruptMetadataSnapshot, IncompatibleFormat)):
        decode_snapshot(bytes(damaged), 40)


@given(st.integers(0, len(CONTENT) - 1))
def test_a_cut_snapshot_is_refused(size: int) -> None:
    with pytest.raises(CorruptMetadataSnapshot, match=r"meta/snapshot/00000000000000000040 is"):
        decode_snapshot(CONTENT[:size], 40)


def test_a_snapshot_of_another_place_is_refused() -> None:
    with pytest.raises(CorruptMetadataSnapshot, match="another place: snapshot 40"):
        decode_snapshot(CONTENT, 41)


def test_a_later_version_is_refused() -> None:
    with pytest.raises(IncompatibleFormat, match="version 2"):
        decode_snapshot(CONTENT[:8] + b"\0\2" + CONTENT[10:], 40)


def _sealed(body: bytes) -> bytes:
    return b"SQMS" + struct.pack(">I", crc32c(body)) + body


@pytest.mark.parametrize(
    "body",
    [
        b"\0\1" + struct.pack(">i", 1 << 20),
        b"\0\1" + struct.pack(">i", -1),
        b"\0\0" + CONTENT[10:],
        b"\0\1" + struct.pack(">i", 2) + b"{}",
        CONTENT[8:] + b"\0",
        CONTENT[8:].replace(NONCE.hex().encode(), b"x" * 32),
        CONTENT[8:].replace(b'"kept_end":1,', b'"kept_end":0,'),
    ],
)
def test_impossible_contents_with_a_right_checksum_are_refused(body: bytes) -> None:
    with pytest.raises(CorruptMetadataSnapshot, match=r"meta/snapshot/00000000000000000040 is damaged"):
        decode_snapshot(_sealed(body), 40)


GAP = placed_batch(build_batch([NewRecord(b"x")]), 4)


@pytest.mark.parametrize(
    "wrong",
    [
        {"seq": 17},
        {"next_offset": 10},
        {"sessions": ()},
        {"sessions": (SESSION, SESSION)},
        {"sessions": (SESSION._replace(nonce=b""),)},
        {"sessions": (SESSION._replace(session=-1),)},
        {"batches": ()},
        {"batches": (BATCHES[0][:-1],)},
        {"batches": (GAP, *BATCHES)},
        {"kept_end": 41},
    ],
)
def test_what_no_reader_would_take_is_not_written(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        encode_snapshot(SNAPSHOT._replace(**wrong))  # type: ignore[arg-type]


@pytest.mark.parametrize("values", [[], [b"x"] * 4])
def test_as_many_records_as_there_were(values: list[bytes]) -> None:
    with pytest.raises(ValueError, match="must have 1 to 3 records"):
        image_batches(values, 3, 0)
    assert parse_header(image_batches([b"x"] * 3, 3, 0)[0]).base_offset == 0
