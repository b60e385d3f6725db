"""Settings of consumer groups and their offsets."""

from __future__ import annotations

from functools import partial

from gateway.config.setting import INT_MAX, Setting, SettingType, whole_number

_GROUPS = "Groups and offsets"
_number = partial(whole_number, _GROUPS)


GROUP_SETTINGS = (
    _number(
        "group.initial.rebalance.delay.ms",
        3000,
        "How long the first rebalance of an empty group waits for more members.",
        minimum=0,
    ),
    _number("group.max.size", INT_MAX, "Members that a group may have."),
    _number("group.min.session.timeout.ms", 6000, "The shortest session timeout that a member may ask for."),
    _number(
        "group.max.session.timeout.ms", 1_800_000, "The longest session timeout that a member may ask for."
    ),
    _number(
        "group.consumer.session.timeout.ms",
        45_000,
        "How long a member of the consumer protocol (KIP-848) may not be heard of.",
    ),
    _number(
        "group.consumer.heartbeat.interval.ms",
        5_000,
        "How often a member of the consumer protocol is told to be heard of.",
    ),
    _number(
        "group.consumer.min.session.timeout.ms",
        45_000,
        "The shortest `consumer.session.timeout.ms` that a group may be configured with.",
    ),
    _number(
        "group.consumer.max.session.timeout.ms",
        60_000,
        "The longest `consumer.session.timeout.ms` that a group may be configured with.",
    ),
    _number(
        "group.consumer.min.heartbeat.interval.ms",
        5_000,
        "The shortest `consumer.heartbeat.interval.ms` that a group may be configured with.",
    ),
    _number(
        "group.consumer.max.heartbeat.interval.ms",
        15_000,
        "The longest `consumer.heartbeat.interval.ms` that a group may be configured with.",
    ),
    _number("group.consumer.max.size", INT_MAX, "Members that a group of the consumer protocol may have."),
    Setting(
        name="group.consumer.migration.policy",
        type=SettingType.STRING,
        default="bidirectional",
        choices=("bidirectional", "upgrade", "downgrade", "disabled"),
        section=_GROUPS,
        doc="Which way a group that has members may change its protocol: a classic group becomes one of the consumer "
        "protocol when the first such member joins (upgrade), and a classic group again when the last one is gone "
        "(downgrade). A group without members changes in any case.",
    ),
    _number(
        "group.share.session.timeout.ms", 45_000, "How long a member of a share group may not be heard of."
    ),
    _number(
        "group.share.heartbeat.interval.ms",
        5_000,
        "How often a member of a share group is told to be heard of.",
    ),
    _number(
        "group.share.min.session.timeout.ms",
        45_000,
        "The shortest `share.session.timeout.ms` that a group may be configured with.",
    ),
    _number(
        "group.share.max.session.timeout.ms",
        60_000,
        "The longest `share.session.timeout.ms` that a group may be configured with.",
    ),
    _number(
        "group.share.min.heartbeat.interval.ms",
        5_000,
        "The shortest `share.heartbeat.interval.ms` that a group may be configured with.",
    ),
    _number(
        "group.share.max.heartbeat.interval.ms",
        15_000,
        "The longest `share.heartbeat.interval.ms` that a group may be configured with.",
    ),
    _number(
        "group.share.min.record.lock.duration.ms",
        15_000,
        "The shortest `share.record.lock.duration.ms` that a group may be configured with.",
    ),
    _number(
        "group.share.max.record.lock.duration.ms",
        60_000,
        "The longest `share.record.lock.duration.ms` that a group may be configured with.",
    ),
    _number(
        "group.share.min.delivery.count.limit",
        2,
        "The lowest `share.delivery.count.limit` that a group may be configured with.",
        minimum=2,
        maximum=5,
    ),
    _number(
        "group.share.max.delivery.count.limit",
        10,
        "The highest `share.delivery.count.limit` that a group may be configured with.",
        minimum=5,
        maximum=25,
    ),
    _number(
        "group.share.min.partition.max.record.locks",
        100,
        "The lowest `share.partition.max.record.locks` that a group may be configured with.",
        minimum=100,
        maximum=2_000,
    ),
    _number(
        "group.share.max.partition.max.record.locks",
        4_000,
        "The highest `share.partition.max.record.locks` that a group may be configured with.",
        minimum=2_000,
        maximum=10_000,
    ),
    _number("group.share.max.size", 200, "Members that a share group may have."),
    _number("group.share.max.groups", 1_000, "Share groups, those without members included."),
    _number(
        "group.share.record.lock.duration.ms",
        30_000,
        "How long a record stays acquired before it can be acquired by others.",
    ),
    _number(
        "group.share.delivery.count.limit",
        5,
        "How often a record is delivered before it is given up.",
        minimum=2,
        maximum=10,
    ),
    _number(
        "group.share.partition.max.record.locks",
        2_000,
        "Records of a partition between the first that is not done and the last that was acquired.",
        minimum=100,
        maximum=10_000,
    ),
    _number(
        "group.share.max.share.sessions", 2_000, "Members of share groups that may fetch at the same time."
    ),
    _number("share.coordinator.state.topic.num.partitions", 50, "Partitions of `__share_group_state`."),
    _number(
        "share.coordinator.state.topic.segment.bytes",
        104_857_600,
        "Segment size of `__share_group_state`.",
        minimum=14,
    ),
    _number("offsets.topic.num.partitions", 50, "Partitions of `__consumer_offsets` when it is created."),
    _number("offsets.topic.segment.bytes", 104_857_600, "Segment size of `__consumer_offsets`.", minimum=14),
    _number(
        "offsets.retention.minutes",
        10_080,
        "How long committed offsets are kept after their group became empty, or after the commit where no member "
        "subscribes to the topic.",
    ),
    Setting(
        name="offsets.retention.check.interval.ms",
        type=SettingType.LONG,
        default=600_000,
        minimum=1,
        section=_GROUPS,
        doc="How often offsets kept long enough, and groups without members and offsets, are looked for.",
    ),
    _number(
        "offset.metadata.max.bytes", 4096, "Bytes of metadata that may go with a committed offset.", minimum=0
    ),
    _number(
        "seqgate.group.max",
        100_000,
        "Groups that each partition of `__consumer_offsets` may hold; more are refused with GROUP_MAX_SIZE_REACHED.",
        dynamic=True,
    ),
    _number(
        "seqgate.group.configs.max",
        10_000,
        "Groups that may have configurations of their own; more are refused with POLICY_VIOLATION.",
        minimum=0,
        dynamic=True,
    ),
)
