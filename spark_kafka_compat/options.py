"""Spark's own options for `format("kafka")`: one table, and the check of options against it.

The names and defaults are the connector's (`KafkaSourceProvider`, `KafkaOffsetReaderConsumer`, `KafkaWriter`
of Spark 4.0 and the "Structured Streaming + Kafka Integration Guide"). Spark itself ignores an unknown name,
so that a misspelt `failOndataLos` silently loses data. Here an unknown name is an error that names the
nearest valid option.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Flag, auto
from functools import partial

from seqgate.spark_kafka_compat.session import UnknownOptionError

OptionValue = str | bool | int | Mapping[str, object]

COMMITTED: Mapping[str, OptionValue] = {"kafka.isolation.level": "read_committed"}
"""The default of the pipelines, which Spark's own sources lack: records of aborted and open transactions are
left out.
"""


class Use(Flag):
    """The kinds of reads and writes that an option applies to."""

    BATCH_READ = auto()
    STREAM_READ = auto()
    BATCH_WRITE = auto()
    STREAM_WRITE = auto()
    READ = BATCH_READ | STREAM_READ
    WRITE = BATCH_WRITE | STREAM_WRITE


@dataclass(frozen=True)
class Option:
    """An option: its name as Spark spells it, its uses, Spark's default (None: none), and its meaning."""

    name: str
    uses: Use
    default: str | None
    meaning: str


def _option(name: str, uses: Use, default: str | None = None) -> Callable[[str], Option]:
    """Begin an option with what it is; what it means follows, as in the gateway's table of settings."""
    return partial(Option, name, uses, default)


OPTIONS: tuple[Option, ...] = (
    _option("assign", Use.READ)('The partitions to read, as JSON: {"topic": [0, 1]}.'),
    _option("subscribe", Use.READ)("The topics to read, separated by commas."),
    _option("subscribePattern", Use.READ)(
        "A Java regular expression; all topics whose whole name matches are read."
    ),
    _option("startingOffsets", Use.READ, "earliest (batch), latest (stream)")(
        'The first offsets: "earliest", "latest" (streams only), or JSON {"topic": {"0": 23, "1": -2}}, '
        "where -2 is the earliest and -1 the latest offset. A restarted stream resumes from its checkpoint "
        "instead."
    ),
    _option("endingOffsets", Use.BATCH_READ, "latest")(
        'The end offsets, exclusive: "latest", or JSON as for startingOffsets, where -1 is the latest offset.'
    ),
    _option("startingTimestamp", Use.READ)(
        "A time in ms; every partition begins at its first record at or after this time."
    ),
    _option("endingTimestamp", Use.BATCH_READ)(
        "A time in ms; every partition ends before its first record at or after this time."
    ),
    _option("startingOffsetsByTimestamp", Use.READ)(
        'A time in ms per partition, {"topic": {"0": 1700000000000}}; a partition begins at its first record '
        "at or after it."
    ),
    _option("endingOffsetsByTimestamp", Use.BATCH_READ)(
        "A time in ms per partition; a partition ends before its first record at or after it."
    ),
    _option("startingOffsetsByTimestampStrategy", Use.READ, "error")(
        'The action when no record is at or after the time: "error", or "latest" to begin at the end.'
    ),
    _option("failOnDataLoss", Use.READ, "true")(
        "Whether the query fails when records or topics were deleted before they were read; false skips them."
    ),
    _option("minPartitions", Use.READ)(
        "The least number of Spark partitions; large Kafka partitions are split."
    ),
    _option("maxRecordsPerPartition", Use.STREAM_READ)(
        "The most records in a Spark partition (Spark 4.0 and newer; batch reads ignore the option)."
    ),
    _option("includeHeaders", Use.READ | Use.WRITE, "false")(
        "Whether rows have the column `headers`, an array of (key, value)."
    ),
    _option("maxOffsetsPerTrigger", Use.STREAM_READ)(
        "The most records in a micro batch, over all partitions."
    ),
    _option("minOffsetsPerTrigger", Use.STREAM_READ)(
        "The number of records that a micro batch waits for, up to maxTriggerDelay."
    ),
    _option("maxTriggerDelay", Use.STREAM_READ, "15m")(
        "The longest time that a micro batch waits for minOffsetsPerTrigger."
    ),
    _option("groupIdPrefix", Use.READ, "spark-kafka-source")(
        "The prefix of the consumer group ids that Spark generates."
    ),
    _option("kafkaConsumer.pollTimeoutMs", Use.READ, "120000")(
        "The longest time of an executor's poll, in ms."
    ),
    _option("fetchOffset.numRetries", Use.READ, "3")(
        "The number of requests for offsets before Spark gives up."
    ),
    _option("fetchOffset.retryIntervalMs", Use.READ, "1000")(
        "The wait between two requests for offsets, in ms."
    ),
    _option("topic", Use.WRITE)(
        "The topic of all rows. Without the option, the column `topic` names the topic of each row."
    ),
    _option("checkpointLocation", Use.STREAM_WRITE)(
        "The directory in which the query keeps its progress; a restart needs it."
    ),
)

KAFKA_PREFIX = "kafka."
_BY_LOWER_NAME = {option.name.lower(): option for option in OPTIONS}
USE_NAMES = {
    Use.BATCH_READ: "a batch read",
    Use.STREAM_READ: "a streaming read",
    Use.BATCH_WRITE: "a batch write",
    Use.STREAM_WRITE: "a streaming write",
}


def checked_options(use: Use, options: Mapping[str, OptionValue]) -> dict[str, str]:
    """Return the options in Spark's form: names in Spark's spelling, values as strings (mappings as JSON).

    Names are compared without case, as in Spark. Options `kafka.*` go to the Kafka client unchanged. Raises
    `UnknownOptionError` for a name that is not in the table, or not for this use.
    """
    checked: dict[str, str] = {}
    for name, value in options.items():
        if name.lower().startswith(KAFKA_PREFIX):
            checked[KAFKA_PREFIX + name[len(KAFKA_PREFIX) :]] = option_text(value)
            continue
        option = _BY_LOWER_NAME.get(name.lower())
        if option is None:
            raise UnknownOptionError(f"Spark's Kafka connector has no option {name!r}{_nearest(name, use)}.")
        if not use & option.uses:
            raise UnknownOptionError(f"The option {option.name} does not apply to {USE_NAMES[use]}.")
        checked[option.name] = option_text(value)
    return checked


def option_text(value: OptionValue) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value) if isinstance(value, Mapping) else str(value)


def _nearest(name: str, use: Use) -> str:
    candidates = {option.name.lower(): option.name for option in OPTIONS if use & option.uses}
    close = difflib.get_close_matches(name.lower(), candidates, n=1, cutoff=0.5)
    return f" (nearest: {candidates[close[0]]})" if close else ""
