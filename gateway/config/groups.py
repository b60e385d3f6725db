"""Settings of groups and their committed offsets, for all groups and for one group (GROUP resources of
AlterConfigs).

Names, types and ranges are Kafka's (GroupCoordinatorConfig, GroupConfig; KIP-848, KIP-932, KIP-1071). The
`fallbacks` of a group's own setting name the broker setting that holds for all groups.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Unpack

import msgspec

from seqgate.gateway.config.setting import (
    INT_MAX,
    Facts,
    Fallback,
    Section,
    Setting,
    SettingValue,
    parse_iso_duration,
)

_GROUPS = Section("Groups and offsets")


def _bounds(kind: str, name: str, least: int, most: int, **facts: Unpack[Facts]) -> tuple[Setting, Setting]:
    return (
        _GROUPS.number(f"group.{kind}.min.{name}", least, **facts)(
            f"Shortest `{kind}.{name}` that a group may be configured with."
        ),
        _GROUPS.number(f"group.{kind}.max.{name}", most, **facts)(
            f"Longest `{kind}.{name}` that a group may be configured with."
        ),
    )


def _sessions(kind: str, end: str, group: str) -> tuple[Setting, ...]:
    """Return the session and heartbeat settings of one kind of group; `end` is the end of a session."""
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
    return (
        _GROUPS.number(f"group.{kind}.assignment.interval.ms", interval_ms, minimum=0, dynamic=True)(
            f"Shortest time between two target assignments of a {kind} group (KIP-1263). Members that join "
            "or leave meanwhile count for the next one, which the first heartbeat after the interval makes. "
            "0 assigns at once."
        ),
        *_bounds(kind, "assignment.interval.ms", 0, 15_000, minimum=0),
    )


STREAMS_ASSIGNORS: Final = "group.streams.assignors"
STICKY: Final = "sticky"


def _assignors_complaint(value: SettingValue) -> str | None:
    return None if value == (STICKY,) else f"the only task assignor is {STICKY}."


def _tags_complaint(value: SettingValue) -> str | None:
    assert isinstance(value, tuple)
    return "it must not contain duplicate tag keys." if len(set(value)) < len(value) else None


GROUP_SETTINGS: tuple[Setting, ...] = (
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
        "allows both. `disabled` allows neither, and classic members may not join a group with members of "
        "the consumer protocol. A group without members can always change."
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
    _GROUPS.number("share.coordinator.state.topic.num.partitions", 50, maximum=10_000)(
        "Partitions that `__share_group_state` is created with."
    ),
    _GROUPS.number("share.coordinator.state.topic.segment.bytes", 104_857_600, minimum=14)(
        "Segment size of `__share_group_state`."
    ),
    _GROUPS.number("offsets.topic.num.partitions", 50, maximum=10_000)(
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
    _GROUPS.items(STREAMS_ASSIGNORS, (STICKY,), check=_assignors_complaint)(
        "Task assignors of streams groups (KIP-1357). There is one, `sticky`: classes of Java can't be "
        "loaded."
    ),
    _GROUPS.items("group.streams.rack.aware.assignment.tags", (), check=_tags_complaint)(
        "Client tags (`client.tag.ZONE` of Kafka Streams) that the instances of an application must have. A "
        "member without one is told so (MISSING_CLIENT_TAGS, Kafka Streams 4.4). As in Kafka 4.4, the "
        "assignor does not spread standby tasks by them yet."
    ),
    _GROUPS.number("seqgate.streams.topology.description.max.bytes", 262_144, minimum=0, maximum=900_000)(
        "Bytes of the description of a streams group's topology (KIP-1331): its nodes, what they read, write "
        "and store. Members push it, `seqgate groups describe` and `kafka-streams-groups.sh` show it, and it "
        "is deleted with the group. A larger one is refused. With 0, members are not asked for any, as by a "
        "Kafka broker without `group.streams.topology.description.plugin.class`."
    ),
)


# The settings of one group.

SHARE_AUTO_OFFSET_RESET: Final = "share.auto.offset.reset"
EARLIEST: Final = "earliest"
LATEST: Final = "latest"
BY_DURATION: Final = "by_duration:"
READ_COMMITTED: Final = "read_committed"
ASSIGNMENT_INTERVAL: Final = "assignment.interval.ms"
STREAMS_TAGS: Final = "streams.rack.aware.assignment.tags"
LETTER_TOPIC: Final = "errors.deadletterqueue.topic.name"
RETRY_BACKOFF: Final = "seqgate.share.retry.backoff.ms"
MOST_RETRY_DELAYS: Final = 25
"""Delays that a group may have: as many as a record may have deliveries."""
COPIES_RECORDS: Final = "errors.deadletterqueue.copy.record.enable"

_OF_ONE_GROUP = Section("Configurations of groups", dynamic=True)


class GroupConfig(msgspec.Struct, frozen=True):
    """One configuration. `at_least` and `at_most` name the broker settings that bound its values."""

    setting: Setting
    at_least: str | None = None
    at_most: str | None = None
    one_of: tuple[str, ...] = ()


def offset_reset_duration_ms(value: str) -> int | None:
    """Return the duration in a value of `share.auto.offset.reset`; None when the value is not
    `by_duration:…`. Raises ValueError when the duration is malformed or negative.
    """
    if not value.startswith(BY_DURATION):
        return None
    duration_ms = parse_iso_duration(value.removeprefix(BY_DURATION))
    if duration_ms < 0:
        raise ValueError(f"the duration of {value!r} is negative")
    return duration_ms


def _offset_reset_complaint(value: SettingValue) -> str | None:
    text = str(value)
    try:
        if text in {EARLIEST, LATEST} or offset_reset_duration_ms(text) is not None:
            return None
    except ValueError:
        pass
    return (
        f"Invalid value `{text}` for configuration {SHARE_AUTO_OFFSET_RESET}. The value must be either "
        "'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."
    )


def _retry_backoff_complaint(value: SettingValue) -> str | None:
    assert isinstance(value, tuple)
    digits = len(str(INT_MAX))
    if len(value) <= MOST_RETRY_DELAYS and all(
        item.isdecimal() and len(item) <= digits and int(item) <= INT_MAX for item in value
    ):
        return None
    return f"{RETRY_BACKOFF} must be at most {MOST_RETRY_DELAYS} whole numbers of ms from 0 to {INT_MAX}"


def _bounded(kind: str, name: str, *, minimum: int = 1) -> Callable[[str], GroupConfig]:
    """Begin the configuration `KIND.NAME`: default `group.KIND.NAME`, bounds `group.KIND.min.NAME`/`max`."""
    row = _OF_ONE_GROUP.whole(
        f"{kind}.{name}", None, minimum=minimum, fallbacks=(Fallback(f"group.{kind}.{name}"),)
    )
    return lambda doc: GroupConfig(row(doc), f"group.{kind}.min.{name}", f"group.{kind}.max.{name}")


def _heartbeats(kind: str, group: str) -> tuple[GroupConfig, GroupConfig]:
    return (
        _bounded(kind, "heartbeat.interval.ms")(
            f"Interval at which members of the {group} must send heartbeats."
        ),
        _bounded(kind, "session.timeout.ms")(
            f"Time without a heartbeat after which a member is removed from the {group}."
        ),
    )


def _streams_number(name: str, at_most: str | None = None) -> Callable[[str], GroupConfig]:
    """Begin a configuration of streams groups that may be 0 and has no lower bound of its own."""
    row = _OF_ONE_GROUP.whole(
        f"streams.{name}", None, minimum=0, fallbacks=(Fallback(f"group.streams.{name}"),)
    )
    return lambda doc: GroupConfig(row(doc), at_most=at_most)


_MEANWHILE: Final = (
    "Members that join or leave meanwhile count for the next one, which the first heartbeat after the "
    "interval makes."
)

# Kafka checks bounds in this order (GroupConfig.validateValues).
GROUP_CONFIGS: Final[tuple[GroupConfig, ...]] = (
    *_heartbeats("consumer", "group"),
    _bounded("consumer", ASSIGNMENT_INTERVAL, minimum=0)(
        f"Shortest time between two target assignments of the group (KIP-1263). {_MEANWHILE}"
    ),
    *_heartbeats("share", "share group"),
    _bounded("share", ASSIGNMENT_INTERVAL, minimum=0)(
        f"Shortest time between two target assignments of the share group (KIP-1263). {_MEANWHILE}"
    ),
    _bounded("share", "record.lock.duration.ms")(
        "Time for which a member keeps an acquired record. Afterwards other members can acquire the record."
    ),
    _bounded("share", "delivery.count.limit")(
        "Deliveries of a record after which it is archived and not delivered again."
    ),
    _bounded("share", "partition.max.record.locks")(
        "Records between the first unfinished record of a partition and the last acquired record. At the "
        "limit the share group gets no further records of the partition."
    ),
    *_heartbeats("streams", "streams group"),
    _streams_number("num.standby.replicas", at_most="group.streams.max.standby.replicas")(
        "Standby tasks of each stateful task: other instances of the application that keep a copy of its "
        "state."
    ),
    _streams_number("initial.rebalance.delay.ms")(
        "Time that the group, while it is empty, waits for more members after the first one joined, before "
        "tasks are assigned."
    ),
    _bounded("streams", ASSIGNMENT_INTERVAL, minimum=0)(
        "Shortest time between two target assignments of the streams group (KIP-1263)."
    ),
    GroupConfig(
        _OF_ONE_GROUP.items(
            STREAMS_TAGS, None, fallbacks=(Fallback("group.streams.rack.aware.assignment.tags"),)
        )("Client tags that the members of the streams group must have.")
    ),
    GroupConfig(
        _OF_ONE_GROUP.text("streams.assignor.name", None, fallbacks=(Fallback(STREAMS_ASSIGNORS),))(
            "Task assignor of the streams group (KIP-1357). There is one, `sticky`."
        ),
        one_of=(STICKY,),
    ),
    *map(
        GroupConfig,
        (
            _OF_ONE_GROUP.text(SHARE_AUTO_OFFSET_RESET, LATEST, check=_offset_reset_complaint)(
                "Position at which a share group begins to read a new partition: `earliest`, `latest`, or "
                "`by_duration:` and a duration before now, such as `PT1H30M` (ISO 8601)."
            ),
            _OF_ONE_GROUP.text(
                "share.isolation.level", "read_uncommitted", choices=(READ_COMMITTED, "read_uncommitted")
            )(
                "Records that a share group reads: only committed records (`read_committed`), or also "
                "records of open and aborted transactions (`read_uncommitted`)."
            ),
            _OF_ONE_GROUP.switch("share.renew.acknowledge.enable", True)(
                "Whether members of the share group may renew the locks of acquired records (KIP-1222)."
            ),
            _OF_ONE_GROUP.items(RETRY_BACKOFF, (), check=_retry_backoff_complaint)(
                "Delays in ms, such as `1000,5000,25000`, after which the share group gets a record again "
                "that was released or whose lock timed out: the first one after the first delivery, and so "
                "on; the last one is repeated. Empty: at once. Other records are not held up. See "
                "`seqgate help dead-letters`."
            ),
            _OF_ONE_GROUP.text(LETTER_TOPIC, "")(
                "Topic to which the records of the share group go that a member rejects, or that were "
                "delivered too often (KIP-1191). Empty for none. See `seqgate help dead-letters`."
            ),
            _OF_ONE_GROUP.switch(COPIES_RECORDS, False)(
                "Whether a dead letter has the key, the value and the headers of its record, or only the "
                "headers that tell the record's place and why it died."
            ),
        ),
    ),
)
BY_GROUP_NAME: Final[dict[str, GroupConfig]] = {entry.setting.name: entry for entry in GROUP_CONFIGS}
