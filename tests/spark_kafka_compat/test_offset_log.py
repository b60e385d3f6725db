from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from seqgate.spark_kafka_compat import SparkCompatError
from seqgate.spark_kafka_compat.partitions import OffsetLog, OffsetRange, parse_all_offsets, parse_offsets
from seqgate.spark_kafka_compat.positions import TopicPartition


@pytest.mark.parametrize(
    "text",
    [
        'v1\n{"batchWatermarkMs":0}\n{"a":{"0":5,"1":7}}',
        '\0v1\n{"a":{"0":5,"1":7}}',
        'v1\r\n{"a":{"0":5,"1":7}}\n',
    ],
)
def test_offsets(text: str) -> None:
    assert parse_offsets(text) == {TopicPartition("a", 0): 5, TopicPartition("a", 1): 7}


@pytest.mark.parametrize(
    "text", ["", "v1", "v2\n{}", "v1\n-", "v1\nnull", 'v1\n{"a":5}', 'v1\n{"a":{"b":5}}']
)
def test_other_formats_are_refused(text: str) -> None:
    with pytest.raises(SparkCompatError, match="format v1"):
        parse_offsets(text)


def test_offsets_of_a_query_with_several_sources() -> None:
    text = 'v1\n{"batchWatermarkMs":0,"conf":{}}\n{"a":{"0":5,"1":7}}\n-\n{"logOffset":3}\n{"b":{"0":1},"a":{"0":9}}\n17'
    assert parse_all_offsets(text) == {
        TopicPartition("a", 0): 9,
        TopicPartition("a", 1): 7,
        TopicPartition("b", 0): 1,
    }
    with pytest.raises(SparkCompatError, match="format v1"):
        parse_all_offsets("v2\n{}")


def test_a_span_lies_between_the_ends_of_two_micro_batches(tmp_path: Path) -> None:
    checkpoint = tmp_path / "chéck point%20#1"
    for name, offset in (("sources/0/0", 3), ("offsets/0", 5), ("offsets/1", 8), ("offsets/2", 8)):
        path = checkpoint / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'v1\n{{"a":{{"0":{offset}}}}}')
    place = TopicPartition("a", 0)
    no_spark = cast("Any", None)
    log = OffsetLog(f"file:{checkpoint}")
    assert [log.span(no_spark, number) for number in range(3)] == [
        OffsetRange({place: 3}, {place: 5}),
        OffsetRange({place: 5}, {place: 8}),
        OffsetRange({place: 8}, {place: 8}),
    ]
    assert OffsetLog(f"file://{checkpoint}").span(no_spark, 1) == OffsetRange({place: 5}, {place: 8})
