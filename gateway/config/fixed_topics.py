"""Kafka's topic settings that have only one possible value here. Every other value is refused with the reason.

The settings are listed with their one value, so that tools can read, compare and set it.
"""

from __future__ import annotations

from collections.abc import Callable

from gateway.config.setting import Setting, SettingType, SettingValue

_SECTION = "Settings of Kafka that can have one value only"
_NO_TIERS = "only {} is supported, because there is no tiered storage"
_NO_MOVES = "only an empty list is supported, because a partition has one replica, which is never moved"


def only(value: SettingValue, reason: str) -> Callable[[SettingValue], str | None]:
    """Return a check that refuses all values but `value`, with a reason."""
    return lambda given: None if given == value else reason


def _local_retention(unit: str) -> Setting:
    return Setting(
        name=f"log.local.retention.{unit}",
        topic_name=f"local.retention.{unit}",
        type=SettingType.LONG,
        default=-2,
        minimum=-2,
        dynamic=True,
        check=only(-2, _NO_TIERS.format(-2)),
        section=_SECTION,
        doc=f"Always -2, which means `retention.{unit}`: all segments are local.",
    )


def _throttled(role: str) -> Setting:
    name = f"{role}.replication.throttled.replicas"
    return Setting(
        name=name,
        topic_name=name,
        type=SettingType.LIST,
        default=(),
        dynamic=True,
        check=only((), _NO_MOVES),
        section=_SECTION,
        doc="Always empty: a partition has one replica, which is never moved.",
    )


def _remote(name: str, reason: str) -> Setting:
    return Setting(
        name=name,
        topic_name=name,
        type=SettingType.BOOLEAN,
        default=False,
        dynamic=True,
        check=only(False, reason),
        section=_SECTION,
        doc="Always false: there is no tiered storage.",
    )


FIXED_TOPIC_SETTINGS = (
    Setting(
        name="log.preallocate",
        topic_name="preallocate",
        type=SettingType.BOOLEAN,
        default=False,
        dynamic=True,
        check=only(False, "only false is supported, because segment files grow as they are written"),
        section=_SECTION,
        doc="Always false: segment files grow as they are written.",
    ),
    Setting(
        name="unclean.leader.election.enable",
        topic_name="unclean.leader.election.enable",
        type=SettingType.BOOLEAN,
        default=False,
        dynamic=True,
        check=only(
            False, "only false is supported, because a partition has one replica and no other to elect"
        ),
        section=_SECTION,
        doc="Always false: a partition has one replica and no other to elect.",
    ),
    _local_retention("ms"),
    _local_retention("bytes"),
)
FIXED_TOPIC_ONLY_SETTINGS = (
    _throttled("leader"),
    _throttled("follower"),
    _remote(
        "remote.storage.enable",
        "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage.",
    ),
    _remote("remote.log.copy.disable", _NO_TIERS.format("false")),
    _remote("remote.log.delete.on.disable", _NO_TIERS.format("false")),
)
"""The settings of topics without a counterpart on the broker."""
