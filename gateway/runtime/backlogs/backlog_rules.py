"""The present backlog quotas and message TTL of every topic."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Final, cast

from gateway.config import Config
from gateway.metadata.image import BROKER_RESOURCE, INTERNAL_TOPICS, TOPIC_RESOURCE, MetadataImage
from gateway.metadata.records import ConfigRecord, MetadataRecord, RemoveTopicRecord
from gateway.quota.backlog import BacklogRules, Policy

SETTINGS: Final = ("backlog.quota.bytes", "backlog.quota.ms", "backlog.quota.policy", "message.ttl.ms")
NO_RULES: Final = BacklogRules()


def backlog_rules(config: Config, overrides: Mapping[str, str]) -> BacklogRules:
    """Return the rules of a topic with the given configurations of its own."""
    quota_bytes, quota_ms, policy, ttl_ms = (config.topic_value(name, overrides) for name in SETTINGS)
    return BacklogRules(
        cast("int", quota_bytes), cast("int", quota_ms), Policy(cast("str", policy)), cast("int", ttl_ms)
    )


class TopicRules:
    """The rules by topic. A topic is `in` this object when its rules are not empty; internal topics have none."""

    def __init__(self, config: Config, image: MetadataImage) -> None:
        self._config = config
        self._image = image
        self._default = NO_RULES
        self._own: dict[str, BacklogRules] = {}
        """The rules of topics with settings of their own."""

    def load(self) -> None:
        """Load the settings of all topics and of the broker."""
        self._default = backlog_rules(self._config, {})
        self._own.clear()
        for name in self._image.configured(TOPIC_RESOURCE):
            self._load_topic(name)

    def changed(self, records: Sequence[MetadataRecord]) -> bool:
        """Apply the records of one change; return whether any rules may have changed."""
        if any(isinstance(record, RemoveTopicRecord) for record in records):
            topics = self._image.topics_by_name
            self._own = {name: rules for name, rules in self._own.items() if name in topics}
        configs = [record for record in records if isinstance(record, ConfigRecord)]
        if any(record.resource_type == BROKER_RESOURCE for record in configs):
            before = self._default, dict(self._own)
            self.load()
            return before != (self._default, self._own)
        altered = [
            record.resource_name
            for record in configs
            if record.resource_type == TOPIC_RESOURCE and record.name in SETTINGS
        ]
        for name in dict.fromkeys(altered):
            self._load_topic(name)
        return bool(altered)

    def _load_topic(self, name: str) -> None:
        overrides = self._image.topic_configs(name)
        if any(setting in overrides for setting in SETTINGS):
            self._own[name] = backlog_rules(self._config, overrides)
        else:
            self._own.pop(name, None)

    def of(self, name: str) -> BacklogRules:
        """Return the rules of a topic."""
        return NO_RULES if name in INTERNAL_TOPICS else self._own.get(name, self._default)

    def names(self) -> Container[str]:
        """Return the topics that have rules: a set if possible, because each committed offset is looked up in it."""
        if not self._default.is_empty:
            return self
        return {name for name, rules in self._own.items() if not rules.is_empty} - INTERNAL_TOPICS

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and not self.of(name).is_empty

    def __bool__(self) -> bool:
        """Return whether any topic can have rules."""
        return bool(self._own) or not self._default.is_empty
