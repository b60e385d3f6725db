"""The configurations of single groups (KIP-848, KIP-932, KIP-1071): GROUP resources of AlterConfigs.

Names, types and ranges are Kafka's (GroupConfig). `fallbacks` names the broker setting that holds for all
groups.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from seqgate.gateway.config.setting import (
    Fallback,
    Section,
    Setting,
    SettingValue,
    parse_iso_duration,
)

SHARE_AUTO_OFFSET_RESET: Final = "share.auto.offset.reset"
EARLIEST: Final = "earliest"
LATEST: Final = "latest"
BY_DURATION: Final = "by_duration:"
READ_COMMITTED: Final = "read_committed"
ASSIGNMENT_INTERVAL: Final = "assignment.interval.ms"

_OF_ONE_GROUP = Section("Configurations of groups")


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """One configuration. `at_least` and `at_most` name the broker settings that bound its values."""

    setting: Setting
    at_least: str | None = None
    at_most: str | None = None


def offset_reset_duration_ms(value: str) -> int | None:
    """Return the duration in a value of `share.auto.offset.reset`; None when the value is not
    `by_duration:…`.

    Raises ValueError when the duration is malformed or negative.
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


def _bounded(kind: str, name: str, doc: str, *, minimum: int = 1) -> GroupConfig:
    """Return the configuration `KIND.NAME`: default `group.KIND.NAME`, from `group.KIND.min.NAME` to
    `…max.NAME`.
    """
    setting = _OF_ONE_GROUP.whole(
        f"{kind}.{name}", None, minimum=minimum, fallbacks=(Fallback(f"group.{kind}.{name}"),), dynamic=True
    )(doc)
    return GroupConfig(setting, f"group.{kind}.min.{name}", f"group.{kind}.max.{name}")


def _streams_number(name: str, doc: str, at_most: str | None = None) -> GroupConfig:
    """Return a configuration of streams groups that may be 0 and has no lower bound of its own."""
    setting = _OF_ONE_GROUP.whole(
        f"streams.{name}", None, minimum=0, fallbacks=(Fallback(f"group.streams.{name}"),), dynamic=True
    )(doc)
    return GroupConfig(setting, at_most=at_most)


# Kafka checks bounds in this order (GroupConfig.validateValues).
GROUP_CONFIGS: Final[tuple[GroupConfig, ...]] = (
    _bounded(
        "consumer",
        "heartbeat.interval.ms",
        "Interval at which members of the group must send heartbeats.",
    ),
    _bounded(
        "consumer",
        "session.timeout.ms",
        "Time without a heartbeat after which a member is removed from the group.",
    ),
    _bounded(
        "consumer",
        ASSIGNMENT_INTERVAL,
        "Shortest time between two target assignments of the group (KIP-1263). Members that join or leave "
        "meanwhile "
        "count for the next one, which the first heartbeat after the interval makes.",
        minimum=0,
    ),
    _bounded(
        "share",
        "heartbeat.interval.ms",
        "Interval at which members of the share group must send heartbeats.",
    ),
    _bounded(
        "share",
        "session.timeout.ms",
        "Time without a heartbeat after which a member is removed from the share group.",
    ),
    _bounded(
        "share",
        ASSIGNMENT_INTERVAL,
        "Shortest time between two target assignments of the share group (KIP-1263). Members that join or "
        "leave "
        "meanwhile count for the next one, which the first heartbeat after the interval makes.",
        minimum=0,
    ),
    _bounded(
        "share",
        "record.lock.duration.ms",
        "Time for which a member keeps an acquired record. Afterwards other members can acquire the record.",
    ),
    _bounded(
        "share",
        "delivery.count.limit",
        "Deliveries of a record after which it is archived and not delivered again.",
    ),
    _bounded(
        "share",
        "partition.max.record.locks",
        "Records between the first unfinished record of a partition and the last acquired record. At the "
        "limit the share group "
        "gets no further records of the partition.",
    ),
    _bounded(
        "streams",
        "heartbeat.interval.ms",
        "Interval at which members of the streams group must send heartbeats.",
    ),
    _bounded(
        "streams",
        "session.timeout.ms",
        "Time without a heartbeat after which a member is removed from the streams group.",
    ),
    _streams_number(
        "num.standby.replicas",
        "Standby tasks of each stateful task: other instances of the application that keep a copy of its "
        "state.",
        at_most="group.streams.max.standby.replicas",
    ),
    _streams_number(
        "initial.rebalance.delay.ms",
        "Time that the group, while it is empty, waits for more members after the first one joined, before "
        "tasks are assigned.",
    ),
    _bounded(
        "streams",
        "assignment.interval.ms",
        "Shortest time between two target assignments of the streams group (KIP-1263).",
        minimum=0,
    ),
    GroupConfig(
        _OF_ONE_GROUP.text(SHARE_AUTO_OFFSET_RESET, LATEST, check=_offset_reset_complaint, dynamic=True)(
            "Position at which a share group begins to read a new partition: `earliest`, `latest`, or "
            "`by_duration:` and a duration before now, such as `PT1H30M` (ISO 8601)."
        )
    ),
    GroupConfig(
        _OF_ONE_GROUP.text(
            "share.isolation.level",
            "read_uncommitted",
            choices=(READ_COMMITTED, "read_uncommitted"),
            dynamic=True,
        )(
            "Records that a share group reads: only committed records (`read_committed`), or also records "
            "of open and aborted transactions (`read_uncommitted`)."
        )
    ),
    GroupConfig(
        _OF_ONE_GROUP.switch("share.renew.acknowledge.enable", True, dynamic=True)(
            "Whether members of the share group may renew the locks of acquired records (KIP-1222)."
        )
    ),
)
BY_GROUP_NAME: Final[dict[str, GroupConfig]] = {entry.setting.name: entry for entry in GROUP_CONFIGS}
