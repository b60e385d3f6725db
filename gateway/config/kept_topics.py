"""Kafka's topic settings that mean nothing where a partition has local files and one replica.

The gateway keeps their values and describes them, so that tools can read, compare and set them; no part of
the gateway reads them. Types and allowed values are Kafka's (LogConfig). `topic_conflict` refuses
`remote.storage.enable=true`, as Kafka does without tiered storage.
"""

from __future__ import annotations

import re
from typing import Final

from seqgate.gateway.config.setting import Setting, SettingType, SettingValue

_SECTION = "Settings of Kafka that are kept without effect"
_NO_TIERS = "Kept without effect: there is no tiered storage."
_NO_COPIES = "Kept without effect: brokers copy no partitions from each other."
_EVERY_REPLICA: Final = ("*",)
_REPLICA: Final = re.compile(r"(?:[0-9]+:[0-9]+)?")


def _local_retention(unit: str) -> Setting:
    return Setting(
        name=f"log.local.retention.{unit}",
        topic_name=f"local.retention.{unit}",
        type=SettingType.LONG,
        default=-2,
        minimum=-2,
        dynamic=True,
        without_effect=True,
        section=_SECTION,
        doc=f"{_NO_TIERS} All segments are local, as with -2, which means `retention.{unit}`.",
    )


def _throttled(role: str) -> Setting:
    name = f"{role}.replication.throttled.replicas"

    def complaint(value: SettingValue) -> str | None:
        assert isinstance(value, tuple)
        if value == _EVERY_REPLICA or all(_REPLICA.fullmatch(item) for item in value):
            return None
        return (
            f"{name} must be the literal '*' or a list of replicas in the following format: "
            "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
        )

    return Setting(
        name=name,
        topic_name=name,
        type=SettingType.LIST,
        default=(),
        dynamic=True,
        check=complaint,
        empty_items=True,
        without_effect=True,
        section=_SECTION,
        doc=f"{_NO_COPIES} Replicas as `PARTITION:BROKER`, or `*` for all.",
    )


def _remote(name: str, doc: str = _NO_TIERS) -> Setting:
    return Setting(
        name=name,
        topic_name=name,
        type=SettingType.BOOLEAN,
        default=False,
        dynamic=True,
        without_effect=True,
        section=_SECTION,
        doc=doc,
    )


KEPT_TOPIC_SETTINGS = (
    Setting(
        name="log.preallocate",
        topic_name="preallocate",
        type=SettingType.BOOLEAN,
        default=False,
        dynamic=True,
        without_effect=True,
        section=_SECTION,
        doc="Kept without effect: segment files grow as they are written.",
    ),
    Setting(
        name="unclean.leader.election.enable",
        topic_name="unclean.leader.election.enable",
        type=SettingType.BOOLEAN,
        default=False,
        dynamic=True,
        without_effect=True,
        section=_SECTION,
        doc="Kept without effect: a partition has one replica and no other to elect, so that no election "
        "loses records.",
    ),
    _local_retention("ms"),
    _local_retention("bytes"),
)
KEPT_TOPIC_ONLY_SETTINGS = (
    _throttled("leader"),
    _throttled("follower"),
    _remote("remote.storage.enable", "Always false, because there is no tiered storage; true is refused."),
    _remote("remote.log.copy.disable"),
    _remote("remote.log.delete.on.disable"),
)
"""The settings of topics without a counterpart on the broker."""
