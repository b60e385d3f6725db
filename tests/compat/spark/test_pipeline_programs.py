"""The parts that all streaming programs share."""

from __future__ import annotations

import signal
from collections.abc import Collection
from typing import Any, cast

import pytest
from pyspark.errors import StreamingQueryException

from seqgate.spark_kafka_compat import SparkCompatError
from seqgate.spark_kafka_compat.pipelines.streaming import (
    DONE,
    NOT_BEGUN,
    QUERY_FAILED,
    await_end,
    source_options,
)
from seqgate.spark_kafka_compat.session import RecreatedTopicError


class Query:
    """A streaming query whose end the test chooses."""

    isActive = False  # noqa: N815

    def __init__(self, message: str | None = None) -> None:
        self._message = message
        self.stops = 0
        self.lastProgress = {"sources": [{"endOffset": {"t": {"0": 5}}}, {"endOffset": '{"u": {"0": 5}}'}]}

    def stop(self) -> None:
        self.stops += 1

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
        ("boom", "boom (--verbose prints the whole error)"),
        (
            (
                "[STREAM_FAILED] Query [id = 1] terminated\njava.lang.X: a\n\tat b\nCaused by: "
                "java.io.IOException: boom\n\tat c"
            ),
            "java.io.IOException: boom (--verbose prints the whole error)",
        ),
        (
            (
                "Return Message: Traceback (most recent call last):\n  File x\nsqlite3.OperationalError: no such "
                "table: t\n\nat py4j"
            ),
            "sqlite3.OperationalError: no such table: t (--verbose prints the whole error)",
        ),
        (
            (
                "java.lang.IllegalStateException: Partition land1-0 offset was changed from 3306 to 987, some "
                "data may"
            ),
            (
                "Partition land1-0 offset was changed from 3306 to 987: the topic was deleted and created "
                "again, or its records were deleted before they were read. Begin with a new path and "
                "checkpoint, or pass --option failOnDataLoss=false to continue with the records that exist."
            ),
        ),
        (
            "Raised in Python:\nseqgate.spark_kafka_compat.session.FencedError: Another copy has started.\n\nat py4j",
            "Another copy has started.",
        ),
    ],
)
def test_the_reason_of_a_failed_query_is_printed(
    message: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await_end(cast("Any", Query(message)), "land") == QUERY_FAILED
    assert capsys.readouterr().err == f"land: the query failed: {shown}\n"


def test_a_check_stops_the_query(capsys: pytest.CaptureFixture[str]) -> None:
    query, checked = Query(), []

    def check(topics: Collection[str]) -> None:
        checked.append(set(topics))
        raise SparkCompatError("The topic t was recreated.")

    assert await_end(cast("Any", query), "land", check) == NOT_BEGUN
    assert capsys.readouterr().err == "land: The topic t was recreated.\n"
    assert (query.stops, checked) == (1, [{"t", "u"}])


def test_a_query_that_fails_of_a_recreated_topic_counts_as_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = "Raised in Python:\nseqgate.spark_kafka_compat.session.RecreatedTopicError: The topic t was recreated.\n\nat py4j"
    assert await_end(cast("Any", Query(text)), "into_database") == NOT_BEGUN
    assert capsys.readouterr().err == "into_database: The topic t was recreated.\n"


def test_a_query_that_fails_is_checked_for_a_recreated_topic(capsys: pytest.CaptureFixture[str]) -> None:
    def check(_: Collection[str]) -> None:
        raise RecreatedTopicError("The topic t was recreated.")

    moved = Query("Partition t-0 offset was changed from 10 to 4")
    assert await_end(cast("Any", moved), "land", check) == NOT_BEGUN
    assert capsys.readouterr().err == "land: The topic t was recreated.\n"


def test_signal_handlers_are_restored_at_the_end() -> None:
    before = signal.getsignal(signal.SIGINT)
    assert await_end(cast("Any", Query()), "land") == DONE
    assert signal.getsignal(signal.SIGINT) is before
