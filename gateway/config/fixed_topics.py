"""Topic settings of Kafka that can have one value here: what tools set in vain elsewhere is refused with the reason.

They are shown with the value that is true, so that a tool that compares or sets it goes on.
"""

from __future__ import annotations

from collections.abc import Callable

from gateway.config.setting import Setting, SettingType, SettingValue

_SECTION = "Settings of Kafka that can have one value only"
_AS_SENT = "batches are stored as producers sent them, only the default level {} is supported"
_NO_TIERS = "there is no tiered storage, only {} is supported"
_NO_MOVES = "a partition has one replica and none is ever moved, only an empty list is supported"


def only(value: SettingValue, reason: str) -> Callable[[SettingValue], str | None]:
    """A check that refuses all but one value, with a reason."""
    return lambda given: None if given == value else reason


def _gzip_level(value: SettingValue) -> str | None:
    if value != -1 and not (isinstance(value, int) and 1 <= value <= 9):
        return "Value must be between 1 and 9 or equal to -1"
    return only(-1, _AS_SENT.format(-1))(value)


def _level(codec: str, default: int, minimum: int, maximum: int) -> Setting:
    return Setting(
        name=f"compression.{codec}.level",
        topic_name=f"compression.{codec}.level",
        type=SettingType.INT,
        default=default,
        minimum=minimum,
        maximum=maximum,
        dynamic=True,
        check=only(default, _AS_SENT.format(default)),
        section=_SECTION,
        doc=f"Always {default}: batches are stored with the codec and level that producers chose.",
    )


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
        doc="Always empty: a partition has one replica and none is ever moved.",
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
        name="compression.gzip.level",
        topic_name="compression.gzip.level",
        type=SettingType.INT,
        default=-1,
        dynamic=True,
        check=_gzip_level,
        section=_SECTION,
        doc="Always -1: batches are stored with the codec and level that producers chose.",
    ),
    _level("lz4", 9, 1, 17),
    _level("zstd", 3, -131072, 22),
    Setting(
        name="log.preallocate",
        topic_name="preallocate",
        type=SettingType.BOOLEAN,
        default=False,
        dynamic=True,
        check=only(False, "segment files grow as they are written, only false is supported"),
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
            False, "a partition has one replica and there is no other to elect, only false is supported"
        ),
        section=_SECTION,
        doc="Always false: a partition has one replica, and there is no other to elect.",
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
"""Settings of topics that have no counterpart on a broker."""
