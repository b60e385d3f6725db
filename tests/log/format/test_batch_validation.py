from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import replace

import pytest

from seqgate.log import CorruptRecord, InvalidRecord, InvalidTimestamp, LogConfig, LogError, RecordTooLarge
from seqgate.log.errors import RecordBatchTooLarge, UnsupportedCompressionType
from seqgate.log.format.batch_validation import check_batch
from tests.log.support import NOW_MS
from tests.support.batches import Batch, Record, records

BASE = Batch(records(3, step_ms=1), base_timestamp=NOW_MS)
CONFIG = LogConfig(deep_validation=False)
DEEP = LogConfig()
MINUTE_MS = 60_000
INT_MAX = 2**31 - 1
LIMITED = replace(CONFIG, message_timestamp_before_max_ms=MINUTE_MS, examines_timestamps=True)
"""A topic that takes no record older than a minute, or later than an hour."""


def check(data: bytes, config: LogConfig = CONFIG, *, is_client: bool = True) -> None:
    check_batch(memoryview(data), config, NOW_MS, is_client)


def test_good_batch() -> None:
    header = check_batch(memoryview(BASE.encode()), CONFIG, NOW_MS, True)
    assert header.last_offset_delta == 2


@pytest.mark.parametrize(
    ("batch", "error"),
    [
        (replace(BASE, crc=1), CorruptRecord),
        (replace(BASE, batch_length=13), CorruptRecord),
        (replace(BASE, batch_length=40), CorruptRecord),
        (replace(BASE, batch_length=9999), InvalidRecord),
        (replace(BASE, magic=1), InvalidRecord),
        (replace(BASE, magic=3), CorruptRecord),
        (replace(BASE, magic=-1), CorruptRecord),
        (replace(BASE, base_offset=5), InvalidRecord),
        (replace(BASE, record_count=0), InvalidRecord),
        (replace(BASE, record_count=4), InvalidRecord),
        (replace(BASE, last_offset_delta=7), InvalidRecord),
        (replace(BASE, codec=5), UnsupportedCompressionType),
        (replace(BASE, attributes=0x20), InvalidRecord),
        (replace(BASE, producer_id=4, base_sequence=-1), InvalidRecord),
        (replace(BASE, base_timestamp=NOW_MS + 61 * MINUTE_MS, max_timestamp=NOW_MS), InvalidTimestamp),
    ],
)
def test_refusals(batch: Batch, error: type[LogError]) -> None:
    with pytest.raises(error):
        check(batch.encode())


@pytest.mark.parametrize("length", [0, 1, 16, 17, 60])
def test_too_few_bytes(length: int) -> None:
    with pytest.raises(LogError):
        check(BASE.encode()[:length])


class TestTrailingBytes:
    def test_second_whole_batch(self) -> None:
        with pytest.raises(InvalidRecord):
            check(BASE.encode() * 2)

    def test_cut_second_batch_is_ignored(self) -> None:
        check(BASE.encode() + BASE.encode()[:-1])

    def test_garbage(self) -> None:
        with pytest.raises(CorruptRecord):
            check(BASE.encode() + b"\0" * 20)


class TestSizes:
    def test_max_message_bytes(self) -> None:
        size_bytes = len(BASE.encode())
        check(BASE.encode(), replace(CONFIG, max_message_bytes=size_bytes))
        with pytest.raises(RecordTooLarge):
            check(BASE.encode(), replace(CONFIG, max_message_bytes=size_bytes - 1))

    def test_gateway_may_write_larger_ones_but_not_beyond_a_segment(self) -> None:
        config = replace(CONFIG, max_message_bytes=10, segment_bytes=len(BASE.encode()))
        check(BASE.encode(), config, is_client=False)
        with pytest.raises(RecordBatchTooLarge):
            check(BASE.encode(), replace(config, segment_bytes=config.segment_bytes - 1), is_client=False)


class TestTimestamps:
    def test_too_old_only_when_the_topic_says(self) -> None:
        old = replace(BASE, base_timestamp=NOW_MS - 2 * MINUTE_MS)
        check(old.encode())
        with pytest.raises(InvalidTimestamp):
            check(old.encode(), LIMITED)

    def test_none_is_never_too_old(self) -> None:
        none = replace(BASE, records=(Record(),), base_timestamp=-1)
        check(none.encode(), LIMITED)

    @pytest.mark.parametrize("config", [LIMITED, replace(LIMITED, deep_validation=True)])
    def test_a_refusal_names_the_records(self, config: LogConfig) -> None:
        deltas = (0, -2 * MINUTE_MS, 5, 61 * MINUTE_MS, 7)
        mixed = replace(BASE, records=tuple(Record(timestamp_delta=delta) for delta in deltas))
        for codec in ("none", "gzip"):
            with pytest.raises(InvalidTimestamp, match="60000 ms before the gateway's clock") as refused:
                check(replace(mixed, codec=codec).encode(), config)
            (early, early_text), (late, late_text) = refused.value.record_errors
            assert (early, late) == (1, 3)
            assert "60000 ms before the gateway's clock" in early_text
            assert "3600000 ms after the gateway's clock" in late_text

    def test_a_refusal_names_the_first_hundred_records(self) -> None:
        late = replace(BASE, records=records(150), base_timestamp=NOW_MS + 61 * MINUTE_MS)
        with pytest.raises(InvalidTimestamp) as refused:
            check(late.encode())
        assert [number for number, _ in refused.value.record_errors] == list(range(100))

    @pytest.mark.parametrize(
        "late",
        [
            replace(BASE, codec="gzip", payload=b"\x1f\x8b no gzip"),
            replace(BASE, records=records(10_001)),
            replace(BASE, records=(Record(value=bytes(9 << 20)),), codec="gzip"),
        ],
        ids=("damaged", "many records", "many bytes"),
    )
    def test_a_refusal_of_a_batch_that_is_not_decoded_names_none(self, late: Batch) -> None:
        with pytest.raises(InvalidTimestamp) as refused:
            check(replace(late, base_timestamp=NOW_MS + 61 * MINUTE_MS).encode())
        assert refused.value.record_errors == ()

    @pytest.mark.parametrize("delta_ms", [-2 * MINUTE_MS, 61 * MINUTE_MS])
    @pytest.mark.parametrize("codec", ["none", "zstd"])
    def test_a_header_hides_no_record_from_a_topic_with_limits(self, delta_ms: int, codec: str) -> None:
        hidden = (Record(), Record(timestamp_delta=delta_ms), Record())
        data = replace(BASE, records=hidden, max_timestamp=NOW_MS, codec=codec).encode()
        check(data)
        with pytest.raises(InvalidTimestamp) as refused:
            check(data, LIMITED)
        assert [number for number, _ in refused.value.record_errors] == [1]

    @pytest.mark.parametrize(
        "lie",
        [
            replace(BASE, max_timestamp=NOW_MS + 61 * MINUTE_MS),
            replace(
                BASE,
                records=tuple(Record(timestamp_delta=delta - 99 * MINUTE_MS) for delta in (0, 2, 1)),
                base_timestamp=NOW_MS + 99 * MINUTE_MS,
            ),
        ],
        ids=("max", "base"),
    )
    @pytest.mark.parametrize("config", [CONFIG, LIMITED])
    def test_a_late_header_of_good_records_is_corrected(self, lie: Batch, config: LogConfig) -> None:
        header = check_batch(memoryview(lie.encode()), config, NOW_MS, True)
        assert header.max_timestamp == NOW_MS + 2

    def test_a_topic_with_limits_corrects_a_low_max_timestamp(self) -> None:
        data = replace(BASE, max_timestamp=NOW_MS - 5).encode()
        assert check_batch(memoryview(data), CONFIG, NOW_MS, True).max_timestamp == NOW_MS - 5
        assert check_batch(memoryview(data), LIMITED, NOW_MS, True).max_timestamp == NOW_MS + 2

    @pytest.mark.parametrize(
        ("batch", "config"),
        [
            (replace(BASE, payload=b"\x02"), LIMITED),
            (replace(BASE, codec="zstd", payload=b"\x28\xb5\x2f\xfdnot zstd"), LIMITED),
            (BASE, replace(LIMITED, max_decoded_records=2)),
            (
                replace(BASE, records=records(1, 3_000_000), codec="zstd"),
                replace(LIMITED, max_decompressed_bytes=1_000_000),
            ),
        ],
        ids=("damaged", "damaged frame", "many records", "bomb"),
    )
    def test_a_topic_with_limits_takes_no_batch_that_it_does_not_decode(
        self, batch: Batch, config: LogConfig
    ) -> None:
        with pytest.raises(InvalidRecord):
            check(batch.encode(), config)

    def test_append_time_without_a_timestamp_is_none_under_create_time(self) -> None:
        check(replace(BASE, attributes=0x08).encode())
        with pytest.raises(InvalidTimestamp, match="has no timestamp") as refused:
            check(replace(BASE, records=(Record(),), base_timestamp=-1, attributes=0x08).encode())
        assert refused.value.record_errors == ((0, str(refused.value)),)

    def test_under_log_append_time_the_clients_time_does_not_count(self) -> None:
        config = replace(CONFIG, message_timestamp_type="LogAppendTime")
        check(replace(BASE, base_timestamp=NOW_MS + 99 * MINUTE_MS).encode(), config)
        with pytest.raises(InvalidTimestamp):
            check(replace(BASE, attributes=0x08).encode(), config)


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_content_that_is_not_of_its_codec_at_first_sight(codec: str) -> None:
    with pytest.raises(InvalidRecord, match="the records do not begin as"):
        check(replace(BASE, codec=codec, payload=b"plain words").encode())


class TestDeepValidation:
    @pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
    def test_good_batches(self, codec: str) -> None:
        check(replace(BASE, codec=codec).encode(), DEEP)

    @pytest.mark.parametrize(
        "spoil",
        [
            lambda batch: replace(batch, records=(Record(offset_delta=1),)),
            lambda batch: replace(batch, record_count=4, last_offset_delta=3),
            lambda batch: replace(batch, payload=b"\x02"),
            lambda batch: replace(batch, codec="zstd", payload=b"\x28\xb5\x2f\xfdnot zstd"),
        ],
    )
    def test_lies_that_only_the_records_tell(self, spoil: Callable[[Batch], Batch]) -> None:
        data = spoil(BASE).encode()
        check(data)
        with pytest.raises(InvalidRecord):
            check(data, DEEP)

    def test_record_from_the_future_hidden_by_the_header(self) -> None:
        data = replace(BASE, records=(Record(timestamp_delta=90 * MINUTE_MS),), max_timestamp=NOW_MS).encode()
        check(data)
        with pytest.raises(InvalidTimestamp):
            check(data, DEEP)

    def test_a_refusal_names_records_without_keys_beside_those_with_wrong_timestamps(self) -> None:
        mixed = (Record(), Record(key=b"k", timestamp_delta=90 * MINUTE_MS), Record(key=b"k"), Record())
        with pytest.raises(InvalidTimestamp) as refused:
            check(replace(BASE, records=mixed).encode(), replace(DEEP, compact=True))
        assert [number for number, _ in refused.value.record_errors] == [0, 1, 3]

    def test_max_timestamp_is_corrected(self) -> None:
        data = replace(BASE, max_timestamp=NOW_MS + 50).encode()
        assert check_batch(memoryview(data), DEEP, NOW_MS, True).max_timestamp == NOW_MS + 2
        before_all_times = replace(BASE, base_timestamp=-9).encode()
        assert check_batch(memoryview(before_all_times), DEEP, NOW_MS, True).max_timestamp == -1

    def test_bomb(self) -> None:
        data = replace(BASE, records=records(1, 3_000_000), codec="zstd").encode()
        with pytest.raises(InvalidRecord):
            check(data, replace(DEEP, max_decompressed_bytes=1_000_000))


CODECS = ["gzip", "snappy", "lz4", "zstd"]


class TestMaxDecompressedMessageBytes:
    SMALL = replace(CONFIG, max_record_bytes=200)

    @pytest.mark.parametrize("codec", CODECS)
    def test_a_larger_record_of_a_compressed_batch_is_refused(self, codec: str) -> None:
        batch = replace(BASE, records=(*records(2), Record(value=bytes(300))), codec=codec)
        check(batch.encode())
        with pytest.raises(InvalidRecord, match=r"has 30\d bytes; max\.decompressed\.message\.bytes is 200"):
            check(batch.encode(), self.SMALL)
        check(replace(batch, records=(*records(2), Record(value=bytes(150)))).encode(), self.SMALL)

    def test_a_batch_that_is_not_compressed_has_the_limit_of_the_wire_only(self) -> None:
        check(replace(BASE, records=(Record(value=bytes(300)),)).encode(), self.SMALL)

    @pytest.mark.parametrize("codec", CODECS)
    def test_a_bomb_costs_no_more_than_records_of_the_largest_size(self, codec: str) -> None:
        bomb = replace(BASE, records=(Record(value=bytes(30_000_000)),), codec=codec).encode()
        roomy = replace(CONFIG, max_message_bytes=INT_MAX, max_record_bytes=200)
        tracemalloc.start()
        with pytest.raises(InvalidRecord):
            check(bomb, roomy)
        assert tracemalloc.get_traced_memory()[1] < 100_000
        tracemalloc.stop()

    def test_too_many_records_are_refused_before_they_are_decompressed(self) -> None:
        batch = replace(BASE, codec="zstd", payload=b"\x28\xb5\x2f\xfdno frame").encode()
        with pytest.raises(InvalidRecord, match=r"seqgate\.batch\.decoded\.max\.records is 2"):
            check(batch, replace(self.SMALL, max_decoded_records=2))


def test_the_gateways_own_control_batch() -> None:
    check(replace(BASE, attributes=0x30, producer_id=3, producer_epoch=0).encode(), is_client=False)


def test_more_records_than_may_be_looked_at_are_refused_before_they_are_decompressed() -> None:
    few = replace(DEEP, max_decoded_records=3)
    check(BASE.encode(), few)
    bomb = replace(
        BASE, codec="zstd", record_count=4, last_offset_delta=3, payload=b"\x28\xb5\x2f\xfdno frame"
    )
    with pytest.raises(InvalidRecord, match=r"4 records; seqgate\.batch\.decoded\.max\.records is 3"):
        check(bomb.encode(), few)
    check(bomb.encode(), replace(few, deep_validation=False))
