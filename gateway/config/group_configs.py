"""Configurations that each group can have of its own (KIP-848, KIP-932): GROUP resources of AlterConfigs.

Names, types and ranges are those of Kafka's GroupConfig; those of streams groups and of assignment intervals are left
out, as nothing here would read them. `fallbacks` name the broker setting that holds for all groups.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gateway.config.iso_duration import parse_iso_duration
from gateway.config.setting import Fallback, Setting, SettingType, SettingValue

SHARE_AUTO_OFFSET_RESET: Final = "share.auto.offset.reset"
EARLIEST: Final = "earliest"
LATEST: Final = "latest"
BY_DURATION: Final = "by_duration:"
READ_COMMITTED: Final = "read_committed"

_SECTION = "Configurations of groups"


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """A configuration; `at_least` and `at_most` name the broker settings that bound its values."""

    setting: Setting
    at_least: str | None = None
    at_most: str | None = None


def offset_reset_duration_ms(value: str) -> int | None:
    """How far back `share.auto.offset.reset` begins; None when it does not say a duration. Raises ValueError."""
    if not value.startswith(BY_DURATION):
        return None
    duration_ms = parse_iso_duration(value.removeprefix(BY_DURATION))
    if duration_ms < 0:
        raise ValueError("a duration can't be negative")
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


def _bounded(kind: str, name: str, doc: str) -> GroupConfig:
    """`KIND.NAME` of a group, whose default is `group.KIND.NAME`, between `group.KIND.min.NAME` and `…max.NAME`."""
    setting = Setting(
        name=f"{kind}.{name}",
        type=SettingType.INT,
        default=None,
        minimum=1,
        fallbacks=(Fallback(f"group.{kind}.{name}"),),
        dynamic=True,
        section=_SECTION,
        doc=doc,
    )
    return GroupConfig(setting, f"group.{kind}.min.{name}", f"group.{kind}.max.{name}")


# Kafka checks bounds in this order (GroupConfig.validateValues)
GROUP_CONFIGS: Final[tuple[GroupConfig, ...]] = (
    _bounded(
        "consumer",
        "heartbeat.interval.ms",
        "How often a member of the consumer protocol is told to be heard of.",
    ),
    _bounded(
        "consumer", "session.timeout.ms", "How long a member of the consumer protocol may not be heard of."
    ),
    _bounded(
        "share", "heartbeat.interval.ms", "How often a member of the share group is told to be heard of."
    ),
    _bounded("share", "session.timeout.ms", "How long a member of the share group may not be heard of."),
    _bounded(
        "share",
        "record.lock.duration.ms",
        "How long a record stays acquired before it can be acquired by others.",
    ),
    _bounded("share", "delivery.count.limit", "How often a record is delivered before it is given up."),
    _bounded(
        "share",
        "partition.max.record.locks",
        "Records of a partition between the first that is not done and the last that was acquired.",
    ),
    GroupConfig(
        Setting(
            name=SHARE_AUTO_OFFSET_RESET,
            type=SettingType.STRING,
            default=LATEST,
            check=_offset_reset_complaint,
            dynamic=True,
            section=_SECTION,
            doc="Where a share group begins to read a partition that it never read: `earliest`, `latest`, or "
            "`by_duration:` and a duration such as `PT1H30M` before now (ISO 8601).",
        )
    ),
    GroupConfig(
        Setting(
            name="share.isolation.level",
            type=SettingType.STRING,
            default="read_uncommitted",
            choices=(READ_COMMITTED, "read_uncommitted"),
            dynamic=True,
            section=_SECTION,
            doc="Whether a share group reads records of transactions before these have ended.",
        )
    ),
    GroupConfig(
        Setting(
            name="share.renew.acknowledge.enable",
            type=SettingType.BOOLEAN,
            default=True,
            dynamic=True,
            section=_SECTION,
            doc="Whether members of the share group may renew the locks of what they acquired (KIP-1222).",
        )
    ),
)
BY_GROUP_NAME: Final[dict[str, GroupConfig]] = {entry.setting.name: entry for entry in GROUP_CONFIGS}
