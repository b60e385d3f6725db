"""Kafka's topic settings that mean nothing where a partition has local files and one replica.

The gateway keeps their values and describes them, so that tools can read, compare and set them; no part of
the gateway reads them. Types and allowed values are Kafka's (LogConfig). `topic_conflict` refuses
`remote.storage.enable=true`, as Kafka does without tiered storage.
"""

from __future__ import annotations

import re
from typing import Final

from seqgate.gateway.config.setting import Section, Setting, SettingValue

_KEPT = Section("Settings of Kafka that are kept without effect")
_NO_TIERS = "Kept without effect: there is no tiered storage."
_NO_COPIES = "Kept without effect: brokers copy no partitions from each other."
_EVERY_REPLICA: Final = ("*",)
_REPLICA: Final = re.compile(r"(?:[0-9]+:[0-9]+)?")


def _local_retention(unit: str) -> Setting:
    return _KEPT.long(
        f"log.local.retention.{unit}",
        -2,
        topic_name=f"local.retention.{unit}",
        minimum=-2,
        dynamic=True,
        without_effect=True,
    )(f"{_NO_TIERS} All segments are local, as with -2, which means `retention.{unit}`.")


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

    return _KEPT.items(
        name, (), topic_name=name, check=complaint, dynamic=True, empty_items=True, without_effect=True
    )(f"{_NO_COPIES} Replicas as `PARTITION:BROKER`, or `*` for all.")


def _remote(name: str, doc: str = _NO_TIERS) -> Setting:
    return _KEPT.switch(name, False, topic_name=name, dynamic=True, without_effect=True)(doc)


KEPT_TOPIC_SETTINGS = (
    _KEPT.switch("log.preallocate", False, topic_name="preallocate", dynamic=True, without_effect=True)(
        "Kept without effect: segment files grow as they are written."
    ),
    _KEPT.switch(
        "unclean.leader.election.enable",
        False,
        topic_name="unclean.leader.election.enable",
        dynamic=True,
        without_effect=True,
    )(
        "Kept without effect: a partition has one replica and no other to elect, so that no election loses "
        "records."
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
