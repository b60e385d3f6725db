"""Settings of delayed records, which share groups get only when the records are due."""

from __future__ import annotations

from functools import partial

from gateway.config.setting import LONG_MAX, Setting, SettingType, SettingValue, whole_number

_SECTION = "Delayed records"
_MAX_NAME_BYTES = 1_000
_number = partial(whole_number, _SECTION)


def _name_complaint(value: SettingValue) -> str | None:
    if len(str(value).encode()) <= _MAX_NAME_BYTES:
        return None
    return f"the name of a record header must have at most {_MAX_NAME_BYTES} bytes, not {len(str(value).encode())}"


DELIVERY_TOPIC_SETTINGS = (
    Setting(
        name="delivery.delay.header",
        topic_name="delivery.delay.header",
        type=SettingType.STRING,
        default="",
        dynamic=True,
        check=_name_complaint,
        section=_SECTION,
        doc="Record header that says when a record is due, as decimal text in ms since 1970 (UTC). Share groups get the record no "
        "earlier. With an empty name no record is delayed. Not allowed together with the cleanup policy compact. See "
        "delayed-records.md.",
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
        doc="Longest delay of a record, from now. A batch with a record that is due later is refused with INVALID_RECORD.",
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
        doc="Time for which retention and TTL keep a delayed record after it is due, so that groups can read the record.",
    ),
    _number(
        "seqgate.delayed.records.max.per.partition",
        100_000,
        "Records of one partition that are not due yet. Beyond the limit a batch with delayed records is refused with "
        "NOT_ENOUGH_REPLICAS, which producers retry.",
    ),
    _number(
        "seqgate.delayed.records.max",
        1_000_000,
        "Records of all partitions together that are not due yet. The limit acts like the one of a partition.",
    ),
    _number(
        "seqgate.delayed.records.snapshot.interval.ms",
        60_000,
        "Interval at which the delayed records of a log are written to a snapshot. A start after a crash replays the log from "
        "there.",
    ),
    _number(
        "seqgate.share.partition.max.stretches",
        20_000,
        "Ranges of consecutive offsets with the same state that a share group keeps of a partition. Delivery past delayed records "
        "splits ranges. At the limit the group gets no further records of the partition until delayed records in between are "
        "due.",
    ),
)
