"""A batch in another codec has the same records and the same header but for codec, size and CRC."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqgate.gateway.runtime.partitions.batch_threads import recompressed
from seqgate.log import CorruptRecord, InvalidRecord, InvalidTimestamp, LogConfig, LogError, RecordTooLarge
from seqgate.log.errors import UnsupportedCompressionType
from seqgate.log.format.compression import CODEC_IDS, GZIP, LZ4, NONE, SNAPPY, ZSTD, Compression, compress
from seqgate.log.format.record_batch import HEADER_BYTES, crc_matches, parse_header
from seqgate.log.format.records import NewRecord, build_batch, iterate_records
from tests.support.batches import DEFAULT_TIMESTAMP, Batch, Record, decompress, read_batches, records

CONFIG = LogConfig()
LEVELS = {
    NONE: (None,),
    SNAPPY: (None,),
    GZIP: (-1, 1, 9),
    LZ4: (1, 2, 9, 12, 17),
    ZSTD: (-131072, -1, 0, 3, 22),
}
KEPT = (
    "base_offset",
    "partition_leader_epoch",
    "magic",
    "last_offset_delta",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "record_count",
)
texts = st.none() | st.binary(max_size=30) | st.binary(min_size=1, max_size=3).map(lambda text: text * 40_000)
new_records = st.lists(
    st.builds(
        NewRecord,
        value=texts,
        key=texts,
        timestamp=st.integers(0, DEFAULT_TIMESTAMP),
        headers=st.lists(st.tuples(st.text(max_size=3), texts), max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=8,
)
compressions = st.sampled_from(sorted(LEVELS)).flatmap(
    lambda codec: st.builds(Compression, st.just(codec), st.sampled_from(LEVELS[codec]))
)


def rewrite(batch: bytes, compression: Compression, config: LogConfig = CONFIG) -> bytes:
    return recompressed(memoryview(batch), compression, config, DEFAULT_TIMESTAMP)


@settings(max_examples=150, deadline=None)
@given(
    new_records,
    st.sampled_from(sorted(CODEC_IDS)),
    compressions,
    st.booleans(),
    st.sampled_from([-1, 0, 2**31 - 3]),
)
def test_records_stay(
    listed: list[NewRecord], codec: str, compression: Compression, is_transactional: bool, base_sequence: int
) -> None:
    batch = build_batch(
        listed,
        codec=codec,
        leader_epoch=6,
        producer_id=9 if base_sequence >= 0 else -1,
        producer_epoch=2,
        base_sequence=base_sequence,
        is_transactional=is_transactional,
    )
    config = replace(CONFIG, max_message_bytes=1 << 24)
    result = rewrite(batch, compression, config)
    before, after = parse_header(batch), parse_header(result)
    assert after.size_bytes == len(result)
    assert crc_matches(after, memoryview(result))
    assert after.compression == compression.codec
    assert after.attributes & ~7 == before.attributes & ~7
    assert [getattr(after, name) for name in KEPT] == [getattr(before, name) for name in KEPT]
    assert list(iterate_records(result)) == list(iterate_records(batch))


@pytest.mark.parametrize(
    "compression",
    [Compression(codec, level) for codec, levels in LEVELS.items() for level in levels],
    ids=str,
)
def test_the_reader_of_the_tests_agrees(compression: Compression) -> None:
    """The reader knows nothing of the code under test."""
    sent = Batch(records(300, 100))
    (view,), rest = read_batches(rewrite(sent.encode(), compression))
    assert view.crc_is_right
    assert not rest
    assert decompress(compression.codec, view.payload) == b"".join(
        record.encode(index) for index, record in enumerate(sent.records)
    )


def test_a_level_counts() -> None:
    data = b"".join(b"%d" % (number * number) for number in range(20_000))
    for codec, weak, strong in ((GZIP, 1, 9), (LZ4, 9, 17), (ZSTD, -5, 19)):
        assert len(compress(codec, data, strong)) < len(compress(codec, data, weak))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"crc": 1}, CorruptRecord),
        ({"base_offset": 7}, InvalidRecord),
        ({"record_count": 2}, InvalidRecord),
        ({"base_timestamp": 2**50}, InvalidTimestamp),
        ({"attributes": 0x20}, InvalidRecord),
    ],
    ids=str,
)
def test_damage_is_not_hidden(codec: str, wrong: dict[str, int], error: type[LogError]) -> None:
    batch = replace(Batch(records(3), codec=codec), **wrong)  # type: ignore[arg-type]
    with pytest.raises(error):
        rewrite(batch.encode(), Compression(GZIP if codec == "zstd" else ZSTD))


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_records_that_can_not_be_read_are_refused(codec: str) -> None:
    whole = read_batches(Batch(records(50, 100), codec=codec).encode())[0][0].payload
    for payload in (whole[: len(whole) // 2], whole[:4] + bytes(40)):
        with pytest.raises(InvalidRecord):
            rewrite(Batch(records(50, 100), codec=codec, payload=payload).encode(), Compression(NONE))


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(sorted(CODEC_IDS)),
    st.binary(max_size=60),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3),
    compressions,
)
def test_hostile_bytes_are_refused_or_rewritten(
    codec: str, tail: bytes, flips: list[tuple[int, int]], compression: Compression
) -> None:
    """Damaged compressed records under a right CRC, as only a hostile client sends them, raise nothing but
    LogErrors.
    """
    sound = read_batches(Batch(records(20, 100), codec=codec).encode())[0][0].payload
    payload = bytearray(sound + tail)
    for position, byte in flips:
        payload[position % len(payload)] = byte
    batch = Batch(records(20, 100), codec=codec, payload=bytes(payload)).encode()
    try:
        result = rewrite(batch, compression, replace(CONFIG, max_decompressed_bytes=1 << 20))
    except LogError:
        return
    assert crc_matches(parse_header(result), memoryview(result))


def test_an_unknown_codec_is_refused() -> None:
    with pytest.raises(UnsupportedCompressionType):
        rewrite(Batch(records(3), codec=6).encode(), Compression(NONE))


def test_a_bomb_meets_the_limit() -> None:
    bomb = Batch((Record(bytes(30_000_000)),), codec="zstd").encode()
    with pytest.raises(InvalidRecord, match="more than 1000000"):
        rewrite(bomb, Compression(LZ4), replace(CONFIG, max_decompressed_bytes=1_000_000))


def test_the_size_limit_counts_before_and_after() -> None:
    large, config = Batch((Record(bytes(5_000)),)), replace(CONFIG, max_message_bytes=1_000)
    with pytest.raises(RecordTooLarge, match=r"max\.message\.bytes is 1000"):
        rewrite(large.encode(), Compression(GZIP), config)
    with pytest.raises(RecordTooLarge, match="none"):
        rewrite(replace(large, codec="gzip").encode(), Compression(NONE), config)


def test_only_the_stored_batch_must_fit_a_segment() -> None:
    large, config = Batch((Record(bytes(5_000)),)), replace(CONFIG, segment_bytes=1_000)
    assert len(rewrite(large.encode(), Compression(GZIP), config)) < 1_000


def test_bytes_after_the_batch_are_dropped() -> None:
    batch = Batch(records(3)).encode()
    assert rewrite(batch + batch[:30], Compression(ZSTD)) == rewrite(batch, Compression(ZSTD))
    assert len(rewrite(batch + batch[:30], Compression(NONE))) == len(batch)


def test_the_codec_of_the_batch_itself_is_allowed() -> None:
    """A thread may get such a batch; it compresses again."""
    batch = Batch(records(3), codec="gzip").encode()
    assert parse_header(rewrite(batch, Compression(GZIP, 9))).compression == GZIP
    assert len(batch) > HEADER_BYTES
