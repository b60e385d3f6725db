"""Settings of topics in general, and settings of logs without a counterpart on a topic."""

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
        doc="Partitions of a topic that is created without a number of partitions.",
    ),
    Setting(
        name="default.replication.factor",
        type=SettingType.INT,
        default=1,
        minimum=1,
        maximum=1,
        section=_TOPICS,
        doc="Replicas of a partition. Always 1, because the gateway is a single broker.",
    ),
    Setting(
        name="auto.create.topics.enable",
        type=SettingType.BOOLEAN,
        default=True,
        section=_TOPICS,
        doc="Whether the gateway creates an unknown topic that a client asks for in Metadata, if the client allows it.",
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
        doc="Partitions of all topics together. Beyond the limit no partition can be created.",
    ),
    Setting(
        name="log.roll.hours",
        type=SettingType.INT,
        default=168,
        minimum=1,
        section=_LOG,
        doc="The value of log.roll.ms, in hours, where log.roll.ms is unset.",
    ),
    Setting(
        name="log.roll.jitter.hours",
        type=SettingType.INT,
        default=0,
        minimum=0,
        section=_LOG,
        doc="The value of log.roll.jitter.ms, in hours, where log.roll.jitter.ms is unset.",
    ),
    Setting(
        name="log.retention.minutes",
        type=SettingType.INT,
        default=None,
        section=_LOG,
        minimum=-1,
        doc="The value of log.retention.ms, in minutes, where log.retention.ms is unset.",
    ),
    Setting(
        name="log.retention.hours",
        type=SettingType.INT,
        default=168,
        minimum=-1,
        section=_LOG,
        doc="The value of log.retention.ms, in hours, where log.retention.ms and log.retention.minutes are unset.",
    ),
    Setting(
        name="log.retention.check.interval.ms",
        type=SettingType.LONG,
        default=300000,
        minimum=1,
        section=_LOG,
        doc="Interval of the retention passes, which remove old segments.",
    ),
    Setting(
        name="log.flush.offset.checkpoint.interval.ms",
        type=SettingType.INT,
        default=60000,
        minimum=1,
        section=_LOG,
        doc="Interval at which recovery points and log start offsets are written to their checkpoint files.",
    ),
    Setting(
        name="seqgate.flush.inline.max.ms",
        type=SettingType.DOUBLE,
        default=1.0,
        minimum=0,
        dynamic=True,
        section=_LOG,
        doc="Expected duration below which a flush for a single waiting request runs in the event loop. A thread would cost "
        "more than such a flush. With 0 every flush runs in a thread.",
    ),
    Setting(
        name="seqgate.log.max.open.files",
        type=SettingType.INT,
        default=512,
        minimum=8,
        dynamic=True,
        section=_LOG,
        doc="Segment files that are open at once. Beyond the limit the least recently used file is closed; after the limit is "
        "lowered, files are closed when the next file is opened.",
    ),
    Setting(
        name="seqgate.log.deep.validation",
        type=SettingType.BOOLEAN,
        default=False,
        dynamic=True,
        section=_LOG,
        doc="Whether the gateway decodes and checks every record of a batch before the append. Costs work per record.",
    ),
)
