"""Settings of groups and their committed offsets."""

from __future__ import annotations

from typing import Unpack

from seqgate.gateway.config.setting import INT_MAX, Facts, Section, Setting

_GROUPS = Section("Groups and offsets")


def _bounds(kind: str, name: str, least: int, most: int, **facts: Unpack[Facts]) -> tuple[Setting, Setting]:
    """Return the settings that bound the time `KIND.NAME` which a single group may be configured with."""
    return (
        _GROUPS.number(f"group.{kind}.min.{name}", least, **facts)(
            f"Shortest `{kind}.{name}` that a group may be configured with."
        ),
        _GROUPS.number(f"group.{kind}.max.{name}", most, **facts)(
            f"Longest `{kind}.{name}` that a group may be configured with."
        ),
    )


def _sessions(kind: str, end: str, group: str) -> tuple[Setting, ...]:
    """Return the settings of the sessions and heartbeats of one kind of group, where `end` is the end of a
    session.
    """
    return (
        _GROUPS.number(f"group.{kind}.session.timeout.ms", 45_000)(
            f"Time without a heartbeat after which {end}."
        ),
        _GROUPS.number(f"group.{kind}.heartbeat.interval.ms", 5_000)(
            f"Interval at which members of {group} must send heartbeats."
        ),
        *_bounds(kind, "session.timeout.ms", 45_000, 60_000),
        *_bounds(kind, "heartbeat.interval.ms", 5_000, 15_000),
    )


def _assignment_interval(kind: str, interval_ms: int) -> tuple[Setting, ...]:
    """Return the settings of the assignment interval of one kind of group."""
    return (
        _GROUPS.number(f"group.{kind}.assignment.interval.ms", interval_ms, minimum=0, dynamic=True)(
            f"Shortest time between two target assignments of a {kind} group (KIP-1263). Members that join "
            "or leave meanwhile count for the next one, which the first heartbeat after the interval makes. "
            "0 assigns at once."
        ),
        *_bounds(kind, "assignment.interval.ms", 0, 15_000, minimum=0),
    )


# Settings of streams groups (KIP-1071), for all groups and for one. Names, defaults and ranges are Kafka's.


STREAMS_GROUP_SETTINGS: tuple[Setting, ...] = (
    *_sessions("streams", "a member is removed from its streams group", "a streams group"),
    _GROUPS.number("group.streams.max.size", INT_MAX)("Members that a streams group may have."),
    _GROUPS.number("group.streams.num.standby.replicas", 0, minimum=0)(
        "Standby tasks of each stateful task: other instances of the application that keep a copy of its "
        "state."
    ),
    _GROUPS.number("group.streams.max.standby.replicas", 2, minimum=0)(
        "Highest `streams.num.standby.replicas` that a group may be configured with."
    ),
    _GROUPS.number("group.streams.initial.rebalance.delay.ms", 3_000, minimum=0)(
        "Time that an empty streams group waits for more members after the first one joined, before tasks "
        "are assigned."
    ),
    *_assignment_interval("streams", 1_000),
)


GROUP_SETTINGS = (
    _GROUPS.number("group.initial.rebalance.delay.ms", 3000, minimum=0)(
        "Time that the first rebalance of an empty group waits for more members."
    ),
    _GROUPS.number("group.max.size", INT_MAX)("Members that a classic group may have."),
    _GROUPS.number("group.min.session.timeout.ms", 6000)(
        "Shortest session timeout that a classic member may ask for."
    ),
    _GROUPS.number("group.max.session.timeout.ms", 1_800_000)(
        "Longest session timeout that a classic member may ask for."
    ),
    *_sessions(
        "consumer",
        "a member of the consumer protocol (KIP-848) is removed from its group",
        "the consumer protocol",
    ),
    *_assignment_interval("consumer", 0),
    _GROUPS.number("group.consumer.max.size", INT_MAX)(
        "Members that a group of the consumer protocol may have."
    ),
    _GROUPS.text(
        "group.consumer.migration.policy",
        "bidirectional",
        choices=("bidirectional", "upgrade", "downgrade", "disabled"),
    )(
        "Direction in which a group with members may change its protocol. `upgrade`: a classic group "
        "becomes a group of the consumer protocol when the first member of that protocol joins. "
        "`downgrade`: the group becomes classic again when the last such member has left. `bidirectional` "
        "allows both. A group without members can always change."
    ),
    *_sessions("share", "a member is removed from its share group", "a share group"),
    *_assignment_interval("share", 0),
    *_bounds("share", "record.lock.duration.ms", 15_000, 60_000),
    _GROUPS.number("group.share.min.delivery.count.limit", 2, minimum=2, maximum=5)(
        "Lowest `share.delivery.count.limit` that a group may be configured with."
    ),
    _GROUPS.number("group.share.max.delivery.count.limit", 10, minimum=5, maximum=25)(
        "Highest `share.delivery.count.limit` that a group may be configured with."
    ),
    _GROUPS.number("group.share.min.partition.max.record.locks", 100, minimum=100, maximum=2_000)(
        "Lowest `share.partition.max.record.locks` that a group may be configured with."
    ),
    _GROUPS.number("group.share.max.partition.max.record.locks", 4_000, minimum=2_000, maximum=10_000)(
        "Highest `share.partition.max.record.locks` that a group may be configured with."
    ),
    _GROUPS.number("group.share.max.size", 200)("Members that a share group may have."),
    _GROUPS.number("group.share.max.groups", 1_000)("Share groups that may exist, with or without members."),
    _GROUPS.number("group.share.record.lock.duration.ms", 30_000)(
        "Time for which a member keeps an acquired record. Afterwards other members can acquire the record."
    ),
    _GROUPS.number("group.share.delivery.count.limit", 5, minimum=2, maximum=10)(
        "Deliveries of a record after which it is archived and not delivered again."
    ),
    _GROUPS.number("group.share.partition.max.record.locks", 2_000, minimum=100, maximum=10_000)(
        "Records between the first unfinished record of a partition and the last acquired record. At the "
        "limit a share group gets no further records of the partition."
    ),
    _GROUPS.number("group.share.max.share.sessions", 2_000)(
        "Share sessions that may be open at once, one for each fetching member of a share group."
    ),
    _GROUPS.number("share.coordinator.state.topic.num.partitions", 50)(
        "Partitions that `__share_group_state` is created with."
    ),
    _GROUPS.number("share.coordinator.state.topic.segment.bytes", 104_857_600, minimum=14)(
        "Segment size of `__share_group_state`."
    ),
    _GROUPS.number("offsets.topic.num.partitions", 50)(
        "Partitions that `__consumer_offsets` is created with."
    ),
    _GROUPS.number("offsets.topic.segment.bytes", 104_857_600, minimum=14)(
        "Segment size of `__consumer_offsets`."
    ),
    _GROUPS.number("offsets.retention.minutes", 10_080)(
        "Time for which committed offsets are kept after their group became empty, or after the commit when "
        "no member subscribes to the topic."
    ),
    _GROUPS.long("offsets.retention.check.interval.ms", 600_000, minimum=1)(
        "Interval at which expired offsets, and groups without members and offsets, are deleted."
    ),
    _GROUPS.number("offset.metadata.max.bytes", 4096, minimum=0)(
        "Bytes of metadata that a committed offset may carry."
    ),
    _GROUPS.number("seqgate.group.max", 100_000, dynamic=True)(
        "Groups in one partition of `__consumer_offsets`. A further group is refused with "
        "GROUP_MAX_SIZE_REACHED."
    ),
    _GROUPS.number("seqgate.group.configs.max", 10_000, minimum=0, dynamic=True)(
        "Groups that may have configurations of their own. A further group is refused with POLICY_VIOLATION."
    ),
)
