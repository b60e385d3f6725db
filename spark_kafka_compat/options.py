"""Spark's own options for `format("kafka")`: one table, and the check that uses it.

The names and defaults are the connector's (`KafkaSourceProvider`, `KafkaOffsetReaderConsumer`, `KafkaWriter` of Spark 4.0 and
the "Structured Streaming + Kafka Integration Guide"). Spark itself ignores a name it does not know, so that a misspelt
`failOndataLos` silently loses data; here it is an error that names the nearest valid one.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Flag, auto

from spark_kafka_compat.errors import UnknownOptionError

OptionValue = str | bool | int | Mapping[str, object]


class Use(Flag):
    """What an option can be given to."""

    BATCH_READ = auto()
    STREAM_READ = auto()
    BATCH_WRITE = auto()
    STREAM_WRITE = auto()
    READ = BATCH_READ | STREAM_READ
    WRITE = BATCH_WRITE | STREAM_WRITE


@dataclass(frozen=True)
class Option:
    """One option: its name in Spark's spelling, what it can be given to, Spark's default (None: none), its meaning."""

    name: str
    uses: Use
    default: str | None
    meaning: str


OPTIONS: tuple[Option, ...] = (
    Option("assign", Use.READ, None, 'Exactly these partitions, as JSON: {"topic": [0, 1]}.'),
    Option("subscribe", Use.READ, None, "These topics, separated by commas."),
    Option(
        "subscribePattern",
        Use.READ,
        None,
        "All topics whose whole name matches this Java regular expression.",
    ),
    Option(
        "startingOffsets",
        Use.READ,
        "earliest (batch), latest (stream)",
        'Where to begin: "earliest", "latest" (streams only), or JSON {"topic": {"0": 23, "1": -2}}, where -2 is the '
        "earliest and -1 the latest offset. A restarted stream goes on from its checkpoint instead.",
    ),
    Option(
        "endingOffsets",
        Use.BATCH_READ,
        "latest",
        'Where to end, exclusive: "latest", or JSON as for startingOffsets, where -1 is the latest offset.',
    ),
    Option(
        "startingTimestamp",
        Use.READ,
        None,
        "Begin at the first record at or after this time in ms, in every partition.",
    ),
    Option(
        "endingTimestamp", Use.BATCH_READ, None, "End before the first record at or after this time in ms."
    ),
    Option(
        "startingOffsetsByTimestamp",
        Use.READ,
        None,
        'Begin at the first record at or after a time in ms per partition: {"topic": {"0": 1700000000000}}.',
    ),
    Option(
        "endingOffsetsByTimestamp",
        Use.BATCH_READ,
        None,
        "End before the first record at or after a time in ms per partition.",
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        Use.READ,
        "error",
        'When no record is that young: "error", or "latest" to begin at the end.',
    ),
    Option(
        "failOnDataLoss",
        Use.READ,
        "true",
        "Fail when offsets that should be read are gone (deleted records or topics); false goes on with what is there.",
    ),
    Option(
        "minPartitions",
        Use.READ,
        None,
        "At least so many Spark partitions; large Kafka partitions are split.",
    ),
    Option(
        "maxRecordsPerPartition",
        Use.STREAM_READ,
        None,
        "At most so many records in a Spark partition (Spark 4.0 and newer; a batch read ignores it there).",
    ),
    Option(
        "includeHeaders",
        Use.READ | Use.WRITE,
        "false",
        "Adds the column `headers`, an array of (key, value).",
    ),
    Option(
        "maxOffsetsPerTrigger",
        Use.STREAM_READ,
        None,
        "At most so many records in a micro batch, over all partitions.",
    ),
    Option(
        "minOffsetsPerTrigger",
        Use.STREAM_READ,
        None,
        "Wait until so many records are there, up to maxTriggerDelay.",
    ),
    Option(
        "maxTriggerDelay",
        Use.STREAM_READ,
        "15m",
        "How long minOffsetsPerTrigger may hold a micro batch back.",
    ),
    Option(
        "groupIdPrefix", Use.READ, "spark-kafka-source", "Prefix of the consumer group ids Spark makes up."
    ),
    Option(
        "kafkaConsumer.pollTimeoutMs", Use.READ, "120000", "How long a poll of an executor may take, in ms."
    ),
    Option("fetchOffset.numRetries", Use.READ, "3", "How often to ask for offsets before giving up."),
    Option("fetchOffset.retryIntervalMs", Use.READ, "1000", "The wait between those attempts, in ms."),
    Option(
        "topic",
        Use.WRITE,
        None,
        "The topic of all rows; without it the column `topic` of each row says where it goes.",
    ),
    Option(
        "checkpointLocation",
        Use.STREAM_WRITE,
        None,
        "Where the query keeps its progress; needed to restart it.",
    ),
)

KAFKA_PREFIX = "kafka."
_BY_LOWER_NAME = {option.name.lower(): option for option in OPTIONS}
_USE_NAMES = {
    Use.BATCH_READ: "a batch read",
    Use.STREAM_READ: "a streaming read",
    Use.BATCH_WRITE: "a batch write",
    Use.STREAM_WRITE: "a streaming write",
}


def checked_options(use: Use, options: Mapping[str, OptionValue]) -> dict[str, str]:
    """The options as Spark wants them: names in its spelling, values as strings (mappings as JSON).

    Names are compared without case, as Spark does; `kafka.*` goes to the Kafka client untouched. Raises `UnknownOptionError` for a name
    that is not in the table, or not for this use.
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
            raise UnknownOptionError(f"The option {option.name} does not apply to {_USE_NAMES[use]}.")
        checked[option.name] = option_text(value)
    return checked


def option_text(value: OptionValue) -> str:
    """A Python value in the spelling of Spark's options."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value) if isinstance(value, Mapping) else str(value)


def _nearest(name: str, use: Use) -> str:
    candidates = {option.name.lower(): option.name for option in OPTIONS if use & option.uses}
    close = difflib.get_close_matches(name.lower(), candidates, n=1, cutoff=0.5)
    return f" (nearest: {candidates[close[0]]})" if close else ""


def options_table() -> str:
    """The table of options in Markdown, for the documentation."""
    lines = ["| option | batch read | stream read | batch write | stream write | default | meaning |"]
    lines.append("| --- | --- | --- | --- | --- | --- | --- |")
    for option in OPTIONS:
        marks = ["✓" if use & option.uses else "" for use in _USE_NAMES]
        cells = [f"`{option.name}`", *marks, option.default or "", option.meaning.replace("|", "\\|")]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def options_page() -> str:
    """docs/spark-options.md."""
    return (
        "# Options of Spark's Kafka connector\n\n"
        "Written by `make docs` from `spark_kafka_compat/options.py`. `source()` and `sink()` take these names, and "
        "`kafka.*` for the client's own settings; any other name is refused with the nearest valid one.\n\n"
        f"{options_table()}"
    )
