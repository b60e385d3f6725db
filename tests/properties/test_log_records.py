"""Every possible batch is read back unchanged, by the log's reader and by one written from the format's
description.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from seqgate.log import LogConfig, LogError
from seqgate.log.format.batch_validation import check_batch
from seqgate.log.format.records import NewRecord, build_batch, iterate_records
from tests.support.batches import read_batches

NOW_MS = 1_700_000_000_000
content = st.none() | st.binary(max_size=300)
headers = st.lists(st.tuples(st.text(max_size=10), content), max_size=4)
record = st.builds(NewRecord, value=content, key=content, timestamp=st.integers(-1, NOW_MS), headers=headers)
codec = st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"])


@settings(max_examples=150)
@given(st.lists(record, min_size=1, max_size=30), codec, st.integers(0, 2**62), st.integers(0, 2**31 - 1))
def test_round_trip(records: list[NewRecord], codec: str, base_offset: int, base_sequence: int) -> None:
    data = build_batch(
        records,
        codec=codec,
        base_offset=base_offset,
        producer_id=7,
        producer_epoch=1,
        base_sequence=base_sequence,
    )
    found = list(iterate_records(data))
    assert [(r.value, r.key, r.timestamp, list(r.headers)) for r in found] == [
        (r.value, r.key, r.timestamp, list(r.headers)) for r in records
    ]
    assert [r.offset for r in found] == list(range(base_offset, base_offset + len(records)))
    (view,), rest = read_batches(data)
    assert rest == b""
    assert view.crc_is_right
    assert view.base_sequence == base_sequence


@settings(max_examples=150)
@given(st.lists(record, min_size=1, max_size=5), codec, st.data())
def test_damage_is_refused_and_nothing_else_happens(
    records: list[NewRecord], codec: str, data: st.DataObject
) -> None:
    whole = build_batch(records, codec=codec)
    position = data.draw(st.integers(0, len(whole) - 1))
    spoilt = bytearray(whole)
    spoilt[position] ^= data.draw(st.integers(1, 255))
    try:
        check_batch(memoryview(spoilt), LogConfig(), NOW_MS, True)
    except LogError:
        return
    assert 12 <= position < 16, "only the leader epoch, which the gateway sets, is covered by no checksum"


@settings(max_examples=100)
@given(st.binary(max_size=200))
def test_garbage_is_refused(garbage: bytes) -> None:
    for config in (LogConfig(), LogConfig(deep_validation=False)):
        try:
            check_batch(memoryview(garbage), config, NOW_MS, True)
        except LogError:
            continue
        raise AssertionError("garbage was accepted as a batch")
