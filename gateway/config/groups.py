"""Settings of groups and their committed offsets."""

from __future__ import annotations

from functools import partial

from seqgate.gateway.config.setting import INT_MAX, Setting, SettingType, whole_number

_GROUPS = "Groups and offsets"
_number = partial(whole_number, _GROUPS)
_LONGEST_ASSIGNMENT_INTERVAL_MS = 15_000


def _assignment_interval(kind: str) -> tuple[Setting, ...]:
    """Return the settings of the assignment interval of one kind of group."""
    return (
        _number(
            f"group.{kind}.assignment.interval.ms",
            0,
            f"Shortest time between two target assignments of a {kind} group (KIP-1263). Members that join "
            "or "
            "leave meanwhile count for the next one, which the first heartbeat after the interval makes. 0 "
            "assigns at once.",
            minimum=0,
            dynamic=True,
        ),
        _number(
            f"group.{kind}.min.assignment.interval.ms",
            0,
            f"Shortest `{kind}.assignment.interval.ms` that a group may be configured with.",
            minimum=0,
        ),
        _number(
            f"group.{kind}.max.assignment.interval.ms",
            _LONGEST_ASSIGNMENT_INTERVAL_MS,
            f"Longest `{kind}.assignment.interval.ms` that a group may be configured with.",
            minimum=0,
        ),
    )


# Settings of streams groups (KIP-1071), for all groups and for one. Names, defaults and ranges are Kafka's.

_number_streams = partial(whole_number, "Groups and offsets")

STREAMS_GROUP_SETTINGS: tuple[Setting, ...] = (
    _number_streams(
        "group.streams.session.timeout.ms",
        45_000,
        "Time without a heartbeat after which a member is removed from its streams group.",
    ),
    _number_streams(
        "group.streams.heartbeat.interval.ms",
        5_000,
        "Interval at which members of a streams group must send heartbeats.",
    ),
    _number_streams(
        "group.streams.min.session.timeout.ms",
        45_000,
        "Shortest `streams.session.timeout.ms` that a group may be configured with.",
    ),
    _number_streams(
        "group.streams.max.session.timeout.ms",
        60_000,
        "Longest `streams.session.timeout.ms` that a group may be configured with.",
    ),
    _number_streams(
        "group.streams.min.heartbeat.interval.ms",
        5_000,
        "Shortest `streams.heartbeat.interval.ms` that a group may be configured with.",
    ),
    _number_streams(
        "group.streams.max.heartbeat.interval.ms",
        15_000,
        "Longest `streams.heartbeat.interval.ms` that a group may be configured with.",
    ),
    _number_streams("group.streams.max.size", INT_MAX, "Members that a streams group may have."),
    _number_streams(
        "group.streams.num.standby.replicas",
        0,
        "Standby tasks of each stateful task: other instances of the application that keep a copy of its "
        "state.",
        minimum=0,
    ),
    _number_streams(
        "group.streams.max.standby.replicas",
        2,
        "Highest `streams.num.standby.replicas` that a group may be configured with.",
        minimum=0,
    ),
    _number_streams(
        "group.streams.initial.rebalance.delay.ms",
        3_000,
        "Time that an empty streams group waits for more members after the first one joined, before tasks "
        "are assigned.",
        minimum=0,
    ),
    _number_streams(
        "group.streams.assignment.interval.ms",
        1_000,
        "Shortest time between two target assignments of a streams group (KIP-1263). Members that join or "
        "leave "
        "meanwhile count for the next one, which the first heartbeat after the interval makes. 0 assigns at "
        "once.",
        minimum=0,
        dynamic=True,
    ),
    _number_streams(
        "group.streams.min.assignment.interval.ms",
        0,
        "Shortest `streams.assignment.interval.ms` that a group may be configured with.",
        minimum=0,
    ),
    _number_streams(
        "group.streams.max.assignment.interval.ms",
        15_000,
        "Longest `streams.assignment.interval.ms` that a group may be configured with.",
        minimum=0,
    ),
)


GROUP_SETTINGS = (
    _number(
        "group.initial.rebalance.delay.ms",
        3000,
        "Time that the first rebalance of an empty group waits for more members.",
        minimum=0,
    ),
    _number("group.max.size", INT_MAX, "Members that a classic group may have."),
    _number(
        "group.min.session.timeout.ms", 6000, "Shortest session timeout that a classic member may ask for."
    ),
    _number(
        "group.max.session.timeout.ms",
        1_800_000,
        "Longest session timeout that a classic member may ask for.",
    ),
    _number(
        "group.consumer.session.timeout.ms",
        45_000,
        "Time without a heartbeat after which a member of the consumer protocol (KIP-848) is removed from "
        "its group.",
    ),
    _number(
        "group.consumer.heartbeat.interval.ms",
        5_000,
        "Interval at which members of the consumer protocol must send heartbeats.",
    ),
    _number(
        "group.consumer.min.session.timeout.ms",
        45_000,
        "Shortest `consumer.session.timeout.ms` that a group may be configured with.",
    ),
    _number(
        "group.consumer.max.session.timeout.ms",
        60_000,
        "Longest `consumer.session.timeout.ms` that a group may be configured with.",
    ),
    _number(
        "group.consumer.min.heartbeat.interval.ms",
        5_000,
        "Shortest `consumer.heartbeat.interval.ms` that a group may be configured with.",
    ),
    _number(
        "group.consumer.max.heartbeat.interval.ms",
        15_000,
        "Longest `consumer.heartbeat.interval.ms` that a group may be configured with.",
    ),
    *_assignment_interval("consumer"),
    _number("group.consumer.max.size", INT_MAX, "Members that a group of the consumer protocol may have."),
    Setting(
        name="group.consumer.migration.policy",
        type=SettingType.STRING,
        default="bidirectional",
        choices=("bidirectional", "upgrade", "downgrade", "disabled"),
        section=_GROUPS,
        doc="Direction in which a group with members may change its protocol. `upgrade`: a classic group "
        "becomes a group of the "
        "consumer protocol when the first member of that protocol joins. `downgrade`: the group becomes "
        "classic again when the "
        "last such member has left. `bidirectional` allows both. A group without members can always change.",
    ),
    _number(
        "group.share.session.timeout.ms",
        45_000,
        "Time without a heartbeat after which a member is removed from its share group.",
    ),
    _number(
        "group.share.heartbeat.interval.ms",
        5_000,
        "Interval at which members of a share group must send heartbeats.",
    ),
    _number(
        "group.share.min.session.timeout.ms",
        45_000,
        "Shortest `share.session.timeout.ms` that a group may be configured with.",
    ),
    _number(
        "group.share.max.session.timeout.ms",
        60_000,
        "Longest `share.session.timeout.ms` that a group may be configured with.",
    ),
    _number(
        "group.share.min.heartbeat.interval.ms",
        5_000,
        "Shortest `share.heartbeat.interval.ms` that a group may be configured with.",
    ),
    _number(
        "group.share.max.heartbeat.interval.ms",
        15_000,
        "Longest `share.heartbeat.interval.ms` that a group may be configured with.",
    ),
    *_assignment_interval("share"),
    _number(
        "group.share.min.record.lock.duration.ms",
        15_000,
        "Shortest `share.record.lock.duration.ms` that a group may be configured with.",
    ),
    _number(
        "group.share.max.record.lock.duration.ms",
        60_000,
        "Longest `share.record.lock.duration.ms` that a group may be configured with.",
    ),
    _number(
        "group.share.min.delivery.count.limit",
        2,
        "Lowest `share.delivery.count.limit` that a group may be configured with.",
        minimum=2,
        maximum=5,
    ),
    _number(
        "group.share.max.delivery.count.limit",
        10,
        "Highest `share.delivery.count.limit` that a group may be configured with.",
        minimum=5,
        maximum=25,
    ),
    _number(
        "group.share.min.partition.max.record.locks",
        100,
        "Lowest `share.partition.max.record.locks` that a group may be configured with.",
        minimum=100,
        maximum=2_000,
    ),
    _number(
        "group.share.max.partition.max.record.locks",
        4_000,
        "Highest `share.partition.max.record.locks` that a group may be configured with.",
        minimum=2_000,
        maximum=10_000,
    ),
    _number("group.share.max.size", 200, "Members that a share group may have."),
    _number("group.share.max.groups", 1_000, "Share groups that may exist, with or without members."),
    _number(
        "group.share.record.lock.duration.ms",
        30_000,
        "Time for which a member keeps an acquired record. Afterwards other members can acquire the record.",
    ),
    _number(
        "group.share.delivery.count.limit",
        5,
        "Deliveries of a record after which it is archived and not delivered again.",
        minimum=2,
        maximum=10,
    ),
    _number(
        "group.share.partition.max.record.locks",
        2_000,
        "Records between the first unfinished record of a partition and the last acquired record. At the "
        "limit a share group "
        "gets no further records of the partition.",
        minimum=100,
        maximum=10_000,
    ),
    _number(
        "group.share.max.share.sessions",
        2_000,
        "Share sessions that may be open at once, one for each fetching member of a share group.",
    ),
    _number(
        "share.coordinator.state.topic.num.partitions",
        50,
        "Partitions that `__share_group_state` is created with.",
    ),
    _number(
        "share.coordinator.state.topic.segment.bytes",
        104_857_600,
        "Segment size of `__share_group_state`.",
        minimum=14,
    ),
    _number("offsets.topic.num.partitions", 50, "Partitions that `__consumer_offsets` is created with."),
    _number("offsets.topic.segment.bytes", 104_857_600, "Segment size of `__consumer_offsets`.", minimum=14),
    _number(
        "offsets.retention.minutes",
        10_080,
        "Time for which committed offsets are kept after their group became empty, or after the commit when "
        "no member "
        "subscribes to the topic.",
    ),
    Setting(
        name="offsets.retention.check.interval.ms",
        type=SettingType.LONG,
        default=600_000,
        minimum=1,
        section=_GROUPS,
        doc="Interval at which expired offsets, and groups without members and offsets, are deleted.",
    ),
    _number(
        "offset.metadata.max.bytes",
        4096,
        "Bytes of metadata that a committed offset may carry.",
        minimum=0,
    ),
    _number(
        "seqgate.group.max",
        100_000,
        "Groups in one partition of `__consumer_offsets`. A further group is refused with "
        "GROUP_MAX_SIZE_REACHED.",
        dynamic=True,
    ),
    _number(
        "seqgate.group.configs.max",
        10_000,
        "Groups that may have configurations of their own. A further group is refused with POLICY_VIOLATION.",
        minimum=0,
        dynamic=True,
    ),
)
