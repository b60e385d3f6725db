"""The span of offsets of a micro batch, from the offset log that Spark writes into the checkpoint before a micro batch runs.

`offsets/N` holds the end of micro batch N, which is the begin of micro batch N + 1; `sources/0/0` holds the begin of the first.
The rows alone do not show the span: a micro batch may end with transaction markers, aborted or compacted records. Spark has
written version 1 of this format (`OffsetSeqLog`, `KafkaSourceInitialOffsetWriter`) since 2.1.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit

from spark_kafka_compat.errors import SparkCompatError
from spark_kafka_compat.positions import Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_VERSION = "v1"
_ON_THE_DRIVER = "file:"


class Span(NamedTuple):
    """The offsets of a micro batch by partition: `start` inclusive, `end` exclusive. A partition without a start is new."""

    start: dict[Place, int]
    end: dict[Place, int]


def parse_offsets(text: str) -> dict[Place, int]:
    """Return the offsets in a file of the log, which has one source. Raises `SparkCompatError` for another format."""
    version, *lines = _lines(text)
    offsets = _kafka_offsets(lines[-1]) if version == _VERSION and lines else None
    if offsets is None:
        raise _unknown_format(version)
    return offsets


def parse_all_offsets(text: str) -> dict[Place, int]:
    """Return the offsets of all Kafka sources in `offsets/N`. Raises `SparkCompatError` for another format.

    The first line after the version describes the micro batch; each further line belongs to one source of the query. Of two
    sources that read one partition the larger offset counts.
    """
    version, *lines = _lines(text)
    if version != _VERSION:
        raise _unknown_format(version)
    merged: dict[Place, int] = {}
    for line in lines[1:]:
        for place, offset in (_kafka_offsets(line) or {}).items():
            merged[place] = max(offset, merged.get(place, offset))
    return merged


def topics_in(offsets: Iterable[object]) -> set[str]:
    """Return the topics in the offsets of a progress report, as JSON or decoded; sources of other kinds have none."""
    topics: set[str] = set()
    for one in offsets:
        try:
            found = json.loads(one) if isinstance(one, str) else one
        except ValueError:
            continue
        if isinstance(found, dict):
            topics |= {topic for topic, partitions in found.items() if isinstance(partitions, dict)}
    return topics


def _lines(text: str) -> list[str]:
    return text.lstrip("\0").splitlines() or [""]


def _kafka_offsets(line: str) -> dict[Place, int] | None:
    """Return the offsets in the line of one source; None for a source of another kind."""
    try:
        return {
            Place(topic, int(partition)): int(offset)
            for topic, partitions in json.loads(line).items()
            for partition, offset in partitions.items()
        }
    except (AttributeError, TypeError, ValueError):
        return None


def _unknown_format(version: str) -> SparkCompatError:
    return SparkCompatError(
        f"The checkpoint's offset log has {version[:20]!r} in its first line, not the format {_VERSION}: this version of "
        "Spark is not supported."
    )


class OffsetLog:
    """The offset log of a checkpoint. Spark reads the log, so the checkpoint can be wherever Spark can write.

    The driver itself reads a `file:` URI, because executors on other machines do not have the file.
    """

    def __init__(self, checkpoint: str) -> None:
        self._checkpoint = checkpoint.rstrip("/")
        self._last: tuple[int, dict[Place, int]] | None = None

    def span(self, spark: SparkSession, batch_id: int) -> Span:
        """Return the span of a micro batch. Raises `SparkCompatError` for an unknown format."""
        if self._last is not None and self._last[0] == batch_id - 1:
            start = self._last[1]
        elif batch_id == 0:
            start = self._read(spark, "sources/0/0")
        else:
            start = self._read(spark, f"offsets/{batch_id - 1}")
        end = self._read(spark, f"offsets/{batch_id}")
        self._last = batch_id, end
        return Span(start, end)

    def _read(self, spark: SparkSession, name: str) -> dict[Place, int]:
        path = f"{self._checkpoint}/{name}"
        if path.startswith(_ON_THE_DRIVER):
            return parse_offsets(Path(unquote(urlsplit(path).path)).read_text(encoding="utf-8"))
        row = spark.read.text(path, wholetext=True).first()
        return parse_offsets(row[0] if row else "")
