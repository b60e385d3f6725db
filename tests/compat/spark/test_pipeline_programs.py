"""The parts that all streaming programs share."""

from __future__ import annotations

import signal
from typing import Any, cast

import pytest
from pyspark.errors import StreamingQueryException

from spark_kafka_compat import SparkCompatError
from spark_kafka_compat.pipelines.streaming import DONE, QUERY_FAILED, await_end, source_options


class Query:
    """A streaming query whose end the test chooses."""

    isActive = False  # noqa: N815

    def __init__(self, message: str | None = None) -> None:
        self._message = message

    def awaitTermination(self, timeout: float) -> bool:  # noqa: N802
        if self._message is not None:
            raise StreamingQueryException(self._message)
        return True


def test_options() -> None:
    assert source_options(["a=1", "kafka.b=c=d"]) == {"a": "1", "kafka.b": "c=d"}
    with pytest.raises(SparkCompatError, match="NAME=VALUE, not 'a'"):
        source_options(["a"])


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("java.lang.X: boom", "java.lang.X: boom"),
        (
            "Raised in Python:\nspark_kafka_compat.errors.FencedError: Another copy has started.\n\nat py4j",
            "Another copy has started.",
        ),
    ],
)
def test_the_reason_of_a_failed_query_is_printed(
    message: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await_end(cast("Any", Query(message)), "land") == QUERY_FAILED
    assert capsys.readouterr().err == f"land: the query failed: {shown}\n"


def test_signal_handlers_are_restored_at_the_end() -> None:
    before = signal.getsignal(signal.SIGINT)
    assert await_end(cast("Any", Query()), "land") == DONE
    assert signal.getsignal(signal.SIGINT) is before
