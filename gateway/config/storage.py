"""Settings of topics in general and of the log that has no counterpart on a topic."""

from __future__ import annotations

from gateway.config.setting import Setting, SettingType

_TOPICS = "Topics in general"
_LOG = "Log maintenance"

STORAGE_SETTINGS = (
    Setting(
        name="num.partitions",
        type=SettingType.INT,
        default=1,
        minimum=1,
        section=_TOPICS,
        doc="Partitions of a topic that is created without a number of its own.",
    ),
    Setting(
        name="default.replication.factor",
        type=SettingType.INT,
        default=1,
        minimum=1,
        maximum=1,
        section=_TOPICS,
        doc="Replicas of a partition. Always 1: the gateway is a single broker.",
    ),
    Setting(
        name="auto.create.topics.enable",
        type=SettingType.BOOLEAN,
        default=True,
        section=_TOPICS,
        doc="Whether a client that asks for an unknown topic, and allows it, has it created.",
    ),
    Setting(
        name="delete.topic.enable",
        type=SettingType.BOOLEAN,
        default=True,
        section=_TOPICS,
        doc="Whether DeleteTopics is allowed.",
    ),
    Setting(
        name="seqgate.max.partitions",
        type=SettingType.INT,
        default=100000,
        minimum=1,
        dynamic=True,
        section=_TOPICS,
        doc="Partitions of all topics together; beyond it none can be created.",
    ),
    Setting(
        name="log.roll.hours",
        type=SettingType.INT,
        default=168,
        minimum=1,
        section=_LOG,
        doc="Used where log.roll.ms is unset.",
    ),
    Setting(
        name="log.retention.minutes",
        type=SettingType.INT,
        default=None,
        section=_LOG,
        minimum=-1,
        doc="Used where log.retention.ms is unset.",
    ),
    Setting(
        name="log.retention.hours",
        type=SettingType.INT,
        default=168,
        minimum=-1,
        section=_LOG,
        doc="Used where log.retention.ms and log.retention.minutes are unset.",
    ),
    Setting(
        name="log.retention.check.interval.ms",
        type=SettingType.LONG,
        default=300000,
        minimum=1,
        section=_LOG,
        doc="How often segments beyond retention are looked for.",
    ),
    Setting(
        name="log.flush.offset.checkpoint.interval.ms",
        type=SettingType.INT,
        default=60000,
        minimum=1,
        section=_LOG,
        doc="How often the recovery points and log start offsets are written to their checkpoint files.",
    ),
    Setting(
        name="seqgate.flush.inline.max.ms",
        type=SettingType.DOUBLE,
        default=1.0,
        minimum=0,
        dynamic=True,
        section=_LOG,
        doc="A flush for one waiting request that by experience takes less than this runs in the event loop, because "
        "handing it to a thread costs more. 0 hands over every flush.",
    ),
    Setting(
        name="seqgate.log.max.open.files",
        type=SettingType.INT,
        default=512,
        minimum=8,
        dynamic=True,
        section=_LOG,
        doc="Segment files open at once; the least recently used is closed first. Beyond a lowered limit they are closed when "
        "the next one is opened.",
    ),
    Setting(
        name="seqgate.log.deep.validation",
        type=SettingType.BOOLEAN,
        default=False,
        dynamic=True,
        section=_LOG,
        doc="Whether the records inside each batch are decoded and checked on the way in; costs work per record.",
    ),
)
