from __future__ import annotations

import pytest

from spark_kafka_compat import SparkCompatError
from spark_kafka_compat.offset_log import parse_offsets
from spark_kafka_compat.positions import Place


@pytest.mark.parametrize(
    "text",
    [
        'v1\n{"batchWatermarkMs":0}\n{"a":{"0":5,"1":7}}',
        '\0v1\n{"a":{"0":5,"1":7}}',
        'v1\r\n{"a":{"0":5,"1":7}}\n',
    ],
)
def test_offsets(text: str) -> None:
    assert parse_offsets(text) == {Place("a", 0): 5, Place("a", 1): 7}


@pytest.mark.parametrize(
    "text", ["", "v1", "v2\n{}", "v1\n-", "v1\nnull", 'v1\n{"a":5}', 'v1\n{"a":{"b":5}}']
)
def test_other_formats_are_refused(text: str) -> None:
    with pytest.raises(SparkCompatError, match="format v1"):
        parse_offsets(text)
