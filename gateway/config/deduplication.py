"""Settings of deduplication by name: a producer name and a sequence id that the application owns, in record headers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gateway.config.setting import INT_MAX, LONG_MAX, Setting, SettingType, SettingValue, whole_number

_SECTION = "Deduplication by name"
_MAX_HEADER_BYTES = 1_000
_number = partial(whole_number, _SECTION)


def _header_complaint(value: SettingValue) -> str | None:
    if 0 < len(str(value).encode()) <= _MAX_HEADER_BYTES:
        return None
    return f"the name of a record header that is looked for has 1 to {_MAX_HEADER_BYTES} bytes"


def _expiration_complaint(value: SettingValue) -> str | None:
    return "0 would forget every name at once; -1 forgets none" if value == 0 else None


def _of_topic(
    name: str,
    kind: SettingType,
    default: SettingValue,
    doc: str,
    *,
    minimum: int | None = None,
    maximum: int | None = None,
    choices: tuple[str, ...] = (),
    check: Callable[[SettingValue], str | None] | None = None,
) -> Setting:
    return Setting(
        name=f"log.message.deduplication.{name}",
        topic_name=f"message.deduplication.{name}",
        type=kind,
        default=default,
        minimum=minimum,
        maximum=maximum,
        choices=choices,
        check=_header_complaint if name.endswith(".header") else check,
        dynamic=True,
        section=_SECTION,
        doc=doc,
    )


DEDUPLICATION_SETTINGS = (
    _of_topic(
        "enable",
        SettingType.BOOLEAN,
        False,
        "Whether records that carry a producer name and a sequence id are stored once: one whose sequence id is not above the "
        "highest of its name in the partition is acknowledged and not stored. See deduplication.md.",
    ),
    _of_topic(
        "name.header",
        SettingType.STRING,
        "dedup.name",
        "Record header that holds the producer name.",
    ),
    _of_topic(
        "sequence.header",
        SettingType.STRING,
        "dedup.sequence",
        "Record header that holds the sequence id, as decimal text.",
    ),
    _of_topic(
        "epoch.header",
        SettingType.STRING,
        "dedup.epoch",
        "Record header that may hold the epoch of the producer name, as decimal text: records of a lower one, or of none, are refused with "
        "PRODUCER_FENCED once the name has come with a higher one.",
    ),
    _of_topic(
        "start",
        SettingType.STRING,
        "latest",
        "What is remembered of a partition for which deduplication is enabled for the first time: nothing of the records that it "
        "has (latest), or all of them (earliest), which are read then.",
        choices=("latest", "earliest"),
    ),
    _of_topic(
        "names.max",
        SettingType.INT,
        10_000,
        "Producer names of a topic that are remembered. For a further one the longest idle name is forgotten, if it has been idle for "
        "seqgate.deduplication.min.idle.ms; else the batch is refused with NOT_ENOUGH_REPLICAS, which producers send again.",
        minimum=1,
        maximum=INT_MAX,
    ),
    _of_topic(
        "expiration.ms",
        SettingType.LONG,
        604_800_000,
        "How long a producer name that sends nothing is remembered; -1: for ever.",
        minimum=-1,
        maximum=LONG_MAX,
        check=_expiration_complaint,
    ),
    _number(
        "seqgate.deduplication.names.max",
        250_000,
        "Producer names that are remembered in all partitions together, each counted once per partition (0.6 to 1 KiB each, by their "
        "length). For a further one idle names of its topic are forgotten as well; where there are none the batch is refused.",
    ),
    _number(
        "seqgate.deduplication.min.idle.ms",
        3_600_000,
        "How long a producer name must have been idle before it may be forgotten for a new one.",
    ),
    _number(
        "seqgate.deduplication.name.max.bytes",
        256,
        "The longest producer name; a batch with a longer one is refused with INVALID_RECORD.",
        maximum=32_767,
    ),
    _number(
        "seqgate.deduplication.snapshot.records",
        100_000,
        "After how many records with a producer name what is remembered of a partition is written down, so that a start after a "
        "crash reads no more of the log than those.",
    ),
    _number(
        "seqgate.deduplication.snapshot.interval.ms",
        60_000,
        "After what time it is written down, if there was any such record.",
    ),
)
