"""Settings of records that are due later, and are delivered to share groups only then."""

from __future__ import annotations

from functools import partial

from gateway.config.setting import LONG_MAX, Setting, SettingType, SettingValue, whole_number

_SECTION = "Delayed records"
_MAX_NAME_BYTES = 1_000
_number = partial(whole_number, _SECTION)


def _name_complaint(value: SettingValue) -> str | None:
    if len(str(value).encode()) <= _MAX_NAME_BYTES:
        return None
    return f"the name of a record header that is looked for may have {_MAX_NAME_BYTES} bytes"


DELIVERY_TOPIC_SETTINGS = (
    Setting(
        name="delivery.delay.header",
        topic_name="delivery.delay.header",
        type=SettingType.STRING,
        default="",
        dynamic=True,
        check=_name_complaint,
        section=_SECTION,
        doc="Record header that says when a record is due, as decimal text of ms since the epoch: share groups get the record "
        "no earlier. Empty: nothing is delayed. Not together with the cleanup policy compact. See delayed-records.md.",
    ),
)
DELIVERY_SETTINGS = (
    Setting(
        name="log.delivery.delay.max.ms",
        topic_name="delivery.delay.max.ms",
        type=SettingType.LONG,
        default=2_592_000_000,
        minimum=0,
        maximum=LONG_MAX,
        dynamic=True,
        section=_SECTION,
        doc="How far from now a record may be due; a batch with a later one is refused with INVALID_RECORD.",
    ),
    Setting(
        name="log.delivery.delay.hold.ms",
        topic_name="delivery.delay.hold.ms",
        type=SettingType.LONG,
        default=3_600_000,
        minimum=0,
        maximum=LONG_MAX,
        dynamic=True,
        section=_SECTION,
        doc="How long a record that was delayed is still kept from retention and TTL after it is due, so that groups can read it.",
    ),
    _number(
        "seqgate.delayed.records.max.per.partition",
        100_000,
        "Records of a partition that may wait to be due; a batch with further ones is refused with NOT_ENOUGH_REPLICAS, "
        "which producers send again.",
    ),
    _number(
        "seqgate.delayed.records.max",
        1_000_000,
        "Records of all partitions that may wait to be due.",
    ),
    _number(
        "seqgate.delayed.records.snapshot.interval.ms",
        60_000,
        "How often it is noted beside a log which of its records wait, so that a start after a crash reads less of the log.",
    ),
    _number(
        "seqgate.share.partition.max.stretches",
        20_000,
        "Stretches of a partition's offsets that went different ways in a share group, as delayed records are passed over: "
        "with so many the group gets no further ones before some of those in between are due.",
    ),
)
