"""The limits of each group: the group's own configurations, or else the settings for all groups. Every
heartbeat and fetch needs them, so the limits of a group are kept until its configurations change.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from seqgate.gateway.config import Config
from seqgate.gateway.config.groups import (
    COPIES_RECORDS,
    EARLIEST,
    LETTER_TOPIC,
    READ_COMMITTED,
    RETRY_BACKOFF,
    SHARE_AUTO_OFFSET_RESET,
    STREAMS_TAGS,
    offset_reset_duration_ms,
)
from seqgate.gateway.config.setting import SettingValue
from seqgate.gateway.coordinator.group.consumer_heartbeat import ConsumerLimits, MigrationPolicy
from seqgate.gateway.coordinator.group.share_heartbeat import ShareGroupLimits
from seqgate.gateway.coordinator.share.share_partition import ShareLimits
from seqgate.gateway.coordinator.streams.heartbeat import StreamsLimits
from seqgate.gateway.metadata.configs import group_items, group_number, group_value
from seqgate.gateway.metadata.image import GROUP_RESOURCE
from seqgate.gateway.metadata.records import ConfigRecord, MetadataRecord
from seqgate.gateway.runtime.topics.metadata_log import MetadataLog
from seqgate.log import PartitionLog


class ShareReading(msgspec.Struct, frozen=True):
    """The offsets between which a share group reads a partition."""

    offset_reset: str
    is_committed_only: bool

    def end_offset(self, log: PartitionLog) -> int:
        """Return the offset before which records can be acquired."""
        return log.last_stable_offset if self.is_committed_only else log.high_watermark

    def first_offset(self, log: PartitionLog, now_ms: int) -> int:
        """Return the offset at which a group begins in a partition that it never read; the log end if no
        record is young enough.

        Raises:
            LogError: the log can't be read.
        """
        if self.offset_reset == EARLIEST:
            return log.log_start_offset
        duration_ms = offset_reset_duration_ms(self.offset_reset)
        found = None if duration_ms is None else log.first_not_before(max(0, now_ms - duration_ms))
        return log.high_watermark if found is None else min(found.offset, log.high_watermark)


class GroupRules(msgspec.Struct, frozen=True):
    """The limits of one group."""

    consumer: ConsumerLimits
    streams: StreamsLimits
    share_group: ShareGroupLimits
    share: ShareLimits
    share_heartbeat_interval_ms: int
    share_reading: ShareReading
    letter_topic: str
    """The topic of the share group's dead letters; empty for none."""
    copies_records: bool
    """Whether a dead letter has the content of its record."""


class GroupConfigs:
    """Looks up the limits of a group."""

    def __init__(self, config: Config, metadata_log: MetadataLog) -> None:
        self._config = config
        self._metadata_log = metadata_log
        self._rules: dict[str, GroupRules] = {}
        """The limits of the groups that have configurations of their own."""
        self._for_all: GroupRules
        config.follow(self._take_settings)
        metadata_log.add_listener(self._metadata_changed)

    def _take_settings(self) -> None:
        self._for_all = self._made("")
        self._rules.clear()

    def of(self, group_id: str) -> GroupRules:
        """Return the limits of a group now."""
        if group_id not in self._metadata_log.image.configured(GROUP_RESOURCE):
            return self._for_all
        rules = self._rules.get(group_id)
        if rules is None:
            rules = self._rules[group_id] = self._made(group_id)
        return rules

    async def _metadata_changed(self, records: Sequence[MetadataRecord]) -> None:
        for record in records:
            if isinstance(record, ConfigRecord) and record.resource_type == GROUP_RESOURCE:
                self._rules.pop(record.resource_name, None)

    def _made(self, group_id: str) -> GroupRules:
        config, values = self._config, self._metadata_log.image.configs(GROUP_RESOURCE, group_id)
        return GroupRules(
            consumer=ConsumerLimits(
                session_timeout_ms=group_number(config, values, "consumer.session.timeout.ms"),
                heartbeat_interval_ms=group_number(config, values, "consumer.heartbeat.interval.ms"),
                max_size=config.int("group.consumer.max.size"),
                assignment_interval_ms=group_number(config, values, "consumer.assignment.interval.ms"),
                migration_policy=MigrationPolicy(config.str("group.consumer.migration.policy")),
            ),
            streams=StreamsLimits(
                session_timeout_ms=group_number(config, values, "streams.session.timeout.ms"),
                heartbeat_interval_ms=group_number(config, values, "streams.heartbeat.interval.ms"),
                max_size=config.int("group.streams.max.size"),
                standby_replicas=group_number(config, values, "streams.num.standby.replicas"),
                initial_delay_ms=group_number(config, values, "streams.initial.rebalance.delay.ms"),
                assignment_interval_ms=group_number(config, values, "streams.assignment.interval.ms"),
                tags=group_items(config, values, STREAMS_TAGS),
                description_max_bytes=config.int("seqgate.streams.topology.description.max.bytes"),
            ),
            share_group=ShareGroupLimits(
                session_timeout_ms=group_number(config, values, "share.session.timeout.ms"),
                max_size=config.int("group.share.max.size"),
                assignment_interval_ms=group_number(config, values, "share.assignment.interval.ms"),
            ),
            share=ShareLimits(
                lock_duration_ms=group_number(config, values, "share.record.lock.duration.ms"),
                delivery_count_limit=group_number(config, values, "share.delivery.count.limit"),
                max_record_locks=group_number(config, values, "share.partition.max.record.locks"),
                max_stretches=config.int("seqgate.share.partition.max.stretches"),
                may_renew=bool(group_value(config, values, "share.renew.acknowledge.enable")),
                retry_backoff_ms=_numbers(group_value(config, values, RETRY_BACKOFF)),
                has_dead_letters=bool(group_value(config, values, LETTER_TOPIC)),
            ),
            share_heartbeat_interval_ms=group_number(config, values, "share.heartbeat.interval.ms"),
            share_reading=ShareReading(
                offset_reset=str(group_value(config, values, SHARE_AUTO_OFFSET_RESET)),
                is_committed_only=group_value(config, values, "share.isolation.level") == READ_COMMITTED,
            ),
            letter_topic=str(group_value(config, values, LETTER_TOPIC)),
            copies_records=bool(group_value(config, values, COPIES_RECORDS)),
        )


def _numbers(value: SettingValue) -> tuple[int, ...]:
    assert isinstance(value, tuple)
    return tuple(map(int, value))
