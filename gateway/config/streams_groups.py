"""Settings of streams groups (KIP-1071), for all groups and for one. Names, defaults and ranges are Kafka's."""

from __future__ import annotations

from functools import partial

from gateway.config.setting import INT_MAX, Setting, whole_number

_number = partial(whole_number, "Groups and offsets")

STREAMS_GROUP_SETTINGS: tuple[Setting, ...] = (
    _number(
        "group.streams.session.timeout.ms",
        45_000,
        "Time without a heartbeat after which a member is removed from its streams group.",
    ),
    _number(
        "group.streams.heartbeat.interval.ms",
        5_000,
        "Interval at which members of a streams group must send heartbeats.",
    ),
    _number(
        "group.streams.min.session.timeout.ms",
        45_000,
        "Shortest `streams.session.timeout.ms` that a group may be configured with.",
    ),
    _number(
        "group.streams.max.session.timeout.ms",
        60_000,
        "Longest `streams.session.timeout.ms` that a group may be configured with.",
    ),
    _number(
        "group.streams.min.heartbeat.interval.ms",
        5_000,
        "Shortest `streams.heartbeat.interval.ms` that a group may be configured with.",
    ),
    _number(
        "group.streams.max.heartbeat.interval.ms",
        15_000,
        "Longest `streams.heartbeat.interval.ms` that a group may be configured with.",
    ),
    _number("group.streams.max.size", INT_MAX, "Members that a streams group may have."),
    _number(
        "group.streams.num.standby.replicas",
        0,
        "Standby tasks of each stateful task: other instances of the application that keep a copy of its state.",
        minimum=0,
    ),
    _number(
        "group.streams.max.standby.replicas",
        2,
        "Highest `streams.num.standby.replicas` that a group may be configured with.",
        minimum=0,
    ),
    _number(
        "group.streams.initial.rebalance.delay.ms",
        3_000,
        "Time that an empty streams group waits for more members after the first one joined, before tasks are assigned.",
        minimum=0,
    ),
    _number(
        "group.streams.assignment.interval.ms",
        1_000,
        "Shortest time between two target assignments of a streams group (KIP-1263). Members that join or leave "
        "meanwhile count for the next one, which the first heartbeat after the interval makes. 0 assigns at once.",
        minimum=0,
        dynamic=True,
    ),
    _number(
        "group.streams.min.assignment.interval.ms",
        0,
        "Shortest `streams.assignment.interval.ms` that a group may be configured with.",
        minimum=0,
    ),
    _number(
        "group.streams.max.assignment.interval.ms",
        15_000,
        "Longest `streams.assignment.interval.ms` that a group may be configured with.",
        minimum=0,
    ),
)
